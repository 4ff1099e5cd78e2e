"""Documents: exact in both directions, small, and without texts that the two databases store differently."""

import json
import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.domain.attempt import Attempt, Pulse, Try
from supervisor.domain.machines import Placement
from supervisor.domain.run import Counters, Files, Image, Money, Outcome, Person, Run, Waiting
from supervisor.domain.status import Status
from supervisor.storage.engine.codec import dumps, from_plain, to_plain
from tests.contracts.store_values import a_run, an_attempt, filled
from tests.lifecycle.sample_runs import run_in


@pytest.mark.parametrize("cls", [Run, Attempt, Try, Pulse])
@pytest.mark.parametrize("seed", ["x", "another", "a third one"])
def test_every_field_goes_there_and_back(cls: type, seed: str) -> None:
    value = filled(cls, seed)
    back = from_plain(cls, json.loads(dumps(to_plain(value))))
    assert back == value
    assert repr(back) == repr(value)  # == takes 1 for True and a text for its enum


def test_what_equals_its_default_costs_nothing() -> None:
    assert to_plain(Counters()) == {}
    assert to_plain(Counters(tries=2)) == {"tries": 2}
    plain = to_plain(a_run())
    assert "hold" not in plain
    assert plain["policy"] == {}
    assert from_plain(Run, {**plain, "hold": "x"}) == a_run(hold="x")


def test_a_field_of_another_version_is_ignored() -> None:
    assert from_plain(Counters, {"tries": 2, "invented_later": [1]}) == Counters(tries=2)


def test_equal_placements_are_one_object() -> None:
    one, two = (from_plain(Attempt, to_plain(an_attempt(n))) for n in (1, 2))
    assert one.placement is two.placement
    other = replace(an_attempt().placement, spot=False)
    assert from_plain(Placement, to_plain(other)) == other


def test_enums_come_back_as_enums() -> None:
    assert from_plain(Run, to_plain(a_run(status=Status.WAITING))).status is Status.WAITING


def test_a_type_without_a_form_is_refused_at_once() -> None:
    @dataclass(frozen=True)
    class Odd:
        value: bytes

    with pytest.raises(TypeError, match="bytes"):
        to_plain(Odd(b""))


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, "\x00", "a\x00b", "\\\x00", {"\x00": 1}, ["\ud800"], {"\udc00": 1}]
)
def test_what_cannot_be_stored_alike_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        dumps({"deep": [value]})


@pytest.mark.parametrize("value", ["\\u0000", "\\\\u0000", "u0000", "\\ud800", "\U0001f600", "\x01\x7f\u2028"])
def test_what_only_looks_like_it_is_not(value: str) -> None:
    assert json.loads(dumps([value])) == [value]
    assert json.loads(json.loads(dumps([dumps([value])]))[0]) == [value]


def test_the_fields_of_a_group_are_stored_beside_those_of_its_run() -> None:
    """Rows of older versions have them so; default values cost no bytes there either."""
    run = run_in(
        Status.WAITING,
        waiting=Waiting(since=7.0, reasons=("quota",)),
        money=Money(cost_usd=2.5, all_known=False),
        person=Person(why="look", since=9.0),
        image=Image(digest="train@sha256:1"),
        files=Files(checkpoint_step=8, outcome=Outcome("ff", 3, 412, 9.0, 8), pulled_sha256="ff", purging=True),
    )
    doc = json.loads(dumps(to_plain(run)))
    stored = {
        "waiting_since": 7.0, "waiting_told": ["quota"], "cost_usd": 2.5, "cost_known": False, "needs_person": "look",
        "needs_person_at": 9.0, "image_digest": "train@sha256:1", "checkpoint_step": 8, "pulled": "ff", "purging": True,
        "outcome": {"results_sha256": "ff", "files": 3, "size_bytes": 412, "verified_at": 9.0, "step": 8},
    }  # fmt: skip
    assert {name: doc.get(name) for name in stored} == stored
    groups = {"waiting", "money", "person", "image", "files"}
    assert not doc.keys() & {*groups, "waited_s", "reminded_at", "pinned_for", "checkpoint_bytes", "purged_at"}
    assert from_plain(Run, doc) == run
    assert from_plain(Run, to_plain(run_in(Status.PENDING))) == run_in(Status.PENDING)


ODD = ["\x00", "\\u0000", "\ud800", 2**63 - 1, 2**64, float("nan"), float("inf")]
PLAIN = st.text(st.characters(codec=None, categories=None), max_size=5) | st.integers() | st.floats()
PLAIN |= st.none() | st.booleans() | st.sampled_from(ODD)


def has_nul(value: object) -> bool:
    if isinstance(value, dict):
        return any(has_nul(part) for item in value.items() for part in item)
    return any(map(has_nul, value)) if isinstance(value, list) else "\x00" in str(value)


@given(values=st.lists(PLAIN | st.lists(PLAIN, max_size=3) | st.dictionaries(st.text(max_size=2), PLAIN, max_size=2)))
def test_the_fast_encoder_stores_and_refuses_as_the_standard_one(values: list[Any]) -> None:
    try:
        expected = json.dumps(values, allow_nan=False, ensure_ascii=False)
        is_stored = bool(expected.encode()) and not has_nul(values)
    except ValueError:
        is_stored = False
    if is_stored:
        assert json.loads(dumps(values)) == json.loads(expected)
    else:
        with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
            dumps(values)
