"""Verdicts against answers: what is right, what is dangerous, and the figures that must hold."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from supervisor.domain.causes import Cause
from supervisor.domain.diagnosis.evidence import Evidence, Source
from supervisor.domain.diagnosis.verdict import Certainty, Quote, Retry, Verdict
from supervisor.lifecycle.diagnosis.diagnose import diagnose, findings
from supervisor.lifecycle.diagnosis.rule import Rule
from supervisor.lifecycle.diagnosis.rules.table import LIVING, RULES
from tests.diagnosis.cases import Case
from tests.diagnosis.seen import evidence_of

LEAST_OF_A_CLASS = 5
OF_THE_USER = frozenset({"user_error", "gpu_oom", "command_not_found", "image_error"})
FREE = frozenset({Retry.FREE_ELSEWHERE, Retry.FREE_SAME})
PAID = frozenset({Retry.ONCE_IDENTICAL, Retry.ONCE_AFTER_REPAIR})
SHRINKS = frozenset({"smaller_batch"})
DELETES = frozenset({"prune_scratch"})  # the one remedy of ours that may remove files, and only there
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Judged:
    """One case with its verdict. `cause`, `retry` and `remedy`: right or not; `gotcha`: the rule is one of the case's
    gotcha, None = the case asks for none."""

    case: Case
    verdict: Verdict
    found: tuple[Verdict, ...]  # findings of the living run
    cause: bool
    retry: bool
    remedy: bool
    gotcha: bool | None
    false_alarm: bool  # a look-alike was taken for one of the rules that it only resembles
    wrong_quotes: tuple[Quote, ...]
    seconds: float

    @property
    def decided(self) -> bool:
        return self.verdict.certainty != Certainty.HINT

    @property
    def certain_and_wrong(self) -> bool:
        return self.verdict.certainty == Certainty.CERTAIN and not self.cause

    @property
    def too_sure(self) -> bool:
        return self.verdict.certainty == Certainty.CERTAIN and self.case.expected.certainty == "likely"

    @property
    def right(self) -> bool:
        return self.cause and self.retry and self.remedy and not self.false_alarm and self.hints_right

    @property
    def hints_right(self) -> bool:
        """Each expected hint is among the findings."""
        ids = {gotcha for verdict in self.found for gotcha in gotchas_of(verdict.rule)}
        return set(self.case.expected.hints) <= ids


_GOTCHAS = {rule.id: frozenset((*rule.gotchas, rule.id.partition(".")[0])) for rule in (*RULES, *LIVING)}


def gotchas_of(rule_id: str) -> frozenset[str]:
    return _GOTCHAS.get(rule_id, frozenset({rule_id.partition(".")[0]}))


def judge(
    case: Case, evidence: Evidence | None = None, rules: Sequence[Rule] = RULES, living: Sequence[Rule] = LIVING
) -> Judged:
    evidence, expected = evidence or evidence_of(case), case.expected
    begun = time.thread_time()
    verdict = diagnose(evidence, rules)
    seconds = time.thread_time() - begun
    is_alive = expected.cause is None
    found = findings(evidence, living) if is_alive else ()
    gotchas = gotchas_of(verdict.rule) | {gotcha for hint in found for gotcha in gotchas_of(hint.rule)}
    words = [remedy.word for remedy in verdict.remedies]
    right = (None if verdict.cause is None else verdict.cause.value) == expected.cause
    return Judged(
        case, verdict, found,
        cause=right,
        retry=verdict.retry.value == expected.retry,
        remedy=not expected.remedies or bool(set(expected.remedies) & set(words)),
        gotcha=_is_gotcha(expected.rule, verdict.rule),
        false_alarm=expected.negative and bool(set(expected.looks_like) & gotchas) and (is_alive or not right),
        wrong_quotes=tuple(quote for quote in verdict.quotes if not is_verbatim(quote, evidence, case)),
        seconds=seconds,
    )  # fmt: skip


def _is_gotcha(expected: str, rule_id: str) -> bool | None:
    if not expected:
        return None
    return expected in gotchas_of(rule_id) or rule_id.startswith(expected)


def is_verbatim(quote: Quote, evidence: Evidence, case: Case) -> bool:
    """A text stands in the log or in a text of the evidence; the numbers of a figure are values of its item."""
    if quote.source == Source.LOG:
        log = case.log.decode("utf-8", "replace")
        last_line = evidence.exit.last_line if evidence.exit is not None else ""
        return quote.text in log or quote.text in _ANSI.sub("", log) or quote.text in last_line
    items = evidence.items.get(quote.item, ())
    texts = [text for item in items for text in (str(item.value), item.where)]
    if any(quote.text in text for text in texts):
        return True
    values = [value for item in items for value in (item.value if isinstance(item.value, tuple) else (item.value,))]
    numbers = {float(value) for value in values if isinstance(value, int | float)}
    return all(float(number) in numbers for number in _NUMBER.findall(quote.text))


# --- the dangerous ends -----------------------------------------------------------------------------------------------


def healthy_run_killed(judged: Judged) -> bool:
    return judged.case.expected.cause is None and judged.verdict.cause is not None


def user_bug_retried(judged: Judged) -> bool:
    expected = judged.case.expected
    return expected.cause in OF_THE_USER and expected.retry == "never" and judged.verdict.retry in FREE | PAID


def free_failure_charged(judged: Judged) -> bool:
    return judged.case.expected.retry in FREE and judged.verdict.retry in PAID | {Retry.NEVER}


def batch_advice(judged: Judged) -> bool:
    """Advice to shrink the batch without a verdict about the card's memory, or where that verdict is wrong."""
    shrinks = any(remedy.word in SHRINKS for remedy in judged.verdict.remedies)
    return shrinks and not (judged.verdict.cause == Cause.GPU_OOM and judged.case.expected.cause == "gpu_oom")


