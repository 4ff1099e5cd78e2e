"""Facts that a person wrote down, in any of many spellings, as items and an exit.

Nothing is refused: an unknown name, or a value of another shape, is left out. docs/evidence.md lists the names.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from supervisor.contract import beat_telemetry, heartbeat
from supervisor.contract.heartbeat import MAX_TEXT, Exit
from supervisor.domain.diagnosis.evidence import NAMES, Source
from supervisor.lifecycle.diagnosis.collecting import Collected, plain

# Names of the items that a person may write down in another way. Nested objects count as `outer_inner`.
_SPELLINGS = {
    "oom.kills": ("oom_kills", "oom_kill", "oom_kill_delta"),
    "oom.before": ("oom_kill_before", "oom_kills_before", "oom_before"),
    "oom.after": ("oom_kill_after", "oom_kills_after", "oom_after"),
    "oom.rose": ("oom_rose_up_s", "oom_rose_s"),
    "oom.shared": ("oom_shared", "cgroup_shared"),
    "memory.used": ("memory", "memory_used", "memory_bytes", "memory_current", "memory_used_bytes"),
    "memory.limit": ("memory_limit", "memory_max", "memory_max_bytes", "memory_limit_bytes"),
    "worker.rss": ("worker_rss", "worker_rss_bytes"),
    "worker.count": ("workers", "worker_count", "num_workers"),
    "main.rss": ("main_rss", "main_rss_bytes"),
    "platform.state": ("platform_state", "state", "pod_reason"),
    "platform.message": ("platform_message", "reason", "message", "pod_message"),
    "platform.memory_peak": ("max_rss", "maxrss"),
    "platform.memory_asked": ("req_mem", "reqmem"),
    "record.cause": ("record", "record_cause", "platform_record"),
    "record.detail": ("record_detail", "detail"),
    "container.oom_killed": ("oom_killed", "oomkilled", "docker_oom_killed"),
    "container.exit": ("docker_exit", "container_exit"),
    "disk.free_bytes": ("free_bytes", "disk_free_bytes", "disk_free"),
    "disk.total_bytes": ("total_bytes", "disk_total_bytes", "disk_total"),
    "disk.free_inodes": ("free_inodes", "disk_free_inodes"),
    "disk.total_inodes": ("total_inodes", "disk_total_inodes"),
    "disk.full": ("disk_full",),
    "boot.id_start": ("boot_id_start", "boot_id_before", "boot_at_start"),
    "boot.id_now": ("boot_id_now", "boot_id_after", "boot_now"),
    "boot.uptime_s": ("uptime_s", "uptime", "boot_uptime_s"),
    "card.promised": ("gpus_promised", "promised_gpus", "gpus_expected"),
    "card.opened": ("gpus_opened", "gpus_found", "gpu_count", "gpus_visible"),
    "card.lost": ("gpu_lost", "lost_gpu"),
    "card.xid": ("xid", "xids"),
    "card.held": ("held", "cards_held", "held_before_start", "gpu_memory_before"),
    "left": ("left",),
    "left.message": ("left_message",),
    "notice.left_s": ("notice_s", "preemption_notice_s"),
    "own.kill": ("own_kill", "killed_by_us"),
    "own.stop": ("own_stop", "stopped_by_us"),
    "contact.closed": ("connection_closed_s", "contact_closed_s", "ssh_closed_s"),
    "serial.phase": ("serial_phase", "boot_phase"),
    "step.last": ("step", "last_step", "step_last"),
    "step.total": ("total", "total_steps", "step_total"),
    "step.from": ("step_from", "resumed_from"),
    "hang.place": ("hang", "hang_place"),
    "hang.still_s": ("still_s", "hang_still_s", "without_progress_s"),
    "host.load": ("load", "load_average", "host_load"),
    "metric.nonfinite": ("nonfinite", "nan_metrics"),
    "session.age_s": ("session_age_s",),
    "session.cap_s": ("session_cap_s", "session_limit_s"),
    "session.listed": ("session_listed",),
    "up.s": ("up_s",),
    "env.wanted": ("conda_env", "venv"),
    "env.affinity": ("affinity", "cpus_allowed"),
}  # fmt: skip
_ITEM_OF = {spelling: name for name, spellings in _SPELLINGS.items() for spelling in spellings}
_CODES = ("exit_code", "exitcode", "exit_status", "returncode", "code", "exit")
_SIGNALS = ("signal", "exit_signal", "term_signal")
_RAN = ("ran_s", "duration_s", "elapsed_s", "runtime_s")
_OWN_SIGNAL = ("sent_by_us", "signal_sent_by_us", "we_sent_it")


def collect(facts: Mapping[str, Any], into: Collected) -> Exit | None:
    """The exit, with the items put into `into`."""
    flat = _flat(facts)
    end = _loose_exit(flat)
    for name, value in sorted(flat.items()):
        item = _ITEM_OF.get(name, name if name in NAMES else _dotted(name))
        if item and not (item == "left" and not isinstance(value, str)):
            _add_loose(into, item, value)
    kills = _loose_kills(flat)
    if kills is not None and end is not None:
        end = end._replace(oom_kills=kills)
    into.add("oom.kills", kills, Source.AGENT, where="memory.events")
    return end


def _loose_kills(flat: Mapping[str, Any]) -> int | None:
    """By how much the kernel's counter rose; None = unknown."""
    before, after = (
        next((count for name in _SPELLINGS[item] if (count := _count(flat.get(name))) is not None), None)
        for item in ("oom.before", "oom.after")
    )
    return None if before is None or after is None else max(0, after - before)


