"""The platform's bill beside our own figures, as a table for people and for a spreadsheet; `matching` compares them.

A read of the bill costs money, so a person asks for it, and the answer is kept for a day. What could not be read is an
error, and never a bill of zero.
"""

from __future__ import annotations

import csv
import io
import threading
from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.contract.identifiers import label_value
from supervisor.domain.errors import NotSupportedHere, Unavailable
from supervisor.domain.findings import OK, WARN, Check, Finding
from supervisor.domain.run import Run
from supervisor.ports.platform import Bill, BillLine
from supervisor.ports.provider import ProviderUnavailable
from supervisor.ports.store import RunFilter
from supervisor.services.parts import Parts
from supervisor.services.reading.ledger import cell_text, entries_of_runs, newest_runs
from supervisor.services.reading.matching import (
    DAY_S,
    BilledParts,
    BilledRow,
    Ours,
    Owners,
    by_day,
    compare,
    day_of,
    line_usd,
)
from supervisor.services.reading.queries import Queries
from supervisor.services.views import formats
from supervisor.services.views.formats import usd
from supervisor.wording.figures import money, plural

DAYS = 31  # of one read
KEPT_S = DAY_S  # how long a read is used again
CHECK = "bill"
OFF = (
    "No provider of this supervisor reads its platform's bill. The page What the money was for (docs/cost.md) says how "
    "to switch it on."
)


class BilledMachine(TypedDict):
    """It has this supervisor's label, and is of no launch in the database."""

    name: str
    zone: str
    run_id: str
    launch_id: str
    first_day: str
    last_day: str
    billed_s: float
    billed_usd: Annotated[float | None, Field(description="Null: in another currency, without a rate.")]


class BilledTotal(TypedDict):
    """Of the compared days and rows alone."""

    ours_usd: float
    billed_usd: float
    difference_usd: float


class BilledList(TypedDict):
    """Days of UTC, the newest first. `settled_until`: days that end after it are not compared; null: nobody can say.
    `complete` false: there are more runs, which are older."""

    since: formats.Time
    until: formats.Time
    settled_until: formats.Time | None
    read_at: formats.Time
    source: str
    rows: list[BilledRow]
    total: BilledTotal
    unknown: list[BilledMachine]
    complete: bool


