"""Attempts that end before their command does: stops, notices, limits, newer attempts and closed runs."""

import os
import signal
import sys
import time

import pytest

from supervisor.contract import baton as rules
from supervisor.contract import heartbeat, runfiles
from supervisor.domain.causes import Cause
from tests.agent.machine_rig import RUN, Rig
from tests.lifecycle.ends import end_of
from tests.waiting import wait_for

WAITS = ("--steps", "20", "--wait-at", "5")


def test_a_notice_saves_leaves_and_is_reported(rig: Rig) -> None:
    rig.start(*rig.toy(*WAITS, "--on-term", "save"))
    rig.at_step(5)
    rig.notice(10.0)
    rig.beat_with("the notice", lambda b: b.notice_s is not None and 9 < b.notice_s <= 10)
    last = rig.ended()
    assert last.left == heartbeat.NOTICED
    assert last.exit is not None
    assert (last.exit.code, last.exit.sent_by_us) == (143, True)
    assert last.checkpoint_step == 5
    assert rig.baton.done is None
    assert rig.baton.holder is not None
    assert rig.baton.holder.left


def test_a_notice_kills_in_time_for_the_upload(rig: Rig) -> None:
    rig.start(*rig.toy(*WAITS, "--on-term", "ignore"))
    rig.at_step(5)
    began = time.monotonic()
    rig.notice(6.0)
    last = rig.ended()
    assert 3.0 < time.monotonic() - began < 6.0
    assert last.exit is not None
    assert (last.exit.signal, last.exit.sent_by_us, last.left) == (signal.SIGKILL, True, heartbeat.NOTICED)
    assert last.checkpoint_step == 4


def test_a_supervisor_that_hangs_does_not_keep_the_last_beat_from_the_store(rig: Rig) -> None:
    rig.start(*rig.toy(*WAITS, "--on-term", "save"))
    rig.at_step(5)
    rig.server.answers.clear()
    began = time.monotonic()
    rig.notice(5.0)
    wait_for(lambda: rig.baton.holder is not None and rig.baton.holder.left, what="the baton to be left")
    assert time.monotonic() - began < 4.5
    assert rig.exit_record()["left"] == heartbeat.NOTICED
    assert rig.stored_beat.phase == heartbeat.FINISHED


def test_term_to_the_agent_is_passed_on_and_the_last_checkpoint_is_kept(rig: Rig) -> None:
    rig.start(*rig.toy(*WAITS, "--on-term", "save"))
    rig.at_step(5)
    rig.agent.send_signal(signal.SIGTERM)
    last = rig.ended()
    assert (last.left, last.checkpoint_step) == (heartbeat.STOPPED, 5)
    assert rig.baton.checkpoint is not None
    assert rig.baton.checkpoint.step == 5
    assert rig.baton.holder is not None
    assert rig.baton.holder.left


def test_a_signal_that_announces_the_end_is_passed_on_as_a_notice(rig: Rig) -> None:
    rig.start(*rig.toy(*WAITS, "--on-term", "save"), notice_from="signal", notice_s=20.0)
    rig.at_step(5)
    rig.agent.send_signal(signal.SIGUSR1)
    last = rig.ended()
    assert (last.left, last.checkpoint_step) == (heartbeat.NOTICED, 5)
    assert rig.exit_record()["left"] == heartbeat.NOTICED


def test_where_term_is_the_notice_the_training_saves_and_the_agent_says_so(rig: Rig) -> None:
    rig.start(*rig.toy(*WAITS, "--on-term", "save"), notice_from="term", notice_s=20.0)
    rig.at_step(5)
    rig.agent.send_signal(signal.SIGTERM)
    last = rig.ended()
    assert (last.left, last.checkpoint_step) == (heartbeat.NOTICED, 5)
    assert rig.exit_record()["left"] == heartbeat.NOTICED


def test_exit_0_after_our_term_is_not_the_end_of_the_work(rig: Rig) -> None:
    rig.start(*rig.toy(*WAITS, "--on-term", "polite"))
    rig.at_step(5)
    rig.agent.send_signal(signal.SIGTERM)
    last = rig.ended()
    assert rig.baton.done is None
    assert last.exit is not None
    assert (last.exit.code, last.exit.signal, last.exit.sent_by_us) == (None, signal.SIGTERM, True)
    assert last.checkpoint_step == 5


