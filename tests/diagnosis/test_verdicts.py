"""Verdicts on the corpus: what is right today stays right, and the dangerous mistakes stay away.

`make diagnose` measures the whole with its targets; this holds what has been reached.
"""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.lifecycle.diagnosis.rules.table import LIVING, RULES
from tests.diagnosis import mutations, report
from tests.diagnosis.cases import families, load
from tests.diagnosis.floors import ACT_LIMITS, DOOR_LIMITS, LIMITS, read_floors
from tests.diagnosis.gotchas import GOTCHAS, Rule, is_open
from tests.diagnosis.measuring import Figures, gotchas_of, hints_that_acted, judge, measure


@pytest.fixture(scope="module")
def figures() -> Figures:
    return measure(load())


@pytest.fixture(scope="module")
def values(figures: Figures) -> dict[str, Any]:
    return report.figures_of(figures)


@pytest.mark.parametrize("family", families())
def test_what_is_right_stays_right(family: str, figures: Figures) -> None:
    right = sum(each.right for each in figures.judged if each.case.family == family)
    wrong = [each.case.id for each in figures.judged if each.case.family == family and not each.right]
    assert right >= read_floors()[family], wrong


def test_the_dangerous_mistakes_do_not_come_back(figures: Figures, values: dict[str, Any]) -> None:
    worse = {name: (values[name], limit) for name, limit in LIMITS.items() if values[name] > limit}
    assert not worse, {name: figures.dangers.get(name) for name in worse}


def test_the_other_doors_make_no_more_dangerous_mistakes(values: dict[str, Any]) -> None:
    """The beat decides what follows an end; a document and files only explain it."""
    for name, limits in DOOR_LIMITS.items():
        door = values["doors"][name]
        assert door["cases"] >= 700
        assert door["cause"] >= 0.95
        assert {danger: door[danger] for danger, limit in limits.items() if door[danger] > limit} == {}, name


def test_what_would_follow_is_no_more_dangerous(values: dict[str, Any]) -> None:
    acts = values["acts"]
    assert acts["ends"] >= 900
    assert {name: acts[name] for name, limit in ACT_LIMITS.items() if acts[name] > limit} == {}


def test_no_hint_acts(figures: Figures) -> None:
    assert not hints_that_acted(figures.judged)


def test_each_verdict_is_the_same_in_any_order_and_there_is_always_one() -> None:
    assert mutations.not_total(200) == []


def test_a_broken_rule_is_noticed(figures: Figures) -> None:
    """Without the rules of one trap its cases are wrong; without the excludes of the counter's rule a look-alike is."""
    for gotcha in ("U9", "U10", "U6", "U22"):
        rules = tuple(rule for rule in RULES if gotcha not in gotchas_of(rule.id))
        cases = [each for each in figures.judged if each.case.expected.rule == gotcha and each.right]
        assert cases
        assert not any(judge(each.case, rules=rules).right and each.gotcha for each in cases[:3]), gotcha


def test_each_trap_with_a_rule_has_one_and_none_with_a_rule_is_open() -> None:
    named = {gotcha for rule in (*RULES, *LIVING) for gotcha in rule.gotchas}
    missing = [name for name, places in GOTCHAS.items() if Rule() in places and name not in named]
    closed = [name for name in GOTCHAS if is_open(name) and name in named]
    assert not missing, "no rule names them"
    assert not closed, "a rule names them now: they are not open any more"


def test_the_page_promises_no_more_than_is_measured(figures: Figures, values: dict[str, Any]) -> None:
    """After a change of rules or cases, `make diagnose ARGS=--write` writes the new table."""
    page = report.PAGE.read_text().partition(report.BEGIN)[2].partition(report.END)[0]
    shown, measured = _rows(page), _rows(report.table(figures, values))
    assert shown.keys() == measured.keys()
    for label, (figure, is_bad) in measured.items():
        better = shown[label][0] < figure if is_bad else shown[label][0] > figure
        assert not better, (label, shown[label][0], figure)


def _rows(table: str) -> dict[str, tuple[float, bool]]:
    """Label -> (its figure, whether less of it is better)."""
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("|")]
    return {
        row[0]: (float(row[1].split()[0].rstrip("%")), not row[1].endswith("%"))
        for row in cells
        if len(row) == 3 and row[1][:1].isdigit()
    }
