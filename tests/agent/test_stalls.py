"""When threads are dumped, when a command hangs, and what the beat says of it: the watch with a manual clock."""

import json
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.machine.job import read_job
from supervisor.agent.machine.masking import Masker
from supervisor.agent.watch import hang
from supervisor.agent.watch.beat_state import BeatState
from supervisor.agent.watch.hang import HangWatch, Sources
from supervisor.agent.watch.motion import Counters
from supervisor.contract.beat_telemetry import Gpus
from supervisor.contract.heartbeat import EVALUATION, TRAINING
from supervisor.contract.signs import Hang
from tests.agent.bench import IDENTITY, ManualClock, job

LOCK = (
    'Current thread 0x0 (most recent call first):\n  File "/home/user/train.py", line 3 in <module>\n    lock.acquire()'
)
SPIN = LOCK.replace("lock.acquire()", "loss.item()")
RECV = LOCK.replace("lock.acquire()", "peer.recv(1)")
BACKWARD = (
    "Current thread 0x0 (most recent call first):\n"
    '  File "/venv/lib/python3.11/site-packages/torch/autograd/graph.py", line 825 in _engine_run_backward\n'
    '  File "/venv/lib/python3.11/site-packages/torch/autograd/__init__.py", line 347 in backward\n'
    '  File "/home/user/train.py", line 9 in <module>\n    loss.backward()'
)


class Watched:
    """`rates`: what moves, per second of the clock."""

    def __init__(self, **limits: Any) -> None:
        self.clock, self.job = ManualClock(), job(**limits)
        self.beat_state = BeatState(self.job, IDENTITY, Masker({}))
        self.kept: list[dict[str, Any]] = []
        self.reports: list[tuple[Hang | None, tuple[str, ...] | None]] = []
        self.rates = {"cpu": 0.0, "io": 0.0, "net": 0.0, "output": 0.0}
        self.totals = dict.fromkeys(self.rates, 0.0)
        self.unread: set[str] = set()
        self.gpus: Gpus | None = None
        self.readings = 0
        self.text, self.how = LOCK, "faulthandler"
        self.carried_s: float | None = None
        self.asked = 0
        sources = Sources(
            self.counters, self.dumps, self.kept.append, lambda *report: self.reports.append(report), self.carried
        )
        self.watch = HangWatch(self.job, self.beat_state, sources, self.clock)

    def carried(self) -> float | None:
        self.asked += 1
        return self.carried_s

    def counters(self) -> Counters:
        self.readings += 1
        by_pid = {name: None if name in self.unread else {1: total} for name, total in self.totals.items()}
        output = self.totals["output"]
        return Counters(by_pid["cpu"], by_pid["io"], None, by_pid["net"], self.gpus, (0.0,), output)

    def dumps(self) -> list[dict[str, Any]]:
        return [{"pid": 7, "command": "python train.py", "how": self.how, "text": self.text}]

    def after(self, seconds: float, **changes: Any) -> int:
        """The number of dumps in the evidence."""
        self.beat_state.update(**changes)
        self.watch.step()
        for _ in range(round(seconds)):
            self.clock.now += 1.0
            for name, rate in self.rates.items():
                self.totals[name] += rate
            self.watch.step()
        return len(self.kept)

    def trains(self, step_s: float = 2.0, steps: int = 25) -> None:
        first = (self.beat_state.now.step or 0) + 1
        for step in range(first, first + steps):
            self.after(step_s, phase=TRAINING, step=step)

    def seconds_to_hang(self, at_most: int = 10_000) -> int | None:
        """From the last progress on; None: no hang is found."""
        for seconds in range(1, at_most + 1):
            self.after(1)
            if self.reports and self.reports[-1][0] is not None:
                return seconds
        return None

    @property
    def last(self) -> Hang:
        hang = self.hang()
        assert hang is not None
        return hang

    def hang(self) -> Hang | None:
        return self.reports[-1][0] if self.reports else None


def hanging(**limits: Any) -> Watched:
    """After 25 steps of 2 s, of which the last has just been reported."""
    watched = Watched(**{"hang": True, "stall_dump_s": 180.0, **limits})
    watched.trains()
    watched.after(0, step=26)
    return watched


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


def test_the_job_has_the_limits(tmp_path: Path) -> None:
    paper = {"name": "m", "run_id": "r-1", "attempt": 1, "launch_id": "1.1.1", "nonce": "n", "command": "true"}
    limits = {"stall_dump_s": 180, "first_dump_s": None, "hang": True, "quiet_s": 900}
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"version": 1, "store_url": "file:///x", **paper, **limits}))
    read = read_job(str(path))
    assert (read.stall_dump_s, read.first_dump_s, read.hang, read.quiet_s) == (180.0, None, True, 900.0)


def test_a_hang_is_found_within_a_minute_and_its_place_is_in_the_beat_and_in_the_evidence() -> None:
    watched = hanging()
    seconds = watched.seconds_to_hang()
    assert seconds is not None
    assert 55 <= seconds <= 60
    assert (watched.last.place, watched.last.step) == ("lock", 26)
    assert watched.last.still_s >= 55
    [kept] = watched.kept
    assert (kept["place"], kept["moves"]) == ("lock", ())
    assert kept["threads"] == kept["threads_before"]
    watched.after(300)
    assert len(watched.kept) == 1, "one dump is enough"


def test_nothing_is_read_while_steps_come() -> None:
    watched = hanging()
    watched.trains(step_s=9.0, steps=30)
    assert (watched.readings, watched.reports) == (0, [])


