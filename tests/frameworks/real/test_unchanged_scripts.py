"""Scripts in the manner of each package's own examples, under a real agent, over two preemptions.

None of them knows of Spot Supervisor: their folders are arguments of the command. Each of them is preempted twice and
then finishes, and its table has every row exactly once.
"""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

from supervisor.contract import heartbeat
from supervisor.contract.heartbeat import Beat
from tests.agent.machine_rig import Rig
from tests.waiting import wait_for

SCRIPTS = Path(__file__).parents[1] / "scripts"
NOTICE_S = 30.0  # Google gives 30 s
DEADLINE_S = 240


def reached(beat: Beat) -> int:
    return max(beat.step or 0, beat.checkpoint_step or 0)


def printed(rig: Rig) -> int:
    """The last step in the log of a script that tells its steps to nobody else."""
    log = rig.machine / "work" / "output.log"
    steps = re.findall(r"^step ([0-9]+)/", log.read_text() if log.exists() else "", re.MULTILINE)
    return int(steps[-1]) if steps else 0


class Life:
    """The attempts of one script. `needs_steps`: it reports its steps, not only its checkpoints."""

    def __init__(self, rig: Rig, python: str, arguments: str, **job: object) -> None:
        self.rig, self.attempt, self.ends = rig, 0, []
        self.command = ["/bin/sh", "-c", f"exec {python} -u {SCRIPTS}/{arguments}"]
        self.job = {"beat_push_s": 0.2, "rest_s": 2.0, "stop_grace_s": 60.0, **job}

    def start(self) -> None:
        self.attempt += 1
        self.rig.start(*self.command, attempt=self.attempt, **self.job)

    def preempted_after(self, steps: int, by_log: bool = False) -> Beat:
        """One attempt that is preempted once it is so many steps further, and the checkpoint that it left. `by_log`:
        it reports no steps."""
        self.start()
        rig, launch = self.rig, self.rig.launch_id
        began = self.ends[-1].checkpoint_step if self.ends else 0
        what = f"{steps} steps in attempt {self.attempt}"
        if by_log:
            goal = steps * self.attempt
            wait_for(lambda: rig.agent.poll() is not None or printed(rig) >= goal, DEADLINE_S, what)
        else:
            rig.beat_with(what, lambda b: b.launch_id == launch and reached(b) >= began + steps, DEADLINE_S)
        rig.notice(NOTICE_S)
        end = rig.ended(DEADLINE_S)
        assert end.left == heartbeat.NOTICED, rig.log(self.attempt)[-2000:]
        assert end.resumed_from == (self.ends[-1].checkpoint_step if self.ends else None)
        assert self.ends == [] or end.checkpoint_step > began, "it saved what it did"
        self.ends.append(end)
        return end

    def finishes(self) -> Beat:
        self.start()
        end = self.rig.ended(DEADLINE_S)
        assert end.phase == heartbeat.FINISHED, self.rig.log(self.attempt)[-3000:]
        assert end.resumed_from == self.ends[-1].checkpoint_step
        assert self.rig.survivors() == []
        return end

    def rows(self) -> list[dict[str, str]]:
        """Of all tables in the results, in the order of their names."""
        done = self.rig.baton.done
        keys = sorted(key for key in self.rig.keys(done.prefix) if key.endswith("metrics.csv"))
        tables = [csv.DictReader(io.StringIO(self.rig.store.get(key)[0].decode())) for key in keys]
        return [row for table in tables for row in table]


def test_transformers(rig: Rig, python: str) -> None:
    """Progress by Kubeflow's protocol, the save on TERM by the JIT checkpoint, which is an argument."""
    life = Life(
        rig, python,
        'train_transformers.py "$SPOT_RESULTS_DIR" --output_dir "$SPOT_CHECKPOINT_DIR" --max_steps 300'
        " --logging_steps 1 --save_steps 25 --per_device_train_batch_size 16 --use_cpu True --disable_tqdm True"
        " --enable_jit_checkpoint True --save_total_limit 2",
    )  # fmt: skip
    first = life.preempted_after(30)
    assert first.total == 300
    assert first.step is not None, "the callback has reported it"
    assert {"loss", "learning_rate"} <= set(first.metrics)
    assert first.exit.signal == 15, "it left on request, so exit 0 and its 100 % are no success"
    life.preempted_after(30)
    end = life.finishes()
    assert (end.step, end.total) == (300, 300)
    steps = [int(row["step"]) for row in life.rows()]
    # A save between the optimizer's step and its row leaves the row out: JIT's callback runs before the log.
    assert set(range(1, 301)) - set(steps) <= {end.checkpoint_step for end in life.ends}
    assert len(steps) == len(set(steps))
    names = {entry.name.split("/")[0] for entry in rig.baton.checkpoint.files}
    assert names == {"checkpoint-300"}, "the model beside the checkpoints is none"


def test_lightning(rig: Rig, python: str) -> None:
    """The entry point: steps, a save at the end of the step, and the checkpoint that is restored."""
    life = Life(rig, python, 'train_lightning.py "$SPOT_RESULTS_DIR"')
    first = life.preempted_after(60)
    assert (first.total, first.step) == (600, first.checkpoint_step), "not a step is lost"
    second = life.preempted_after(150)
    assert second.step == second.checkpoint_step
    end = life.finishes()
    assert (end.step, end.total) == (600, 600)
    steps = [int(row["step"]) for row in life.rows() if row["loss"]]
    assert steps == list(range(600)), "over the tables of three attempts"


def test_keras(rig: Rig, python: str) -> None:
    """Its backup at each epoch's end. A step is seen only where the log shows one."""
    life = Life(
        rig, python, 'train_keras.py "$SPOT_RESULTS_DIR" "$SPOT_CHECKPOINT_DIR"', env={"KERAS_BACKEND": "torch"}
    )
    life.preempted_after(4)
    life.preempted_after(4)
    life.finishes()
    assert [int(row["epoch"]) for row in life.rows()] == list(range(24))


def test_a_plain_loop(rig: Rig, python: str) -> None:
    life = Life(
        rig, python,
        'train_pytorch.py --resume "$SPOT_CHECKPOINT_DIR/last.pt" --log-dir "$SPOT_RESULTS_DIR"',
        rest_s=0.3,
    )  # fmt: skip
    life.preempted_after(60, by_log=True)
    life.preempted_after(60, by_log=True)
    life.finishes()
    assert [int(row["step"]) for row in life.rows()] == list(range(1, 501))


def test_submitit(rig: Rig, python: str) -> None:
    """SUBMITIT_PREEMPT_SIGNAL lets it save on TERM; else it would let TERM pass and be killed."""
    life = Life(rig, python, 'train_submitit.py "$SPOT_CHECKPOINT_DIR" "$SPOT_SCRATCH"', env={"SPOT_SCRATCH": "jobs"})
    life.start()
    jobs = rig.machine / "work" / "scratch" / "jobs"
    wait_for(lambda: any("step 50/" in log.read_text() for log in jobs.glob("*_log.out")), DEADLINE_S, "50 steps")
    rig.notice(NOTICE_S)
    end = rig.ended(DEADLINE_S)
    assert (end.left, end.exit.signal) == (heartbeat.NOTICED, 15)
    saved = rig.baton.checkpoint
    assert [entry.name for entry in saved.files] == ["state.txt"]
    step = int(rig.store.get(saved.prefix + "state.txt")[0])
    assert step >= 50
    life.start()
    assert rig.ended(DEADLINE_S).exit.code == 0
    assert "done at step 200" in rig.log(2).decode()
