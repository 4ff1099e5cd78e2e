"""Settings: one frozen value made from flags, environment, file, old environment file and defaults, in this order.

Every field is a setting: `poll_interval_s` is SPOT_POLL_INTERVAL_S in the environment and `poll_interval_s` in the
TOML file. The settings of a kind of provider are fields of its own section, made in its own folder; a table
[providers.NAME] of the file is one more section of a kind (`sections`). Each value remembers where it came from
(`origins`). A misspelt name is refused instead of being ignored, and limits that contradict each other are refused with
both numbers (RULES section 4).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from supervisor.domain import policies
from supervisor.domain.errors import SettingsRefused
from supervisor.domain.policies import Knobs, Limits, StallLimits
from supervisor.ports.traits import Traits
from supervisor.settings import access as settings_access
from supervisor.settings import alerts as settings_alerts
from supervisor.settings import files as settings_files
from supervisor.settings import sections as settings_sections
from supervisor.settings import values as settings_values
from supervisor.settings.access import AccessSettings
from supervisor.settings.env import file as settings_env_file
from supervisor.settings.kinds import Kinds, Section
from supervisor.settings.sections import PROVIDERS, SECTIONS

LOCAL_LOG_CHUNK_S = 1.0  # the pace of log chunks where the store is a folder on the same computer


@dataclass(frozen=True, kw_only=True)
class Settings(AccessSettings):
    """`kinds`: kind of provider -> its values without any section. `sections`: name -> the providers that are in use,
    in their order. `origins`: setting -> where its value came from; a key of a section is `providers.NAME.KEY` there.
    `warnings` are for a person, one sentence each."""

    data_dir: Path
    database_url: str = ""  # never empty after `load`: sqlite in data_dir
    provider: str = ""  # where this supervisor's machines come from; never empty after `load`: the first one
    store_url: str = ""  # never empty after `load`: the folder data_dir/objects
    log_level: str = "info"
    log_format: str = "plain"
    record_file: str = ""  # every exchange with the cloud, as JSON lines without secrets; empty = not kept
    metrics_per_run: int = 0  # of how many runs /metrics has series of their own
    alert_url: str = field(default="", repr=False)  # where announcements are sent; empty = to the log only
    alert_secret: str = field(default="", repr=False)  # what signs them, or file:/PATH
    webhook_allow_hosts: tuple[str, ...] = ()  # receivers that may be private and need no https
    patrol_every_s: float = 86400.0  # how often it is told how everything stands; 0 = never

    poll_interval_s: float = 30.0
    beat_push_s: float = 10.0
    beat_store_s: float = 60.0
    log_chunk_s: float = 300.0
    rest_s: float = 10.0
    upload_reserve_s: float = 8.0
    cut_off_s: float = 7200.0
    results_save_max_mb: int = 256  # of results that one save with a checkpoint may upload

    silence_s: float = 180.0
    stall_polls: int = 10
    first_progress_s: float = 1800.0
    gpu_timeout_s: float = 1200.0
    boot_timeout_s: float = 1500.0
    restore_s: float = 1800.0
    checkpoint_s: float = 900.0
    evaluation_s: float = 3600.0
    finishing_s: float = 3600.0

    stop_grace_s: float = 120.0
    machine_max_s: float = 86400.0
    max_attempts: int = 10
    max_user_failures: int = 3
    max_runtime_s: float | None = None
    wait_for_capacity_s: float = 86400.0
    recovery_backoff_s: float = 10.0
    recovery_backoff_max_s: float = 600.0
    cooldown_min_s: float = 180.0
    cooldown_max_s: float = 1800.0
    quota_retry_s: float = 600.0
    launch_timeout_s: float = 900.0
    notice_overlap_s: float = 150.0
    ask_limit_s: float = 86400.0
    unverified_limit_s: float = 86400.0
    stop_poll_s: float = 600.0

    store_usd_per_gib_month: float | None = None  # what the object store costs, for `spot cost`

    machine_prefix: str = "spot"
    public_url: str = ""  # where machines push their beats; empty = beats go through the object store only
    default_image: str = ""  # of a run that names none

    kinds: Mapping[str, Any] = field(default_factory=dict)
    sections: Mapping[str, Section] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def value(self, name: str) -> Any:
        """Of a key of `origins`. KeyError for any other name."""
        if name in CORE:
            return getattr(self, name)
        if name.startswith(SECTIONS):
            _, section, key = name.split(".", 2)
            return self.sections[section].kind if key == "kind" else getattr(self.sections[section].values, key)
        return next(getattr(values, name) for values in self.kinds.values() if hasattr(values, name))

    def in_use(self, name: str) -> str:
        """The key by which the first provider that has this setting goes: its section may say it."""
        own = (place for place, section in self.sections.items() if hasattr(section.values, name))
        key = f"{SECTIONS}{next(own, '')}.{name}"
        return key if key in self.origins else name

    @property
    def flat(self) -> tuple[str, ...]:
        """Names of all settings outside of sections."""
        return (*CORE, *(f.name for values in self.kinds.values() for f in fields(values)))


CORE: Mapping[str, str] = {
    f.name: str(f.type) for f in fields(Settings) if f.name not in ("kinds", "sections", "origins", "warnings")
}
ALIASES = {"SPOT_POLL_INTERVAL": "poll_interval_s"}
# Names that other parts read, or that a training sees: known here, and no settings.
OTHER_NAMES = (
    "SPOT_URL", "SPOT_TOKEN", "SPOT_CONFIG", "SPOT_ENV_FILE", "SPOT_RUN_ID", "SPOT_ATTEMPT", "SPOT_CHECKPOINT_DIR",
    "SPOT_RESULTS_DIR", "SPOT_PROGRESS_FILE", "SPOT_RESUMED_FROM_STEP", "SPOT_MACHINE", "SPOT_MACHINE_DIR",
    "SPOT_STOP_FILE", "SPOT_SCRATCH_DIR",
)  # fmt: skip


def env_name(setting: str) -> str:
    return "SPOT_" + setting.upper()


def load(
    kinds: Kinds,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    file: str | os.PathLike[str] | None = None,
    env_file: str | os.PathLike[str] | None = None,
) -> Settings:
    """The settings of this process. `kinds`: of all providers; the first is the default. A flag that is None was not
    given. Raises SettingsRefused, InvalidTimeouts."""
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
    core = {name: settings_values.parse(name, CORE[name], *given[name]) for name in CORE if name in given}
    core.setdefault("data_dir", _default_data_dir(environ))
    flat = {word: settings_sections.flat(kind, given) for word, kind in kinds.items()}
    origins = {name: given[name][1] if name in given else "default" for name in names}
    settings = _with_folders(Settings(**core, kinds=flat, origins=origins))  # type: ignore[arg-type]
    settings = _with_sections(settings, kinds, tables, str(file))
    _check(settings, kinds)
    unused = settings_sections.idle(kinds, flat, settings.sections, settings.provider if tables is None else "")
    warnings += [*settings_access.warnings(settings), *unused]
    return replace(settings, warnings=tuple(warnings))


def _with_sections(settings: Settings, kinds: Kinds, tables: object, file: str) -> Settings:
    """With the providers that are in use: the tables of the file, else the one that `provider` names."""
    if tables is None:
        word = settings.provider or next(iter(kinds))
        settings_sections.check_lone(kinds, word, settings.store_url)
        return replace(settings, provider=word, sections={word: Section(word, settings.kinds[word])})
    if settings.provider:
        origin = settings.origins["provider"]
        raise SettingsRefused(
            f"provider = {settings.provider} ({origin}), but {file} has sections [providers.NAME]: they say which "
            "providers there are, so leave provider out",
            {"name": "provider", "path": file},
        )
    sections, origins = settings_sections.read(kinds, tables, file, settings.kinds)
    settings_sections.check_stores(kinds, sections, settings.store_url)
    first = next(iter(sections))
    origins = {**settings.origins, "provider": f"file {file}", **origins}
    return replace(settings, provider=first, sections=sections, origins=origins)


def _from_environment(
    known_names: Iterable[str], environ: Mapping[str, str], origin: str, warnings: list[str]
) -> dict[str, tuple[object, str]]:
    names = {env_name(setting): setting for setting in known_names} | ALIASES
    found: dict[str, tuple[object, str]] = {}
    for variable in sorted(name for name in environ if name.startswith("SPOT_")):
        if variable in names:
            # Sorted order puts the alias before the full name, which therefore wins.
            found[names[variable]] = (environ[variable], f"{origin} {variable}")
        elif variable not in OTHER_NAMES:
            all_names = [name.removeprefix("SPOT_") for name in (*names, *OTHER_NAMES)]
            near = settings_values.close_miss(variable.removeprefix("SPOT_"), all_names)
            if near is not None:
                raise SettingsRefused(
                    f"{variable} is not a setting; did you mean SPOT_{near}?", {"name": variable, "near": near}
                )
            warnings.append(f"{variable} is not a setting of the supervisor and is ignored.")
    return found


def _default_data_dir(environ: Mapping[str, str]) -> Path:
    state = environ.get("XDG_STATE_HOME") or ""
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    # The XDG rules: a path that is not absolute is to be ignored.
    return (Path(state) if state.startswith("/") else home / ".local" / "state") / "spot-supervisor"


def _with_folders(settings: Settings) -> Settings:
    folder = Path(os.path.abspath(settings.data_dir.expanduser()))
    return replace(
        settings,
        data_dir=folder,
        database_url=settings_files.secret_of("database_url", settings.database_url)
        or "sqlite:///%s" % (folder / "supervisor.db"),
        store_url=_store_url(settings.store_url) or (folder / "objects").as_uri(),
    )


def _store_url(url: str) -> str:
    """Runs are tied to a bucket by this text, so one bucket has one spelling."""
    return url if url.startswith("file:") else url.rstrip("/")


def _check(settings: Settings, kinds: Kinds) -> None:
    """What must hold between settings; the message names both numbers."""
    s = settings
    policies.check_stall(stall_defaults(s), s.beat_store_s, s.gpu_timeout_s, prefix="")
    policies.check_cut_off(s.cut_off_s)
    policies.check_order(
        "recovery_backoff_s", s.recovery_backoff_s, "recovery_backoff_max_s", s.recovery_backoff_max_s,
        "the longest pause would be below the first one",
    )  # fmt: skip
    policies.check_order(
        "cooldown_min_s", s.cooldown_min_s, "cooldown_max_s", s.cooldown_max_s,
        "the longest cool-down of a zone would be below the first one",
    )  # fmt: skip
    settings_access.check(s)
    settings_values.check_words(s.log_level, s.log_format, s.machine_prefix)
    settings_values.check_database(s.database_url)
    settings_alerts.check(s.alert_url, s.alert_secret)
    settings_values.check_own_url("public_url", s.public_url)
    settings_sections.check_values(kinds, s.kinds, s.sections)


def knobs(settings: Settings, supervisor_id: str) -> Knobs:
    """What the decisions read of the settings."""
    names = [f.name for f in fields(Knobs) if f.name != "supervisor_id"]
    return Knobs(supervisor_id=supervisor_id, **{name: getattr(settings, name) for name in names})


def stall_defaults(settings: Settings) -> StallLimits:
    """The stall limits of a run that names none."""
    names = [f.name for f in fields(StallLimits) if f.name != "polls"]
    return StallLimits(polls=settings.stall_polls, **{name: getattr(settings, name) for name in names})


def limit_defaults(settings: Settings) -> Limits:
    """The limits of a run that names none."""
    return Limits(
        max_runtime_s=settings.max_runtime_s,
        max_attempts=settings.max_attempts,
        max_user_failures=settings.max_user_failures,
        wait_for_capacity_s=settings.wait_for_capacity_s,
        machine_max_s=settings.machine_max_s,
    )


def gpu_timeout_s(settings: Settings, traits: Traits) -> float:
    """How long a machine may wait for its GPU; 0 on the supervisor's computer, which has no driver to install."""
    return 0.0 if traits.shares_computer else settings.gpu_timeout_s


def public_host(settings: Settings) -> str:
    """The name in `public_url`, as requests from outside carry it; "" = nobody comes from outside."""
    return urlsplit(settings.public_url).hostname or ""


def agent_paces(settings: Settings, traits: Traits) -> dict[str, float]:
    """The keys of a machine's job that are paces of its agent, in seconds."""
    names = ("beat_push_s", "beat_store_s", "log_chunk_s", "cut_off_s", "rest_s", "upload_reserve_s")
    paces: dict[str, float] = {name: getattr(settings, name) for name in names}
    if traits.shares_computer and settings.origins.get("log_chunk_s", "default") == "default":
        paces["log_chunk_s"] = LOCAL_LOG_CHUNK_S
    return paces
