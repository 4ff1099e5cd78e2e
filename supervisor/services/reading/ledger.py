"""What billed seconds were for, by run, group, owner or month; and how many runs have reached their own end.

Both read the newest RUNS_MAX runs that the caller may see, a page at a time, with the attempts of a page in one query.
`complete` says whether these were all. What is not known is null, never 0.

The completion ratio is `reached / could`. A run has reached its own end when its command did (completed or partial). It
could not where its own code failed, and a person who stopped it asked for another end: neither counts. Every other end
is a miss, with its cause and whose it is.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, cast

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.domain import ledger
from supervisor.domain.causes import OWN_CODE, Cause, Whose, whose
from supervisor.domain.diagnosis.verdict import Certainty, Where
from supervisor.domain.ledger import Beside, Entry, Ledger, Span, Use
from supervisor.domain.run import Run
from supervisor.domain.status import TERMINAL, Status
from supervisor.ports.store import RunFilter
from supervisor.services.parts import Parts
from supervisor.services.reading.queries import Queries
from supervisor.services.views import formats
from supervisor.services.views.formats import usd

RUNS_MAX = 5000
PAGE = 500
MISSES_SHOWN = 200
COMPLETION_DAYS = 30
OWN_ENDS = (Status.COMPLETED, Status.PARTIAL)


class By(StrEnum):
    RUN = "run"
    GROUP = "group"
    OWNER = "owner"
    MONTH = "month"


class LedgerSeconds(TypedDict):
    """`scheduling` is not billed. `save` null: no training named the phase of its saves, so it is in `productive`."""

    scheduling: float
    boot: float
    pull: float
    restore: float
    productive: float
    save: float | None
    frozen: float
    lost: float
    finishing: float
    idle_kept: float


class LedgerUsd(TypedDict):
    """Of the billed classes. `idle_kept` has the disks of machines that were kept and switched off."""

    boot: float
    pull: float
    restore: float
    productive: float
    save: float
    frozen: float
    lost: float
    finishing: float
    idle_kept: float


class LedgerRow(TypedDict):
    """`name`: of the run, group, owner or month (2026-11); null: runs without a group."""

    name: str | None
    runs: int
    attempts: int
    seconds: LedgerSeconds
    usd: LedgerUsd
    billed_s: float
    billed_usd: float
    disks_usd: float
    lower_bound: Annotated[
        bool, Field(description="True: the price of an attempt is not known, so the dollars leave it out.")
    ]
    goodput: Annotated[float | None, Field(description="Productive share of the billed time, 0 to 1.")]
    ettr_start: Annotated[
        float | None, Field(description="Productive share of the time since the first start, 0 to 1.")
    ]
    ettr_submit: Annotated[float | None, Field(description="The same of the time since the submit.")]
    usd_per_productive_h: float | None


class LedgerList(TypedDict):
    """`complete` false: there are more runs, which are older. `since` null: all of the time."""

    by: str
    since: formats.Time | None
    rows: list[LedgerRow]
    total: LedgerRow
    complete: bool


class Miss(TypedDict):
    """`whose`: ours, user or cloud."""

    run_id: str
    ended_at: formats.Time
    status: str
    cause: str
    whose: str
    detail: str


class Completion(TypedDict):
    """Of the runs that ended since then. `ratio`: reached / could; null: no run could. `own_code`: runs that failed by
    their own code; `stopped`: by a person. `misses`: the newest 200."""

    since: formats.Time
    ratio: float | None
    reached: int
    could: int
    own_code: int
    stopped: int
    ours: int
    user: int
    cloud: int
    misses: list[Miss]
    complete: bool


class _Rows:
    """Entries, and what is beside them, by name, in the order in which the names came."""

    def __init__(self) -> None:
        self.entries: dict[str | None, list[Entry]] = {}
        self.beside: dict[str | None, Beside] = {}
        self.runs: dict[str | None, set[int]] = {}

    def add(self, name: str | None, run: Run, entries: Sequence[Entry], beside: Beside) -> None:
        self.entries.setdefault(name, []).extend(entries)
        self.beside[name] = self.beside.get(name, Beside()) + beside
        self.runs.setdefault(name, set()).add(run.key)

    def add_nothing(self) -> None:
        """A row of sums also where there is no run."""
        self.entries[None], self.beside[None], self.runs[None] = [], Beside(), set()

    def row(self, name: str | None) -> LedgerRow:
        return _row(name, ledger.sums_of(self.entries[name], self.beside[name]), len(self.runs[name]))


def show_ledger(parts: Parts, queries: Queries, where: RunFilter, by: By, since: float | None) -> LedgerList:
    """Runs and groups: the newest first; owners by name; months: the newest first."""
    rows, total, now = _Rows(), _Rows(), parts.clock.now()
    total.add_nothing()
    runs, complete = newest_runs(parts, where)
    for run, every in entries_of_runs(parts, queries, runs, now):
        entries = every if since is None else since_then(every, since)
        if not entries:
            continue
        beside = ledger.beside_of(run, now)  # its times are not on record: it counts where the last entry does
        total.add(None, run, entries, beside)
        if by is By.MONTH:
            months = by_month(entries)
            for name, part in months.items():
                rows.add(name, run, part, beside if name == max(months) else Beside(priced=beside.priced))
        else:
            rows.add(_name(run, by), run, entries, beside)
    names = list(rows.entries)
    if by in (By.MONTH, By.OWNER):
        names.sort(key=str, reverse=by is By.MONTH)
    return {
        "by": str(by),
        "since": formats.maybe_time(since),
        "rows": [rows.row(name) for name in names],
        "total": total.row(None),
        "complete": complete,
    }


def since_then(entries: Iterable[Entry], since: float) -> list[Entry]:
    """What lies after this moment."""
    cut = []
    for entry in entries:
        spans = tuple(replace(span, since=max(since, span.since)) for span in entry.spans if span.until > since)
        if spans:
            cut.append(replace(entry, spans=spans))
    return cut


def by_month(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """The entries cut at the months of UTC: `2026-11` -> its part of each."""
    months: dict[str, list[Entry]] = {}
    for entry in entries:
        cut: dict[str, list[Span]] = {}
        for span in entry.spans:
            since = span.since
            while since < span.until:
                name, end = _month(since)
                cut.setdefault(name, []).append(Span(span.use, since, min(end, span.until)))
                since = end
        for name, spans in cut.items():
            months.setdefault(name, []).append(replace(entry, spans=tuple(spans)))
    return months


def _month(at: float) -> tuple[str, float]:
    """The month of this moment, and when it ends."""
    day = datetime.fromtimestamp(at, UTC)
    following = (day.replace(day=1, hour=0, minute=0, second=0, microsecond=0) + timedelta(days=32)).replace(day=1)
    return f"{day:%Y-%m}", following.timestamp()


def _name(run: Run, by: By) -> str | None:
    return run.run_id if by is By.RUN else run.owner if by is By.OWNER else run.policy.group or None


def newest_runs(parts: Parts, where: RunFilter) -> tuple[list[Run], bool]:
    """The newest RUNS_MAX, and whether these are all."""
    runs: list[Run] = []
    before_key: int | None = None
    while len(runs) < RUNS_MAX:
        page = parts.store.page(where, before_key, PAGE)
        runs += page.runs
        before_key = page.next_key
        if before_key is None:
            return runs, True
    return runs, False


def entries_of_runs(
    parts: Parts, queries: Queries, runs: Sequence[Run], now: float
) -> Iterator[tuple[Run, list[Entry]]]:
    """Each run with its last beat, and its ledger."""
    for begin in range(0, len(runs), PAGE):
        page = runs[begin : begin + PAGE]
        attempts = parts.store.attempts_of([run.key for run in page])
        for run in map(queries.with_beat, page):
            yield run, ledger.entries_of(run, attempts.get(run.key, ()), now)


def _row(name: str | None, sums: Ledger, runs: int) -> LedgerRow:
    seconds = {str(use): None if (value := sums.seconds[use]) is None else round(value, 3) for use in Use}
    dollars = {str(use): usd(sums.usd[use]) for use in ledger.BILLED}
    return {
        "name": name,
        "runs": runs,
        "attempts": sums.attempts,
        "seconds": cast(LedgerSeconds, seconds),
        "usd": cast(LedgerUsd, dollars),
        "billed_s": round(sums.billed_s, 3),
        "billed_usd": usd(sums.billed_usd),
        "disks_usd": usd(sums.disks_usd),
        "lower_bound": not sums.priced,
        "goodput": _share(sums.goodput),
        "ettr_start": _share(sums.ettr_start),
        "ettr_submit": _share(sums.ettr_submit),
        "usd_per_productive_h": usd(sums.usd_per_productive_h),
    }


def _share(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def csv_text(answer: LedgerList) -> str:
    """One line for each row; seconds and dollars of each class in columns of their own. An unknown figure is empty."""
    text = io.StringIO()
    writer = csv.writer(text)
    plain = ("billed_s", "billed_usd", "disks_usd", "lower_bound", "goodput", "ettr_start", "ettr_submit")
    names = (*plain, "usd_per_productive_h")
    uses = [f"{use}_s" for use in Use] + [f"{use}_usd" for use in ledger.BILLED]
    writer.writerow((answer["by"], "runs", "attempts", *uses, *names))
    for row in answer["rows"]:
        figures = [*row["seconds"].values(), *row["usd"].values(), *(row[name] for name in names)]  # type: ignore[literal-required]
        words = [str(value).lower() if isinstance(value, bool) else value for value in figures]  # as in JSON
        writer.writerow((cell_text(row["name"] or ""), row["runs"], row["attempts"], *words))
    return text.getvalue()


def cell_text(text: str) -> str:
    """A spreadsheet must not read a name as a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


