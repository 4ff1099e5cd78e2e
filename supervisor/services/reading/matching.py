"""Our figures of a machine beside the lines of the bill: by day and run, with the reason of a difference.

A line of the bill belongs to a run by its label of the launch, else by the name of its machine; a line with the label
of another supervisor is left out. Only days that the bill has whole are compared, because the export comes late: on a
later day "not billed" would be wrong. A line in another currency counts with its rate; without a rate it is not
compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.domain.ledger import Entry, Use
from supervisor.ports.platform import Bill, BillKind, BillLine
from supervisor.services.views.formats import usd

DAY_S = 86_400.0
AGREES_USD, AGREES_SHARE = 0.01, 0.01  # a difference up to the larger one is none
AGREES_S = 60.0


class Reason(StrEnum):
    """Why the two differ. In the order in which they are judged."""

    NOT_EXPORTED = "not_exported"  # the bill does not have the whole day yet
    CURRENCY = "currency"  # in another currency, without a rate
    PRICE_UNKNOWN = "price_unknown"  # an attempt of ours has no price
    AGREES = "agrees"
    NOT_BILLED = "not_billed"
    CREDITS = "credits"
    TRAFFIC = "traffic"
    OTHER = "other"  # taxes, adjustments, and lines that we cannot name
    RACES = "races"  # machines that lost a race, or whose create call seemed to fail
    SEVERAL = "several"  # the four above together
    DISKS = "disks"
    PRICE = "price"  # the time agrees
    TIME = "time"
    UNEXPLAINED = "unexplained"  # and the bill does not say for how long


_ALONE = (Reason.CREDITS, Reason.TRAFFIC, Reason.OTHER, Reason.RACES)


class BilledParts(TypedDict):
    """Dollars. `credits`: at most 0. `races`: machines without an attempt."""

    machine: float
    disk: float
    address: float
    traffic: float
    other: float
    credits: float
    races: float


class BilledRow(TypedDict):
    """`billed_usd`: with credits. Null: not known, never 0. `difference_usd`: billed minus ours."""

    day: str
    run_id: str
    ours_s: float
    billed_s: float | None
    ours_usd: float
    lower_bound: Annotated[bool, Field(description="True: the price of an attempt is not known.")]
    billed_usd: float | None
    difference_usd: float | None
    parts: BilledParts | None
    reason: str


@dataclass(slots=True)
class Ours:
    """What we think of one run on one day."""

    seconds: float = 0.0
    usd: float = 0.0
    priced: bool = True


@dataclass(slots=True)
class Owners:
    """Whose a line is. `launches`: (run, launch) -> it has an attempt, so that its time is ours; `names`: of machines
    -> (run, launch)."""

    launches: dict[tuple[str, str], bool] = field(default_factory=dict)
    names: dict[str, tuple[str, str]] = field(default_factory=dict)

    def launch_of(self, line: BillLine) -> tuple[str, str] | None:
        labels = (line.run_id, line.launch_id)
        return labels if labels in self.launches else self.names.get(line.machine_name)


@dataclass(slots=True)
class _Billed:
    """Of one run on one day. `seconds` None: no line says it."""

    usd: dict[str, float] = field(default_factory=lambda: dict.fromkeys((*BillKind, "credits", "races"), 0.0))
    seconds: float | None = None
    in_dollars: bool = True

    def add(self, line: BillLine, is_attempt: bool) -> None:
        dollars = line_usd(line)
        if dollars is None:
            self.in_dollars = False
            return
        if not is_attempt:
            self.usd["races"] += sum(dollars)
            return
        self.usd[line.kind] += dollars[0]
        self.usd["credits"] += dollars[1]
        if line.seconds is not None:
            self.seconds = (self.seconds or 0.0) + line.seconds


def line_usd(line: BillLine) -> tuple[float, float] | None:
    """(cost, credits) in dollars; None = nobody knows the rate."""
    rate = 1.0 if line.currency == "USD" else line.rate
    return (line.cost / rate, line.credits / rate) if rate is not None and rate > 0 else None


def by_day(entries: Iterable[Entry]) -> dict[str, Ours]:
    """The billed time of a run, cut at the days of UTC."""
    days: dict[str, Ours] = {}
    for entry in entries:
        price = None if entry.attempt is None else entry.attempt.price_usd_per_h
        for span in entry.spans:
            since = span.since
            while span.use is not Use.SCHEDULING and since < span.until:
                end = min(span.until, (since // DAY_S + 1) * DAY_S)
                ours = days.setdefault(day_of(since), Ours())
                ours.seconds += end - since
                ours.usd += (price or 0.0) * (end - since) / 3600.0
                ours.priced = ours.priced and price is not None
                since = end
    return days


def compare(
    ours: Mapping[tuple[str, str], Ours], bill: Bill, owners: Owners, supervisor_id: str
) -> tuple[list[BilledRow], list[BillLine]]:
    """`ours`: (day, run) -> what we think. The rows, the newest day first; and the lines that are ours by their label,
    of no launch that we know."""
    billed: dict[tuple[str, str], _Billed] = {}
    unknown = []
    for line in bill.lines:
        if line.supervisor_id not in ("", supervisor_id):
            continue
        launch = owners.launch_of(line)
        if launch is not None:
            billed.setdefault((line.day, launch[0]), _Billed()).add(line, owners.launches[launch])
        elif line.supervisor_id:
            unknown.append(line)
    settled = bill.settled_until
    rows = []
    for day, run_id in sorted({*ours, *billed}, key=lambda key: (key[0], key[1]), reverse=True):
        is_whole = settled is not None and day_end(day) <= settled
        rows.append(_row(day, run_id, ours.get((day, run_id), Ours()), billed.get((day, run_id)), is_whole=is_whole))
    return rows, unknown


def _row(day: str, run_id: str, ours: Ours, billed: _Billed | None, *, is_whole: bool) -> BilledRow:
    bill = billed or _Billed(seconds=0.0)
    is_known = is_whole and bill.in_dollars
    net = sum(bill.usd.values())
    reason = Reason.NOT_EXPORTED if not is_whole else Reason.CURRENCY if not bill.in_dollars else None
    return {
        "day": day,
        "run_id": run_id,
        "ours_s": round(ours.seconds, 3),
        "billed_s": None if not is_known or bill.seconds is None else round(bill.seconds, 3),
        "ours_usd": usd(ours.usd),
        "lower_bound": not ours.priced,
        "billed_usd": usd(net) if is_known else None,
        "difference_usd": usd(net - ours.usd) if is_known and ours.priced else None,
        "parts": _parts(bill) if is_known else None,
        "reason": str(reason or _reason(ours, bill, is_billed=billed is not None)),
    }


def _parts(bill: _Billed) -> BilledParts:
    return {
        "machine": usd(bill.usd[BillKind.MACHINE]),
        "disk": usd(bill.usd[BillKind.DISK]),
        "address": usd(bill.usd[BillKind.ADDRESS]),
        "traffic": usd(bill.usd[BillKind.TRAFFIC]),
        "other": usd(bill.usd[BillKind.OTHER]),
        "credits": usd(bill.usd["credits"]),
        "races": usd(bill.usd["races"]),
    }


def _reason(ours: Ours, bill: _Billed, *, is_billed: bool) -> Reason:
    if not ours.priced:
        return Reason.PRICE_UNKNOWN
    difference, agrees_usd = sum(bill.usd.values()) - ours.usd, max(AGREES_USD, AGREES_SHARE * ours.usd)
    if abs(difference) <= agrees_usd:
        return Reason.AGREES
    if not is_billed:
        return Reason.NOT_BILLED
    for reason in _ALONE:
        if abs(difference - bill.usd[reason]) <= agrees_usd:
            return reason
    if abs(difference - sum(bill.usd[reason] for reason in _ALONE)) <= agrees_usd:
        return Reason.SEVERAL
    if bill.seconds is None:
        return Reason.UNEXPLAINED
    if abs(bill.seconds - ours.seconds) > max(AGREES_S, AGREES_SHARE * ours.seconds):
        return Reason.TIME
    return Reason.DISKS if 0 < difference <= bill.usd[BillKind.DISK] + agrees_usd else Reason.PRICE


def day_of(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"


def day_end(day: str) -> float:
    return datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp() + DAY_S
