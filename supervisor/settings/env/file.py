"""Environment files: those of the older spot runner, and lines with our own SPOT_ variables. No shell is used.

`OLD_KEYS` is the one table of the older runner's keys: each key becomes a setting, or is accepted and left out with the
reason. A file with PROJECT is of a supervisor on Google Cloud: `provider` becomes gce, several keys together become one
setting (`derived`), and missing values of the machine are that runner's own defaults, because its scripts filled them
in.

`parse` reads KEY=value as a shell does: with quotes, `export`, comments, bash arrays, and `$NAME` or `${NAME}` of a key
earlier in the same file. Nothing is executed, and nothing is read from the environment: a value that needs that is
marked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from supervisor.domain.errors import InvalidTimeouts, SettingsRefused
from supervisor.domain.policies import BOOT_MARGIN_S, StallLimits

_ASSIGNMENT = re.compile(r"(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)=")
_NAME = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
OWN_PREFIX = "SPOT_"
PROJECT = "PROJECT"
OLD_ZONE, OLD_FALLBACKS = "us-east1-c", "us-east1-b us-east1-c us-east1-d"
OLD_MACHINE, OLD_GPU = "n1-standard-8", "nvidia-tesla-t4"
# Machine types of these series bring their cards: GPU_TYPE only repeats it.
_OWN_CARDS = re.compile(r"(a[2-9]|g[2-9])[a-z0-9]*-")
_TRUE = ("1", "true", "yes", "on")
# The older runner's own defaults of the three keys that its timeout rule ties together.
_OLD_POLL_S, _OLD_STALL_POLLS, _OLD_GPU_S = 120.0, 6.0, 600.0

Derived = tuple[str, object, str]  # setting, raw value, keys or origin
Lines = Mapping[str, "Line"]  # by key


def bucket_url(text: str) -> str:
    """`my-bucket`, `gs://my-bucket` and `gs://my-bucket/` mean the same."""
    return "gs://" + text.strip().removeprefix("gs://").strip("/")


def disk_gb(text: str) -> int:
    """`100`, `100GB`. ValueError for anything else."""
    return int(re.sub(r"(?i)gi?b?$", "", text.strip()))


@dataclass(frozen=True)
class OldKey:
    """`setting` None = the key is accepted and left out. `reason`: why, or how the value is carried over. `cloud`: only
    valid in a file with PROJECT. `joined`: its value is combined with other keys' values."""

    setting: str | None
    reason: str
    convert: Callable[[str], object] = str
    cloud: bool = False
    joined: bool = False


def _restarts_to_attempts(text: str) -> int:
    return int(text) + 1


def _cloud(setting: str, reason: str, convert: Callable[[str], object] = str) -> OldKey:
    return OldKey(setting, reason, convert, cloud=True)


def _joined(setting: str, reason: str, convert: Callable[[str], object] = str) -> OldKey:
    return OldKey(setting, reason, convert, cloud=True, joined=True)


_NO_PROJECT = "it describes Google Cloud machines, and the file names no PROJECT"
_SPEC = "belongs to one run: put it into the run's spec"
_OWN = "the supervisor has its own way: "

