"""The agent's part of the evidence: what it shows of real ends, that it never delays one, and that it fits."""

import json
import os
import signal
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from supervisor.contract import runfiles, signs
from supervisor.contract.stores.durable import LOCKS, key_hash, locked
from tests.agent.bench import RUN
from tests.agent.machine_rig import Rig
from tests.waiting import wait_for


def part_of(rig: Rig, attempt: int = 1) -> Any:
    return json.loads(rig.store.get(runfiles.agent_evidence(RUN, attempt))[0])


# --- real ends ------------------------------------------------------------------------------------------------------


def test_a_failed_command_leaves_its_last_lines_exit_and_figures(rig: Rig) -> None:
    rig.start(sys.executable, "-c", "print('one'); print('two'); raise SystemExit(3)")
    assert rig.ended().exit is not None
    part = part_of(rig)
    assert (part["version"], part["when"], part["attempt"], part["launch_id"]) == (2, "end", 1, "1.1.1")
    assert (part["exit"]["code"], part["exit"]["signal"], part["exit"]["sent_by_us"]) == (3, None, False)
    assert part["log_tail"] == ["one", "two"]
    assert part["boot"]["at_start"] == part["boot"]["now"] != ""
    disk = part["disks"]["checkpoints"]
    assert disk["total_bytes"] > disk["free_bytes"] > 0
    assert part["signals_sent"] == []
    assert part["trimmed"] == []


def test_a_stop_shows_that_the_signal_was_ours(rig: Rig) -> None:
    rig.start(*rig.toy("--wait-at", "2"))
    rig.at_step(2)
    rig.stop_marker()
    rig.ended()
    part = part_of(rig)
    assert part["left"] == "stopped"
    assert part["exit"]["sent_by_us"]
    assert part["signals_sent"] == [int(signal.SIGTERM)]


def test_after_a_success_it_is_stored_before_the_work_is_declared_done(rig: Rig) -> None:
    rig.start()
    rig.ended()
    assert part_of(rig)["exit"]["code"] == 0
    done = rig.store.stat(runfiles.agent_evidence(RUN, 1))
    assert done.updated <= rig.store.stat(runfiles.baton(RUN)).updated


def test_an_agent_that_never_held_the_baton_writes_none(rig: Rig) -> None:
    rig.change(lambda baton: baton)
    rig.launch("1.9.1")
    rig.agent.wait(30)
    assert not [info for page in rig.store.pages(f"runs/{RUN}/instances/") for info in page.objects]


DEADLOCK = """
    import threading, time
    import spot_progress
    lock_a, lock_b = threading.Lock(), threading.Lock()

    def backwards():
        with lock_b:
            time.sleep(0.2)
            with lock_a:
                pass

    for step in range(3):
        spot_progress.report(step)
    other = threading.Thread(target=backwards)
    other.start()
    with lock_a:
        time.sleep(0.4)
        with lock_b:
            pass
"""


def test_a_deadlock_is_dumped_with_the_names_of_the_locks_and_the_command_continues(rig: Rig, tmp_path: Path) -> None:
    script = tmp_path / "deadlock.py"
    script.write_text(textwrap.dedent(DEADLOCK))
    rig.start(sys.executable, str(script), stall_dump_s=1.0, quiet_s=2.0, hang=True)
    part = wait_for(lambda: _there(rig), 30, "the part of the stall")
    assert (part["when"], part["exit"]) == ("stall", None)
    hang = wait_for(lambda: signs.decode(rig.stored_beat.signs).hang, 30, "a beat that reports the hang")
    assert (hang.place, hang.step) == ("lock", 2)
    part = wait_for(lambda: "threads_before" in part_of(rig)["stall"] and part_of(rig), 30, "two dumps in the evidence")
    assert part["stall"]["moves"] == []
    assert part["stall"]["step"] == 2
    assert part["stall"]["without_progress_s"] >= 1.0
    [dump] = of_command(part["stall"]["threads"], str(script))
    assert dump["how"] == "faulthandler"
    assert "with lock_b:" in dump["text"]
    assert "with lock_a:" in dump["text"]
    assert dump["text"].count("hread 0x") == 2
    [process] = of_command(part["processes"], str(script))
    assert process["threads"] == 2
    assert rig.agent.poll() is None
    os.kill(process["pid"], 0)
    rig.stop_marker()
    rig.ended()
    after = part_of(rig)
    assert (after["when"], after["left"]) == ("end", "stopped")
    assert after["stall"] == part["stall"], "the end keeps what the stall told"


