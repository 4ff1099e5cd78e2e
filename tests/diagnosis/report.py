"""What `make diagnose` prints, and the part of docs/diagnosis.md that it writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from supervisor.lifecycle.diagnosis.rules.table import LIVING, RULES
from tests.diagnosis.cases import REAL
from tests.diagnosis.doors import measured
from tests.diagnosis.following import ACTS, dangers, followed
from tests.diagnosis.gotchas import GOTCHAS, Page, Prevented, Rule, is_open
from tests.diagnosis.measuring import LEAST_OF_A_CLASS, Figures, Judged, hints_that_acted
from tests.diagnosis.mutations import unfed

PAGE = Path(__file__).parents[2] / "docs" / "diagnosis.md"
BEGIN, END = "<!-- table: make diagnose ARGS=--write -->", "<!-- end of the table -->"
SHARES = {"cause": 0.95, "retry": 0.95, "remedy": 0.95, "precision": 0.98, "coverage": 0.90}
OF_A_CLASS = 0.90
MILLISECONDS = 5.0


def figures_of(figures: Figures) -> dict[str, Any]:
    """Everything that has a target, by name."""
    judged = figures.judged
    return {
        "cases": len(judged),
        "real": sum(each.case.provenance["kind"] == REAL for each in judged),
        "negatives": sum(each.case.expected.negative for each in judged),
        "cause": round(figures.share("cause"), 4),
        "retry": round(figures.share("retry"), 4),
        "remedy": round(figures.with_remedy, 4),
        "precision": round(figures.precision, 4),
        "coverage": round(figures.coverage, 4),
        "hints": round(figures.hints, 4),
        "certain_and_wrong": sum(each.certain_and_wrong for each in judged),
        "surer_than_the_evidence": sum(each.too_sure for each in judged),
        "false_alarms": sum(each.false_alarm for each in judged),
        "hints_that_acted": len(hints_that_acted(judged)),
        "quotes_not_verbatim": sum(bool(each.wrong_quotes) for each in judged),
        **{name: len(cases) for name, cases in figures.dangers.items()},
        "classes_below": sorted(
            cause
            for cause, (right, count) in figures.recall().items()
            if count >= LEAST_OF_A_CLASS and right < OF_A_CLASS * count
        ),
        "kept_apart": round(_right(each for each in judged if each.case.kept_apart), 4),
        "ms": round(figures.milliseconds(), 2),
        "open_gotchas": sum(map(is_open, GOTCHAS)),
        "rules_without_facts": len(unfed()),
        "doors": measured(each.case for each in judged),
        "acts": acts_of(judged),
        "gotchas_without_facts": sorted(waiting_gotchas()),
    }


def acts_of(judged: Sequence[Judged]) -> dict[str, int]:
    """What would really follow: the ends that the supervisor concludes, and the dangerous ones among them."""
    ends = followed(judged)
    return {"ends": len(ends), **{name: len(cases) for name, cases in dangers(ends).items()}}


ZERO = (
    "certain_and_wrong", "hints_that_acted", "quotes_not_verbatim", "healthy_run_killed", "user_bug_retried_for_money",
    "free_failure_charged", "batch_advice_without_memory", "deleted_outside_scratch", "not_total", "rules_unneeded",
    "excludes_unguarded",
)  # fmt: skip

# At the other doors. Whether a bug is repeated is for the row of the run too, so it is counted by what would follow.
AT_DOORS = ("certain_and_wrong", "healthy_run_killed", "batch_advice_without_memory", "deleted_outside_scratch")


def missed(figures: Mapping[str, Any]) -> list[str]:
    """The targets that are not reached, in words."""
    low = [f"{name} {figures[name]:.1%} of {goal:.0%}" for name, goal in SHARES.items() if figures[name] < goal]
    some = [f"{name} {figures[name]} instead of 0" for name in ZERO if figures.get(name)]
    acts, doors = figures["acts"], figures["doors"]
    some += [f"{name} {acts[name]} instead of 0, by what would follow" for name in ACTS if acts[name]]
    for door, at in doors.items():
        some += [f"{name} {at[name]} instead of 0, by {door}" for name in AT_DOORS if at[name]]
    classes = [f"class {cause} below {OF_A_CLASS:.0%}" for cause in figures["classes_below"]]
    slow = [f"a verdict takes {figures['ms']} ms of {MILLISECONDS:.0f}"] if figures["ms"] > MILLISECONDS else []
    return [*some, *low, *classes, *slow]


def matrix(figures: Figures) -> list[str]:
    """The confusion matrix without its diagonal: what was taken for what."""
    rows = figures.recall()
    width = max(map(len, rows), default=5)
    lines = [f"{'cause':<{width}}  right  of   taken for"]
    wrong: dict[str, Counter[str]] = {}
    for (expected, given), count in figures.matrix().items():
        if expected != given:
            wrong.setdefault(expected, Counter())[given] += count
    for cause, (right, count) in rows.items():
        others = ", ".join(f"{other} {number}" for other, number in wrong.get(cause, Counter()).most_common())
        lines.append(f"{cause:<{width}}  {right:>5}  {count:>3}  {others}")
    return lines


def distances(judged: Sequence[Judged], whole: bool = False) -> list[str]:
    """Cases that are not right yet. Of one mechanism one line, unless `whole`."""
    lines, shown = [], set()
    for each in judged:
        mechanism = each.case.id.rstrip("0123456789")
        if each.right or (mechanism in shown and not whole):
            continue
        shown.add(mechanism)
        expected, verdict = each.case.expected, each.verdict
        want = f"{expected.cause or 'alive'} ({', '.join([expected.retry, *expected.remedies[:1]])})"
        hints = f", hints {', '.join(expected.hints)}" if expected.hints else ""
        same = sum(not other.right and other.case.id.rstrip("0123456789") == mechanism for other in judged)
        words = ", ".join(remedy.word for remedy in verdict.remedies)
        lines.append(
            f"{each.case.id} (of {same}): should be {want}{hints}; is {verdict.rule}: {verdict.cause} "
            f"{verdict.certainty} ({verdict.retry}, {words})"
        )
    return lines


def table(figures: Figures, values: Mapping[str, Any]) -> str:
    """For the page; false stops first."""
    rows = [
        "| what | figure | goal |", "|---|---|---|",
        *(f"| {_words(name)} | {values[name]} | 0 |" for name in (
            "healthy_run_killed", "user_bug_retried_for_money", "free_failure_charged", "batch_advice_without_memory",
            "deleted_outside_scratch", "certain_and_wrong", "hints_that_acted", "quotes_not_verbatim",
        )),
        *(f"| {_words(name)}, by what would follow | {values['acts'][name]} | 0 |" for name in ACTS),
        f"| free failures charged because nothing collects the facts yet | {values['acts']['without_facts']} | |",
        f"| bugs repeated once after work, because what they met may be over | {values['acts']['may_pass']} | |",
        f"| verdicts surer than the evidence allows | {values['surer_than_the_evidence']} | |",
        f"| look-alikes taken for the rule that they resemble | {values['false_alarms']} | |",
        f"| cause right | {values['cause']:.1%} | ≥ 95 % |",
        f"| retry class right | {values['retry']:.1%} | ≥ 95 % |",
        f"| remedy right | {values['remedy']:.1%} | ≥ 95 % |",
        f"| precision of certain and likely verdicts | {values['precision']:.1%} | ≥ 98 % |",
        f"| coverage: ends with more than a guess | {values['coverage']:.1%} | ≥ 90 % |",
        f"| hints about slow runs shown where they belong | {values['hints']:.1%} | |",
        f"| cause right in cases kept apart | {values['kept_apart']:.1%} | |",
        f"| cause right by the beat alone, which decides what follows | {values['doors']['beat']['cause']:.1%} | |",
        f"| the same by a log and loose facts | {values['doors']['files']['cause']:.1%} | |",
        f"| certain and wrong by the beat alone | {values['doors']['beat']['certain_and_wrong']} | 0 |",
        f"| certain and wrong by a log and loose facts | {values['doors']['files']['certain_and_wrong']} | 0 |",
        f"| traps of the list without a place | {values['open_gotchas']} of {len(GOTCHAS)} | 0 |",
        f"| traps whose rules wait for facts that nothing collects yet | {len(values['gotchas_without_facts'])} | 0 |",
        "",
        f"{values['cases']} cases, {values['real']} made by real faults; {values['negatives']} are look-alikes.",
        "",
        "| cause | right | cases | real | taken for |", "|---|---|---|---|---|",
    ]  # fmt: skip
    real = Counter(
        each.case.expected.cause or "alive" for each in figures.judged if each.case.provenance["kind"] == REAL
    )
    for (cause, (right, count)), line in zip(figures.recall().items(), matrix(figures)[1:], strict=True):
        others = line.split(f"{right:>5}  {count:>3}  ", 1)[1]
        rows.append(f"| {cause} | {right} | {count} | {real[cause]} | {others} |")
    return "\n".join(rows)


def written(page: str, new: str) -> str:
    """The page with its table replaced."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{new}\n\n{END}{rest.partition(END)[2]}"


def waiting_gotchas() -> set[str]:
    """Traps of which every rule waits for facts that nothing collects yet, and that no test of a prevention covers."""
    waiting = {rule.id for rule in unfed()}
    fed = {gotcha for rule in (*RULES, *LIVING) if rule.id not in waiting for gotcha in rule.gotchas}
    with_rule = {name for name, places in GOTCHAS.items() if Rule() in places}
    return {name for name in with_rule - fed if not any(isinstance(place, Prevented | Page) for place in GOTCHAS[name])}


def _words(name: str) -> str:
    return name.replace("_", " ")


def _right(judged: Iterable[Judged]) -> float:
    listed = [each.cause for each in judged]
    return sum(listed) / len(listed) if listed else 1.0
