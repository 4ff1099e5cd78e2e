"""What is known about an end, a stall or a slow run: one frozen record of items, each with its source, clock and time.

Absent is not zero: an item that nobody read is not there, and `unread` says why. Clocks of different computers are
never compared: an item has the clock that its time belongs to. The items of one name stand in canonical order, so no
answer can depend on the order in which they were collected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from supervisor.contract.heartbeat import Exit
from supervisor.contract.signs import Hit

Value = str | float | int | bool | tuple[float | None, ...]

# The closed list of names. Units: bytes, seconds, counts; times are the item's `at`.
NAMES = frozenset({
    # Ours: a signal or a stop that we sent, how the supervisor has recorded the end (its detail in `where`).
    "own.kill", "own.stop", "own.end",
    # The platform: the cause that its record means (its text in `record.detail`), its own word for the state with its
    # message, the last phase and line of the serial console, "OOMKilled" of the container, age and cap of a session.
    "record.cause", "record.detail", "platform.state", "platform.message", "serial.phase", "serial.line",
    "container.oom_killed", "container.exit", "session.age_s", "session.cap_s", "session.listed",
    "platform.memory_peak", "platform.memory_asked",
    # The host: its boot id before and now, seconds since its boot, a closed connection, its load, the kernel's lines.
    "boot.id_start", "boot.id_now", "boot.uptime_s", "contact.closed", "host.load", "host.cores", "kernel.line",
    # The agent: why it left; the notice; the kernel's kills for memory.
    "left", "left.message", "notice.left_s", "oom.kills", "oom.before", "oom.after", "oom.rose", "oom.shared",
    "memory.used", "memory.limit", "worker.rss", "worker.count", "main.rss",
    "card.promised", "card.opened", "card.lost", "card.xid", "card.ecc", "card.held", "card.total", "card.util",
    "card.memory_used", "card.memory_total", "card.capability", "driver.version",
    "disk.free_bytes", "disk.total_bytes", "disk.free_inodes", "disk.total_inodes", "disk.full",
    "repair.files", "repair.bytes",
    "env.python", "env.conda", "env.venv", "env.wanted", "env.has_module", "env.affinity", "env.quota", "env.line_ends",
    "step.last", "step.total", "step.checkpoint", "step.from", "step.first_after_restore", "step.at",
    "checkpoint.torn", "checkpoint.missing", "checkpoint.opened", "save.s",
    "save.every_s", "save.best_s", "save.best_steps", "upload.missing", "results.unverified",
    "hang.place", "hang.still_s", "stall.s", "motion.gpu", "motion.cpu", "motion.io", "motion.net", "motion.files",
    "up.s", "exit.at", "repeat.same", "smoke.passed", "log.lines",
    # Figures of several minutes and metrics.
    "window.gpu_util", "window.sm_clock_share", "window.power_share", "window.clock_reasons", "window.temperature",
    "window.steps_share", "window.io_pressure", "window.throttled_share", "window.threads", "window.cpu_quota",
    "window.read_bytes", "window.reads_per_s", "window.new_inodes_per_s", "window.card_others_bytes",
    "window.save_share", "window.download_still_s", "window.log_silent_s", "mount.data", "metric.nonfinite",
    "metric.spike", "metric.lasting", "metric.flat", "metric.reported", "egress.usd", "egress.share",
    "window.loader_cpu", "error.pattern", "facts.changed", "image.moved", "code.changed", "checkpoint.shrinks",
})  # fmt: skip


class Source(StrEnum):
    OWN = "own"  # an action of the supervisor
    PROVIDER = "provider"  # the platform's record or state
    HOST = "host"  # the computer of the machine: its script, its kernel
    AGENT = "agent"
    LOG = "log"


class Clock(StrEnum):
    SUPERVISOR = "supervisor"  # seconds since 1970
    AGENT = "agent"  # seconds since the agent's start, monotonic
    PROVIDER = "provider"  # seconds since 1970
    NONE = "none"  # the time is unknown


@dataclass(frozen=True, slots=True)
class Item:
    """One observation. `where`: the exact place in its source, such as `memory.events`, `serial` or `card 3`."""

    name: str
    value: Value
    source: Source
    at: float | None = None
    clock: Clock = Clock.NONE
    where: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """`error`: the last line of the exception that began the end. `unread`: name -> why it could not be read."""

    items: Mapping[str, tuple[Item, ...]] = field(default_factory=dict)
    hits: tuple[Hit, ...] = ()
    exit: Exit | None = None
    error: str = ""
    unread: Mapping[str, str] = field(default_factory=dict)

    def last(self, name: str, *sources: Source) -> Item | None:
        """The newest item of this name, from one of `sources` (none = any)."""
        items = [item for item in self.items.get(name, ()) if not sources or item.source in sources]
        return items[-1] if items else None


def in_order(items: list[Item]) -> dict[str, tuple[Item, ...]]:
    """Items by name, each name's in canonical order: by time, then source, then value."""
    by_name: dict[str, list[Item]] = {}
    for item in sorted(items, key=lambda item: (item.name, item.at or 0.0, item.source, repr(item.value), item.where)):
        by_name.setdefault(item.name, []).append(item)
    return {name: tuple(same) for name, same in by_name.items()}
