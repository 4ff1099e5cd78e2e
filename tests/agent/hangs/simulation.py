"""Simulated days of training before the real watch over hangs: python -m tests.agent.hangs.simulation [--days N]

A run reports steps in one of six rhythms; its long pauses move a signal now and then, and each dump of a pause is equal
to the one before, so that only rhythm and motion protect it. Counted are false alarms in a run that goes on, and the
time from a planted hang to its report. The clock is simulated; the watch with rhythm and motion is the agent's own.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

from supervisor.agent.watch.hang import HangWatch, Sources
from supervisor.agent.watch.motion import Counters
from supervisor.agent.watch.rhythm import FLOOR_S, percentile
from supervisor.contract.heartbeat import TRAINING
from tests.agent.bench import ManualClock, job

DAY_S = 86_400.0
CHECK_S = 5.0  # of the watch inside a long interval; the agent's own is shorter
STILL = 1e12
DUMP = 'Current thread 0x0 (most recent call first):\n  File "/home/user/train.py", line 3 in <module>'


class Interval(NamedTuple):
    """Until the next report. `signal` moves every `burst_s` or so; a usual step moves all the time."""

    length_s: float
    signal: str = "cpu"
    burst_s: float = 1.0


Rhythm = Callable[[random.Random], Iterator[Interval]]


def _usual(rng: random.Random, step_s: float) -> Interval:
    return Interval(step_s * rng.lognormvariate(0.0, 0.12))


def _step_s(rng: random.Random) -> float:
    return rng.choice((5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0))


def constant(rng: random.Random) -> Iterator[Interval]:
    step_s = _step_s(rng)
    while True:
        yield _usual(rng, step_s)


def bimodal(rng: random.Random) -> Iterator[Interval]:
    """An evaluation every so many steps, which nobody announces."""
    step_s, every, evaluation_s = _step_s(rng), rng.randint(30, 300), rng.uniform(120, 1200)
    while True:
        for _ in range(every):
            yield _usual(rng, step_s)
        yield Interval(evaluation_s * rng.lognormvariate(0.0, 0.1), rng.choice(("gpu", "cpu")), 4.0)


def growing(rng: random.Random) -> Iterator[Interval]:
    """Sequences that grow: up to four times as long after half a day."""
    step_s, trained_s = _step_s(rng), 0.0
    while True:
        interval = _usual(rng, step_s * min(4.0, 1.0 + trained_s / 14_400.0))
        trained_s += interval.length_s
        yield interval


def warm_up(rng: random.Random) -> Iterator[Interval]:
    """The first compile takes up to 15 minutes, and shapes that are new compile again."""
    step_s = _step_s(rng)
    for length_s in (rng.uniform(300, 900), rng.uniform(10, 300), rng.uniform(10, 120)):
        yield Interval(length_s, "cpu", 3.0)
    while True:
        yield _usual(rng, step_s)
        if rng.random() < 0.0005:
            yield Interval(rng.uniform(60, 300), "cpu", 3.0)


def checkpoints(rng: random.Random) -> Iterator[Interval]:
    """A pause by the clock: one large file, to a disk that answers in bursts."""
    step_s, every_s, pause_s, since_s = _step_s(rng), rng.uniform(1200, 5400), rng.uniform(60, 1200), 0.0
    while True:
        interval = _usual(rng, step_s)
        since_s += interval.length_s
        yield interval
        if since_s > every_s:
            since_s = 0.0
            yield Interval(pause_s * rng.uniform(0.7, 1.0), "io", 12.0)


def slow_store(rng: random.Random) -> Iterator[Interval]:
    """Now and then the data comes slowly, with retries whose backoff grows to a minute."""
    step_s = _step_s(rng)
    while True:
        yield _usual(rng, step_s)
        if rng.random() < step_s / 3600.0:
            yield Interval(rng.uniform(60, 600), "net", 15.0)


RHYTHMS: dict[str, Rhythm] = {
    "constant": constant, "bimodal": bimodal, "growing": growing, "warm-up": warm_up,
    "checkpoints": checkpoints, "slow-store": slow_store,
}  # fmt: skip


class Machine:
    """One attempt, with the watch of its agent."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.clock = rng, ManualClock()
        self.clock.now = 0.0
        self.beat = SimpleNamespace(now=SimpleNamespace(step=None, checkpoint_step=None, phase=TRAINING))
        self.totals = dict.fromkeys(("cpu", "io", "net", "gpu"), 0.0)
        self.signal, self.burst_s, self.next_burst_at = "cpu", STILL, 0.0
        self.alarms = 0
        self.hangs = False
        sources = Sources(self._counters, self._dumps, lambda stall: None, self._report)
        settings = job(hang=True, stall_dump_s=180.0)
        self.watch = HangWatch(settings, self.beat, sources, self.clock)  # type: ignore[arg-type]

    def _counters(self) -> Counters:
        while self.next_burst_at <= self.clock.now:
            self.totals[self.signal] += 1e7
            self.next_burst_at += min(64.0, self.rng.expovariate(1.0 / self.burst_s))
        cpu, io, net = ({1: self.totals[name]} for name in ("cpu", "io", "net"))
        return Counters(cpu, io, None, net, None, (self.totals["gpu"],), 0.0)

    def _dumps(self) -> list[dict[str, Any]]:
        return [{"pid": 7, "how": "faulthandler", "text": DUMP}]

    def _report(self, hang: Any, moves: Any) -> None:
        self.alarms += hang is not None and not self.hangs
        self.hangs = hang is not None

    def moves(self, signal: str, burst_s: float) -> None:
        self.signal = "cpu" if signal == "gpu" else signal  # a machine without readable cards sees its process only
        self.burst_s, self.next_burst_at = burst_s, self.clock.now

    def passes(self, seconds: float) -> None:
        until, least_s = self.clock.now + seconds, self.watch._least_s or 0.0
        self.clock.now = min(until, self.clock.now + least_s)
        while self.clock.now < until:
            self.watch.step()
            self.clock.now = min(until, self.clock.now + CHECK_S)

    def reports(self, step: int) -> None:
        self.beat.now.step = step
        self.watch.step()


