"""Attempts with failures: an unavailable store, checkpoints that do not verify, results that cannot be saved."""

import hashlib
import json
import os
import signal

from supervisor.contract import heartbeat, runfiles
from supervisor.contract.baton import FileEntry, Holder, Pointer, raise_next
from tests.agent.machine_rig import RUN, Rig
from tests.waiting import wait_for

WAITS = ("--steps", "20", "--wait-at", "11")


def interrupted(rig: Rig) -> list[Pointer]:
    """A run whose attempt 1 left with checkpoints 10, 8 and 6; returns them, the newest first."""
    pointers = []
    for step in (10, 8, 6):
        name, data = f"step-{step}.json", json.dumps({"step": step, "sum": sum(range(step + 1))}).encode()
        prefix = runfiles.checkpoint(RUN, step, 1)
        rig.store.put(prefix + name, data)
        entry = FileEntry(name, len(data), hashlib.sha256(data).hexdigest())
        pointers.append(Pointer(step, prefix, (entry,)))
    holder = Holder(1, "1.1.1", "local:x:1:1", left=True)
    rig.change(lambda b: b._replace(holder=holder, checkpoint=pointers[0], previous=tuple(pointers[1:])))
    return pointers


def key(pointer: Pointer) -> str:
    return pointer.prefix + pointer.files[0].name


def test_only_the_pointers_files_are_kept(rig: Rig) -> None:
    rig.start(*rig.toy("--steps", "40", "--delay-s", "0.1"))
    wait_for(lambda: rig.baton.checkpoint is not None and rig.baton.checkpoint.step >= 12)
    rig.agent.send_signal(signal.SIGTERM)
    rig.ended()
    baton = rig.baton
    assert baton.checkpoint is not None
    pointers = [baton.checkpoint, *baton.previous]
    assert len(pointers) == 3
    assert [p.step for p in pointers] == sorted({p.step for p in pointers}, reverse=True)
    assert rig.keys(runfiles.checkpoints(RUN)) == sorted(key(p) for p in pointers)


def test_a_checkpoint_with_another_checksum_is_rejected_and_the_previous_one_is_used(rig: Rig) -> None:
    newest, before, _ = interrupted(rig)
    rig.store.put(key(newest), b'{"step": 10, "sum": 0}')
    rig.start(*rig.toy("--steps", "20"), attempt=2)
    beat = rig.beat_with("the rejection", lambda b: "checkpoint 10 rejected" in b.message)
    assert "differs from its checksum" in beat.message
    assert beat.rejected_checkpoint == newest.step
    assert rig.ended().resumed_from == before.step
    assert rig.baton.done is not None
    assert rig.text(rig.baton.done.prefix + "sum.txt") == str(sum(range(1, 21)))


def test_torn_and_missing_checkpoints_are_skipped(rig: Rig) -> None:
    newest, before, oldest = interrupted(rig)
    rig.store.put(key(newest), rig.store.get(key(newest))[0][:-5])
    rig.store.delete(key(before))
    rig.start(*rig.toy("--steps", "20"), attempt=2)
    assert rig.ended().resumed_from == oldest.step


def test_when_the_newest_are_lost_the_run_continues_from_a_milestone_with_a_note(rig: Rig) -> None:
    newest, before, milestone = interrupted(rig)
    rig.change(lambda b: b._replace(previous=(before,), kept=(milestone,)))
    rig.store.delete(key(newest))
    rig.store.delete(key(before))
    rig.start(*rig.toy("--steps", "20"), attempt=2)
    rig.beat_with(
        "the rejection", lambda b: "checkpoint 8 rejected" in b.message and "milestone 6 is tried" in b.message
    )
    assert rig.ended().resumed_from == milestone.step


def test_a_run_without_a_valid_checkpoint_starts_from_zero_with_a_note(rig: Rig) -> None:
    for pointer in interrupted(rig):
        rig.store.delete(key(pointer))
    rig.start(*rig.toy("--steps", "20"), attempt=2)
    last = rig.ended()
    assert last.resumed_from is None
    assert "rejected" in last.message
    assert b"begins at step 0 resumed from nothing" in rig.log(2)


def test_the_new_holder_deletes_unnamed_checkpoints(rig: Rig) -> None:
    pointers = interrupted(rig)
    lost = runfiles.checkpoint(RUN, 12, 1)
    rig.store.put(lost + "step-12.json", b"half")
    best = runfiles.checkpoint(RUN, 3, 1) + "best.pt"
    rig.store.put(best, b"kept")
    rig.start(*rig.toy(*WAITS), attempt=2)
    rig.at_step(11)
    kept = rig.keys(runfiles.checkpoints(RUN))
    assert lost + "step-12.json" not in kept
    assert best in kept
    assert key(pointers[0]) in kept


