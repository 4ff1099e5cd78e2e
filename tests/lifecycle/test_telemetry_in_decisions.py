"""Figures of the machine in beats are kept with the run and change no decision; only the GPU count ends an attempt."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.contract import heartbeat
from supervisor.contract.beat_telemetry import Gpus, Telemetry, Tree, encode
from supervisor.contract.heartbeat import Beat
from supervisor.domain.causes import Cause, Kind, rule_for
from supervisor.domain.observation import Seen
from supervisor.domain.status import Status
from supervisor.lifecycle.living.beats import follow
from supervisor.wording.attempt import ended_text
from supervisor.wording.run import status_text
from tests.lifecycle.ends import end_of
from tests.lifecycle.sample_runs import NOW, attempt, beat_of, ended, pulse, run_in


def gpus(*util_pct: float | None) -> str:
    return encode(Telemetry(gpus=Gpus(util_pct=util_pct)))


OLDER = encode(Telemetry(gpus=Gpus(util_pct=(93.0,)), tree=Tree(threads=4.0)))
NEWER = encode(Telemetry(uptime_s=5.0))


def beat(sequence: int, number: int = 4, phase: str = "training", **fields: object) -> Beat:
    return beat_of(attempt(number), sequence, phase, step=7, **fields)


def test_the_newest_figures_stay_until_there_are_newer_ones() -> None:
    first = follow(None, Seen(beat(1, telemetry=OLDER)), NOW, 30)
    assert first.telemetry == OLDER
    silent = follow(first, Seen(beat(2)), NOW + 10, 30)
    assert silent.telemetry == OLDER
    assert follow(silent, Seen(beat(3, telemetry=NEWER)), NOW + 20, 30).telemetry == NEWER
    assert follow(silent, Seen(beat(1, telemetry=NEWER)), NOW + 20, 30) is silent  # an older beat


def test_figures_of_another_launch_are_not_those_of_this_one() -> None:
    first = follow(None, Seen(beat(9, telemetry=OLDER)), NOW, 30)
    assert follow(first, Seen(beat(1, 5)), NOW, 30).telemetry == ""


@pytest.mark.parametrize("text", ["", OLDER, gpus(0.0)])
def test_figures_are_no_progress_and_no_stall(text: str) -> None:
    before = follow(None, Seen(beat(1)), NOW, 30)
    after = follow(before, Seen(beat(2, telemetry=text)), NOW + 30, 30)
    assert (after.stall_polls, after.progress_at) == (1, before.progress_at)


def test_a_card_too_few_is_the_machines_fault_and_says_which() -> None:
    text = "2 GPUs promised, 1 can be opened: /dev/nvidia1: No such file or directory"
    end = end_of(beat(4, phase="finished", left=heartbeat.NO_GPU, message=text))
    assert end == (Cause.GPU_UNAVAILABLE, text)
    assert rule_for(Cause.GPU_UNAVAILABLE, False, False).kind != Kind.USER
    over = ended(Cause.GPU_UNAVAILABLE, 12, evidence=text)
    assert ended_text(over, NOW) == f"The machine in us-east1-c did not show all its GPUs within 12 s: {text}"
    silent = end_of(beat(4, phase="finished", left=heartbeat.NO_GPU))
    assert silent == (Cause.GPU_UNAVAILABLE, "the machine has fewer GPUs than its shape promises")


def stalling(text: str) -> str:
    newest = pulse(step=9, first_progress_at=NOW - 900, progress_at=NOW - 120, stall_polls=4, stall_counted_at=NOW)
    live = attempt(training_at=NOW - 900)
    return status_text(run_in(Status.RUNNING, attempt=live, pulse=replace(newest, telemetry=text)), NOW)


def test_a_stall_says_what_the_cards_do_where_that_is_known() -> None:
    assert "Heartbeats continue, GPU 0 %." in stalling(gpus(0.0, 0.4))
    assert "Heartbeats continue, GPU 47 %." in stalling(gpus(94.0, 0.0, None))
    for text in ("", "{}", gpus(None), NEWER):
        assert "Heartbeats continue. " in stalling(text)
