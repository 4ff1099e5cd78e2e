"""Items on their way into an Evidence: values of accepted shapes only, each with its source, clock and place."""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.contract.beat_telemetry import Disk, Telemetry
from supervisor.contract.heartbeat import Exit
from supervisor.contract.signs import FLAT, INF, MOUNT, NAN, SLOW, SPIKE, ZERO, Hit, Signs
from supervisor.domain.diagnosis.evidence import Clock, Evidence, Item, Source, Value, in_order
from supervisor.wording.stalls import odd_text

TEXT_CHARS = 2000  # of one value
LIST_ITEMS = 64
LAST_BEAT, EARLIER_BEAT = "last beat", "earlier beat"


class Collected:
    """Items on their way into an Evidence."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.unread: dict[str, str] = {}

    def add(self, name: str, value: object, source: Source, at: float | None = None, where: str = "") -> None:
        """Nothing where the value is None or of another shape. `at`: by the clock of this source."""
        kept = _value(value)
        if kept is not None:
            clock = _CLOCKS[source] if at is not None else Clock.NONE
            self.items.append(Item(name, kept, source, at, clock, plain(where)))

    def has(self, name: str) -> bool:
        return any(item.name == name for item in self.items)

    def evidence(self, hits: Sequence[Hit] = (), end: Exit | None = None, error: str = "") -> Evidence:
        ordered = tuple(sorted(hits, key=lambda hit: (hit.offset, hit.pattern, hit.line)))
        return Evidence(in_order(self.items), ordered, end, error, self.unread)


_METRICS = {
    NAN: "metric.nonfinite",
    INF: "metric.nonfinite",
    SPIKE: "metric.spike",
    FLAT: "metric.flat",
    ZERO: "metric.flat",
}
_CLOCKS = {
    Source.OWN: Clock.SUPERVISOR,
    Source.PROVIDER: Clock.PROVIDER,
    Source.HOST: Clock.NONE,
    Source.AGENT: Clock.AGENT,
    Source.LOG: Clock.AGENT,
}


def _value(value: object) -> Value | None:
    if isinstance(value, bool) or (isinstance(value, int | float) and -1e18 < value < 1e18):
        return value
    if isinstance(value, str) and value:
        return plain(value[:TEXT_CHARS])
    if isinstance(value, list | tuple) and 0 < len(value) <= LIST_ITEMS:
        return _column(value)
    return None


def plain(text: str) -> str:
    """Half a surrogate pair is legal in JSON, and can neither be stored nor sent on as UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _column(values: Sequence[object]) -> tuple[float | None, ...] | None:
    numbers = [float(value) if isinstance(value, int | float) and -1e18 < value < 1e18 else None for value in values]
    return tuple(numbers) if any(value is not None for value in numbers) else None


def add_exit(into: Collected, end: Exit | None) -> None:
    if end is not None:
        into.add("oom.kills", end.oom_kills, Source.AGENT, where="memory.events")
        into.add("disk.full", end.disk_full, Source.AGENT)


def add_signs(into: Collected, signs: Signs) -> set[tuple[int, int]]:
    """(card, code) of the Xids, which have a time here."""
    into.add("up.s", signs.up_s, Source.AGENT, signs.up_s)
    into.add("oom.rose", signs.oom_rose_up_s, Source.AGENT, signs.oom_rose_up_s, "memory.events")
    into.add("oom.shared", signs.oom_shared, Source.AGENT)
    for card, code, at in signs.xids:
        into.add("card.xid", (card, code), Source.AGENT, at, f"card {card}")
    for card, held in signs.held:
        into.add("card.held", (card, held), Source.AGENT, 0.0, f"card {card}")
    for name, removed in zip(("repair.files", "repair.bytes"), signs.repaired or (), strict=False):
        into.add(name, removed, Source.AGENT, where="scratch")
    if signs.hang is not None:
        into.add("hang.place", signs.hang.place, Source.AGENT, signs.up_s)
        into.add("hang.still_s", signs.hang.still_s, Source.AGENT, signs.up_s)
    for slow in signs.slow:
        for name, value in zip(SLOW[slow.word], slow.figures, strict=True):
            into.add(name, None if into.has(name) else value, Source.AGENT, signs.up_s)
        into.add("mount.data", slow.detail if slow.word == MOUNT else None, Source.AGENT, signs.up_s)
    odds = {odd.name for odd in signs.metrics if odd.kind in (NAN, INF)}
    for odd in signs.metrics:
        into.add(_METRICS.get(odd.kind, "metric.lasting"), odd.name, Source.AGENT, odd.up_s, odd_text(odd))
    for metric in signs.nonfinite:
        into.add("metric.nonfinite", None if metric in odds else metric, Source.AGENT)
    for name, figure in signs.notes:
        into.add(name, bool(figure) if name == "metric.reported" else figure, Source.AGENT, signs.up_s)
    return {(card, code) for card, code, _ in signs.xids}


def add_telemetry(
    into: Collected, telemetry: Telemetry | None, where: str, known_xids: set[tuple[int, int]] | None = None
) -> None:
    if telemetry is None:
        return
    group, cards = telemetry.cgroup, telemetry.gpus
    if group is not None:
        into.add("memory.used", group.memory_bytes, Source.AGENT, where=where)
        into.add("memory.limit", group.memory_max_bytes, Source.AGENT, where=where)
        into.add("env.quota", group.cpu_quota, Source.AGENT, where=where)
    if cards is not None:
        for card, is_lost in enumerate(cards.lost):
            into.add("card.lost", card if is_lost else None, Source.AGENT, where=where)
        for card, code in enumerate(cards.last_xid):
            if code is not None and (card, int(code)) not in (known_xids or set()):
                into.add("card.xid", (card, code), Source.AGENT, where=where)
        for name in ("memory_used_mib", "memory_total_mib"):
            for card, figure in enumerate(getattr(cards, name)):
                item = "card.memory_used" if name == "memory_used_mib" else "card.memory_total"
                into.add(item, None if figure is None else (card, figure * 2**20), Source.AGENT, where=where)
    for role in ("checkpoints", "results", "scratch"):
        add_disk(into, getattr(telemetry, f"{role}_disk"), role)
    into.add("boot.uptime_s", telemetry.uptime_s, Source.AGENT, where=where)


def add_disk(into: Collected, disk: Disk | None, role: str) -> None:
    if disk is not None:
        for name in ("free_bytes", "total_bytes", "free_inodes", "total_inodes"):
            into.add(f"disk.{name}", getattr(disk, name), Source.AGENT, where=role)
