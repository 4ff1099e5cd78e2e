"""Which facts of two attempts differ, and which documents are no facts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from supervisor.lifecycle.evidence.facts import MAX_BYTES, PACKAGES_SHOWN, differences, parse
from supervisor.wording.attempt import FACT_CHARS, fact_text


def facts(packages: list[str] | None = None, **more: Any) -> dict[str, Any]:
    listed = {} if packages is None else {"packages": packages, "packages_sha256": str(packages)}
    return {"python": "3.11.4", "seeds": {}, **listed, **more}


def differing(was: Any, now: Any) -> list[tuple[Any, Any, Any]]:
    return [(row["fact"], row["was"], row["is"]) for row in differences([(1, was), (2, now)])]


def test_equal_attempts_do_not_differ() -> None:
    assert differences([(1, facts(["a==1"])), (2, facts(["a==1"])), (3, facts(["a==1"]))]) == []


def test_each_change_is_reported_once_against_the_attempt_before() -> None:
    rows = differences([(1, facts()), (2, None), (3, facts(python="3.12.0")), (4, facts(python="3.12.0"))])
    assert rows == [{"attempt": 3, "against": 1, "fact": "python", "was": "3.11.4", "is": "3.12.0", "packages": None}]


def test_an_unknown_fact_differs_from_nothing_and_none_differs_from_some() -> None:
    assert differing(facts(torch="2.3"), facts()) == []
    assert differing(facts(torch="2.3"), facts(torch=None)) == [("torch", "2.3", None)]
    assert differing(facts(seeds="?"), facts(seeds={"SEED": "1"})) == []
    assert differing(facts(seeds={"SEED": "1"}), facts(seeds={"SEED": "2", "--seed": "3"})) == [
        ("seed --seed", None, "3"),
        ("seed SEED", "1", "2"),
    ]
    assert differing(facts(gpus=["L4", "L4"]), facts(gpus=["L4", "T4"])) == [("gpus", "2 x L4", "L4, T4")]


def test_packages_are_reported_one_by_one() -> None:
    was = facts(["Same_Name==1", "gone==2", "moved==1.0", "-e file:///src#egg=own"])
    now = facts(["same.name==1", "moved @ git+https://x@abc", "new==1", "-e file:///src#egg=own"])
    (row,) = differences([(1, was), (2, now)])
    assert row["packages"] == {
        "changed": [
            {"was": "moved==1.0", "is": "moved @ git+https://x@abc"},
            {"was": "Same_Name==1", "is": "same.name==1"},
        ],
        "added": ["new==1"],
        "removed": ["gone==2"],
        "left_out": 0,
    }


def test_at_most_twenty_packages_are_reported() -> None:
    was = facts([f"p{number}==1" for number in range(15)] + ["q==1"])
    now = facts([f"p{number}==2" for number in range(15)] + [f"n{number}==1" for number in range(30)])
    (row,) = differences([(1, was), (2, now)])
    shown = row["packages"]
    assert len(shown["changed"]) + len(shown["added"]) + len(shown["removed"]) == PACKAGES_SHOWN
    assert (len(shown["changed"]), shown["left_out"]) == (15, 26)


def test_of_lists_that_were_cut_only_the_hash_is_compared() -> None:
    was = facts(["a==1"], packages_note="the first 1 of 9 packages; the hash is that of all")
    (row,) = differences([(1, was), (2, facts(["a==1", "b==1"]))])
    assert (row["fact"], row["packages"]) == ("packages", None)


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b'{"a": NaN}', b'{"a": 1e999}', b"\xff", b"[" * 100_000, b'{"a": "' + b"x" * MAX_BYTES + b'"}']
)
def test_what_no_agent_writes_is_no_facts(raw: bytes) -> None:
    assert parse(raw) is None


def test_unexpected_values_are_reported_and_never_raise() -> None:
    assert parse(json.dumps({"gpus": 3}).encode()) == {"gpus": 3}
    assert differing(facts(gpus=3, seeds=[1], code={}), facts(gpus=None, seeds={}, code="c")) == [
        ("code", "{}", "c"),
        ("gpus", "3", None),
    ]
    strange = facts(packages="no list", packages_sha256="x")  # type: ignore[arg-type]
    assert [row["fact"] for row in differences([(1, strange), (2, facts(["a==1"]))])] == ["packages"]
    assert len(str(fact_text("x" * 9999))) == FACT_CHARS