OLD_KEYS: Mapping[str, OldKey] = {
    "PROJECT": _cloud("gce_project", "the project; also makes provider = gce"),
    "REGION": OldKey(None, _OWN + "the region is part of each zone's name"),
    "SA": _cloud("gce_service_account", "the account of the machines"),
    "IMAGE": _cloud("default_image", "the image of a run that names none"),
    "BUCKET": _cloud("store_url", "the bucket, as gs://BUCKET", bucket_url),
    "ZONE": _joined("gce_zones", "the first zone"),
    "FALLBACK_ZONES": _joined("gce_zones", "the other zones, in this order"),
    "MACHINE_TYPE": _joined("gce_shapes", "the machine of the only shape"),
    "GPU_TYPE": _joined("gce_shapes", "the card of the only shape, and its name"),
    "BOOT_DISK_SIZE": _cloud("gce_boot_disk_gb", "gigabytes of the boot disk", disk_gb),
    "BOOT_DISK_TYPE": _cloud("gce_boot_disk_type", "the kind of boot disk"),
    "GPU_TIMEOUT_SEC": OldKey("gpu_timeout_s", "the wait for a GPU; also raises boot_timeout_s"),
    "MAX_RUNTIME_SEC": OldKey("max_runtime_s", "default of a run's limits.max_runtime_s"),
    "POLL_INTERVAL": OldKey("poll_interval_s", "the interval of ticks"),
    "HEARTBEAT_STALE_SEC": OldKey("silence_s", "how long an agent may be silent"),
    "HEARTBEAT_STALE_MAX": OldKey(None, _OWN + "one silence limit, and a second signal before anything ends"),
    "PROGRESS_STALL_POLLS": OldKey("stall_polls", "polls without progress before a restart"),
    "MAX_RESTARTS": OldKey("max_attempts", "restarts + 1; preemptions no longer count", _restarts_to_attempts),
    "RESTART_BACKOFF_SEC": OldKey("recovery_backoff_s", "the first backoff before a restart"),
    "WALL_CLOCK_DEADLINE": OldKey(None, _SPEC + " (limits.deadline, or --deadline)"),
    "DEADLINE_TZ": OldKey(None, _SPEC + " (limits.deadline names its own time zone)"),
    "OWNER_LOCK_STALE_SEC": OldKey(None, _OWN + "the baton, which cannot go stale"),
    "METADATA_PREFIX": OldKey(None, _OWN + "metadata keys have fixed names"),
    "RUNNER_LABEL": OldKey(None, _OWN + "machines have its id as a label; their runner_label is machine_prefix"),
    "CONTAINER_NAME": OldKey(None, _OWN + "a machine runs one container, which needs no name"),
    "CONDA_ENV": OldKey(None, _SPEC + " (conda_env)"),
    "SYNC_INTERVAL_SEC": OldKey(None, _OWN + "a checkpoint is uploaded when it appears"),
    "DISCORD_WEBHOOK_URL": OldKey("alert_url", "where announcements are sent"),
    "NOTIFY_SECRET": OldKey(
        None, "the older machines read the alert address there; put the address itself into alert_url"
    ),
    "LOG_LEVEL": OldKey("log_level", "the same words in lower case", str.lower),
    "DATA_DISK_ENABLED": _joined(
        "gce_data_disk", "without it no data disk is used; without DATA_DISK_NAME each machine gets a new one"
    ),
    "DATA_DISK_NAME": _joined("gce_data_disk", "the disk; it is in ZONE, so that is the only zone"),
    "DATA_DISK_SIZE_GB": _joined("gce_data_disk_gb", "of a new disk with each machine", disk_gb),
    "DATA_DISK_TYPE": _joined("gce_data_disk_type", "of a new disk with each machine"),
    "DATA_DISK_DEVICE_NAME": OldKey(None, _OWN + "the device is called spot-data on every machine"),
    "DATA_DISK_MOUNT_PATH": _joined("gce_data_disk_mount", "where it is mounted"),
    "DATA_DISK_FS_TYPE": _joined("gce_data_disk_fs", "its file system"),
    "RUNNER_DIR": OldKey(None, _OWN + "the agent is part of the supervisor"),
    "JOB_COMMAND": OldKey(None, _SPEC + " (command, or behind -- of spot submit)"),
}


