"""The next beat: always one that the supervisor accepts, urgent when it must be."""

import math

import pytest

from supervisor.agent.situation import Situation, fit_metrics, fit_text
from supervisor.domain import heartbeat
from supervisor.domain.heartbeat import Exit
from tests.agent.desk import IDENTITY, job


@pytest.fixture
def situation() -> Situation:
    return Situation(job(), IDENTITY)


def test_each_beat_has_a_number_of_its_own(situation: Situation) -> None:
    assert [situation.beat().sequence for _ in range(3)] == [1, 2, 3]


def test_only_what_matters_at_once_is_urgent(situation: Situation) -> None:
    woken: list[str] = []
    situation.on_urgent(lambda: woken.append(situation.now.phase))
    situation.tell(step=3, metrics={"a": 1.0})
    situation.note("x", "something")
    assert woken == []
    situation.tell(phase="training")
    situation.tell(phase="training")
    assert woken == ["training"]
    situation.tell(notice_s=30.0)
    situation.tell(exit=Exit(1, None, False))
    assert len(woken) == 3


def test_notes_come_and_go_the_latest_first(situation: Situation) -> None:
    situation.note("a", "first")
    situation.note("b", "second")
    assert situation.now.message == "second; first"
    situation.note("b", "")
    assert situation.now.message == "first"


@pytest.mark.parametrize(
    "text", ["😀" * 5000, "\\" * 5000, '"' * 5000, "\x00\x1b\n" * 500, "\ud800" * 500, "ä" * 300]
)
def test_the_worst_texts_and_metrics_make_a_beat_that_is_accepted(situation: Situation, text: str) -> None:
    situation.note("a", text)
    situation.tell(
        phase="finished",
        step=10**15,
        metrics={("ü" * 60) + str(i): -1.2345678901234567e17 for i in range(40)},
        exit=Exit(1, None, False, 1e9, fit_text(text), True),
    )
    raw = heartbeat.encode(situation.beat())
    beat = heartbeat.parse(raw)
    assert len(raw) <= heartbeat.MAX_BYTES
    assert beat.phase == "finished"
    assert beat.metrics


def test_metrics_that_are_no_finite_numbers_are_left_out() -> None:
    given = {
        "a": 1,
        "b": math.nan,
        "c": math.inf,
        "d": "x",
        "e": True,
        5: 1.0,
        "f" * 65: 1.0,
        "g": 10**400,
        "h": 0.5,
        "i\u202ej": 1.0,
        "\x9b": 1.0,
    }
    assert fit_metrics(given) == {"a": 1.0, "h": 0.5}
    assert len(fit_metrics({str(i): i for i in range(100)})) == 16
