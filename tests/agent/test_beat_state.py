"""The next beat: always accepted by the supervisor, urgent when necessary."""

import math

import pytest

from supervisor.agent.machine.masking import Masker
from supervisor.agent.watch.beat_state import BeatState, fit_metrics, fit_text
from supervisor.contract import heartbeat
from supervisor.contract.heartbeat import Exit
from supervisor.contract.recent_points import RecentPoint, decode
from tests.agent.bench import IDENTITY, job


@pytest.fixture
def beat_state() -> BeatState:
    return BeatState(job(), IDENTITY)


def test_each_beat_has_a_number_of_its_own(beat_state: BeatState) -> None:
    assert [beat_state.next_beat().sequence for _ in range(3)] == [1, 2, 3]


def test_only_urgent_fields_are_sent_at_once(beat_state: BeatState) -> None:
    woken: list[str] = []
    beat_state.on_urgent(lambda: woken.append(beat_state.now.phase))
    beat_state.update(step=3, metrics={"a": 1.0})
    beat_state.note("x", "something")
    assert woken == []
    beat_state.update(phase="training")
    beat_state.update(phase="training")
    assert woken == ["training"]
    beat_state.update(notice_s=30.0)
    beat_state.update(exit=Exit(1, None, False))
    assert len(woken) == 3


def test_notes_appear_and_disappear_the_latest_first(beat_state: BeatState) -> None:
    beat_state.note("a", "first")
    beat_state.note("b", "second")
    assert beat_state.now.message == "second; first"
    beat_state.note("b", "")
    assert beat_state.now.message == "first"


@pytest.mark.parametrize("text", ["😀" * 5000, "\\" * 5000, '"' * 5000, "\x00\x1b\n" * 500, "\ud800" * 500, "ä" * 300])
def test_the_worst_texts_and_metrics_make_an_accepted_beat(beat_state: BeatState, text: str) -> None:
    beat_state.note("a", text)
    beat_state.update(
        phase="finished",
        step=10**15,
        metrics={("ü" * 60) + str(i): -1.2345678901234567e17 for i in range(40)},
        exit=Exit(1, None, False, 1e9, fit_text(text), True),
    )
    raw = heartbeat.encode(beat_state.next_beat())
    beat = heartbeat.parse(raw)
    assert len(raw) <= heartbeat.MAX_BYTES
    assert beat.phase == "finished"
    assert beat.metrics


def test_beats_carry_the_points_of_a_young_training_and_not_of_an_old_one() -> None:
    now = [100.0]
    beat_state = BeatState(job(), IDENTITY, monotonic=lambda: now[0])
    beat_state.update(step=0)  # not in training yet
    beat_state.update(phase="training")
    carried: list[str] = []
    for second in range(1, 1201):
        now[0] = 100.0 + second / 2
        beat_state.update(step=second, metrics={"loss": 1 / second}, steps_per_s=2.0)
        if second % 20 == 0:
            carried.append(beat_state.next_beat().recent)
    assert [point.up_s for point in decode(carried[2])] == [0.5, 5.5, 10.5, 15.5, 20.5, 25.5]
    assert decode(carried[2])[1] == RecentPoint(5.5, 11, 2.0, {"loss": 0.090909})
    newest = [point.up_s for text in carried for point in decode(text)[-1:]]
    assert max(newest) == 415.5
    assert max(map(len, carried)) <= heartbeat.MAX_RECENT_BYTES
    assert carried[-6:] == [""] * 6


def test_a_beat_carries_masked_metrics() -> None:
    beat_state = BeatState(job(), IDENTITY, Masker({"KEY": "hunter2-hunter2"}))
    beat_state.update(phase="training")
    beat_state.update(step=1, metrics={"hunter2-hunter2": 1.0})
    recent = beat_state.next_beat().recent
    assert recent
    assert "hunter2" not in recent


def test_metrics_that_are_not_finite_numbers_are_left_out() -> None:
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