def read(path: Path, warnings: list[str]) -> tuple[list[Derived], dict[str, str]]:
    """(setting, raw value, origin) of every mapped key with a value; and the SPOT_ variables, which count as variables
    of the environment. Appends a sentence to `warnings` for each unknown key and each key that is left out. Raises
    SettingsRefused, InvalidTimeouts."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors on Windows write a byte order mark
    except (OSError, ValueError) as error:
        raise SettingsRefused(f"cannot read the environment file {path}: {error}", {"path": str(path)}) from None
    lines = parse(text, lambda number, what: warnings.append("%s line %d: %s" % (path, number, what)))
    given = {line.key: line for line in lines if not line.key.startswith(OWN_PREFIX)}
    own = {line.key: _plain(path, line) for line in lines if line.key.startswith(OWN_PREFIX)}
    on_cloud = PROJECT in given and bool(given[PROJECT].value)
    values: list[Derived] = []
    for line in given.values():
        warning = _warning(line, on_cloud)
        if warning is not None:
            warnings.append("%s line %d: %s %s." % (path, line.number, line.key, warning))
        elif line.value and OLD_KEYS[line.key].setting is not None:
            old = OLD_KEYS[line.key]
            value = _convert(path, line, old)
            if old.setting is not None and not old.joined:
                values.append((old.setting, value, f"env-file {path} {line.key}"))
    if on_cloud:
        texts = {key: line.value for key, line in given.items()}
        values += [(name, value, f"env-file {path} {keys}") for name, value, keys in derived(texts)]
    boot_timeout_s = _boot_limit(given)
    if boot_timeout_s is not None:
        values.append(("boot_timeout_s", boot_timeout_s, f"env-file {path}, from its timeouts"))
    return values, own


def _warning(line: Line, on_cloud: bool) -> str | None:
    """The warning about a key without effect; None = it has an effect, or no value."""
    old = OLD_KEYS.get(line.key)
    if old is None:
        return "is not a known key and is ignored"
    reason = old.reason if old.setting is None else _NO_PROJECT if old.cloud and not on_cloud else ""
    return f"is left out: {reason}" if reason and line.value else None


def _plain(path: Path, line: Line) -> str:
    if line.shell:
        raise SettingsRefused(
            "%s line %d: the value of %s needs a shell, and none is run: write the value itself"
            % (path, line.number, line.key)
        )
    return line.value


def _convert(path: Path, line: Line, old: OldKey) -> object:
    value = _plain(path, line)
    try:
        return old.convert(value)
    except ValueError:
        raise SettingsRefused("%s line %d: %s is not a whole number" % (path, line.number, line.key)) from None


def _boot_limit(given: Mapping[str, Line]) -> float | None:
    """The boot limit that follows from the file: max(POLL_INTERVAL x PROGRESS_STALL_POLLS, GPU_TIMEOUT_SEC + 300);
    None = it has none of the three. Raises InvalidTimeouts if a booting VM would be taken for stalled."""
    names = ("POLL_INTERVAL", "PROGRESS_STALL_POLLS", "GPU_TIMEOUT_SEC")
    texts = {name: given[name].value for name in names if name in given and given[name].value}
    if not texts:
        return None
    defaults = (_OLD_POLL_S, _OLD_STALL_POLLS, _OLD_GPU_S)
    try:
        poll_s, polls, gpu_s = (float(texts.get(name, old)) for name, old in zip(names, defaults, strict=True))
    except ValueError:
        return None  # the setting itself is refused with its own message
    if poll_s * polls < gpu_s:
        raise InvalidTimeouts(
            "POLL_INTERVAL x PROGRESS_STALL_POLLS = %g x %g = %g s is shorter than GPU_TIMEOUT_SEC = %g s: a VM that "
            "still waits for its GPU would be taken for stalled. Raise PROGRESS_STALL_POLLS to %d or more."
            % (poll_s, polls, poll_s * polls, gpu_s, -(-gpu_s // poll_s) if poll_s > 0 else 0),
            {"product_s": poll_s * polls, "gpu_timeout_s": gpu_s},
        )
    # Without GPU_TIMEOUT_SEC our own default applies, which is longer than the older runner's.
    own = "GPU_TIMEOUT_SEC" not in texts
    return max(poll_s * polls, StallLimits().boot_timeout_s if own else gpu_s + BOOT_MARGIN_S)


def derived(given: Mapping[str, str]) -> list[Derived]:
    """(setting, value, keys) of a file with PROJECT. Missing values are the older runner's defaults."""
    return [
        ("provider", "gce", PROJECT),
        ("gce_zones", _zones(given), "ZONE, FALLBACK_ZONES"),
        ("gce_shapes", _shapes(given), "MACHINE_TYPE, GPU_TYPE"),
        *_disk(given),
    ]


def _zones(given: Mapping[str, str]) -> list[str]:
    first = given.get("ZONE") or OLD_ZONE
    # The older default belongs to the older first zone: a file of another region must not get it.
    others = given.get("FALLBACK_ZONES") or (OLD_FALLBACKS if first == OLD_ZONE else "")
    return list(dict.fromkeys([first, *others.replace(",", " ").split()]))


