"""The corpus is well-formed: each case can be read, asks for words that exist, and says where it comes from."""

from __future__ import annotations

import json
from collections import Counter
from enum import StrEnum
from pathlib import Path

import pytest

from supervisor.domain.causes import Cause
from supervisor.domain.diagnosis.verdict import Certainty, Retry, Where
from supervisor.lifecycle.evidence import attempt_evidence
from tests.diagnosis.cases import COMPOSED, CORPUS, KINDS, MAX_LOG_BYTES, REAL, Case, families, load
from tests.diagnosis.gotchas import IDS

MAX_BYTES = 2_500_000
OTHER_RULES = (
    "CODE",
    "OWN",
    "OURS",
    "LEFT",
    "RECORD",
    "SAME",
    "SECRET",
    "IMAGE",
    "HANG",
    "RESUME",
    "METRIC",
)  # ends that no trap of the list describes
HERE = (str(Path(__file__).parents[2]), "/.pyenv/", "corpus-agent-")  # folders of the computer that made the cases


@pytest.mark.parametrize("family", families())
def test_each_case_of_a_family_is_well_formed(family: str) -> None:
    for case in load(family):
        check(case)


def check(case: Case) -> None:
    expected = case.expected
    assert expected.cause is None or expected.cause in _values(Cause), case.id
    assert expected.certainty in _values(Certainty), case.id
    assert expected.retry in _values(Retry), case.id
    assert expected.where in _values(Where), case.id
    assert expected.rule.partition(".")[0] in (*IDS, *OTHER_RULES, ""), case.id
    assert set(expected.looks_like) <= {*IDS, *OTHER_RULES}, case.id
    assert set(expected.hints) <= {*IDS, *OTHER_RULES}, case.id
    assert not expected.looks_like or expected.negative, case.id
    assert (expected.cause is None) <= (expected.retry == "none"), case.id
    provenance = case.provenance
    assert provenance["kind"] in KINDS, case.id
    assert provenance["date"], case.id
    if provenance["kind"] != COMPOSED:
        assert provenance["fault"], case.id
        assert provenance["kernel"], case.id
        assert "items" not in case.document, f"{case.id}: only a composed case may add what nobody has seen"
    else:
        assert provenance["seed"].isdigit(), case.id
        assert provenance["text from"], case.id
    assert len(case.log) <= MAX_LOG_BYTES, case.id
    assert attempt_evidence.read(json.dumps(case.document).encode()) is not None, case.id
    raw = (case.folder / "evidence.json").read_text() + case.log.decode("utf-8", "replace")
    assert not any(place in raw for place in HERE), case.id
    assert [offset for offset, _, _ in case.steps] == sorted(offset for offset, _, _ in case.steps), case.id


def test_there_are_enough_cases_and_look_alikes_and_they_are_small() -> None:
    cases = load()
    assert len(cases) >= 400
    assert sum(case.expected.negative for case in cases) >= 150
    assert sum(case.provenance["kind"] == REAL for case in cases) >= 90
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) <= MAX_BYTES


def test_a_fifth_of_the_seeds_is_kept_apart() -> None:
    composed = [case for case in load() if case.provenance["kind"] == COMPOSED]
    assert 0.15 <= sum(case.kept_apart for case in composed) / len(composed) <= 0.35


def test_each_class_of_causes_has_five_cases() -> None:
    causes = Counter(case.expected.cause for case in load())
    small = {cause: count for cause, count in causes.items() if count < 5}
    assert not small, "figures of so few cases say nothing"


def _values(kind: type[StrEnum]) -> set[str]:
    return {member.value for member in kind}