def test_a_pointer_out_of_the_checkpoint_folder_is_refused(rig: Rig) -> None:
    newest, before, _ = interrupted(rig)
    text = rig.text(runfiles.baton(RUN)).replace("step-10.json", "../../../../evil.json")
    assert newest.step == 10
    rig.store.put(runfiles.baton(RUN), text.encode())
    rig.start(*rig.toy("--steps", "20"), attempt=2)
    assert rig.ended().resumed_from == before.step


def test_a_temporary_outage_of_the_store_ends_nothing(rig: Rig) -> None:
    rig.start(*rig.toy("--steps", "20", "--wait-at", "11", "--delay-s", "0.1"))
    rig.beat_with("checkpoint 2", lambda b: b.checkpoint_step is not None)
    hidden = rig.store.root + ".away"
    os.rename(rig.store.root, hidden)
    rig.beat_with("the outage", lambda b: b.step == 11 and "object store" in b.message)
    os.rename(hidden, rig.store.root)
    rig.beat_with("checkpoint 10", lambda b: b.checkpoint_step == 10)
    rig.go()
    assert rig.ended().left is None
    assert rig.baton.done is not None
    assert rig.log().endswith(b"finished\n")


def test_an_outage_of_the_store_at_the_start_delays_the_start(rig: Rig) -> None:
    newest, *_ = interrupted(rig)
    hidden = rig.store.root + ".away"
    rig.change(lambda b: raise_next(b, "1.2.1", "secret", False))
    os.rename(rig.store.root, hidden)
    rig.launch("1.2.1", *rig.toy("--steps", "20"))
    rig.beat_with("the outage", lambda b: b.phase == heartbeat.BOOT and "there is no object store" in b.message)
    os.rename(hidden, rig.store.root)
    assert rig.ended().resumed_from == newest.step


def test_without_contact_it_ends_after_the_cut_off(rig: Rig) -> None:
    rig.start(*rig.toy("--steps", "20", "--wait-at", "5", "--on-term", "save"), cut_off_s=2.0)
    rig.beat_with("checkpoint 4", lambda b: b.checkpoint_step == 4)
    rig.server.status = 503
    os.rename(rig.store.root, rig.store.root + ".away")
    assert rig.agent.wait(60) == 0
    assert "ending the command: cut_off" in rig.console
    assert (rig.machine / "work" / "checkpoints" / "step-5.json").exists()
    os.rename(rig.store.root + ".away", rig.store.root)


def test_pushes_alone_keep_it_from_the_cut_off(rig: Rig) -> None:
    rig.start(*rig.toy("--steps", "20", "--wait-at", "5"), cut_off_s=1.5)
    rig.beat_with("checkpoint 4", lambda b: b.checkpoint_step == 4)
    os.rename(rig.store.root, rig.store.root + ".away")
    count = len(rig.server.beats)
    wait_for(lambda: len(rig.server.beats) > count + 30, what="three seconds of pushes")
    assert rig.agent.poll() is None
    os.rename(rig.store.root + ".away", rig.store.root)
    rig.go()
    assert rig.ended().left is None


def test_missing_results_are_judged_by_the_supervisor(rig: Rig) -> None:
    rig.start(*rig.toy("--no-results"), results=[{"path": "*.txt", "min_count": 1}])
    rig.ended()
    assert rig.baton.done is not None
    assert rig.baton.done.results == ()


def test_results_that_cannot_be_saved_need_a_person_and_keep_the_machine(rig: Rig) -> None:
    deep = "/".join(["x" * 200] * 3)  # no key of a store is that long
    rig.start(command=f'cd "$SPOT_RESULTS_DIR"; mkdir -p {deep}; echo 1 > {deep}/file')
    beat = rig.beat_with("the question", lambda b: b.phase == heartbeat.FINISHED, deadline_s=60)
    assert beat.exit is not None
    assert beat.exit.code == 0
    assert "1 of 1 files could not be saved" in beat.message
    assert rig.console.count("results are not verified") == 3, "three tries, then a person"
    assert rig.baton.done is None
    assert rig.agent.poll() is None
    rig.agent.send_signal(signal.SIGTERM)
    assert rig.ended().left == heartbeat.STOPPED
    assert rig.baton.done is None


def test_a_server_that_returns_at_another_address_is_found_again(rig: Rig) -> None:
    rig.start(*rig.toy("--steps", "20", "--wait-at", "5"))
    rig.at_step(5)
    server_file = rig.machine.parent / "server.json"
    right = server_file.read_text()
    server_file.write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": 1}))
    rig.server.status = 503
    wait_for(lambda: "beats do not reach" in rig.console)
    count = len(rig.server.beats)
    rig.server.status = 200
    server_file.write_text(right)
    wait_for(lambda: len(rig.server.beats) > count, what="a beat at the new address")
    rig.go()
    rig.ended()


def test_a_refused_nonce_ends_nothing(rig: Rig) -> None:
    rig.server.status = 403
    rig.start(*rig.toy())
    assert rig.ended().exit is not None
    assert rig.baton.done is not None