# --- the completion ratio ---------------------------------------------------------------------------------------------

_WHERE = {
    Where.OURS: Whose.OURS, Where.PLACE: Whose.CLOUD, Where.MACHINE: Whose.CLOUD, Where.CARD: Whose.CLOUD,
    Where.IMAGE: Whose.USER, Where.CODE: Whose.USER, Where.DATA: Whose.USER, Where.ACCOUNT: Whose.USER,
}  # fmt: skip
_OF_ATTEMPTS = (Cause.NO_PROGRESS, Cause.LIMIT_REACHED)  # they count ends of attempts


def missed(run: Run) -> tuple[Cause, Whose] | None:
    """Why this ended run missed its own end; None = it reached it, or could not, or was stopped by a person."""
    if run.status in OWN_ENDS or is_stopped(run) or is_own_code(run):
        return None
    cause = run.cause or Cause.UNKNOWN
    return cause, _whose(run, _first_cause(run))


def is_stopped(run: Run) -> bool:
    return run.cause in (None, Cause.STOP_REQUESTED) and run.status == Status.STOPPED


def is_own_code(run: Run) -> bool:
    return run.status not in OWN_ENDS and _first_cause(run) in OWN_CODE and _whose(run, _first_cause(run)) is Whose.USER


def _first_cause(run: Run) -> Cause:
    """Where a limit of ends was reached, the cause of the last end."""
    if run.cause in _OF_ATTEMPTS and run.attempt is not None and run.attempt.cause is not None:
        return run.attempt.cause
    return run.cause or Cause.UNKNOWN


