"""Settings: one frozen value from flags, environment, file, old environment file and defaults, in this order.

Every field of a section is a setting: `poll_interval_s` is SPOT_POLL_INTERVAL_S in the environment and
`poll_interval_s` in the TOML file. There is one section per subject; the decisions' own values (`Knobs`, `StallLimits`,
`Limits`) are sections too, so each default has one place. A kind of provider has its section in its own folder; a table
[providers.NAME] of the file is one more section of a kind (`sections`). Each value has an origin (`origins`). A
misspelled name is refused, and contradicting limits are refused with both numbers (RULES section 4).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from supervisor.domain import policies
from supervisor.domain.errors import SettingsRefused
from supervisor.domain.policies import Knobs, Limits, StallLimits
from supervisor.ports.traits import Traits
from supervisor.settings import access as settings_access
from supervisor.settings import credentials
from supervisor.settings import sections as settings_sections
from supervisor.settings import values as settings_values
from supervisor.settings.access import AccessSettings
from supervisor.settings.credentials import AlertSettings
from supervisor.settings.env import file as settings_env_file
from supervisor.settings.kinds import Kinds, Section
from supervisor.settings.sections import PROVIDERS, SECTIONS

LOCAL_LOG_CHUNK_S = 1.0  # interval of log chunks if the store is a folder on the same computer
ALIASES = {"SPOT_POLL_INTERVAL": "poll_interval_s"}
# Variables that other parts read, or that a training sees: known names, but no settings.
OTHER_NAMES = (
    "SPOT_URL", "SPOT_TOKEN", "SPOT_CONFIG", "SPOT_ENV_FILE", "SPOT_RUN_ID", "SPOT_ATTEMPT", "SPOT_CHECKPOINT_DIR",
    "SPOT_RESULTS_DIR", "SPOT_PROGRESS_FILE", "SPOT_RESUMED_FROM_STEP", "SPOT_MACHINE", "SPOT_MACHINE_DIR",
    "SPOT_STOP_FILE", "SPOT_SAVE_FILE", "SPOT_SCRATCH_DIR", "SPOT_STAGE_DIR", "SPOT_KEEP_DIR",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """`record_file`: every exchange with the cloud as JSON lines without secrets; "" = none. `metrics_per_run`: for how
    many runs /metrics has their own series."""

    log_level: str = "info"
    log_format: str = "plain"
    record_file: str = ""
    metrics_per_run: int = 0


@dataclass(frozen=True, kw_only=True)
class MachineSettings:
    """What machines get. `public_url`: where they push their beats; "" = beats go through the object store only.
    `default_image`, `stop_grace_s`: of a run that sets none. `results_save_max_mb`: the results that one save with a
    checkpoint may upload. The rest are limits and intervals of the agent (RULES section 4)."""

    public_url: str = ""
    default_image: str = ""
    gpu_timeout_s: float = 1200.0
    stop_grace_s: float = 120.0
    log_chunk_s: float = 300.0
    rest_s: float = 10.0
    upload_reserve_s: float = 8.0
    cut_off_s: float = 7200.0
    results_save_max_mb: int = 256


@dataclass(frozen=True, kw_only=True)
class Settings:
    """`provider`: the first provider, never empty after `load`. `store_usd_per_gib_month`: the price of the object
    store, for `spot cost`. `kinds`: kind of provider -> its values without any section. `sections`: name -> the
    providers in use, in their order. `origins`: setting -> where its value comes from; a key of a section is
    `providers.NAME.KEY` there. `warnings`: one sentence each."""

    data_dir: Path
    database_url: str = ""  # never empty after `load`: sqlite in data_dir
    provider: str = ""
    store_url: str = ""  # never empty after `load`: the folder data_dir/objects
    store_usd_per_gib_month: float | None = None

    access: AccessSettings = field(default_factory=AccessSettings)
    log: LogSettings = field(default_factory=LogSettings)
    alerts: AlertSettings = field(default_factory=AlertSettings)
    machines: MachineSettings = field(default_factory=MachineSettings)
    knobs: Knobs = field(default_factory=lambda: Knobs(""))  # without the supervisor's id: only the database knows it
    stall: StallLimits = field(default_factory=StallLimits)
    limits: Limits = field(default_factory=Limits)

    kinds: Mapping[str, Any] = field(default_factory=dict)
    sections: Mapping[str, Section] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def value(self, name: str) -> Any:
        """Of a key of `origins`. Raises KeyError for any other name."""
        if name in CORE:
            place = CORE[name]
            return getattr(getattr(self, place.subject) if place.subject else self, place.field)
        if name.startswith(SECTIONS):
            _, section, key = name.split(".", 2)
            return self.sections[section].kind if key == "kind" else getattr(self.sections[section].values, key)
        return next(getattr(values, name) for values in self.kinds.values() if hasattr(values, name))

    def in_use(self, name: str) -> str:
        """The key that the first provider with this setting uses: its section may contain it."""
        own = (place for place, section in self.sections.items() if hasattr(section.values, name))
        key = f"{SECTIONS}{next(own, '')}.{name}"
        return key if key in self.origins else name

    @property
    def flat(self) -> tuple[str, ...]:
        """Names of all settings outside of sections [providers.NAME]."""
        return (*CORE, *(f.name for values in self.kinds.values() for f in fields(values)))


class Place(NamedTuple):
    """Where a setting is: `subject` "" = a field of Settings itself."""

    subject: str
    field: str
    annotation: str


SUBJECTS: Mapping[str, Any] = {
    "": Settings,
    "access": AccessSettings,
    "log": LogSettings,
    "alerts": AlertSettings,
    "machines": MachineSettings,
    "knobs": Knobs,
    "stall": StallLimits,
    "limits": Limits,
}
NO_SETTINGS = {*SUBJECTS, "kinds", "sections", "origins", "warnings", "supervisor_id", "deadline", "budget_usd"}
RENAMED = {"polls": "stall_polls", "hang": "hang_watch"}  # field -> setting

CORE: Mapping[str, Place] = {
    RENAMED.get(f.name, f.name): Place(subject, f.name, str(f.type))
    for subject, section in SUBJECTS.items()
    for f in fields(section)
    if f.name not in NO_SETTINGS
}


def env_name(setting: str) -> str:
    return "SPOT_" + setting.upper()


def load(
    kinds: Kinds,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    file: str | os.PathLike[str] | None = None,
    env_file: str | os.PathLike[str] | None = None,
) -> Settings:
    """The settings of this process. `kinds`: all kinds of providers; the first is the default. A flag that is None was
    not given. Raises SettingsRefused, InvalidTimeouts."""
    environ = os.environ if environ is None else environ
    names = (*CORE, *(name for kind in kinds.values() for name in kind.fields))
    given: dict[str, tuple[object, str]] = {}
    warnings: list[str] = []
    if env_file is not None:
        old, own = settings_env_file.read(Path(env_file), warnings)
        given.update({name: (value, origin) for name, value, origin in old})
        given.update(_from_environment(names, own, f"env-file {env_file}", warnings))
    tables: object = None
    if file is not None:
        values_of_file = settings_values.read_toml(Path(file), (*names, PROVIDERS))
        tables = values_of_file.pop(PROVIDERS, None)
        given.update({name: (value, f"file {file}") for name, value in values_of_file.items()})
    given.update(_from_environment(names, environ, "environment", warnings))
    for name, value in (flags or {}).items():
        if value is not None:
            given[name] = (value, "flag --{}".format(name.replace("_", "-")))
    flat = {word: settings_sections.flat(kind, given) for word, kind in kinds.items()}
    origins = {name: given[name][1] if name in given else "default" for name in names}
    settings = replace(_with_folders(_from_values(given, environ)), kinds=flat, origins=origins)
    settings = _with_sections(settings, kinds, tables, str(file))
    _check(settings, kinds)
    unused = settings_sections.idle(kinds, flat, settings.sections, settings.provider if tables is None else "")
    warnings += [*settings_access.warnings(settings.access), *unused]
    return replace(settings, warnings=tuple(warnings))


def _from_values(given: settings_sections.Given, environ: Mapping[str, str]) -> Settings:
    settings = Settings(data_dir=_default_data_dir(environ))
    values: dict[str, dict[str, Any]] = {}
    for name, place in CORE.items():
        if name in given:
            value = settings_values.parse(name, place.annotation, *given[name])
            values.setdefault(place.subject, {})[place.field] = value
    subjects = {subject: replace(getattr(settings, subject), **values[subject]) for subject in values if subject}
    return replace(settings, **values.get("", {}), **subjects)


def _with_sections(settings: Settings, kinds: Kinds, tables: object, file: str) -> Settings:
    """With the providers in use: the tables of the file, else the kind that `provider` names."""
    if tables is None:
        word = settings.provider or next(iter(kinds))
        settings_sections.check_lone(kinds, word, settings.store_url)
        return replace(settings, provider=word, sections={word: Section(word, settings.kinds[word])})
    if settings.provider:
        origin = settings.origins["provider"]
        raise SettingsRefused(
            f"provider = {settings.provider} ({origin}), but {file} has sections [providers.NAME]. They define the "
            "providers, so leave provider out",
            {"name": "provider", "path": file},
        )
    sections, origins = settings_sections.read(kinds, tables, file, settings.kinds)
    settings_sections.check_stores(kinds, sections, settings.store_url)
    first = next(iter(sections))
    origins = {**settings.origins, "provider": f"file {file}", **origins}
    return replace(settings, provider=first, sections=sections, origins=origins)


def _from_environment(
    settings: Iterable[str], environ: Mapping[str, str], origin: str, warnings: list[str]
) -> dict[str, tuple[object, str]]:
    names = {env_name(setting): setting for setting in settings} | ALIASES
    values: dict[str, tuple[object, str]] = {}
    for variable in sorted(name for name in environ if name.startswith("SPOT_")):
        if variable in names:
            # Sorted order puts the alias before the full name, so the full name wins.
            values[names[variable]] = (environ[variable], f"{origin} {variable}")
        elif variable not in OTHER_NAMES:
            all_names = [name.removeprefix("SPOT_") for name in (*names, *OTHER_NAMES)]
            near = settings_values.close_miss(variable.removeprefix("SPOT_"), all_names)
            if near is not None:
                text = f"{variable} is not a setting; did you mean SPOT_{near}?"
                raise SettingsRefused(text, {"name": variable, "near": near})
            warnings.append(f"{variable} is not a setting of the supervisor and is ignored.")
    return values


def _default_data_dir(environ: Mapping[str, str]) -> Path:
    state = environ.get("XDG_STATE_HOME") or ""
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    # The XDG specification: a relative path is ignored.
    return (Path(state) if state.startswith("/") else home / ".local" / "state") / "spot-supervisor"


def _with_folders(settings: Settings) -> Settings:
    folder, url = Path(os.path.abspath(settings.data_dir.expanduser())), settings.store_url
    database_url = credentials.secret_of("database_url", settings.database_url)
    # Runs are tied to a bucket by this text, so one bucket has one spelling.
    store_url = url if url.startswith("file:") else url.rstrip("/")
    return replace(
        settings,
        data_dir=folder,
        database_url=database_url or "sqlite:///%s" % (folder / "supervisor.db"),
        store_url=store_url or (folder / "objects").as_uri(),
    )


def _check(settings: Settings, kinds: Kinds) -> None:
    """Rules between settings; the message contains both numbers."""
    s, knobs, machines = settings, settings.knobs, settings.machines
    policies.check_stall(s.stall, knobs.beat_store_s, machines.gpu_timeout_s, prefix="")
    policies.check_cut_off(machines.cut_off_s)
    for lower, upper, why in (
        ("recovery_backoff_s", "recovery_backoff_max_s", "the longest backoff would be shorter than the first one"),
        ("cooldown_min_s", "cooldown_max_s", "the longest cool-down of a zone would be shorter than the first one"),
    ):
        policies.check_order(lower, getattr(knobs, lower), upper, getattr(knobs, upper), why)
    settings_access.check(s.access)
    settings_values.check_words(s.log.log_level, s.log.log_format, knobs.machine_prefix)
    settings_values.check_database(s.database_url)
    credentials.check_alerts(s.alerts)
    settings_values.check_own_url("public_url", machines.public_url)
    settings_sections.check_values(kinds, s.kinds, s.sections)


def gpu_timeout_s(settings: Settings, traits: Traits) -> float:
    """How long a machine may wait for its GPU; 0 on the supervisor's computer, which installs no driver."""
    return 0.0 if traits.shares_computer else settings.machines.gpu_timeout_s


def public_host(settings: Settings) -> str:
    """The host name in `public_url`, as requests from outside contain it; "" = no requests come from outside."""
    return urlsplit(settings.machines.public_url).hostname or ""


def agent_paces(settings: Settings, traits: Traits) -> dict[str, float]:
    """The intervals of the agent in a machine's job, in seconds."""
    names = ("beat_push_s", "beat_store_s", "log_chunk_s", "cut_off_s", "rest_s", "upload_reserve_s")
    paces: dict[str, float] = {name: settings.value(name) for name in names}
    if traits.shares_computer and settings.origins.get("log_chunk_s", "default") == "default":
        paces["log_chunk_s"] = LOCAL_LOG_CHUNK_S
    return paces
