"""Results through whole attempts: real agents, a real training that appends, links and bad names, a real folder
store."""

import os
import signal
from pathlib import Path

from supervisor.contract import heartbeat, runfiles
from supervisor.contract.baton import FileEntry, saved_results
from tests.agent.machine_rig import Rig
from tests.waiting import wait_for

APPENDS = """
import os, pathlib, sys, time
checkpoints, results = (pathlib.Path(os.environ[f"SPOT_{name}_DIR"]) for name in ("CHECKPOINT", "RESULTS"))
step = max((int(path.name[5:]) for path in checkpoints.iterdir()), default=0)
while step < int(sys.argv[1]):
    step += 1
    with open(results / "metrics.csv", "a") as rows:
        rows.write("%d\\n" % step)
    with open(os.environ["SPOT_PROGRESS_FILE"], "a") as lines:
        lines.write('{"step": %d}\\n' % step)
    if step % 5 == 0:
        (checkpoints / "half.tmp").write_text(str(step))
        (checkpoints / "half.tmp").rename(checkpoints / ("step-%d" % step))
    time.sleep(0.03)
sys.exit(int(sys.argv[2]))
"""


def appends(rig: Rig, steps: int = 10**6, code: int = 0) -> list[str]:
    return [rig.toy()[0], "-S", "-c", APPENDS, str(steps), str(code)]


def rows(rig: Rig, entry: "FileEntry | None") -> list[int]:
    assert entry is not None
    saved = runfiles.decode_saved(rig.store.get(entry.name)[0])
    files = {file.name: rig.store.get(file.key)[0] for file in saved.files}
    return [int(row) for row in files["metrics.csv"].split()]


def die(rig: Rig) -> None:
    """Like a machine that is preempted without a notice."""
    os.killpg(rig.agent.pid, signal.SIGSTOP)
    for pid in rig.survivors():
        os.kill(pid, signal.SIGKILL)
    rig.agent.wait()


def test_rows_survive_two_lost_machines_and_appear_once(rig: Rig) -> None:
    rig.start(*appends(rig))
    rig.beat_with("a checkpoint", lambda b: (b.checkpoint_step or 0) >= 10)
    die(rig)
    rig.start(*appends(rig), attempt=2, holder_gone=True)
    rig.beat_with("a later checkpoint", lambda b: b.attempt == 2 and (b.checkpoint_step or 0) >= 25)
    die(rig)
    saved = rig.baton.checkpoint
    assert saved is not None
    assert rows(rig, saved.results) == list(range(1, saved.step + 1)), "the results of the very moment"
    rig.start(*appends(rig, 60), attempt=3, holder_gone=True)
    rig.ended()
    done = rig.baton.done
    assert done is not None
    numbers = [int(row) for row in rig.text(done.prefix + "metrics.csv").split()]
    assert numbers == list(range(1, 61))
    assert done.lost == ()


def test_after_a_crash_the_newest_rows_are_kept_and_the_next_attempt_starts_from_the_checkpoint(rig: Rig) -> None:
    rig.start(*appends(rig, 13, code=3))
    rig.ended()
    assert rows(rig, rig.baton.last) == list(range(1, 14))
    rig.start(*appends(rig, 20), attempt=2)
    last = rig.ended()
    assert last.resumed_from == 10
    assert rig.baton.done is not None
    numbers = [int(row) for row in rig.text(rig.baton.done.prefix + "metrics.csv").split()]
    assert numbers == list(range(1, 21))
    assert rig.baton.last is None


def test_without_a_checkpoint_results_start_empty_and_people_have_the_old_ones(rig: Rig) -> None:
    rig.start(*appends(rig, 3, code=3))
    rig.ended()
    rig.start(command='test ! -e "$SPOT_RESULTS_DIR/metrics.csv" || exit 9; exit 4', attempt=2)
    last = rig.ended()
    assert last.exit is not None
    assert last.exit.code == 4
    assert rows(rig, rig.baton.last) == [1, 2, 3]


def test_a_notice_keeps_the_rows_too(rig: Rig) -> None:
    rig.start(*appends(rig))
    rig.beat_with("a checkpoint", lambda b: (b.checkpoint_step or 0) >= 5)
    rig.notice(20.0)
    assert rig.ended().left == heartbeat.NOTICED
    kept = rows(rig, saved_results(rig.baton)[0])
    assert kept == list(range(1, len(kept) + 1))
    assert rig.baton.checkpoint is not None
    assert len(kept) >= rig.baton.checkpoint.step


def test_a_file_too_large_for_a_save_is_reported_and_its_loss_makes_the_run_partial(rig: Rig) -> None:
    big = 'head -c 3000000 /dev/zero > "$SPOT_RESULTS_DIR/big.bin"; '
    save = 'echo 1 > "$SPOT_CHECKPOINT_DIR/.1"; mv "$SPOT_CHECKPOINT_DIR/.1" "$SPOT_CHECKPOINT_DIR/step-1"; '
    rig.start(command=big + save + "sleep 600", results_save_max_mb=2)
    rig.beat_with(
        "the sentence", lambda b: "1 file of results will be saved at the end only; big.bin" in (b.message or "")
    )
    rig.beat_with("its checkpoint", lambda b: b.checkpoint_step == 1)
    die(rig)
    rig.start(command='ls "$SPOT_RESULTS_DIR"', attempt=2, holder_gone=True)
    rig.ended()
    done = rig.baton.done
    assert done is not None
    [lost] = done.lost
    why = "3000000 bytes, more than was left of results_save_max_mb = 2"
    assert lost == f"results big.bin: lost with an earlier machine ({why})"


def test_links_and_bad_names_are_shown_in_the_log(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "passwd").write_text("root")
    rig.start(
        command='cd "$SPOT_RESULTS_DIR"; ln -s "%s" passwd; echo x > "$(printf \'a\\377\')"' % (tmp_path / "passwd")
    )
    rig.ended()
    done = rig.baton.done
    assert done is not None
    assert [entry.name for entry in done.results] == ["a%FF"]
    assert done.lost == ("results passwd: a link that leads out of the results folder is not followed",)
    log = wait_for(lambda: rig.log().decode(), 10, "the log")
    assert "spot: the result 'a\\udcff' is stored as a%FF" in log
    assert "spot: the result passwd is not stored: a link that leads out" in log
