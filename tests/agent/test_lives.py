"""Whole attempts: a real process of the agent, a real training, a real folder store."""

import json
import os
import signal
import sys
from contextlib import AbstractContextManager, suppress

import pytest

from supervisor.contract import heartbeat, runfiles
from supervisor.contract.stores import durable
from supervisor.contract.stores.folder import LOCKS
from tests.agent.machine_rig import RUN, Rig
from tests.waiting import wait_for

SUM_20 = str(sum(range(1, 21)))


def written_by_nobody_else(rig: Rig, key: str) -> AbstractContextManager[int]:
    """Meanwhile each write of this object waits, as for a slow writer."""
    return durable.locked(os.path.join(rig.store.root, LOCKS, durable.key_hash(key)[:2]), 10.0)


def test_a_training_that_finishes_is_done_and_verified(rig: Rig) -> None:
    rig.start(*rig.toy("--steps", "20"))
    last = rig.ended()
    assert last.phase == heartbeat.FINISHED
    assert last.exit is not None
    assert (last.exit.code, last.exit.sent_by_us, last.exit.last_line) == (0, False, "finished")
    assert (last.step, last.total, last.checkpoint_step, last.left) == (20, 20, 20, None)
    assert last.metrics == {"sum": float(SUM_20)}
    baton = rig.baton
    assert baton.done is not None
    assert [entry.name for entry in baton.done.results] == ["more/steps.txt", "sum.txt"]
    assert (baton.done.step, baton.done.total) == (20, 20)
    assert baton.done.training_s > 0.3
    assert baton.holder is not None
    assert baton.holder.left
    assert rig.text(baton.done.prefix + "sum.txt") == SUM_20
    assert baton.checkpoint is not None
    assert baton.checkpoint.step == 20
    assert rig.log().decode().splitlines() == ["begins at step 0 resumed from nothing", "finished"]
    assert rig.exit_record()["exit"]["code"] == 0
    assert rig.survivors() == []


def test_the_beats_show_the_whole_attempt(rig: Rig) -> None:
    """The newest beat wins, so each phase lasts until its beat has arrived: the training waits, then the store."""
    with written_by_nobody_else(rig, runfiles.results(RUN, 1) + "sum.txt"):
        rig.start(*rig.toy("--steps", "20", "--wait-at", "11"))
        for phase in (heartbeat.TRAINING, heartbeat.FINISHING):
            rig.beat_with(phase, lambda beat, phase=phase: beat.phase == phase)
            rig.go()
    rig.ended()
    beats = sorted(rig.server.beats, key=lambda b: b.sequence)
    phases = list(dict.fromkeys(b.phase for b in beats))
    assert phases[-1] == heartbeat.FINISHED
    assert [p for p in phases if p in ("training", "finishing", "finished")] == ["training", "finishing", "finished"]
    assert {b.nonce for b in beats} == {"secret"}
    agent = json.loads((rig.machine / "agent.json").read_text())
    machine_id = "local:%s:%d:%d" % (agent["boot_id"][:8], agent["pid"], agent["start_ticks"])
    assert {b.machine_id for b in beats} == {machine_id}
    assert agent["pid"] == rig.agent.pid
    holder = rig.baton.holder
    assert holder is not None
    assert holder.machine_id == machine_id
    assert len({b.sequence for b in beats}) == len(beats)
    info = rig.store.stat(runfiles.beat(RUN))
    assert heartbeat.parse(info.metadata["beat"].encode()) == rig.stored_beat


def test_killed_and_resumed_loses_only_unsaved_steps(rig: Rig) -> None:
    rig.start(*rig.toy("--steps", "20", "--wait-at", "11"))
    rig.beat_with("checkpoint 10", lambda b: b.checkpoint_step == 10)
    os.killpg(rig.agent.pid, signal.SIGSTOP)  # as the provider does: the agent must not see its training die
    for pid in rig.survivors():
        os.kill(pid, signal.SIGKILL)
    rig.agent.wait()
    rig.start(*rig.toy("--steps", "20"), attempt=2, holder_gone=True)
    last = rig.ended()
    assert last.resumed_from == 10
    assert rig.baton.done is not None
    assert rig.text(rig.baton.done.prefix + "sum.txt") == SUM_20
    assert b"begins at step 10 resumed from 10" in rig.log(2)


def test_a_command_that_reports_nothing_is_supervised_too(rig: Rig) -> None:
    rig.start(command="echo hello; exit 0")
    last = rig.ended()
    assert last.exit is not None
    assert (last.exit.code, last.exit.last_line) == (0, "hello")
    assert (last.step, last.checkpoint_step) == (None, None)
    assert rig.baton.done is not None
    assert rig.baton.done.results == ()


def test_a_failed_exit_is_reported_with_its_last_line_and_keeps_the_checkpoint(rig: Rig) -> None:
    rig.start(*rig.toy("--steps", "5", "--exit", "1"))
    last = rig.ended()
    assert last.exit is not None
    assert (last.exit.code, last.exit.signal, last.exit.sent_by_us) == (1, None, False)
    assert last.exit.last_line == f"ModuleNotFoundError: No module named 'timm' (python: {rig.toy()[0]})"
    assert last.left is None
    baton = rig.baton
    assert baton.done is None
    assert baton.checkpoint is not None
    assert baton.checkpoint.step == 4
    assert rig.exit_record()["exit"]["code"] == 1


def test_an_error_that_the_run_names_is_marked_for_a_retry(rig: Rig) -> None:
    rig.start(*rig.toy("--exit", "7"), retry={"exit_codes": [7], "log_patterns": []})
    ended = rig.ended().exit
    assert ended is not None
    assert ended.retry_named