class Billed:
    """Reads the bill, and keeps each read for a day. Its figures of ours are those of the request."""

    def __init__(self, parts: Parts, queries: Queries) -> None:
        self._parts, self._queries = parts, queries
        self._guard = threading.Lock()
        self._reads: dict[str, tuple[float, Bill]] = {}
        self._unknown: list[BilledMachine] | None = None  # of the last table; None = there was none

    def show(self, since: float | None, *, again: bool) -> BilledList:
        """`since` None: of the last 31 days, which are all that is read. `again`: read the bill now. Takes up to a
        minute. Raises NotSupportedHere, Unavailable."""
        parts = self._parts
        if not parts.bills:
            raise NotSupportedHere(OFF)
        with self._guard:  # two requests at once pay for one read
            reads = {name: self._read(name, again=again) for name in parts.bills}
        read_at, bill = min(at for at, _ in reads.values()), _together([bill for _, bill in reads.values()])
        ours, owners, complete = self._ours(bill)
        rows, lines = compare(ours, bill, owners, label_value(parts.store.supervisor_id))
        unknown = _machines(lines)
        self._unknown = unknown
        first = bill.since if since is None else max(bill.since, since // DAY_S * DAY_S)
        rows = [row for row in rows if day_of(first) <= row["day"] < day_of(bill.until)]
        return {
            "since": formats.time_text(first),
            "until": formats.time_text(bill.until),
            "settled_until": formats.maybe_time(bill.settled_until),
            "read_at": formats.time_text(read_at),
            "source": "; ".join(bills.terms for bills in parts.bills.values()),
            "rows": rows,
            "total": _total(rows),
            "unknown": unknown,
            "complete": complete,
        }

    def checks(self) -> list[Check]:
        """Of the doctor; none where no bill is read."""
        return [Check(CHECK, lambda: [self.finding()])] if self._parts.bills else []

    def finding(self) -> Finding:
        """From the last table, without a read."""
        source = "; ".join(bills.terms for bills in self._parts.bills.values())
        if self._unknown is None:
            return Finding(CHECK, OK, f"not read since the start: `spot bill` reads {source}")
        if not self._unknown:
            return Finding(CHECK, OK, f"each billed machine of this supervisor is known; read from {source}")
        names = ", ".join(machine["name"] for machine in self._unknown[:5])
        dollars = [machine["billed_usd"] for machine in self._unknown]
        sum_text = "a sum that is not known" if None in dollars else money(sum(filter(None, dollars)))
        return Finding(
            CHECK,
            WARN,
            f"{plural(len(self._unknown), 'machine')} billed and unknown to us, {sum_text}: {names}",
            "another database has used this supervisor's id, or the run of a machine was deleted here",
            "look for them at the platform, and delete those that still run; spot bill has their days",
        )

    def _read(self, name: str, *, again: bool) -> tuple[float, Bill]:
        now = self._parts.clock.now()
        last = self._reads.get(name)
        if last is not None and not again and now - last[0] < KEPT_S:
            return last
        until = now // DAY_S * DAY_S
        try:
            bill = self._parts.bills[name].read(until - DAYS * DAY_S, until, self._parts.store.supervisor_id)
        except ProviderUnavailable as error:
            raise Unavailable(
                f"The bill of {name} could not be read: {error}. Nothing was compared.", {"part": CHECK, "name": name}
            ) from error
        self._reads[name] = now, bill
        return self._reads[name]

    def _ours(self, bill: Bill) -> tuple[dict[tuple[str, str], Ours], Owners, bool]:
        """What we think of the bill's days, of the newest runs and of those that the bill names."""
        parts, store = self._parts, self._parts.store
        runs, complete = newest_runs(parts, RunFilter())
        names = {run.run_id for run in runs}
        older = {line.run_id for line in bill.lines if line.run_id} - names
        runs += [run for run in map(store.find, sorted(older)) if run is not None]
        ours: dict[tuple[str, str], Ours] = {}
        owners = Owners()
        for run, entries in entries_of_runs(parts, self._queries, runs, parts.clock.now()):
            rented = [each for each in entries if each.attempt and each.attempt.placement.provider in parts.bills]
            for each in rented:
                if each.attempt is not None:
                    owners.launches[run.run_id, each.attempt.launch_id] = True
                    owners.names[each.attempt.machine_name] = run.run_id, each.attempt.launch_id
            for day, amount in by_day(rented).items():
                if day_of(bill.since) <= day < day_of(bill.until):
                    ours[day, run.run_id] = amount
        self._add_tries(runs, bill, owners)
        return ours, owners, complete

    def _add_tries(self, runs: Sequence[Run], bill: Bill, owners: Owners) -> None:
        """Of launches in the bill that became no attempt."""
        keys = {run.run_id: run.key for run in runs}
        for run_id in sorted({line.run_id for line in bill.lines if owners.launch_of(line) is None} & keys.keys()):
            for try_ in self._parts.store.tries(keys[run_id]):
                owners.launches.setdefault((run_id, try_.launch_id), False)
                owners.names.setdefault(try_.machine_name, (run_id, try_.launch_id))


def _together(bills: Sequence[Bill]) -> Bill:
    """Settled as far as all of them are."""
    settled = [bill.settled_until for bill in bills]
    return Bill(
        min(bill.since for bill in bills),
        max(bill.until for bill in bills),
        None if None in settled else min(at for at in settled if at is not None),
        tuple(line for bill in bills for line in bill.lines),
    )


def _machines(lines: Iterable[BillLine]) -> list[BilledMachine]:
    """One for each machine, the most expensive first."""
    by_name: dict[tuple[str, str, str], list[BillLine]] = {}
    for line in lines:
        by_name.setdefault((line.machine_name, line.run_id, line.launch_id), []).append(line)
    machines = [_machine(own) for own in by_name.values()]
    return sorted(machines, key=lambda machine: (-(machine["billed_usd"] or 0.0), machine["name"]))


def _machine(lines: Sequence[BillLine]) -> BilledMachine:
    first = lines[0]
    amounts = [line_usd(line) for line in lines]
    return {
        "name": first.machine_name,
        "zone": first.zone,
        "run_id": first.run_id,
        "launch_id": first.launch_id,
        "first_day": min(line.day for line in lines),
        "last_day": max(line.day for line in lines),
        "billed_s": round(sum(line.seconds or 0.0 for line in lines), 3),
        "billed_usd": None if None in amounts else usd(sum(sum(amount) for amount in amounts if amount is not None)),
    }


def _total(rows: Iterable[BilledRow]) -> BilledTotal:
    compared = [row for row in rows if row["difference_usd"] is not None]
    ours_usd = sum(row["ours_usd"] for row in compared)
    billed_usd = sum(row["billed_usd"] or 0.0 for row in compared)
    return {"ours_usd": usd(ours_usd), "billed_usd": usd(billed_usd), "difference_usd": usd(billed_usd - ours_usd)}


def csv_text(answer: BilledList) -> str:
    """One line for each day and run, then one for each machine that we do not know (reason `unknown_to_us`)."""
    text = io.StringIO()
    writer = csv.writer(text)
    names = [*BilledParts.__annotations__]
    plain = ("ours_s", "billed_s", "ours_usd", "billed_usd", "difference_usd", "reason")
    writer.writerow(("day", "run", *plain, *(f"{name}_usd" for name in names), "machine"))
    for row in answer["rows"]:
        figures = [row[name] for name in plain]  # type: ignore[literal-required]
        parts = row["parts"]
        amounts = ["" if parts is None else parts[name] for name in names]  # type: ignore[literal-required]
        writer.writerow((row["day"], cell_text(row["run_id"]), *figures, *amounts, ""))
    for machine in answer["unknown"]:
        figures = ["", machine["billed_s"], "", machine["billed_usd"], machine["billed_usd"], "unknown_to_us"]
        name = cell_text(machine["name"])
        writer.writerow((machine["first_day"], cell_text(machine["run_id"]), *figures, *([""] * len(names)), name))
    return text.getvalue()
