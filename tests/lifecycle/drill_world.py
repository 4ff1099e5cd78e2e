"""A training and its machine in simulated time, under the agent's own code of a drill.

`Training` is a process of one kind, good or with a planted fault. `Machine` is everything that `Drilling` uses of the
agent: what it would read, send and store. `notice` is the independent truth: the same training at a real notice.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Generator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.agent.life import drilling
from supervisor.agent.life.drilling import Drilling, Timing
from supervisor.agent.watch import metrics
from supervisor.contract import drill, heartbeat
from supervisor.contract.baton import Baton, Pointer
from supervisor.contract.drill import Record

GOOD = ("good",)
BAD = (
    "swallow", "dies", "handler", "head_only", "torn", "slow_upload", "shift_second", "blind", "zero", "repeats",
    "skips", "loss", "unreached", "never_evaluates",
)  # fmt: skip
TICK_S = 1.0
RARELY = 1000  # steps between two checkpoints of a training that saves at a notice only
TIMING = Timing(check_s=TICK_S, moment_s=900.0)


@dataclass
class Training:
    """Durations in seconds. `save_s`: of a checkpoint; `upload_s`: of its way to the store."""

    kind: str
    step_s: float
    save_s: float
    upload_s: float
    warm_up_s: float
    evaluation_s: float
    every: int = 30
    evaluates: int = 20  # steps between two evaluations; 0 = it has none
    noise: random.Random = field(default_factory=random.Random)


def some(rng: random.Random, kind: str) -> Training:
    return Training(
        kind,
        step_s=rng.choice((0.6, 1.1, 3.0)),
        save_s=rng.uniform(0.5, 12.0),
        upload_s=rng.choice((0.5, 2.0, 9.0, 20.0, 60.0)) if kind != "slow_upload" else rng.uniform(130.0, 900.0),
        warm_up_s=rng.choice((0.2, 4.0, 15.0)),
        evaluation_s=rng.uniform(2.0, 25.0) if kind not in ("blind", "head_only") else rng.uniform(180.0, 400.0),
        evaluates=rng.choice((0, 20)) if kind not in ("blind", "head_only", "never_evaluates") else 20,
        noise=random.Random(rng.random()),
    )


class Machine:
    """`local`: checkpoints in the folder that are not in the store yet, with the time when they are there."""

    def __init__(self, training: Training) -> None:
        self.what, self.now = training, 0.0
        self.step = self.starts = 0
        self.terms = self.reached = False
        self.pointers: list[Pointer] = []  # newest first
        self.local: list[tuple[float, Pointer]] = []
        self.takers: list[Callable[[int, object, object], None]] = []
        self.phases: set[str] = set()
        self.phase = heartbeat.TRAINING
        self.held: str | None = None
        self.text = ""
        self.status: int | None = None
        self.sent: set[int] = set()
        self._process: Generator[float, None, int] | None = None
        self._due = 0.0

    # --- the process ----------------------------------------------------------------------------------------------

    def launch(self, step: int | None) -> None:
        self.starts += 1
        self.terms = False
        self.status, self.sent = None, set()
        self._process, self._due = self._run(step or 0), self.now

    def _run(self, step: int) -> Generator[float, None, int]:
        what, again = self.what, self.starts > 1
        if any(pointer.prefix == "torn" for pointer in self.pointers[:1]) and step == self.pointers[0].step:
            yield 0.1
            return 1
        step = {"zero": 0 if again else step, "repeats": max(0, step - 3 * again), "skips": step + 4 * again}.get(
            what.kind, step
        )
        shift = 64 if what.kind == "shift_second" and self.starts > 2 else 0
        yield what.warm_up_s
        while True:
            yield what.step_s
            step += 1
            loss = 500.0 if what.kind == "loss" and again else 2.0 + 1.0 / step
            self._report(step, loss, 32 * step + shift)
            over = what.kind == "never_evaluates" and step > 40  # it had an evaluation, and has none any more
            if what.evaluates and step % what.evaluates == 0 and not over:
                self._say(heartbeat.EVALUATION)
                yield from self._evaluate()
            if step % what.every == 0:
                yield self._noisy(what.save_s)
                self.save(step)
            if self.terms:
                yield self._noisy(what.save_s)
                self.save(step)
                return 143

    def _evaluate(self) -> Generator[float, None, None]:
        left_s = self.what.evaluation_s
        while left_s > 0 and not (self.terms and self.what.kind not in ("head_only", "blind")):
            yield min(1.0, left_s)
            left_s -= 1.0

    def _noisy(self, seconds: float) -> float:
        return seconds * self.what.noise.uniform(0.95, 1.05)

    def _report(self, step: int, loss: float, position: int) -> None:
        self.step = step
        for take in self.takers:
            take(step, {"loss": loss, "data_position": position}, None)
        self._say(heartbeat.TRAINING)

    def _say(self, phase: str) -> None:
        if phase != heartbeat.TRAINING:
            self.phases.add(phase)
        self.phase = self.held or phase

    def save(self, step: int, prefix: str = "") -> None:
        ready_at = max([self.now, *(at for at, _ in self.local)]) + self._noisy(self.what.upload_s)
        self.local.append((ready_at, Pointer(step, prefix, ())))

    def term(self) -> None:
        kind = self.what.kind
        if kind == "unreached" or self.status is not None:
            return
        self.reached = True
        if kind in ("dies", "handler"):
            self._end(signal.SIGTERM if kind == "dies" else 1 << 8)
        elif kind == "torn":
            self.save(self.step, "torn")
            self._end(1 << 8)
        elif kind != "swallow":
            self.terms = True

    def _end(self, status: int) -> None:
        self.status, self._process = int(status), None

    def kill(self) -> None:
        if self.status is None:
            self._end(signal.SIGKILL)

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while self._process is not None and self._due <= until:
            self.now = max(self.now, self._due)
            try:
                self._due = self.now + next(self._process)
            except StopIteration as end:
                self._end(end.value << 8)
        self.now = until
        for ready_at, pointer in list(self.local):
            if ready_at <= self.now:
                self.local.remove((ready_at, pointer))
                self.pointers.insert(0, pointer)
                self.moved_at = ready_at


@dataclass
class Progress:
    machine: Machine
    total: int | None = None
    from_zero: bool = False

    @property
    def phases(self) -> set[str]:
        return self.machine.phases

    @property
    def step(self) -> int | None:
        return self.machine.step or None

    @property
    def saved_step(self) -> int | None:
        return self.machine.pointers[0].step if self.machine.pointers else None

    def follow(self, take: Callable[[int, object, object], None]) -> None:
        self.machine.takers.append(take)

    def drain(self) -> None:
        """Every report is read at once."""


@dataclass
class Process:
    machine: Machine
    pid: int = 1

    @property
    def status(self) -> int | None:
        return self.machine.status

    @property
    def sent(self) -> set[int]:
        return self.machine.sent

    def poll(self) -> bool:
        return self.machine.status is not None

    def freeze(self) -> None:
        """For a moment that is no time here."""

    def signal(self, number: int) -> None:
        self.machine.sent.add(number)
        if number == signal.SIGKILL:
            self.machine.kill()
        else:
            self.machine.term()

    def reset(self) -> None:
        self.machine.status, self.machine.sent = None, set()


@dataclass
class Beats:
    machine: Machine

    @property
    def now(self) -> Any:
        return SimpleNamespace(phase=self.machine.phase)

    @property
    def held_phase(self) -> str | None:
        return self.machine.held

    @held_phase.setter
    def held_phase(self, phase: str | None) -> None:
        self.machine.held = phase

    def update(self, **changes: Any) -> None:
        self.machine.phase = changes.get("phase", self.machine.phase)
        self.machine.text = changes.get("drill", self.machine.text)

    def note(self, about: str, text: str) -> None:
        """For people."""


class SimulatedDrilling(Drilling):
    """Folders are lists here."""

    machine: Machine

    def _restore(self) -> int | None:
        machine = self.machine
        machine.advance(2.0)
        machine.local.clear()
        return machine.pointers[0].step if machine.pointers else None


class Agent:
    """`Drilling` beside a simulated machine."""

    def __init__(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.machine = machine
        clock = SimpleNamespace(monotonic=lambda: machine.now, sleep=machine.advance)
        monkeypatch.setattr(drilling, "time", clock)
        monkeypatch.setattr(metrics, "time", clock)
        monkeypatch.setattr(drilling, "kill_leftovers", lambda pid, marker: None)
        monkeypatch.setattr(drilling, "_state", lambda pid: "Z" if machine.what.kind == "unreached" else self._state())
        self.parts: Any = self._parts()
        self.drilling = SimulatedDrilling(self.parts, self._launch, lambda: None, TIMING)
        self.drilling.machine = machine

    def _state(self) -> str:
        """Stopped, for the moment in which TERM is sent."""
        return "T" if self.machine.status is None else "Z"

    def _launch(self, step: int | None) -> None:
        self.parts.saved_at = self.machine.now
        self.machine.launch(step)

    def _parts(self) -> Any:
        machine = self.machine
        flushed = SimpleNamespace(wait=lambda seconds: not machine.local or (machine.advance(seconds), False)[1])
        nothing = SimpleNamespace(wake=lambda: None, over=False, ending=None)
        return SimpleNamespace(
            progress=Progress(machine),
            training=Process(machine),
            beat_state=Beats(machine),
            ordered_drill=0,
            saved_at=0.0,
            job=SimpleNamespace(upload_reserve_s=8.0, command=("train",)),
            folder=SimpleNamespace(
                write_stop_file=lambda reason: None,
                add_to_output=lambda text: None,
                stopping="/nowhere/stopping",
                aside="/nowhere/aside",
                marker="",
            ),
            checkpoint_duty=SimpleNamespace(flush=lambda: None, flushed=flushed, lock=nullcontext()),
            checkpoint_loop=nothing,
            push_loop=nothing,
            end_reasons=nothing,
            check_end=lambda: None,
            must_end=lambda: False,
            retrier=lambda gives_up: SimpleNamespace(call=lambda what, action, *args: action(*args)),
            keeper=SimpleNamespace(read=self._baton, change=lambda step, pointer: machine.pointers.remove(pointer)),
        )

    def _baton(self) -> Baton:
        pointers = self.machine.pointers
        return Baton("s", 1, checkpoint=next(iter(pointers), None), previous=tuple(pointers[1:3]))

    def train(self, seconds: float) -> None:
        moved = list(self.machine.pointers)
        self.machine.advance(seconds)
        if self.machine.pointers[:1] != moved[:1]:
            self.parts.saved_at = self.machine.now

    def drill(self) -> Record:
        """Of a drill that begins after the first checkpoint, if the training saves regularly. The command goes on
        afterwards, or has failed."""
        machine = self.machine
        machine.launch(None)
        while machine.step < 45 or (not machine.pointers and machine.what.every < RARELY):
            self.train(5.0)
        self.parts.ordered_drill = 1
        for _ in range(20_000):
            if machine.status is not None and not self.drilling.goes_on():
                break
            self.drilling.step()
            record = drill.decode(machine.text)
            if record is not None and record.state == drill.OVER:
                return record
            self.train(TICK_S)
        record = drill.decode(machine.text)
        assert record is not None
        return record


def survives(training: Training, notice_s: float, rng: random.Random) -> bool:
    """A real notice at some moment of the training: the newest checkpoint in the store is of the last step done."""
    machine = Machine(replace(training, noise=random.Random(rng.random())))
    machine.launch(None)
    machine.advance(rng.uniform(60.0, 400.0) + 45 * training.step_s)
    times, began = drill.notice_times(notice_s), machine.now
    machine.term()
    while machine.status is None and machine.now - began < times.kill_s:
        machine.advance(TICK_S)
    machine.kill()
    machine.advance(max(0.0, began + times.save_s - machine.now))
    return bool(machine.pointers) and machine.pointers[0].step == machine.step and not machine.pointers[0].prefix