def test_a_command_that_does_not_exist_ends_at_once(rig: Rig) -> None:
    rig.start("no-such-command-anywhere", "--steps", "1")
    last = rig.ended()
    assert last.phase == heartbeat.FINISHED
    assert last.exit is not None
    assert (last.exit.code, last.exit.last_line) == (127, "no-such-command-anywhere: command not found")
    assert b"command not found" in rig.log()
    assert rig.baton.done is None
    assert rig.baton.holder is not None
    assert rig.baton.holder.left


def test_a_folder_that_does_not_exist_is_named(rig: Rig) -> None:
    rig.start(workdir="/nowhere/at/all")
    ended = rig.ended().exit
    assert ended is not None
    assert ended.code == 127
    assert ended.last_line == "the working directory /nowhere/at/all does not exist"


def test_a_kill_by_another_process_is_distinguished_from_ours(rig: Rig) -> None:
    rig.start(*rig.toy("--steps", "20", "--wait-at", "5"))
    rig.at_step(5)
    os.kill(rig.command_pid(), signal.SIGKILL)
    last = rig.ended()
    assert last.exit is not None
    assert (last.exit.code, last.exit.signal, last.exit.sent_by_us) == (None, signal.SIGKILL, False)
    assert last.left is None
    assert rig.baton.checkpoint is not None
    assert rig.baton.checkpoint.step == 4


def test_a_shell_whose_child_was_killed_by_another_process_shows_it_too(rig: Rig) -> None:
    rig.start(command="sh -c 'kill -9 $$'; exit $?")
    ended = rig.ended().exit
    assert ended is not None
    assert (ended.code, ended.signal, ended.sent_by_us) == (None, signal.SIGKILL, False)


def test_processes_that_the_command_leaves_running_end_with_it(rig: Rig) -> None:
    rig.start(*rig.toy("--stray"))
    rig.ended()
    assert rig.baton.done is not None
    assert rig.survivors() == []


def test_beats_continue_while_the_training_is_frozen(rig: Rig) -> None:
    rig.start(*rig.toy("--steps", "20", "--wait-at", "4"))
    rig.at_step(4)
    pid = rig.command_pid()
    os.kill(pid, signal.SIGSTOP)
    before = rig.stored_beat.sequence
    wait_for(lambda: rig.stored_beat.sequence > before + 6, what="beats of a frozen training")
    os.kill(pid, signal.SIGCONT)
    rig.go()
    rig.ended()
    assert rig.baton.done is not None


def test_a_line_of_a_megabyte_is_cut_and_harms_nothing(rig: Rig) -> None:
    rig.start(*rig.toy("--long-line", str(1 << 20)))
    rig.ended()
    assert rig.baton.done is not None
    log = rig.log()
    assert len(log) < 70_000
    assert b"[... 983040 bytes of this line were cut]\n" in log
    assert log.endswith(b"finished\n")


def test_a_file_written_in_place_is_saved_when_it_rests(rig: Rig) -> None:
    rig.start(*rig.toy("--steps", "6", "--in-place", "--wait-at", "5"))
    rig.beat_with("checkpoint 4", lambda b: b.checkpoint_step == 4)
    rig.go()
    rig.ended()
    assert rig.baton.checkpoint is not None
    assert (rig.baton.checkpoint.step, rig.baton.checkpoint.files[0].name) == (6, "last.json")


def test_a_second_agent_on_the_same_folder_exits(rig: Rig) -> None:
    rig.start(*rig.toy("--steps", "20", "--wait-at", "4"))
    rig.at_step(4)
    first = rig.agent
    rig.spawn()
    assert rig.agent.wait(30) == 3
    assert "another agent uses" in rig.console
    assert json.loads((rig.machine / "agent.json").read_text())["pid"] == first.pid
    rig.go()
    assert first.wait(30) == 0


def test_a_training_gives_the_same_result_with_and_without_a_preemption(rig: Rig) -> None:
    rig.start(*rig.toy("--steps", "20", "--wait-at", "7", "--on-term", "save"))
    rig.at_step(7)
    rig.notice(10.0)
    rig.ended()
    rig.start(*rig.toy("--steps", "20"), attempt=2)
    rig.ended()
    assert rig.baton.done is not None
    assert rig.text(rig.baton.done.prefix + "sum.txt") == SUM_20


LEAVES_A_WRITER = '''
import os, subprocess, sys, time
# Faster than the agent reads; each line by itself would take a whole core.
writer = """import sys, time
out = open(sys.argv[1], 'ab', 0)
while True:
    out.write(b'{"step": 7}\\\\n' * 20000)
    time.sleep(0.02)"""
progress = os.environ["SPOT_PROGRESS_FILE"]
env = {} if %r == "flees" else None  # without the machine's marker the agent cannot find it
left = subprocess.Popen([sys.executable, "-c", writer, progress], env=env, start_new_session=True)
while not os.path.exists(progress):
    time.sleep(0.01)
with open(os.path.join(os.environ["SPOT_RESULTS_DIR"], "writer"), "w") as target:
    target.write(str(left.pid))
'''


@pytest.mark.parametrize("how", ["is found", "flees"])
def test_a_training_is_finished_although_a_leftover_process_keeps_reporting(rig: Rig, how: str) -> None:
    rig.start(sys.executable, "-c", LEAVES_A_WRITER % how)
    try:
        last = rig.ended(60)
    finally:
        with suppress(ProcessLookupError):
            os.kill(int((rig.machine / "work" / "results" / "writer").read_text()), signal.SIGKILL)
    assert (last.phase, last.step) == (heartbeat.FINISHED, 7)
    assert rig.baton.done is not None