def test_a_command_that_ignores_term_is_killed_when_its_grace_is_over(rig: Rig) -> None:
    rig.start(*rig.toy(*WAITS, "--on-term", "ignore"), stop_grace_s=0.5)
    rig.at_step(5)
    rig.agent.send_signal(signal.SIGTERM)
    last = rig.ended()
    assert last.exit is not None
    assert (last.exit.signal, last.exit.sent_by_us, last.left) == (signal.SIGKILL, True, heartbeat.STOPPED)


def test_a_frozen_training_is_continued_at_a_stop_so_that_it_can_save(rig: Rig) -> None:
    rig.start(*rig.toy(*WAITS, "--on-term", "save"))
    rig.at_step(5)
    os.kill(rig.command_pid(), signal.SIGSTOP)
    rig.agent.send_signal(signal.SIGTERM)
    assert rig.ended().checkpoint_step == 5


def test_the_response_to_a_push_stops(rig: Rig) -> None:
    rig.start(*rig.toy(*WAITS, "--on-term", "save"))
    rig.at_step(5)
    rig.server.answer["stop"] = True
    assert rig.ended().left == heartbeat.STOPPED


def test_a_stop_marker_stops_without_a_supervisor(rig: Rig) -> None:
    rig.start(*rig.toy(*WAITS, "--on-term", "save"), server_file=None)
    wait_for(lambda: rig.baton.checkpoint is not None, what="a checkpoint")
    generation = rig.stop_marker()
    last = rig.ended()
    assert (last.left, last.stop_generation) == (heartbeat.STOPPED, generation)


def test_a_marker_that_a_resume_has_consumed_is_ignored(rig: Rig) -> None:
    rig.start(*rig.toy(*WAITS), stop_consumed=rig.stop_marker())
    rig.at_step(5)
    before = rig.stored_beat.sequence
    wait_for(lambda: rig.stored_beat.sequence > before + 4)
    rig.go()
    assert rig.ended().left is None
    assert rig.baton.done is not None


def test_a_machine_that_reaches_its_limit_saves_and_leaves(rig: Rig) -> None:
    rig.start(*rig.toy(*WAITS, "--on-term", "save"), machine_max_s=2.0)
    last = rig.ended()
    assert (last.left, last.checkpoint_step) == (heartbeat.EXPIRED, 5)


def test_a_holder_that_sees_a_newer_attempt_saves_and_leaves(rig: Rig) -> None:
    rig.start(*rig.toy(*WAITS, "--on-term", "save"), beat_store_s=3.0)
    rig.at_step(5)
    old = rig.agent
    old.send_signal(signal.SIGSTOP)  # else its next look at the baton may come before the newcomer has said anything
    rig.start(*rig.toy("--steps", "20"), attempt=2)
    rig.beat_with("the newcomer's wait", lambda b: b.attempt == 2 and "waiting for" in b.message)
    old.send_signal(signal.SIGCONT)
    assert old.wait(30) == 0
    last = rig.ended()
    assert (last.attempt, last.resumed_from, last.exit is not None) == (2, 5, True)
    assert rig.exit_record(1)["left"] == heartbeat.SUPERSEDED
    assert rig.baton.done is not None


def test_a_closed_run_ends_its_training_and_is_not_written_any_more(rig: Rig) -> None:
    rig.start(*rig.toy(*WAITS, "--on-term", "save"))
    rig.beat_with("checkpoint 4", lambda b: b.checkpoint_step == 4)
    rig.change(lambda b: rules.close(b, "stopped"))
    rig.beat_with("the farewell", lambda b: b.left == heartbeat.CLOSED)
    rig.agent.wait(30)
    assert rig.baton.checkpoint is not None
    assert rig.baton.checkpoint.step == 4
    assert rig.text(runfiles.exit_record(RUN, 1)) == ""
    assert not rig.baton.holder.left


def test_a_deleted_beat_makes_the_agent_read_the_baton(rig: Rig) -> None:
    rig.start(*rig.toy(*WAITS))
    rig.at_step(5)
    wait_for(lambda: runfiles.beat(RUN) in rig.keys(runfiles.BEATS), what="a stored beat")
    rig.change(lambda b: rules.close(b, "stopped"))
    rig.store.delete(runfiles.beat(RUN))
    rig.agent.wait(30)
    assert rig.keys(runfiles.BEATS) == []