def deletes_outside_scratch(judged: Judged) -> bool:
    words = ("delete", "remove", "prune")
    return any(
        remedy.ours and remedy.word not in DELETES and any(word in remedy.text.lower() for word in words)
        for remedy in judged.verdict.remedies
    )


DANGERS = {
    "healthy_run_killed": healthy_run_killed,
    "user_bug_retried_for_money": user_bug_retried,
    "free_failure_charged": free_failure_charged,
    "batch_advice_without_memory": batch_advice,
    "deleted_outside_scratch": deletes_outside_scratch,
}


# --- figures ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figures:
    judged: tuple[Judged, ...]
    dangers: dict[str, list[Judged]] = field(default_factory=dict)

    def share(self, name: str) -> float:
        return _share(getattr(each, name) for each in self.judged)

    @property
    def with_remedy(self) -> float:
        return _share(each.remedy for each in self.judged if each.case.expected.remedies)

    @property
    def coverage(self) -> float:
        """Of the ends: how many got more than a guess."""
        return _share(each.decided for each in self.judged if each.case.expected.cause is not None)

    @property
    def precision(self) -> float:
        return _share(each.cause for each in self.judged if each.decided)

    @property
    def hints(self) -> float:
        return _share(each.hints_right for each in self.judged if each.case.expected.hints)

    def recall(self) -> dict[str, tuple[int, int]]:
        """Cause -> (right, all), "alive" for None."""
        rows: dict[str, list[bool]] = {}
        for each in self.judged:
            rows.setdefault(each.case.expected.cause or "alive", []).append(each.cause)
        return {cause: (sum(right), len(right)) for cause, right in sorted(rows.items())}

    def matrix(self) -> Counter[tuple[str, str]]:
        """(cause of the answer, cause of the verdict) -> cases."""
        return Counter(
            (each.case.expected.cause or "alive", (each.verdict.cause.value if each.verdict.cause else _none(each)))
            for each in self.judged
        )

    def milliseconds(self) -> float:
        """The slowest verdict but one in a hundred."""
        seconds = sorted(each.seconds for each in self.judged)
        return 1000 * seconds[int(0.99 * (len(seconds) - 1))] if seconds else 0.0


def measure(cases: Iterable[Case]) -> Figures:
    judged = tuple(judge(case) for case in cases)
    return Figures(judged, {name: [each for each in judged if danger(each)] for name, danger in DANGERS.items()})


def hints_that_acted(judged: Iterable[Judged]) -> list[Judged]:
    return [
        each
        for each in judged
        if any(hint.cause is not None or hint.retry != Retry.NONE for hint in each.found)
        or (each.verdict.certainty == Certainty.HINT and each.verdict.cause is not None)
    ]


def _none(each: Judged) -> str:
    return "unknown" if each.verdict.certainty == Certainty.HINT else "alive"


def _share(values: Iterable[object]) -> float:
    listed = [bool(value) for value in values]
    return sum(listed) / len(listed) if listed else 1.0
