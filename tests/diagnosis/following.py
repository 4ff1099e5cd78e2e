"""What would follow each end: the row of the table of causes that the supervisor applies, found as it finds it.

The verdict's retry class says what helps; this says what happens. Every end is measured with a newer checkpoint:
without one most rows end the run, so no money is spent, and nothing is charged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from supervisor.domain.causes import Cause, CauseRule, Kind, rule_for
from supervisor.domain.diagnosis.verdict import Retry
from supervisor.domain.status import Status
from supervisor.lifecycle.diagnosis.diagnose import diagnose
from supervisor.lifecycle.diagnosis.reading import of_end
from supervisor.lifecycle.diagnosis.rules.table import KNOWN_ENDS, RULES
from supervisor.lifecycle.ending.ending import End
from supervisor.lifecycle.ending.exits import end_in, stall_of
from supervisor.lifecycle.ending.retrying import conditions
from tests.diagnosis.cases import Case, Expected
from tests.diagnosis.doors import reported
from tests.diagnosis.measuring import FREE, OF_THE_USER, PAID, Judged
from tests.diagnosis.mutations import unfed
from tests.diagnosis.seen import evidence_of
from tests.lifecycle.sample_runs import NOW, WORLD, attempt, run_in

REPEATS = frozenset({Kind.FREE, Kind.PACED, Kind.INFRA, Kind.PAID, Kind.USER})  # any other kind ends the run or asks


@dataclass(frozen=True)
class Followed:
    """`row`: of the table of causes. `repeats`: another attempt follows by itself. `waits`: the rule that explains this
    end waits for facts that nothing collects yet, so nobody can act on it. `may_pass`: by the rule that explains it,
    what the command met may be over when it gets there again."""

    case: Case
    row: CauseRule
    repeats: bool
    waits: bool
    may_pass: bool

    @property
    def expected(self) -> Expected:
        return self.case.expected


def followed(judged: Iterable[Judged]) -> list[Followed]:
    """Of the ends that the supervisor concludes from a beat, a record or a limit."""
    waiting = {rule.id for rule in unfed()} - {"SAME.twice"}  # the row of the run has the last failure
    passing = {rule.id for rule in RULES if rule.may_pass}
    made = ((each, _row(each.case)) for each in judged)
    return [
        Followed(
            each.case,
            row,
            row.kind in REPEATS and not _is_over(each.case),
            waits=each.verdict.rule in waiting,
            may_pass=each.verdict.rule in passing,
        )
        for each, row in made
        if row is not None
    ]


def _row(case: Case) -> CauseRule | None:
    seen = reported(case)
    run = run_in(Status.RUNNING, attempt=attempt(1)) if seen is None else seen.run
    if seen is None:
        end = _own_end(case)
    elif seen.stalled:
        end = stall_of(run, seen.beat, seen.observation, seen.stalled)
    else:
        end = end_in(run, seen.beat, seen.observation, WORLD, seen.before)
    if end is None:
        return None
    return rule_for(end.cause, True, False, conditions(run, end.verdict, None, WORLD, NOW, freed=end.freed))


def _own_end(case: Case) -> End | None:
    """What the supervisor itself decides, or the platform's record says."""
    document = case.document
    records = document.get("records") or ()
    cause = document["cause"] or next((record["cause"] for record in records), None)
    if cause is None:
        return None
    detail = document["detail"] or next((record["detail"] for record in records), "")
    verdict = diagnose(of_end(Cause(cause), detail), KNOWN_ENDS)
    return End(Cause(cause), detail, verdict=verdict if verdict.cause == cause else None)


def _is_over(case: Case) -> bool:
    """The run ends whatever the row says: the same failure at the same step as the last time, or a metric that its
    `watch` ends it for."""
    return any(name in evidence_of(case).items for name in ("repeat.same", "metric.lasting"))


# --- the dangerous ends -----------------------------------------------------------------------------------------------


def healthy_run_killed(each: Followed) -> bool:
    return each.expected.cause is None


def user_bug_retried(each: Followed) -> bool:
    return not each.may_pass and bug_repeated(each)


def bug_repeated(each: Followed) -> bool:
    return each.repeats and each.expected.cause in OF_THE_USER and each.expected.retry == Retry.NEVER


def free_failure_charged(each: Followed) -> bool:
    return each.expected.retry in FREE and not each.waits and (each.row.counts or each.row.kind == Kind.FINAL)


def passing_failure_ended(each: Followed) -> bool:
    """A repeat may help, and none follows, although it is not the second such failure."""
    return each.expected.retry in FREE | PAID and not each.waits and each.row.kind == Kind.FINAL


ACTS: dict[str, Callable[[Followed], bool]] = {
    "healthy_run_killed": healthy_run_killed,
    "user_bug_retried_for_money": user_bug_retried,
    "free_failure_charged": free_failure_charged,
    "passing_failure_ended": passing_failure_ended,
}


def dangers(ends: Iterable[Followed]) -> dict[str, list[str]]:
    """Each dangerous end that would follow -> its cases. `without_facts`: free ends that nothing can tell apart yet.
    `may_pass`: bugs by their label that are repeated once, because nobody knows whether they are over."""
    listed = list(ends)
    found = {name: [each.case.id for each in listed if is_it(each)] for name, is_it in ACTS.items()}
    return found | {
        "without_facts": [each.case.id for each in listed if each.waits and each.expected.retry in FREE],
        "may_pass": [each.case.id for each in listed if each.may_pass and bug_repeated(each)],
    }
