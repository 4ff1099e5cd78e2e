"""What the supervisor reports about itself: that it started again, and on a schedule how all runs stand.

The report comes also when nothing has changed: without it, a user cannot tell a calm day from a supervisor that is
gone. Pure: from figures that the loop has read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from supervisor.domain.attempt import Attempt, billed_h
from supervisor.domain.causes import OWN_WAITS
from supervisor.domain.events import Event, EventKind
from supervisor.domain.run import Run
from supervisor.domain.status import ACTIVE, Status
from supervisor.wording.end import loss_accepted
from supervisor.wording.figures import age_text, clip, ended, money_text, plural
from supervisor.wording.forecast import needs_person
from supervisor.wording.run import status_text

SENTENCE_MAX = 240
# In this order; the other statuses pass within minutes and are counted together.
_COUNTED = (Status.RUNNING, Status.WAITING, Status.RECOVERING)


@dataclass(frozen=True, slots=True)
class Problem:
    """`since`: epoch seconds. `of_person`: the run waits for a person."""

    run_id: str
    since: float
    of_person: bool
    sentence: str


@dataclass(frozen=True, slots=True)
class Standing:
    """`counts`: status -> runs. `spent_usd`: in the last `spent_s` seconds, as far as prices are known."""

    counts: Mapping[str, int]
    usd_per_h: float
    spent_usd: float
    spent_s: float
    problems: tuple[Problem, ...] = ()


def problem(run: Run, now: float) -> Problem | None:
    """What keeps this run from going on, if it lasts longer than the next minutes; None = nothing does. A bill whose
    end is not confirmed is one, also after the approval."""
    answered = run.approval is not None and not run.awaits_pull and run.billed is None
    of_person = bool(needs_person(run)) and not loss_accepted(run)
    of_person = of_person or (run.status == Status.AWAITING_TEARDOWN and not answered)
    waits = run.status == Status.WAITING and run.cause not in OWN_WAITS  # our own runs are no problem
    if run.terminal or not (of_person or run.hold or waits or run.away is not None):
        return None
    since = run.waiting.since if run.status == Status.WAITING else None if run.away is None else run.away.since
    if of_person:
        since = run.person.since
    at = run.status_since if since is None else since
    return Problem(run.run_id, at, of_person, status_text(run, now))


def spent_usd(attempts: Iterable[Attempt], since: float, now: float) -> float:
    """What their machines have cost from `since` to `now`; attempts without a known price are left out."""
    total = 0.0
    for attempt in attempts:
        end = attempt.stopped_at if attempt.stopped_at is not None else attempt.gone_at
        billed_s = min(now, now if end is None else end) - max(since, attempt.started_at)
        # A step of the clock within the span is not part of the agent's own count.
        billed_s = min(billed_s, 3600.0 * billed_h(attempt, now))
        total += (attempt.price_usd_per_h or 0.0) * max(0.0, billed_s) / 3600.0
    return total


def report(standing: Standing, now: float) -> Event:
    """'2 running, 1 waiting, 1 needs you. $3.41/h now, $41.70 in the last 24 h. Oldest problem: …'"""
    needed = sum(item.of_person for item in standing.problems)
    parts = [*_counts(standing.counts), *([f"{needed} {'needs' if needed == 1 else 'need'} you"] if needed else [])]
    now_usd, last_usd = money_text(standing.usd_per_h), money_text(standing.spent_usd)
    clauses = [
        ", ".join(parts) or "Nothing runs and nothing waits",
        f"{now_usd}/h now, {last_usd} in the last {age_text(standing.spent_s)}",
    ]
    oldest = min(standing.problems, key=lambda item: item.since, default=None)
    if oldest is not None:
        sentence = clip(oldest.sentence, SENTENCE_MAX)
        clauses.append(f"Oldest problem: {oldest.run_id}, for {age_text(now - oldest.since)}: {sentence}")
    data = {
        "counts": dict(standing.counts),
        "need_you": needed,
        "usd_per_h": round(standing.usd_per_h, 6),
        "spent_usd": round(standing.spent_usd, 6),
        "spent_s": standing.spent_s,
        "oldest_problem": None if oldest is None else oldest.run_id,
    }
    return Event(EventKind.PATROL, " ".join(ended(clause) for clause in clauses), data=data)


def back_again(version: str, away_s: float | None, counts: Mapping[str, int]) -> Event:
    """`away_s` None: unknown, or another supervisor of the same database went on meanwhile."""
    active = {str(status): count for status, count in counts.items() if count and status in ACTIVE}
    away = "" if away_s is None else f" after {age_text(away_s)} away"
    total = sum(active.values())
    runs = f"{plural(total, 'live run')} found: {', '.join(_counts(active))}" if total else "No run is live"
    text = f"Supervisor {version} started again{away}. {runs}."
    data = {"version": version, "away_s": away_s, "runs": active}
    return Event(EventKind.SUPERVISOR_STARTED, text, data=data)


def _counts(counts: Mapping[str, int]) -> list[str]:
    shown = [(str(status), counts.get(status, 0)) for status in _COUNTED]
    others = sum(count for status, count in counts.items() if status in ACTIVE and status not in _COUNTED)
    return [f"{count} {word}" for word, count in [*shown, ("in between", others)] if count]
