"""A training that removes its own folders, and a deleted baton: no crash, no silent loop."""

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
def test_a_file_of_ours_that_was_replaced_does_not_delay_the_end(rig: Rig, instead: str) -> None:
    """With a pipe without a writer or a device without an end the agent would wait forever, and send beats
    meanwhile."""
    files = ('"$PWD/../output.log"', '"$SPOT_PROGRESS_FILE"')
    rig.start(command="; ".join(f"rm {file}; {instead.replace('FILE', file)}" for file in files) + "; exit 3")
    last = rig.ended()
    assert last.exit is not None
    assert last.exit.code == 3
    assert runfiles.agent_evidence(RUN, 1) in rig.keys("")
    assert "Traceback" not in rig.console


def test_a_file_instead_of_the_results_folder_needs_a_person(rig: Rig) -> None:
    rig.start(command='rmdir "$SPOT_RESULTS_DIR"; echo 1 > "$SPOT_RESULTS_DIR"')
    beat = rig.beat_with("the question", lambda b: b.phase == heartbeat.FINISHED, deadline_s=60)
    assert f"the results folder {rig.machine}/work/results is not a folder any more"[:100] in beat.message
    assert rig.baton.done is None
    assert rig.agent.poll() is None


def test_a_deleted_baton_is_reported_and_the_agent_waits(rig: Rig) -> None:
    rig.start(*rig.toy("--steps", "20", "--wait-at", "5"))
    rig.at_step(5)
    raw, _ = rig.store.get(runfiles.baton(RUN))
    rig.store.delete(runfiles.baton(RUN))
    beat = rig.beat_with("the missing baton", lambda b: "baton.json is not there" in b.message)
    assert "does not answer" not in beat.message
    rig.go()
    rig.beat_with(
        "the wait in finishing", lambda b: b.phase == heartbeat.FINISHING and "baton.json is not there" in b.message
    )
    rig.store.put(runfiles.baton(RUN), raw)
    assert rig.ended().exit is not None
    wait_for(lambda: rig.baton.done is not None)
