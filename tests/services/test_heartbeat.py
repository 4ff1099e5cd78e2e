"""The inbox: which beats are accepted, which one counts, what wakes the loop, and the responses."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from supervisor.contract.heartbeat import BeatRejected, Exit, encode
from supervisor.domain.attempt import Pulse
from supervisor.domain.errors import NonceRefused, NotFound, RunEnded, Unavailable
from supervisor.ports.store import StoreDown
from supervisor.services.runs.heartbeat import (
    ATTENDED_PER_S,
    ATTENDED_PUSH_S,
    ATTENDED_S,
    REJECTION_EVENT_S,
    BeatResponse,
)
from tests.services.bed import Bed, beat


def push(bed: Bed, sequence: int = 1, launch_id: str = "1.1.1", **fields: object) -> BeatResponse:
    return bed.inbox.receive("digits-7", encode(beat("digits-7", sequence, launch_id, **fields)))


@pytest.fixture
def training(bed: Bed) -> Bed:
    bed.submit("digits-7")
    bed.train("digits-7")
    bed.wake.sets = 0
    return bed


def test_a_beat_is_taken_with_its_time_of_receipt(training: Bed) -> None:
    training.clock.advance(5)
    push(training, 3, step=7)
    training.clock.step(3600)
    kept, received = training.inbox.take()["digits-7"]
    assert (kept.sequence, kept.step) == (3, 7)
    assert received == training.clock.monotonic()


def test_the_newest_wins_whatever_the_order(training: Bed) -> None:
    training.train("digits-7", number=2)
    training.train("digits-7", number=10)
    beats = [(seq, launch) for launch in ("1.1.1", "1.2.1", "1.10.1") for seq in (1, 2, 11)]
    for seed in range(5):
        order = beats * 2
        random.Random(seed).shuffle(order)
        for sequence, launch_id in order:
            push(training, sequence, launch_id)
        kept, _ = training.inbox.take()["digits-7"]
        assert (kept.launch_id, kept.sequence) == ("1.10.1", 11), "launch ids and sequences are compared as numbers"


def test_a_repeated_beat_refreshes_nothing(training: Bed) -> None:
    push(training, 3)
    received = training.inbox.take()["digits-7"][1]
    training.clock.advance(60)
    push(training, 3)
    push(training, 2)
    assert training.inbox.take()["digits-7"][1] == received


@pytest.mark.parametrize("nonce", ["", "wrong", "n0nc", "n0ncee"])
def test_a_beat_without_the_nonce_changes_nothing_and_is_recorded_once(training: Bed, nonce: str) -> None:
    with pytest.raises(NonceRefused):
        push(training, 99, nonce=nonce)
    assert not training.inbox.take()
    for _ in range(20):
        training.inbox.reject("digits-7", "The nonce is wrong.")
    assert training.events("digits-7").count("beat_rejected") == 1
    training.clock.advance(REJECTION_EVENT_S)
    training.inbox.reject("digits-7", "The nonce is wrong.")
    assert training.events("digits-7").count("beat_rejected") == 2


def test_the_nonce_of_one_launch_is_worth_nothing_for_another(training: Bed) -> None:
    with pytest.raises(NonceRefused):
        push(training, 1, "1.2.1")


def test_a_beat_for_another_run_than_the_addressed_one(training: Bed) -> None:
    with pytest.raises(BeatRejected):
        training.inbox.receive("other", encode(beat("digits-7")))


def test_an_unknown_run_and_an_ended_one_send_the_agent_to_the_baton(training: Bed) -> None:
    with pytest.raises(NotFound):
        training.inbox.receive("nobody", encode(beat("nobody")))
    push(training, 1)
    training.end("digits-7")
    training.inbox.forget("digits-7")
    with pytest.raises(RunEnded):
        push(training, 2)
    assert not training.inbox.take()


def test_a_known_launch_needs_no_database(training: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*_: object) -> None:
        raise StoreDown("away")

    push(training, 1)
    monkeypatch.setattr(training.store, "find", down)
    monkeypatch.setattr(training.store, "nonce_hash", down)
    push(training, 2)
    assert training.inbox.take()["digits-7"][0].sequence == 2
    training.inbox.forget("digits-7")
    with pytest.raises(Unavailable):
        push(training, 3)


def test_only_urgent_beats_wake_the_loop(training: Bed) -> None:
    sequence = itertools.count(1)

    def woken(**fields: object) -> bool:
        before = training.wake.sets
        push(training, next(sequence), **fields)
        return training.wake.sets > before

    assert not woken(step=1), "the first one after a restart, of a run that simply trains"
    assert not woken(step=2)
    assert not woken(phase="checkpoint"), "checkpoints are part of a training"
    assert not woken(phase="training")
    assert woken(notice_s=30.0)
    assert not woken(notice_s=20.0), "the same notice again"
    assert woken(phase="finishing")
    assert woken(phase="finished", exit=Exit(0, None, False))
    assert woken(phase="finished", exit=Exit(0, None, False), left="stopped")


def test_the_first_word_of_a_new_machine_wakes_the_loop(training: Bed) -> None:
    push(training, 1, phase="boot")
    assert training.wake.sets == 1


def test_the_answer_sets_the_pace_and_carries_stop_and_follow(training: Bed) -> None:
    assert push(training, 1) == BeatResponse(10.0, stop=False, follow_logs=False)
    training.inbox.active = 5000
    training.inbox.set_stopping({"digits-7": 1})
    training.inbox.follow("digits-7")
    assert push(training, 2) == BeatResponse(50.0, stop=True, follow_logs=True)
    training.clock.advance(31)
    training.inbox.set_stopping({"digits-7": 0})
    assert push(training, 3) == BeatResponse(50.0, stop=False, follow_logs=False), "an older generation was stopped"
    training.inbox.set_stopping({})
    assert push(training, 4) == BeatResponse(50.0, stop=False, follow_logs=False)


def test_the_pace_is_shared_by_the_runs_that_people_work_with_now(training: Bed) -> None:
    """Broken variant: runs that had an order at any time before slowed the others down for as long as they lived."""
    for number in range(99):
        training.inbox.order(f"other-{number}", 1)
    training.inbox.order("digits-7", 1)
    assert push(training, 1).next_s == 100 / ATTENDED_PER_S
    training.clock.advance(ATTENDED_S)
    assert push(training, 2).next_s == 10.0, "nobody works with it any more"
    training.inbox.order("digits-7", 2)
    assert push(training, 3) == BeatResponse(ATTENDED_PUSH_S, stop=False, follow_logs=False, orders=2)


def test_the_caches_are_bounded(training: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.services.runs.heartbeat.NONCES_MIN", 2)
    monkeypatch.setattr("supervisor.services.runs.heartbeat.NONCES_PER_RUN", 2)
    for number in (2, 3, 4):
        training.train("digits-7", number=number)
        push(training, 1, f"1.{number}.1")
    assert len(training.inbox._nonces) == 2
    push(training, 5, "1.2.1")
    assert training.inbox.take()["digits-7"][0].launch_id == "1.4.1"
    training.inbox.forget("digits-7")
    assert not training.inbox._nonces
    assert not training.inbox._launches


def test_a_beat_is_dropped_when_the_run_knows_a_newer_one(training: Bed) -> None:
    push(training, 5)
    run = training.run("digits-7")

    def after_a_tick(sequence: int, launch_id: str = "1.1.1") -> set[str]:
        training.inbox.drop_superseded([replace(run, pulse=Pulse(launch_id, sequence))])
        return set(training.inbox.take())

    assert after_a_tick(5) == {"digits-7"}, "its time of receipt may be the newest"
    assert after_a_tick(6, "1.0.1") == {"digits-7"}, "the pulse of an earlier launch says nothing"
    assert after_a_tick(6) == set()
    push(training, 7)
    assert after_a_tick(6) == {"digits-7"}


def test_every_active_run_has_its_place_in_the_cache(training: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are: a bound that is smaller would read the database at each beat, and refuse some."""
    monkeypatch.setattr("supervisor.services.runs.heartbeat.NONCES_MIN", 2)
    training.inbox.active = 3
    for number in range(2, 8):
        training.train("digits-7", number=number)
        push(training, 1, f"1.{number}.1")
    assert len(training.inbox._nonces) == 6
    training.inbox.active = 0  # no tick yet, after a restart: the runs that pushed a beat count
    training.train("digits-7", number=8)
    push(training, 1, "1.8.1")
    assert len(training.inbox._nonces) == 4


def test_a_beat_is_never_of_a_machine_clock(training: Bed) -> None:
    """Absurd content is refused as a whole; the beat before stays."""
    push(training, 1, step=5)
    with pytest.raises(BeatRejected):
        training.inbox.receive("digits-7", encode(beat("digits-7", 2)._replace(step=10**18)))
    assert training.inbox.take()["digits-7"][0].step == 5
