"""Each event has one kind of announcement or none, and one change is announced once."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.domain.causes import Cause
from supervisor.domain.events import AWAITING, ENDS_THE_RUN, KINDS, Event, EventKind, Kind, announced

K, C = EventKind, Cause


def word(kind: EventKind, **data: object) -> str | None:
    return announced(Event(kind, "Something happened.", data=data))


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        (K.ATTEMPT_ENDED, {"cause": C.PREEMPTED}, "preempted"),
        (K.ATTEMPT_ENDED, {"cause": "preempted"}, "preempted"),  # as it is read back
        (K.ATTEMPT_ENDED, {"cause": C.STALLED}, "stalled"),
        (K.ATTEMPT_ENDED, {"cause": C.HOST_OOM}, "attempt_ended"),
        (K.ATTEMPT_ENDED, {"cause": C.PREEMPTED, ENDS_THE_RUN: True}, None),
        (K.ATTEMPT_ENDED, {"cause": C.STOP_REQUESTED}, None),
        (K.ATTEMPT_ENDED, {"cause": C.BUDGET}, None),
        (K.ATTEMPT_ENDED, {"cause": C.SUPERSEDED}, None),
        (K.WAITING, {"cause": C.NO_CAPACITY}, "waiting"),
        (K.WAITING, {"cause": C.QUOTA}, "needs_person"),
        (K.WAITING, {"cause": C.LAUNCH_REJECTED}, "needs_person"),
        (K.NEEDS_PERSON, {}, "needs_person"),
        (K.NEEDS_PERSON, {AWAITING: "approval"}, "needs_approval"),
        (K.FAILED, {"cause": C.NO_PROGRESS}, "giving_up"),
        (K.FAILED, {"cause": C.DEADLINE}, "giving_up"),
        (K.FAILED, {"cause": C.NO_CAPACITY}, "giving_up"),
        (K.FAILED, {"cause": C.BUDGET}, "budget_100"),
        (K.FAILED, {"cause": C.RESULTS_UNVERIFIED}, "results_unverified"),
        (K.FAILED, {"cause": C.USER_ERROR}, "failed"),
        (K.FAILED, {}, "failed"),
        (K.BUDGET_WARNING, {}, "budget_80"),
        (K.MACHINE_LEAKED, {}, "orphan_machine"),
        (K.SUPERVISOR_STARTED, {}, "supervisor_restarted"),
        (K.LAUNCHING, {}, None),
        (K.TOKEN_CREATED, {}, None),
        (K.STOP_REQUESTED, {"cause": C.BUDGET}, None),
    ],
)
def test_the_word_of_an_event(kind: EventKind, data: dict[str, object], expected: str | None) -> None:
    assert word(kind, **data) == expected


@given(st.sampled_from(EventKind), st.sampled_from([*Cause, None, "a_cause_of_tomorrow"]), st.booleans())
def test_every_word_is_a_known_kind(kind: EventKind, cause: str | None, last: bool) -> None:
    found = word(kind, cause=cause, **({ENDS_THE_RUN: True} if last else {}))
    assert found is None or found in KINDS


def test_every_kind_can_be_told() -> None:
    causes = [None, *Cause]
    told = {
        word(kind, cause=cause, **extra)
        for kind in K
        for cause in causes
        for extra in ({}, {AWAITING: "approval"}, {"verdict": "fails"})
    }
    assert KINDS.keys() - told == set(), "a kind that nothing is announced as"


def test_what_needs_a_person_is_sent_where_nothing_was_chosen() -> None:
    assert [kind.name for kind in KINDS.values() if kind.urgent and not kind.usual] == []
    assert not KINDS["preempted"].usual, "the run continues by itself"
    assert all(kind.about for kind in KINDS.values())
    assert {field.name for field in fields(Kind)} == {"name", "about", "usual", "urgent"}


def test_results_that_could_not_be_verified_are_the_end_of_a_run_and_no_event_of_their_own() -> None:
    """The kind stands for `failed` with that cause: no rule writes an event of that kind."""
    assert "results_unverified" not in {str(kind) for kind in K}
    assert "results_unverified" in KINDS
