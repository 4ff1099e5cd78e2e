"""Drills of real processes: a training that loses nothing survives, each planted fault is seen, nothing is harmed.

A hundred of them, because one agent drills one training again and again: another drill is 0.1 s of CPU, another agent
0.5 s. A simulation in tests/lifecycle/test_drills_simulated.py drills a thousand.
"""

import os
import signal
from pathlib import Path

import pytest

from supervisor.contract import baton as rules
from supervisor.contract import drill, heartbeat
from supervisor.contract.baton import Baton, Holder
from supervisor.lifecycle.living.drilling import faults_of, judge
from supervisor.wording import forecast
from tests.agent.drill_rig import drilling
from tests.properties import examples

# What each fault looks like. `slow_upload`: the copy of the store, not the training.
FAULTS = {
    "swallow": forecast.KILLED,
    "dies": forecast.LOST,
    "handler": forecast.LOST,
    "torn": forecast.CRASHED,
    "blind": forecast.KILLED,
    "shift": forecast.DATA,
    "repeats": forecast.REPEATED,
    "skips": forecast.SKIPPED,
    "zero": forecast.REPEATED,
    "loss": forecast.LOSS,
    "crash": forecast.CRASHED,
    "late_save": forecast.KILLED,
    "slow_upload": forecast.UPLOAD,
}
GOOD = ("good", "good_slow", "good_phases")
# What waits for KILL, or for slow phases, is drilled less often. Three kinds of trainings have their fault once.
DRILLS = {
    **dict.fromkeys(("crash", "loss", "shift"), 1),
    "swallow": 4,
    "blind": 2,
    "late_save": 2,
    "slow_upload": 2,
    **dict.fromkeys(("dies", "handler", "torn", "repeats", "skips", "zero"), 11),
    "good": 16,
    "good_slow": 4,
    "good_phases": 2,
}


def test_a_good_training_survives_in_each_phase_twice_in_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with drilling(tmp_path, monkeypatch, "good_phases") as rig:
        rig.rig.beat_with("an evaluation", lambda beat: beat.phase == heartbeat.EVALUATION)
        record = rig.drill()
        assert record.moments == (drill.TRAINING, drill.AGAIN, drill.WARM_UP, drill.EVALUATION), record
        assert [each.moment for each in record.rounds] == [*record.moments], record
        assert all(each.delivered for each in record.rounds), record
        verdict = judge(record)
        assert verdict.word == forecast.SURVIVES, (verdict, record)
        training = record.rounds[0]
        assert training.first == (training.restored or 0) + 1 == (training.step or 0) + 1
        assert training.data_off == 0
        baton = rig.rig.baton
        assert baton.holder == Holder(1, "1.1.1", baton.holder.machine_id if baton.holder else ""), (
            "the attempt goes on"
        )
        after = rig.rig.server.beats[-1].step or 0
        rig.rig.beat_with("more steps", lambda beat: (beat.step or 0) > after and beat.phase != heartbeat.RESTORE)
        rig.rig.notice(5.0)
        assert rig.rig.ended().left == heartbeat.NOTICED, "a real notice ends it as always"


@pytest.mark.parametrize("kind", sorted(DRILLS))
def test_a_hundred_drills_see_each_planted_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A verdict depends on no earlier drill. Which fault it names first may: an earlier drill has dropped a checkpoint.
    Broken variant: in its second drill a training that skips steps survived."""
    assert set(DRILLS) == {*FAULTS, *GOOD}
    assert sum(DRILLS.values()) >= 100
    drills = DRILLS[kind] if DRILLS[kind] == 1 else examples(DRILLS[kind], 5 * DRILLS[kind])
    with drilling(tmp_path, monkeypatch, kind) as rig:
        phase = heartbeat.EVALUATION if kind in ("blind", "good_phases") else heartbeat.TRAINING
        rig.rig.beat_with(phase, lambda beat: beat.phase == phase and (beat.step or 0) > 21)
        for _ in range(drills):
            record = rig.drill()
            words = [fault.word for each in record.rounds for fault in faults_of(each) if each.delivered]
            if kind in GOOD:
                assert (judge(record).word, words) == (forecast.SURVIVES, []), record
            else:
                assert judge(record).word == forecast.FAILS, record
                assert FAULTS[kind] in words or record.number > 1, record
        seen = len(rig.rig.server.beats)
        rig.rig.beat_with("steps after the drill", lambda beat: beat in rig.rig.server.beats[seen:] and bool(beat.step))


def test_a_real_notice_in_the_middle_of_a_drill_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with drilling(tmp_path, monkeypatch, "good_slow", notice_s=60.0) as rig:
        rig.rig.beat_with("a step", lambda beat: (beat.step or 0) > 3)
        rig.number = 1
        rig.rig.change(lambda baton: _ordered(baton, rig.rig.launch_id, 1))
        rig.rig.beat_with("the round", lambda beat: bool(_rounds(beat.drill)))
        rig.rig.notice(5.0)
        last = rig.rig.ended()
        assert last.left == heartbeat.NOTICED
        assert last.checkpoint_step == last.step, "it saved as at any notice"
        record = drill.decode(last.drill)
        assert record is not None
        assert judge(record).word != forecast.SURVIVES, record


def test_a_command_that_starts_over_in_a_drill_ends_and_the_drill_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken variant: it was ended before the drill had looked, and its record said that nothing was shown."""
    with drilling(tmp_path, monkeypatch, "ignores") as rig:
        rig.rig.beat_with("a step", lambda beat: (beat.step or 0) > 41)
        record = rig.drill()
        words = [fault.word for each in record.rounds for fault in faults_of(each)]
        assert words == [forecast.REPEATED], record
        assert rig.rig.ended().left == heartbeat.RESUME_IGNORED
        newest = rig.rig.baton.checkpoint
        assert newest is not None
        assert newest.step == record.rounds[0].restored, "nothing of the second start took its place"


def test_a_training_that_ends_by_itself_is_not_drilled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last beat must not say that a notice reached it."""
    with drilling(tmp_path, monkeypatch, "good", moment_s=30.0, loss_s=0.0) as rig:  # no moment comes
        rig.rig.beat_with("a step", lambda beat: (beat.step or 0) > 3)
        rig.rig.change(lambda baton: _ordered(baton, rig.rig.launch_id, 1))
        rig.rig.beat_with("the drill", lambda beat: bool(beat.drill))
        os.kill(rig.rig.command_pid(), signal.SIGKILL)
        last = rig.rig.ended()
        assert last.exit is not None
        assert (last.exit.signal, last.exit.sent_by_us) == (signal.SIGKILL, False)
        record = drill.decode(last.drill)
        assert record is not None
        assert (record.rounds, judge(record).word) == ((), forecast.NOT_DRILLED)


def _ordered(baton: Baton, launch_id: str, number: int) -> Baton:
    return rules.order_drill(baton, drill.DrillOrder(launch_id, number))


def _rounds(text: str) -> int:
    record = drill.decode(text)
    return 0 if record is None else len(record.rounds)