def _whose(run: Run, cause: Cause) -> Whose:
    """By the verdict about its end, as far as that is more than a hint."""
    attempt = run.attempt
    verdict = attempt.verdict if attempt is not None and attempt.cause == cause else None
    if verdict is None or verdict.certainty is Certainty.HINT:
        return whose(cause)
    return _WHERE.get(verdict.where, whose(cause))


def completion_of(runs: Iterable[Run], since: float, *, complete: bool = True) -> Completion:
    """Of those that have ended since then."""
    reached = own_code = stopped = 0
    counts, misses = dict.fromkeys(Whose, 0), list[tuple[float, Miss]]()
    for run in runs:
        if run.status not in TERMINAL or run.status_since < since:
            continue
        reached += run.status in OWN_ENDS
        own_code += is_own_code(run)
        stopped += is_stopped(run)
        miss = missed(run)
        if miss is not None:
            counts[miss[1]] += 1
            misses.append((run.status_since, _miss(run, *miss)))
    could = reached + sum(counts.values())
    misses.sort(key=lambda item: -item[0])
    return {
        "since": formats.time_text(since),
        "ratio": _share(reached / could) if could else None,
        "reached": reached,
        "could": could,
        "own_code": own_code,
        "stopped": stopped,
        "ours": counts[Whose.OURS],
        "user": counts[Whose.USER],
        "cloud": counts[Whose.CLOUD],
        "misses": [miss for _, miss in misses[:MISSES_SHOWN]],
        "complete": complete,
    }


def _miss(run: Run, cause: Cause, of: Whose) -> Miss:
    return {
        "run_id": run.run_id,
        "ended_at": formats.time_text(run.status_since),
        "status": str(run.status),
        "cause": str(cause),
        "whose": str(of),
        "detail": run.detail,
    }


def show_completion(parts: Parts, where: RunFilter, since: float | None) -> Completion:
    """`since` None: of the last 30 days."""
    runs, complete = newest_runs(parts, where)
    begin = parts.clock.now() - COMPLETION_DAYS * 86_400.0 if since is None else since
    return completion_of(runs, begin, complete=complete)
