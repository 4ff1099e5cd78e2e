"""Drills of real processes: the agent, a planted training, and what the record of the drill proves."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from supervisor.contract import baton as rules
from supervisor.contract import drill
from supervisor.contract.drill import DrillOrder, Record
from supervisor.lifecycle.living.drilling import judge
from tests.agent.machine_rig import Rig

AGENT = Path(__file__).with_name("drill_agent.py")
TRAINING = str(Path(__file__).with_name("drilled_training.py"))
# Limits that no load of this computer reaches. A start that load made slower than `warm_up_s` would ask for a notice in
# the warm-up, which the next start, faster again, has not.
TIMING: Mapping[str, float] = {
    "notice_s": 50.0, "upload_s": 30.0, "moment_s": 30.0, "start_s": 30.0, "warm_up_s": 30.0, "check_s": 0.01,
}  # fmt: skip
# What a training has to reach. A notice of 3 s leaves 1.8 s until KILL.
REACHED: Mapping[str, Mapping[str, float]] = {
    "swallow": {"notice_s": 3.0},
    "blind": {"notice_s": 3.0},
    "late_save": {"notice_s": 3.0},
    "slow_upload": {"upload_s": 1.5, "upload_delay_s": 2.0},
    "good_phases": {"warm_up_s": 0.3},
}
WARM_UP_S = 0.8  # of `good_phases`: a start three times slower does not make the next one miss its notice


class DrillRig:
    """One machine whose training is drilled again and again."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.number = 0

    def start(self, kind: str, *options: str, attempt: int = 1) -> None:
        self.rig.start(sys.executable, "-S", "-E", TRAINING, "--kind", kind, *options, attempt=attempt)

    def drill(self) -> Record:
        """The record of the next drill, when it is over."""
        self.number += 1
        order = DrillOrder(self.rig.launch_id, self.number)
        self.rig.change(lambda baton: rules.order_drill(baton, order))
        beat = self.rig.beat_with(f"the end of drill {self.number}", lambda beat: self._is_over(beat.drill), 60)
        record = drill.decode(beat.drill)
        assert record is not None
        return record

    def _is_over(self, text: str) -> bool:
        record = drill.decode(text)
        return record is not None and record.number == self.number and record.state == drill.OVER

    def verdict(self) -> str:
        return judge(self.drill()).word


@contextmanager
def drilling(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, **timing: float) -> Iterator[DrillRig]:
    """A machine with this kind of training, past its first checkpoint."""
    monkeypatch.setenv("DRILL_TIMING", json.dumps({**TIMING, **REACHED.get(kind, {}), **timing}))
    rig = Rig(folder, AGENT)
    try:
        made = DrillRig(rig)
        options = ("--every", "20") if kind == "crash" else ()
        made.start(kind, *options, *(("--warm-up-s", str(WARM_UP_S)) if kind == "good_phases" else ()))
        yield made
    finally:
        rig.close()
