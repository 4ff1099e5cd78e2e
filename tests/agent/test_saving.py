"""When a save is due: by its measured cost and the age of the machine; asked for with a file, or a hint."""

import itertools
import json
import math
import time
from pathlib import Path

import pytest

from supervisor.agent import spot_progress
from supervisor.agent.life.parts import Parts
from supervisor.agent.life.supervise import Supervision
from supervisor.agent.machine.command import prepare
from supervisor.agent.machine.folder import MachineFolder
from supervisor.agent.watch import saving as watch
from supervisor.agent.watch.saving import SaveClock
from supervisor.contract import saving, signs
from supervisor.contract.saving import CURVE, LATEST_S, SOONEST_S, expected, factor_of, interval_s
from supervisor.contract.signs import Signs
from supervisor.lifecycle.diagnosis.diagnose import findings
from supervisor.lifecycle.diagnosis.reading import of_document
from tests.agent.bench import IDENTITY, job, store_in
from tools.hazard_curve import gone_within, hazards, lives

# --- the rule ---------------------------------------------------------------------------------------------------------


def test_with_a_hazard_that_does_not_change_it_is_the_rule_of_young_and_daly() -> None:
    last_h = CURVE[-1][1]
    assert interval_s(30_000.0, 10.0, 1.0) == pytest.approx(math.sqrt(2 * 10.0 / (last_h / 3600.0)))
    assert interval_s(30_000.0, 40.0, 4.0) == interval_s(30_000.0, 10.0, 1.0)


def test_a_young_machine_is_saved_more_often() -> None:
    """Broken variant: one hazard for a machine's whole life asks for a save every 47 min in its first minutes, when
    it is thirty times likelier to be preempted."""
    assert interval_s(0.0, 10.0, 1.0) == pytest.approx(482, abs=1)
    assert interval_s(3 * 3600.0, 10.0, 1.0) == pytest.approx(1897, abs=1)
    intervals = [interval_s(age_s, 10.0, 1.0) for age_s in range(0, 40_000, 500)]
    assert intervals == sorted(intervals)


@pytest.mark.parametrize(("age_s", "cost_s"), [*itertools.product((0.0, 800.0, 3599.0, 20_000.0), (1.0, 30.0, 200.0))])
def test_the_loss_that_is_expected_until_then_is_the_cost_of_a_save(age_s: float, cost_s: float) -> None:
    """By a sum over small pieces of time, in which the hazard may change."""
    due_s, loss_s, piece_s = interval_s(age_s, cost_s, 1.0), 0.0, 0.25
    if due_s in (SOONEST_S, LATEST_S):
        return
    for at in range(int(due_s / piece_s)):
        hazard_per_h = next(hazard for until_s, hazard in CURVE if age_s + at * piece_s < until_s)
        loss_s += hazard_per_h / 3600.0 * at * piece_s * piece_s
    assert loss_s == pytest.approx(cost_s, rel=0.02)


def test_the_bounds_hold_whatever_is_measured() -> None:
    assert interval_s(0.0, 0.0, 1000.0) == SOONEST_S
    assert interval_s(0.0, 9999.0, 1.0) == interval_s(0.0, 1.0, 0.0) == LATEST_S


def test_a_run_that_is_preempted_more_often_saves_more_often() -> None:
    assert factor_of(0, 0, 0.0) == 1.0
    assert factor_of(6, 7, 7.0) > 2.0
    assert 0.5 < factor_of(0, 1, 48.0) < 1.0
    assert expected(3600.0) == pytest.approx(0.165, abs=0.01)


def test_a_machine_that_its_owner_stops_is_no_preemption() -> None:
    """Broken variant: every life counted as preempted, and young machines looked three times as dangerous."""
    machines = [{"time_in_sec": 1800.0, "compute.instances.preempted": {}}] + [{"time_in_sec": 1800.0, "stop": {}}] * 3
    machines += [{"time_in_sec": 86_400.0, "compute.instances.preempted": {}}] * 6
    seen = lives(machines)
    assert hazards(seen)[:3] == [(900.0, 0.0), (1800.0, 0.0), (3600.0, 1 / 3.0)]
    assert gone_within(seen, 3600.0) == pytest.approx(0.1)
    assert hazards(seen)[-1][1] == 0.0, "the limit of 24 h"


# --- the clock --------------------------------------------------------------------------------------------------------


class Machine:
    """A training whose clocks move by hand, on a machine that is `age_s` old."""

    def __init__(self, folder: Path, factor: float = 1.0, age_s: float = 30_000.0) -> None:
        self.now, self.step, self.started_s = 1000.0, 0, 1000.0 - age_s
        self.seen_at: float | None = None
        self.file = folder / "save-due"
        self.clock = SaveClock(
            str(self.file), factor, lambda: self.seen_at, lambda: self.now, lambda: self.now - self.started_s
        )
        self.clock.begin()

    def trains(self, seconds: float, step_s: float = 2.0) -> "float | None":
        """After how many seconds a save was asked for; None = it was not."""
        begin, asked = self.now, None
        while self.now < begin + seconds:
            self.now += step_s
            self.step += 1
            self.clock.add(self.step)
            self.clock.look()
            if asked is None and self.file.exists():
                asked = self.now - begin
        return asked

    def saves(self, seconds: float) -> None:
        """In the middle of a step."""
        self.now += seconds
        self.seen_at = self.now - 0.3
        self.clock.look()
        self.trains(4.0)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_file_comes_when_a_save_is_due_and_goes_with_it(machine: Machine) -> None:
    usual_s = interval_s(30_000.0, saving.USUAL_COST_S, 1.0)
    assert machine.trains(usual_s + 20.0) == pytest.approx(usual_s, abs=4.0)
    assert not Path(str(machine.file) + ".new").exists()
    machine.saves(40.0)
    assert not machine.file.exists()
    assert machine.clock.cost_s == pytest.approx(40.0, abs=0.5)
    due_s = interval_s(33_000.0, 40.0, 1.0)
    assert machine.trains(due_s + 50.0) == pytest.approx(due_s, abs=6.0), "a save that costs more is rarer"