@dataclass
class Figures:
    run_days: float = 0.0
    false_alarms: int = 0
    by_rhythm_alone: int = 0  # pauses that would be alarms if nothing were known of motion
    delays: list[tuple[float, float]] = field(default_factory=list)  # (seconds to the report, what is allowed)
    usual: list[float] = field(default_factory=list)  # seconds, where no long step was due
    silent_s: list[float] = field(default_factory=list)
    silent_days: float = 0.0
    silent_false: int = 0

    def shown(self) -> dict[str, float]:
        late = [seconds - allowed for seconds, allowed in self.delays]
        return {
            "run_days": round(self.run_days, 1),
            "false_alarms_per_run_day": round(self.false_alarms / self.run_days, 4),
            "by_rhythm_alone_per_run_day": round(self.by_rhythm_alone / self.run_days, 2),
            "planted": len(self.delays),
            "found_within_limit_share": round(sum(1 for seconds in late if seconds <= 0) / len(late), 4),
            "delay_p50_s": round(percentile([seconds for seconds, _ in self.delays], 0.5), 1),
            "delay_p95_s": round(percentile([seconds for seconds, _ in self.delays], 0.95), 1),
            "delay_p95_usual_step_due_s": round(percentile(self.usual, 0.95), 1),
            "beyond_limit_p95_s": round(percentile(late, 0.95), 1),
            "silent_run_days": round(self.silent_days, 1),
            "silent_false_alarms": self.silent_false,
            "silent_delay_max_s": round(max(self.silent_s), 1),
        }


def day(name: str, rng: random.Random, figures: Figures) -> None:
    """A run-day in this rhythm, and then a hang in the middle of a step."""
    machine, lengths = Machine(rng), []
    for step, interval in enumerate(RHYTHMS[name](rng), 1):
        machine.moves(interval.signal, interval.burst_s)
        late_s = machine.watch._rhythm.late_s() if interval.length_s > FLOOR_S else None
        machine.passes(interval.length_s)
        figures.by_rhythm_alone += late_s is not None and interval.length_s > late_s
        lengths.append(interval.length_s)
        machine.reports(step)
        if machine.clock.now > DAY_S and interval.signal == "cpu":
            break
    figures.run_days += machine.clock.now / DAY_S
    figures.false_alarms += machine.alarms
    _plant(machine, lengths, figures)


def _plant(machine: Machine, lengths: list[float], figures: Figures) -> None:
    """The limit: a minute, or five steps, by the longest of a hundred of the kind that is due."""
    recent = sorted(lengths[-256:])
    step_s = percentile([length for length in recent if length <= 5 * recent[len(recent) // 2]])
    is_long_due = machine.watch._rhythm._long_is_due()
    if is_long_due:
        step_s = max(step_s, percentile([interval.length_s for interval in machine.watch._rhythm._long]))
    machine.moves("cpu", 1.0)
    machine.passes(machine.rng.uniform(0.0, recent[len(recent) // 2]))
    machine.burst_s = machine.next_burst_at = STILL
    began_at = machine.clock.now
    while not machine.hangs and machine.clock.now < began_at + DAY_S:
        machine.clock.now += 1.0
        machine.watch.step()
    figures.delays.append((machine.clock.now - began_at, max(60.0, 5 * step_s)))
    figures.usual += [] if is_long_due else [machine.clock.now - began_at]


def silent(rng: random.Random, figures: Figures, days: float = 0.5) -> None:
    """A command without steps that works in bursts, and then hangs."""
    machine = Machine(rng)
    machine.watch.step()
    machine.moves("cpu", 240.0)
    while machine.clock.now < days * DAY_S:
        machine.clock.now += 20.0
        machine.watch.step()
    figures.silent_days += days
    figures.silent_false += machine.alarms
    machine.burst_s = machine.next_burst_at = STILL
    began_at = machine.clock.now
    while not machine.hangs and machine.clock.now < began_at + DAY_S:
        machine.clock.now += 5.0
        machine.watch.step()
    figures.silent_s.append(machine.clock.now - began_at)


def simulate(days: int, seed: int = 19) -> Figures:
    rng, figures = random.Random(seed), Figures()
    names = list(RHYTHMS)
    for number in range(days):
        day(names[number % len(names)], rng, figures)
        if number % 10 == 0:
            silent(rng, figures)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--days", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=19)
    options = parser.parse_args()
    sys.stdout.write(json.dumps(simulate(options.days, options.seed).shown()) + "\n")


if __name__ == "__main__":
    main()