def _dotted(name: str) -> str:
    dotted = name.replace("_", ".", 1)
    return dotted if dotted in NAMES else ""


def _flat(data: Mapping[str, Any]) -> dict[str, Any]:
    """Names in lower case; an object inside counts as `outer_inner`, and its own names too where nothing else has
    them."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        name = str(key).lower().replace("-", "_").replace(" ", "_")
        if isinstance(value, dict):
            for inner, deeper in list(value.items())[:100]:
                inside = str(inner).lower().replace("-", "_").replace(".", "_")
                flat[f"{name}_{inside}"] = deeper
        elif value is not None:
            flat[name] = value
    return flat


def _add_loose(into: Collected, item: str, value: object) -> None:
    source = _SOURCES.get(item.partition(".")[0], Source.AGENT)
    if item == "card.xid":
        for code in value if isinstance(value, list) else [value]:
            into.add(item, tuple(code) if isinstance(code, list) else (0, code), source)
    elif item == "card.held" and isinstance(value, list):
        for card, held in enumerate(value):
            into.add(item, (card, held), source, 0.0, f"card {card}")
    elif item == "card.held":
        into.add(item, (0, value), source, 0.0, "card 0")
    elif item == "metric.nonfinite" and isinstance(value, list):
        for name in value:
            into.add(item, name, source)
    else:
        into.add(item, value, source)


_SOURCES = {
    "own": Source.OWN,
    "record": Source.PROVIDER,
    "platform": Source.PROVIDER,
    "serial": Source.PROVIDER,
    "session": Source.PROVIDER,
    "container": Source.HOST,
    "host": Source.HOST,
    "contact": Source.HOST,
    "boot": Source.HOST,
}


def _loose_exit(flat: Mapping[str, Any]) -> Exit | None:
    code: int | None = next((flat[name] for name in _CODES if _is_int(flat.get(name))), None)
    raw = next((flat[name] for name in _SIGNALS if name in flat), None)
    number = _signal_number(raw)
    if code is None and number is None:
        return None
    if code is not None and code < 0:  # as Python's subprocess reports a signal
        number = -code
    ran = next((figure for name in _RAN if (figure := beat_telemetry.figure(flat.get(name))) is not None), 0.0)
    ours = any(flat.get(name) is True for name in _OWN_SIGNAL)
    kills = next((flat[name] for name in _SPELLINGS["oom.kills"] if heartbeat.is_count(flat.get(name))), None)
    disk, line = flat.get("disk_full"), flat.get("last_line")
    return Exit(
        None if number is not None else code,
        number,
        ours,
        ran,
        plain(line[:MAX_TEXT]) if isinstance(line, str) else "",
        False,
        kills,
        plain(disk[:MAX_TEXT]) if isinstance(disk, str) else "",
        flat.get("after_work") is True,
        flat.get("in_setup") is True,
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and heartbeat.is_count(value) else None


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -1000 < value < 1000


def _signal_number(value: object) -> int | None:
    if isinstance(value, str):
        name = value.upper() if value.upper().startswith("SIG") else f"SIG{value.upper()}"
        return int(signal.Signals[name]) if name in signal.Signals.__members__ else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 100 else None