def test_a_machine_that_nothing_preempts_is_asked_rarely(tmp_path: Path) -> None:
    assert Machine(tmp_path, factor=0.0).trains(2.1 * 3600.0, step_s=10.0) == pytest.approx(7200.0, abs=10.0)


def test_no_save_is_due_before_the_last_one_can_be_stored(tmp_path: Path) -> None:
    machine = Machine(tmp_path, factor=1000.0)
    assert machine.trains(100.0) is not None
    machine.clock.took(600.0)
    machine.saves(1.0)
    assert machine.trains(590.0) is None
    assert machine.trains(30.0) is not None


def test_a_checkpoint_of_many_files_is_one_save(machine: Machine) -> None:
    """Broken variant: each rank's file was a save, and the cost was that of none."""
    machine.trains(300.0)
    machine.saves(30.0)
    for _ in range(5):
        machine.now += 1.5
        machine.seen_at = machine.now
        machine.clock.look()
    assert machine.clock.cost_s == pytest.approx(30.0, abs=0.5)


def test_a_save_that_never_comes_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path)
    monkeypatch.setenv("SPOT_SAVE_FILE", str(machine.file))
    assert not spot_progress.should_save()
    answers = []
    for _ in range(3):
        machine.trains(3000.0)
        answers.append([spot_progress.should_save(), spot_progress.should_save()])
    assert answers == [[True, False]] * 3, "once for each time that it is due"
    machine.file.unlink()
    assert not spot_progress.should_save()


def test_without_the_agent_no_save_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPOT_SAVE_FILE", raising=False)
    assert not spot_progress.should_save()


# --- the hint ---------------------------------------------------------------------------------------------------------


def hints(machine: Machine) -> "list[str]":
    text = signs.encode(Signs(notes=tuple(sorted(machine.clock.notes().items()))))
    document = {"agent": {"signs": json.loads(text)}} if text else {}
    return [finding.sentence for finding in findings(of_document(document)) if finding.rule == "SAVE.pace"]


def test_a_training_that_saves_by_steps_only_gets_the_better_pace(machine: Machine) -> None:
    for _ in range(5):
        machine.trains(120.0)
        machine.saves(10.0)
    [sentence] = hints(machine)
    assert sentence.startswith("it saves too often, every 2 min")
    assert "save every 1,399 steps / 46 min on this machine" in sentence
    assert sentence.endswith("where a save takes 10 s")


@pytest.mark.parametrize("saves", [0, 1, 2, 3])
def test_a_few_saves_are_no_habit(machine: Machine, saves: int) -> None:
    for _ in range(saves):
        machine.trains(120.0)
        machine.saves(10.0)
    assert hints(machine) == []


def test_about_right_is_right(machine: Machine) -> None:
    for _ in range(6):
        machine.trains(2000.0)
        machine.saves(10.0)
    assert hints(machine) == []
    for _ in range(6):
        machine.trains(9000.0, step_s=30.0)
        machine.saves(10.0)
    assert hints(machine)[0].startswith("it saves too rarely, every 2 h 30 min")


def test_saves_that_cost_nothing_may_come_often(machine: Machine) -> None:
    for _ in range(6):
        machine.trains(120.0)
        machine.saves(0.1)
    assert hints(machine) == []


def test_where_nothing_preempts_no_save_is_missed(tmp_path: Path) -> None:
    machine = Machine(tmp_path, factor=0.0)
    for _ in range(4):
        machine.trains(20_000.0, step_s=100.0)
        machine.saves(10.0)
    assert hints(machine) == []


# --- the agent --------------------------------------------------------------------------------------------------------


def test_the_agent_asks_while_it_reads_the_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file comes, and goes when a scan of the checkpoint thread sees a new entry; the best one is no such entry."""
    monkeypatch.setattr(watch, "interval_s", lambda age_s, cost_s, factor: 0.0)
    folder = MachineFolder(str(tmp_path))
    folder.prepare()
    parts = Parts(folder, job(), IDENTITY, store=store_in(tmp_path), secrets={})
    supervision = Supervision(parts)
    parts.saving.begin()
    supervision._read_reports()
    due = Path(folder.save_due)
    assert due.exists()
    monkeypatch.setattr(watch, "interval_s", lambda age_s, cost_s, factor: 600.0)
    (Path(folder.checkpoints) / "best-1").write_bytes(b"x")
    parts.entries.ready(time.monotonic())
    supervision._read_reports()
    assert due.exists()
    (Path(folder.checkpoints) / "step-1").write_bytes(b"x")
    parts.entries.ready(time.monotonic())
    supervision._read_reports()
    assert not due.exists()
    assert prepare(parts.job, folder, {}, None).env["SPOT_SAVE_FILE"] == str(due)