@pytest.mark.parametrize("closed", [True, False])
def test_an_outdated_agent_starts_nothing_and_writes_nothing(rig: Rig, closed: bool) -> None:
    rig.change(lambda b: rules.raise_next(b, "1.2.1", "secret", False))
    if closed:
        rig.change(lambda b: rules.close(b, "stopped"))
    before = rig.baton
    rig.launch("1.1.1")
    rig.agent.wait(30)
    (beat,) = {b.left for b in rig.server.beats if b.left}
    assert beat == (heartbeat.CLOSED if closed else heartbeat.SUPERSEDED)
    assert rig.baton == before
    assert rig.keys(runfiles.folder(RUN)) == [runfiles.baton(RUN)]
    assert rig.keys(runfiles.BEATS) == []


def test_a_second_machine_of_one_launch_loses_the_claim(rig: Rig) -> None:
    rig.start(*rig.toy(*WAITS))
    rig.at_step(5)
    first, folder = rig.agent, rig.machine
    rig.launch("1.1.1")
    assert rig.agent.wait(30) == 0
    assert "this agent must not run (superseded)" in rig.console
    (folder / "work" / "scratch" / "go").touch()
    assert first.wait(30) == 0
    assert rig.baton.done is not None


def test_a_stop_while_the_next_agent_waits_needs_no_claim(rig: Rig) -> None:
    rig.start(*rig.toy(*WAITS))
    # Not in the middle of a change of the baton: it would keep the lock.
    rig.beat_with("checkpoint 4", lambda b: b.checkpoint_step == 4)
    os.kill(rig.agent.pid, signal.SIGSTOP)  # it neither leaves nor is marked gone
    rig.start(attempt=2)
    rig.beat_with("the newcomer's wait", lambda b: b.attempt == 2 and "waiting for" in b.message)
    rig.agent.send_signal(signal.SIGTERM)
    assert rig.agent.wait(30) == 0
    assert rig.baton.holder is not None
    assert rig.baton.holder.attempt == 1


AFTER_THE_LAST_STEP = """
import os, signal, sys, spot_progress
for step in range(1, 6):
    spot_progress.report(step, total=5)
with open(os.path.join(os.environ["SPOT_RESULTS_DIR"], "model.txt"), "w") as target:
    target.write("weights")
print("ValueError: Image size must be less than 2^16", flush=True)
%s
"""


@pytest.mark.parametrize("how", ["sys.exit(1)", "os.abort()"])
@pytest.mark.parametrize("results", [[], [{"path": "*.txt"}]])
def test_a_failure_after_the_last_step_keeps_the_results_and_the_work_is_done(
    rig: Rig, how: str, results: list[dict[str, str]]
) -> None:
    rig.start(sys.executable, "-c", AFTER_THE_LAST_STEP % how, results=results)
    last = rig.ended()
    assert last.exit is not None
    assert (last.exit.after_work, last.exit.code == 0, last.left) == (True, False, None)
    done = rig.baton.done
    assert done is not None
    assert rig.text(done.prefix + "model.txt") == "weights"
    assert "must be less than 2^16" in done.error
    assert ("exit code 1" if "exit" in how else "signal 6") in done.error


def test_a_failure_after_the_last_step_without_its_declared_results_does_not_end_the_work(rig: Rig) -> None:
    rig.start(sys.executable, "-c", AFTER_THE_LAST_STEP % "sys.exit(1)", results=[{"path": "*.npz"}])
    last = rig.ended()
    assert last.exit is not None
    assert not last.exit.after_work
    assert rig.baton.done is None


CAUGHT = """
import sys, time, spot_progress
spot_progress.report(1)
print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.", flush=True)
time.sleep(1.0)  # the agent looks at the log and at the steps several times a second
for step in (2, 3):
    spot_progress.report(step)
print("no licence", flush=True)
sys.exit(3)
"""


def test_a_full_card_that_the_training_survived_is_not_the_reason_of_its_end(rig: Rig) -> None:
    rig.start(sys.executable, "-c", CAUGHT)
    last = rig.ended()
    assert last.exit is not None
    assert (last.exit.code, last.exit.last_line) == (3, "no licence")


def test_the_computers_limit_of_cpu_time_is_a_time_limit_and_no_fault_of_the_code(rig: Rig) -> None:
    busy = f"ulimit -c 0; ulimit -S -t 1; exec {sys.executable} -c 'while True: pass'"
    rig.start("/bin/sh", "-c", busy)
    last = rig.ended()
    assert last.exit is not None
    assert (last.exit.signal, last.exit.sent_by_us) == (signal.SIGXCPU, False)
    ended = end_of(last)
    assert ended is not None
    assert ended[0] == Cause.TIME_LIMIT
