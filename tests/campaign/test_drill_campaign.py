"""A hundred drills of real processes, and real notices of a machine, as their verdicts predict (`make campaign`)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from supervisor.contract import heartbeat
from supervisor.lifecycle.living.drilling import judge
from supervisor.wording.forecast import SURVIVES
from tests.agent.drill_rig import drilling
from tests.agent.test_drills import FAULTS

GOOD = ("good", "good_slow", "good_phases")
REPEATS = {**dict.fromkeys(GOOD, 16), **dict.fromkeys(FAULTS, 5)}
ONCE = ("crash", "loss", "shift")  # afterwards they are what they have become
NOTICES = 40  # for each kind


@pytest.mark.parametrize("kind", sorted(REPEATS))
def test_a_hundred_drills_of_real_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Drilled again and again while it goes on: a verdict depends on no earlier drill."""
    assert sum(REPEATS.values()) >= 100
    with drilling(tmp_path, monkeypatch, kind) as rig:
        phase = heartbeat.EVALUATION if kind in ("good_phases", "blind") else heartbeat.TRAINING
        rig.rig.beat_with("a step", lambda beat: beat.phase == phase and (beat.step or 0) > 21, 60)
        for _ in range(REPEATS[kind]):
            record = rig.drill()
            survived = judge(record).word == SURVIVES
            assert survived == (kind in GOOD), record
            if kind in ONCE:
                break


@pytest.mark.parametrize("kind", ["good", "good_slow", "dies", "swallow", "late_save"])
def test_real_notices_end_as_the_verdict_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Each notice ends an attempt, and the next one is on a machine of its own."""
    rng = random.Random(17)
    with drilling(tmp_path, monkeypatch, kind) as rig:
        rig.rig.beat_with("a step", lambda beat: (beat.step or 0) > 5, 60)
        survives = judge(rig.drill()).word == SURVIVES
        assert survives == (kind in GOOD)
        wrong = 0
        for attempt in range(2, NOTICES + 2):
            begun = (rig.rig.server.beats[-1].step or 0) + rng.randrange(2, 9)
            rig.rig.beat_with(f"step {begun}", lambda beat, begun=begun: (beat.step or 0) >= begun, 60)  # type: ignore[misc]
            rig.rig.notice(3.0)
            last = rig.rig.ended(60)
            wrong += survives != (last.checkpoint_step == last.step)
            rig.start(kind, attempt=attempt)
        assert wrong <= (0 if survives else NOTICES // 10), "a regular save may lie at the very step of the notice"
