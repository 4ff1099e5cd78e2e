"""Signs of the machine: the kernel's counter of kills, memory, cards and disks."""

from __future__ import annotations

from collections.abc import Iterable

from supervisor.contract.beat_telemetry import HARDWARE_XIDS
from supervisor.domain.diagnosis.evidence import Evidence, Item
from supervisor.lifecycle.diagnosis.rule import Match, Sign
from supervisor.lifecycle.diagnosis.signs import MATCHED, SAME_TIME_S, figure, number, pair, quote_of
from supervisor.wording.figures import gib_text, plural, size_text

NEAR_LIMIT = 0.95  # of the memory limit
NEAR_CARD = 0.9  # of the memory of a card, in the last reading before the allocation that failed
LOW_BYTES, LOW_INODES = 0.01, 0.01  # shares that are free on a disk at its limit
# 74 is of the link between cards, and 94 is contained: an error of the application alone may follow.
CERTAIN_XIDS = tuple(code for code in HARDWARE_XIDS if code not in (74, 94))
HELD_BYTES, HELD_SHARE = 1 << 30, 0.05  # of a card before the command started: others use it

# --- memory -----------------------------------------------------------------------------------------------------------


def _oom_rose(evidence: Evidence) -> Match | None:
    item = evidence.last("oom.kills")
    kills = number(item)
    if item is None or not kills:
        return None
    before, after, rose = (evidence.last(name) for name in ("oom.before", "oom.after", "oom.rose"))
    values = {"kills": plural(int(kills), "kill"), **memory_values(evidence)}
    if (was := number(before)) is not None and (now := number(after)) is not None:
        values |= {"before": f"{was:.0f}", "after": f"{now:.0f}"}
    if (up_s := number(rose)) is not None:
        values["rose"] = f"{up_s:.0f} s after the agent's start"
    return Match(values, (quote_of(item),))


OOM_ROSE = Sign("the kernel's counter rose", _oom_rose, ("oom.kills",), "not out of memory: the counter stood still")


def _oom_still(evidence: Evidence) -> Match | None:
    item = evidence.last("oom.kills")
    if item is None or number(item) != 0:
        return None
    return Match({"counter": "the counter stood still"}, (quote_of(item),))


OOM_STILL = Sign("not out of memory: the counter stood still", _oom_still, ("oom.kills",), "the kernel's counter rose")


def _oom_long_ago(evidence: Evidence) -> Match | None:
    rose, now = figure(evidence, "oom.rose"), figure(evidence, "up.s")
    if rose is None or now is None or now - rose <= SAME_TIME_S:
        return None
    return Match({"ago": f"{now - rose:.0f} s"})


OOM_LONG_AGO = Sign("the kernel's kill was {ago} before the end", _oom_long_ago, ("oom.rose",))


def _oom_shared(evidence: Evidence) -> Match | None:
    return next((MATCHED for item in evidence.items.get("oom.shared", ()) if item.value is True), None)


OOM_SHARED = Sign("processes of others are in the same memory group", _oom_shared, ("oom.shared",))


def memory_share(evidence: Evidence) -> float | None:
    """The largest part of its limit that was in use, by readings that belong together."""
    limits = {item.where: number(item) for item in evidence.items.get("memory.limit", ())}
    shares = [
        used / limit
        for item in evidence.items.get("memory.used", ())
        if (used := number(item)) is not None and (limit := limits.get(item.where))
    ]
    return max(shares, default=None)


def memory_values(evidence: Evidence) -> dict[str, str]:
    share, used, limit = memory_share(evidence), figure(evidence, "memory.used"), figure(evidence, "memory.limit")
    values = {} if share is None else {"memory_share": f"{100 * share:.0f} %"}
    if used is not None and limit and 0 <= used < 1e18 and 0 <= limit < 1e18:
        values |= {"used": gib_text(used), "limit": gib_text(limit)}
    return values


def _memory_near_limit(evidence: Evidence) -> Match | None:
    share = memory_share(evidence)
    return Match(memory_values(evidence)) if share is not None and share >= NEAR_LIMIT else None


MEMORY_NEAR_LIMIT = Sign("memory was at its limit", _memory_near_limit, ("memory.used",), "memory was not at its limit")


def _container_oom(evidence: Evidence) -> Match | None:
    item = evidence.last("container.oom_killed")
    return Match(memory_values(evidence), (quote_of(item),)) if item is not None and item.value is True else None


CONTAINER_OOM = Sign("the container was OOMKilled", _container_oom, ("container.oom_killed",))


# --- cards ------------------------------------------------------------------------------------------------------------


def _lost_card(evidence: Evidence) -> Match | None:
    lost = [item for item in evidence.items.get("card.lost", ()) if number(item) is not None]
    cards = sorted({int(number(item) or 0) for item in lost})
    if not cards:
        return None
    return Match({"fault": "; ".join(f"GPU {card} is lost" for card in cards)}, tuple(map(quote_of, lost)))


def _xids(evidence: Evidence) -> list[tuple[int, int, float | None, Item]]:
    rows = [(values, item) for item in evidence.items.get("card.xid", ()) if (values := pair(item)) is not None]
    rows = [(values, item) for values, item in rows if all(0 <= value < 1e6 for value in values)]
    return [(int(card), int(code), item.at, item) for (card, code), item in rows]