def _shapes(given: Mapping[str, str]) -> dict[str, str]:
    machine = given.get("MACHINE_TYPE") or OLD_MACHINE
    gpu = given.get("GPU_TYPE") or OLD_GPU
    name = gpu.removeprefix("nvidia-").removeprefix("tesla-")
    if _OWN_CARDS.match(machine):
        return {machine if given.get("GPU_TYPE") is None else name: machine}
    return {name: f"{machine}+1x{gpu}"}


def _disk(given: Mapping[str, str]) -> list[Derived]:
    """Without a name the older runner made a disk for each run."""
    if given.get("DATA_DISK_ENABLED", "").lower() not in _TRUE:
        return []
    keys = {"DATA_DISK_MOUNT_PATH": "gce_data_disk_mount", "DATA_DISK_FS_TYPE": "gce_data_disk_fs"}
    disk: list[Derived] = [("gce_data_disk", "new", "DATA_DISK_ENABLED")]
    if name := given.get("DATA_DISK_NAME"):
        zone = given.get("ZONE") or OLD_ZONE
        disk = [("gce_data_disk", name, "DATA_DISK_NAME"), ("gce_data_disk_zone", zone, "ZONE")]
    else:
        keys |= {"DATA_DISK_SIZE_GB": "gce_data_disk_gb", "DATA_DISK_TYPE": "gce_data_disk_type"}
    return disk + [(setting, OLD_KEYS[key].convert(given[key]), key) for key, setting in keys.items() if given.get(key)]


@dataclass(frozen=True)
class Line:
    """One assignment. `shell`: the value contains a substitution that needs a shell."""

    number: int
    key: str
    value: str
    shell: bool = False


def parse(text: str, complain: Callable[[int, str], None]) -> list[Line]:
    """All assignments of the text, in order. `complain(line, what)` is called for every other line. Raises
    SettingsRefused for an unclosed quote or array."""
    lines: list[Line] = []
    by_key: dict[str, Line] = {}
    at = 0
    while at < len(text):
        if text[at] in " \t\r\n;":
            at += 1
        elif text[at] == "#":
            at = _line_end(text, at)
        elif (match := _ASSIGNMENT.match(text, at)) is None:
            complain(text.count("\n", 0, at) + 1, "not KEY=value; ignored, nothing here is run.")
            at = _line_end(text, at)
        else:
            number = text.count("\n", 0, at) + 1
            value, shell, at = _value(text, match.end(), number, by_key)
            lines.append(Line(number, match.group(1), value, shell))
            by_key[match.group(1)] = lines[-1]
    return lines


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _value(text: str, at: int, number: int, lines: Lines) -> tuple[str, bool, int]:
    """(value, needs a shell, end position); the words of an array are joined by spaces."""
    if text[at : at + 1] != "(":
        return _word(text, at, number, lines)
    words, shell, at = [], False, at + 1
    while at < len(text) and text[at] != ")":
        if text[at] in " \t\r\n":
            at += 1
        elif text[at] == "#":
            at = _line_end(text, at)
        else:
            word, substituted, at = _word(text, at, number, lines)
            words.append(word)
            shell = shell or substituted
    if at >= len(text):
        raise SettingsRefused("environment file line %d: the array is not closed" % number)
    return " ".join(words), shell, at + 1


def _word(text: str, at: int, number: int, lines: Lines) -> tuple[str, bool, int]:
    """One shell word without its quotes: (word, needs a shell, end position)."""
    word, shell, quote = [], False, ""
    while at < len(text):
        char = text[at]
        if not quote and char in " \t\r\n;)":
            break
        if char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
        elif char == "\\" and quote != "'":
            at += 1
            word.append(text[at : at + 1].replace("\n", ""))
        elif char == "$" and quote != "'" and (reference := _reference(text, at, lines)) is not None:
            word.append(reference[0])
            at = reference[1]
            continue
        else:
            shell = shell or (char in "$`" and quote != "'")
            word.append(char)
        at += 1
    if quote:
        raise SettingsRefused("environment file line %d: the quote %s is not closed" % (number, quote))
    return "".join(word), shell, max(at, 0)


def _reference(text: str, at: int, lines: Lines) -> tuple[str, int] | None:
    """(value, end position) of a reference to an earlier key; None for anything else."""
    match = _NAME.match(text, at)
    line = lines.get(match.group(1) or match.group(2)) if match is not None else None
    return None if match is None or line is None or line.shell else (line.value, match.end())
