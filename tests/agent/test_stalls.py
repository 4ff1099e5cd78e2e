"""When a dump of the threads is due: once each time that the steps stop, and never where no step is due."""

import json
from pathlib import Path
from typing import Any

from supervisor.agent.facts.evidence import StallWatch
from supervisor.agent.machine.folder import read_job
from supervisor.agent.machine.masking import Masker
from supervisor.agent.watch.beat_state import BeatState
from supervisor.contract.heartbeat import EVALUATION, TRAINING
from tests.agent.bench import IDENTITY, ManualClock, job


class Watched:
    def __init__(self, **limits: Any) -> None:
        self.clock, self.job = ManualClock(), job(**limits)
        self.beat_state = BeatState(self.job, IDENTITY, Masker({}))
        self.dumps: list[float] = []
        self.watch = StallWatch(self.job, self.beat_state, self.dumps.append, self.clock)

    def after(self, seconds: float, **changes: Any) -> int:
        self.beat_state.update(**changes)
        self.watch.step()
        self.clock.now += seconds
        self.watch.step()
        return len(self.dumps)


def test_one_dump_per_stall_and_none_during_progress() -> None:
    watched = Watched(stall_dump_s=10.0)
    assert watched.after(9.0, phase=TRAINING, step=1) == 0
    assert watched.after(9.0, step=2) == 0
    assert watched.after(9.0, checkpoint_step=2) == 0, "a checkpoint is progress too"
    assert watched.after(1.0) == 1
    assert watched.after(100.0) == 1
    assert watched.after(10.0, step=3) == 2


def test_no_dump_where_no_step_is_due() -> None:
    watched = Watched(stall_dump_s=10.0)
    assert watched.after(100.0, phase=TRAINING) == 0, "no step was ever told"
    assert watched.after(100.0, phase=EVALUATION, step=1) == 0
    assert watched.after(9.0, phase=TRAINING) == 0, "the time of the evaluation does not count"
    assert Watched(stall_dump_s=None).watch.step() is None


def test_before_the_first_step_another_limit_holds() -> None:
    watched = Watched(stall_dump_s=10.0, first_dump_s=50.0)
    assert watched.after(49.0, phase=TRAINING) == 0
    assert watched.after(1.0) == 1


def test_the_job_has_both_limits(tmp_path: Path) -> None:
    paper = {"name": "m", "run_id": "r-1", "attempt": 1, "launch_id": "1.1.1", "nonce": "n", "command": "true"}
    limits = {"stall_dump_s": 180, "first_dump_s": None}
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"version": 1, "store_url": "file:///x", **paper, **limits}))
    read = read_job(str(path))
    assert (read.stall_dump_s, read.first_dump_s) == (180.0, None)