def of_command(entries: Any, word: str) -> Any:
    """The agent may have a process of its own beside the command, which lists the packages."""
    return [entry for entry in entries if word in entry["command"]]


def _there(rig: Rig) -> Any:
    infos = [info for page in rig.store.pages(f"runs/{RUN}/instances/") for info in page.objects]
    return part_of(rig) if runfiles.agent_evidence(RUN, 1) in [info.key for info in infos] else None


HANDLERS = {
    "nobody": "",  # spot_progress is not imported: any signal of ours would kill it
    "exec": "import os, sys, spot_progress\nos.execv('/bin/sh', ['/bin/sh', '-c', 'sleep 600; :'])",
    "theirs": "import signal\nsignal.signal(signal.SIGRTMIN + 5, lambda *_: open('hit', 'w'))\nimport spot_progress",
}


@pytest.mark.parametrize("kind", HANDLERS)
def test_a_process_that_did_not_register_is_never_signalled(rig: Rig, tmp_path: Path, kind: str) -> None:
    tell = "import json, os\nopen(os.environ['SPOT_PROGRESS_FILE'], 'a').write(json.dumps({'step': 1}) + '\\n')"
    script = f"{tell}\n{HANDLERS[kind]}\nimport time\ntime.sleep(600)"
    rig.start(sys.executable, "-c", script, stall_dump_s=0.5, workdir=str(tmp_path))
    part = wait_for(lambda: _there(rig), 30, "the part of the stall")
    dump, *others = of_command(part["stall"]["threads"], "sleep")
    assert {process["how"] for process in (dump, *others)} == {"proc"}
    assert "sleeping" in dump["text"]
    assert "wchan" in dump["text"]
    time.sleep(0.1)  # a signal would have arrived by now
    assert rig.agent.poll() is None
    os.kill(dump["pid"], 0)
    assert not (tmp_path / "hit").exists()


def test_a_notice_leaves_time_for_nothing_but_the_checkpoint(rig: Rig) -> None:
    """The part is written after the uploads; a store that hangs then does not delay the last beat."""
    rig.start(*rig.toy("--wait-at", "4", "--on-term", "save"))
    rig.at_step(4)
    rig.notice(10.0)
    began = time.monotonic()
    beat = rig.ended()
    assert time.monotonic() - began < 10.0
    assert beat.checkpoint_step == 4
    assert part_of(rig)["left"] == "noticed"


def test_a_notice_leaves_time_for_the_results_first(rig: Rig) -> None:
    """The work is finished at the notice, and the store accepts everything but the evidence."""
    finishes = """
trap 'echo good > "$SPOT_RESULTS_DIR/model"; exit 0' TERM
echo '{"step": 5, "total": 5}' >> "$SPOT_PROGRESS_FILE"
while :; do sleep 0.05; done
"""
    rig.start("/bin/sh", "-c", finishes)
    rig.at_step(5)
    key = runfiles.agent_evidence(RUN, 1)
    with locked(os.path.join(rig.store.root, LOCKS, key_hash(key)[:2]), 10):
        rig.notice(4.0)
        wait_for(lambda: rig.baton.done or rig.agent.poll() is not None, 60, "the end of the work")
        done = rig.baton.done
    rig.ended()
    assert done is not None
    assert [entry.name for entry in done.results] == ["model"]
