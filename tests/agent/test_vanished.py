"""Lives whose training takes its own folders away, and a baton that somebody deletes: no crash, no silent loop."""

import pytest

from supervisor.contract import heartbeat, runfiles
from tests.agent.machine_rig import RUN, Rig
from tests.waiting import wait_for


def test_a_training_that_removes_all_its_folders_is_done_without_results(rig: Rig) -> None:
    everything = 'rm -rf "$SPOT_RESULTS_DIR" "$SPOT_CHECKPOINT_DIR" "$SPOT_PROGRESS_FILE" ../output.log'
    rig.start(command=everything)
    last = rig.ended()
    assert last.exit is not None
    assert last.exit.code == 0
    assert rig.baton.done is not None
    assert rig.baton.done.results == ()
    assert "Traceback" not in rig.console


@pytest.mark.parametrize("instead", ["mkfifo FILE", "mkdir FILE", "ln -s /dev/zero FILE", "ln -s FILE FILE"])
def test_no_file_of_ours_that_became_something_else_holds_the_end_up(rig: Rig, instead: str) -> None:
    """A pipe that nobody writes to, a device without an end: the agent would wait for ever, and beat all the while."""
    files = ('"$PWD/../output.log"', '"$SPOT_PROGRESS_FILE"')
    rig.start(command="; ".join(f"rm {file}; {instead.replace('FILE', file)}" for file in files) + "; exit 3")
    last = rig.ended()
    assert last.exit is not None
    assert last.exit.code == 3
    assert runfiles.agent_evidence(RUN, 1) in rig.keys("")
    assert "Traceback" not in rig.console


def test_a_file_in_place_of_the_results_folder_asks_for_a_person(rig: Rig) -> None:
    rig.start(command='rmdir "$SPOT_RESULTS_DIR"; echo 1 > "$SPOT_RESULTS_DIR"')
    told = rig.beat_with("the question", lambda b: b.phase == heartbeat.FINISHED, deadline_s=60)
    assert f"the results folder {rig.machine}/work/results is not a folder any more"[:100] in told.message
    assert rig.baton.done is None
    assert rig.agent.poll() is None


def test_a_baton_that_was_deleted_is_said_and_waited_for(rig: Rig) -> None:
    rig.start(*rig.toy("--steps", "20", "--wait-at", "5"))
    rig.at_step(5)
    raw, _ = rig.store.get(runfiles.baton(RUN))
    rig.store.delete(runfiles.baton(RUN))
    told = rig.beat_with("the missing baton", lambda b: "baton.json is not there" in b.message)
    assert "does not answer" not in told.message
    rig.go()
    rig.beat_with(
        "the wait in finishing", lambda b: b.phase == heartbeat.FINISHING and "baton.json is not there" in b.message
    )
    rig.store.put(runfiles.baton(RUN), raw)
    assert rig.ended().exit is not None
    wait_for(lambda: rig.baton.done is not None)