@pytest.mark.parametrize("signal", ["cpu", "io", "net", "gpu"])
def test_each_signal_alone_keeps_a_late_step_alive(signal: str) -> None:
    """The broken variant: a watch by the rhythm alone finds all of them in a minute."""
    watched = hanging()
    watched.text = LOCK
    if signal == "gpu":
        watched.gpus = Gpus(util_pct=(97.0,), power_w=(310.0,), power_limit_w=(400.0,), memory_used_mib=(9.0,))
    else:
        watched.rates[signal] = 0.5 if signal == "cpu" else 1e6
    assert watched.seconds_to_hang(3000) is None
    assert watched.reports[-1] == (None, (signal,))
    assert watched.after(0, step=27) == 1, "where it stood is in the evidence all the same"
    assert watched.reports[-1][1] is None


def test_unread_is_not_still() -> None:
    watched = hanging()
    watched.unread = {"cpu"}
    assert watched.seconds_to_hang(3000) is None
    watched.unread = {"io", "net"}
    assert watched.seconds_to_hang(3000) is None
    watched.unread = {"net"}
    assert watched.seconds_to_hang(120) is not None


def test_the_log_keeps_a_silent_command_alive_but_not_a_late_step() -> None:
    watched = hanging()
    watched.rates["output"] = 100.0
    assert watched.seconds_to_hang(60) is not None
    silent = Watched(hang=True)
    silent.rates["output"] = 100.0
    silent.after(0, phase=TRAINING)
    assert silent.seconds_to_hang(4000) is None


def test_a_command_without_steps_is_found_within_half_an_hour_of_its_last_motion() -> None:
    watched = Watched(hang=True)
    watched.rates["cpu"] = 0.5
    watched.after(4000, phase=TRAINING)
    assert watched.hang() is None
    watched.rates["cpu"] = 0.0
    seconds = watched.seconds_to_hang()
    assert seconds is not None
    assert 1600 <= seconds <= 1800
    assert watched.last.step is None


def test_a_card_that_waits_at_low_power_does_not_move_and_takes_longer_to_judge() -> None:
    watched = hanging()
    watched.gpus = Gpus(util_pct=(100.0,), power_w=(90.0,), power_limit_w=(400.0,), memory_used_mib=(9.0,))
    watched.rates["cpu"], watched.text = 1.0, SPIN
    seconds = watched.seconds_to_hang()
    assert seconds is not None
    assert 590 <= seconds <= 620
    assert watched.last.place == "gpu_kernel"


@pytest.mark.parametrize("text", [LOCK, SPIN + "\n\n", RECV])
def test_burning_cpu_is_a_hang_only_inside_a_wait_for_ranks_or_cards(text: str) -> None:
    watched = hanging()
    watched.gpus = Gpus(util_pct=(0.0,))
    watched.rates["cpu"], watched.text = 1.0, text
    assert (watched.seconds_to_hang(3000) is not None) == (text.strip() == SPIN)


def test_burning_cpu_inside_backward_is_no_hang_where_no_card_can_be_read() -> None:
    """Broken variant: a healthy training on the CPU alone that reports nothing for two hours was ended as a hang."""
    for quiet in (False, True):
        watched = Watched(hang=True) if quiet else hanging()
        watched.after(1, phase=TRAINING)
        watched.rates["cpu"], watched.text = 1.0, BACKWARD
        assert watched.seconds_to_hang(12_000) is None


def test_a_wait_for_the_network_takes_longer_where_its_bytes_cannot_be_counted() -> None:
    watched = hanging()
    watched.text, watched.unread = RECV, {"net"}
    seconds = watched.seconds_to_hang()
    assert seconds is not None
    assert 590 <= seconds <= 700


def test_dumps_that_differ_are_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = hanging()
    lines = iter(range(10_000))
    monkeypatch.setattr(hang, "fingerprint", lambda dumps: next(lines))
    assert watched.seconds_to_hang(1000) is None


def test_a_hang_that_moves_again_is_withdrawn() -> None:
    watched = hanging()
    assert watched.seconds_to_hang() is not None
    watched.rates["net"] = 1e6
    watched.after(40)
    assert watched.reports[-1] == (None, ("net",))


@pytest.mark.parametrize(("carried_s", "at_most"), [(2.0, 60), (None, 1800)])
def test_the_rhythm_of_the_attempt_before_is_read_once_when_an_early_step_is_late(
    carried_s: float | None, at_most: int
) -> None:
    watched = Watched(hang=True, stall_dump_s=180.0)
    watched.carried_s = carried_s
    watched.trains(steps=5)
    assert watched.asked == 0
    seconds = watched.seconds_to_hang()
    assert seconds is not None
    assert at_most - 120 <= seconds <= at_most
    assert watched.asked == 1


def test_a_stopped_process_needs_no_rhythm() -> None:
    watched = Watched(hang=True, stall_dump_s=12.0)
    watched.how, watched.text = "proc", "thread 7: python, T (stopped), wchan do_signal_stop, syscall -1"
    watched.after(1, phase=TRAINING, step=1)
    seconds = watched.seconds_to_hang(60)
    assert seconds is not None
    assert seconds <= 12
    assert watched.last.place == "stopped"


def test_a_run_may_switch_it_off() -> None:
    watched = hanging(hang=False)
    assert watched.seconds_to_hang(3000) is None
    assert watched.reports[-1] == (None, ()), "what moves is told all the same"


def test_the_announced_evaluation_is_no_step() -> None:
    watched = hanging()
    watched.after(1200, phase=EVALUATION)
    assert watched.reports == []
    assert watched.watch._rhythm.late_s() == 60.0