def xid_in(codes: Iterable[int]) -> Sign:
    wanted = frozenset(codes)

    def find(evidence: Evidence) -> Match | None:
        rows = [row for row in _xids(evidence) if row[1] in wanted]
        if not rows:
            return None
        texts = dict.fromkeys(f"GPU {card} had Xid {code}" for card, code, _, _ in rows)
        return Match({"fault": "; ".join(texts)}, tuple(quote_of(row[3], f"Xid {row[1]}") for row in rows))

    return Sign("a card had an Xid of the hardware", find, ("card.xid",), "no Xid of the hardware")


LOST_CARD = Sign("a card is lost", _lost_card, ("card.lost",))


def _xid_is_old(evidence: Evidence) -> Match | None:
    """Every error of the hardware is older than the last step, and no card is lost: the training went on after it."""
    rows = [row for row in _xids(evidence) if row[1] in HARDWARE_XIDS]
    step_at = figure(evidence, "step.at")
    if not rows or step_at is None or _lost_card(evidence) is not None:
        return None
    newest = [at for _, _, at, _ in rows]
    if any(at is None or step_at - at <= SAME_TIME_S for at in newest):
        return None
    ago = min(step_at - at for at in newest if at is not None)
    return Match({"ago": f"{ago:.0f} s"})


def _xid_without_time(evidence: Evidence) -> bool:
    """The training made steps, and nothing says whether the card's error came before them."""
    made_steps = evidence.last("step.last") is not None or evidence.last("step.at") is not None
    newest = [at for _, code, at, _ in _xids(evidence) if code in HARDWARE_XIDS]
    return made_steps and bool(newest) and None in newest and _lost_card(evidence) is None


XID_IS_OLD = Sign(
    "the training made steps for {ago} after the card's error", _xid_is_old, ("card.xid",), "", _xid_without_time
)

# Excludes nothing: an end that it may explain better is likely at most.
CARD_MAY_HAVE_FAILED = Sign(
    "a card may have failed before it", lambda evidence: None, ("card.xid",), "", _xid_without_time
)


def _fewer_cards(evidence: Evidence) -> Match | None:
    opened, promised = figure(evidence, "card.opened"), figure(evidence, "card.promised")
    if opened is None or promised is None or opened >= promised:
        return None
    item = evidence.last("card.opened")
    values = {"opened": f"{opened:.0f}", "promised": f"{promised:.0f}"}
    return Match(values, (quote_of(item),) if item is not None else ())


FEWER_CARDS = Sign(
    "fewer cards than promised can be opened", _fewer_cards, ("card.promised",), "all cards can be opened"
)


def _no_card(evidence: Evidence) -> Match | None:
    item = evidence.last("card.opened")
    return Match({}, (quote_of(item),)) if item is not None and number(item) == 0 else None


# On its own it says nothing: a machine without GPUs has none.
NO_CARD = Sign("no card can be opened", _no_card, ("card.opened",), "a card can be opened")


def _card_held(evidence: Evidence) -> Match | None:
    totals = [total for item in evidence.items.get("card.total", ()) if (total := number(item))]
    least = min([HELD_BYTES, *(HELD_SHARE * total for total in totals)])
    for item in evidence.items.get("card.held", ()):
        values = pair(item)
        if values is not None and least < values[1] < 1e18:
            held = {"held_card": f"GPU {values[0]:.0f}", "held": size_text(int(values[1]))}
            return Match(held, (quote_of(item, f"{values[1]:.0f}"),))
    return None


def _card_at_limit(evidence: Evidence) -> Match | None:
    totals = {
        (item.where, card[0]): card[1] for item in evidence.items.get("card.memory_total", ()) if (card := pair(item))
    }
    for item in evidence.items.get("card.memory_used", ()):
        values = pair(item)
        total = totals.get((item.where, values[0])) if values is not None else None
        if values is not None and total and NEAR_CARD * total <= values[1] < 1e18:
            return Match({"card_share": f"{100 * values[1] / total:.0f} %"}, (quote_of(item),))
    return None


CARD_AT_LIMIT = Sign(
    "the memory of a card was at its limit", _card_at_limit, ("card.memory_used",), "no card was at its limit"
)
CARD_HELD = Sign(
    "{held_card} had {held} in use before the start", _card_held, ("card.held",), "no card was in use before"
)


# --- disks ------------------------------------------------------------------------------------------------------------


def _disk_full(evidence: Evidence) -> Match | None:
    item = evidence.last("disk.full")
    if item is not None and isinstance(item.value, str) and item.value:
        return Match({"disk": item.value}, (quote_of(item),))
    return _low(evidence, "bytes", LOW_BYTES) or _low(evidence, "inodes", LOW_INODES)


def _low(evidence: Evidence, unit: str, share: float) -> Match | None:
    totals = {item.where: number(item) for item in evidence.items.get(f"disk.total_{unit}", ())}
    for item in evidence.items.get(f"disk.free_{unit}", ()):
        free, total = number(item), totals.get(item.where)
        if free is None or not 0 <= free < 1e18:
            continue
        if free == 0 or (total and free <= share * total):
            shown = size_text(int(free)) if unit == "bytes" else f"{free:.0f} inodes"
            words = f"{item.where or 'the disk'}: {shown} free"
            return Match({"disk": words}, (quote_of(item, str(item.value)),))
    return None


DISK_READ = Sign(
    "the disks were read, and none is at its limit",
    lambda evidence: MATCHED if evidence.items.get("disk.free_bytes") and _disk_full(evidence) is None else None,
)
DISK_AT_LIMIT = Sign(
    "a disk is at its limit",
    _disk_full,
    ("disk.full", "disk.free_bytes", "disk.free_inodes"),
    "no disk is at its limit",
)
