"""When a machine is kept for a person, the agent stays after the work is over."""

from __future__ import annotations

import signal

import pytest

from supervisor.contract import heartbeat
from tests.agent.machine_rig import Rig
from tests.waiting import wait_for

STAYS = {"stays_after_success": True, "stays_after_failure": True}


def stays(rig: Rig) -> None:
    wait_for(lambda: "the machine is kept" in rig.console, what="the agent to stay")
    assert rig.agent.poll() is None
    assert rig.stored_beat.phase == heartbeat.FINISHED  # the last beat was sent before
    assert rig.baton.holder is not None
    assert rig.baton.holder.left


@pytest.mark.parametrize("code", [0, 1])
def test_it_stays_after_the_last_beat_and_leaves_at_term(rig: Rig, code: int) -> None:
    rig.start(*rig.toy("--steps", "2", "--exit", str(code)), **STAYS)
    stays(rig)
    assert (rig.baton.done is not None) == (code == 0)
    rig.agent.send_signal(signal.SIGTERM)
    assert rig.ended().left is None


def test_a_command_that_could_not_be_started_is_a_failure_too(rig: Rig) -> None:
    rig.start("/no/such/command", **STAYS, machine_max_s=3.0)
    stays(rig)
    assert rig.ended().left is None  # the machine's own limit holds for a machine that is kept


@pytest.mark.parametrize(("code", "kept_after"), [(1, "success"), (0, "failure")])
def test_it_stays_only_after_the_specified_end(rig: Rig, code: int, kept_after: str) -> None:
    rig.start(*rig.toy("--steps", "2", "--exit", str(code)), **{f"stays_after_{kept_after}": True})
    assert rig.ended().exit is not None


def test_a_stop_is_neither_success_nor_failure(rig: Rig) -> None:
    rig.start(*rig.toy("--steps", "9", "--wait-at", "3", "--on-term", "save"), **STAYS)
    rig.at_step(3)
    rig.agent.send_signal(signal.SIGTERM)
    assert rig.ended().left == heartbeat.STOPPED
