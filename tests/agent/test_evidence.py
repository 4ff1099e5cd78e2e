"""The agent's part of the evidence: what it tells of real ends, that it never holds one up, and that it fits."""

import json
import os
import signal
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent import evidence as module
from supervisor.agent.attention import Attention
from supervisor.agent.evidence import MAX_BYTES, Evidence, fitted, log_tail
from supervisor.agent.machinefolder import MachineFolder
from supervisor.agent.masking import Masker
from supervisor.agent.reach import Reach
from supervisor.agent.situation import Situation
from supervisor.agent.stores.durable import locked
from supervisor.agent.stores.errors import StoreUnavailable
from supervisor.agent.stores.sidecars import key_hash
from supervisor.agent.stores.walking import LOCKS
from supervisor.agent.training import Training
from supervisor.domain import runfiles
from supervisor.domain.heartbeat import Exit
from tests.agent.desk import IDENTITY, RUN, job, store_in
from tests.agent.machine_rig import Rig
from tests.waiting import wait_for


def part_of(rig: Rig, attempt: int = 1) -> Any:
    return json.loads(rig.store.get(runfiles.agent_evidence(RUN, attempt))[0])


# --- real ends ------------------------------------------------------------------------------------------------------


def test_a_failed_command_leaves_its_last_lines_exit_and_figures(rig: Rig) -> None:
    rig.start(sys.executable, "-c", "print('one'); print('two'); raise SystemExit(3)")
    assert rig.ended().exit is not None
    part = part_of(rig)
    assert (part["version"], part["when"], part["attempt"], part["launch_id"]) == (1, "end", 1, "1.1.1")
    assert (part["exit"]["code"], part["exit"]["signal"], part["exit"]["sent_by_us"]) == (3, None, False)
    assert part["log_tail"] == ["one", "two"]
    assert part["boot"]["at_start"] == part["boot"]["now"] != ""
    disk = part["disks"]["checkpoints"]
    assert disk["total_bytes"] > disk["free_bytes"] > 0
    assert part["signals_sent"] == []
    assert part["trimmed"] == []


def test_a_stop_tells_that_the_signal_was_ours(rig: Rig) -> None:
    rig.start(*rig.toy("--wait-at", "2"))
    rig.at_step(2)
    rig.stop_marker()
    rig.ended()
    part = part_of(rig)
    assert part["left"] == "stopped"
    assert part["exit"]["sent_by_us"]
    assert part["signals_sent"] == [int(signal.SIGTERM)]


def test_a_success_leaves_it_before_the_work_is_declared_done(rig: Rig) -> None:
    rig.start()
    rig.ended()
    assert part_of(rig)["exit"]["code"] == 0
    done = rig.store.stat(runfiles.agent_evidence(RUN, 1))
    assert done.updated <= rig.store.stat(runfiles.baton(RUN)).updated


def test_who_never_held_the_baton_writes_none(rig: Rig) -> None:
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


def test_a_deadlock_is_dumped_with_the_names_of_the_locks_and_the_command_goes_on(
    rig: Rig, tmp_path: Path
) -> None:
    script = tmp_path / "deadlock.py"
    script.write_text(textwrap.dedent(DEADLOCK))
    rig.start(sys.executable, str(script), stall_dump_s=1.0)
    part = wait_for(lambda: _there(rig), 30, "the part of the stall")
    assert (part["when"], part["exit"]) == ("stall", None)
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
    """The agent may have a process of its own beside it, that asks which packages there are."""
    return [entry for entry in entries if word in entry["command"]]


def _there(rig: Rig) -> Any:
    found = [info for page in rig.store.pages(f"runs/{RUN}/instances/") for info in page.objects]
    return part_of(rig) if runfiles.agent_evidence(RUN, 1) in [info.key for info in found] else None


HANDLERS = {
    "nobody": "",  # spot_progress is not imported: any signal of ours would be death
    "exec": "import os, sys, spot_progress\nos.execv('/bin/sh', ['/bin/sh', '-c', 'sleep 600; :'])",
    "theirs": "import signal\nsignal.signal(signal.SIGRTMIN + 5, lambda *_: open('hit', 'w'))\nimport spot_progress",
}


@pytest.mark.parametrize("kind", HANDLERS)
def test_a_process_that_did_not_register_is_never_signalled(rig: Rig, tmp_path: Path, kind: str) -> None:
    tell = (
        "import json, os\nopen(os.environ['SPOT_PROGRESS_FILE'], 'a').write(json.dumps({'step': 1}) + '\\n')"
    )
    script = f"{tell}\n{HANDLERS[kind]}\nimport time\ntime.sleep(600)"
    rig.start(sys.executable, "-c", script, stall_dump_s=0.5, workdir=str(tmp_path))
    part = wait_for(lambda: _there(rig), 30, "the part of the stall")
    dump, *others = of_command(part["stall"]["threads"], "sleep")
    assert {one["how"] for one in (dump, *others)} == {"proc"}
    assert "sleeping" in dump["text"]
    assert "wchan" in dump["text"]
    time.sleep(0.1)  # a signal that was sent would have come
    assert rig.agent.poll() is None
    os.kill(dump["pid"], 0)
    assert not (tmp_path / "hit").exists()


def test_a_notice_leaves_time_for_nothing_but_the_checkpoint(rig: Rig) -> None:
    """The part is written after the uploads; a store that hangs then does not keep the last beat back."""
    rig.start(*rig.toy("--wait-at", "4", "--on-term", "save"))
    rig.at_step(4)
    rig.notice(3.0)
    began = time.monotonic()
    beat = rig.ended()
    assert time.monotonic() - began < 3.0
    assert beat.checkpoint_step == 4
    assert part_of(rig)["left"] == "noticed"


def test_a_notice_leaves_time_for_the_results_first(rig: Rig) -> None:
    """The work is finished at the notice, and the store takes everything but the evidence."""
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
        rig.ended()
        done = rig.baton.done
    assert done is not None
    assert [entry.name for entry in done.results] == ["model"]


# --- the writer -----------------------------------------------------------------------------------------------------


class Keeper:
    """An Evidence with everything around it."""

    def __init__(self, folder: Path, secrets: "dict[str, str] | None" = None) -> None:
        self.store = store_in(folder)
        self.folder = MachineFolder(str(folder / "machine"))
        self.folder.furnish()
        self.notice_s: float | None = None
        self.attention = Attention(job(), Reach(), time.monotonic, lambda: self.notice_s)
        self.masker = Masker(secrets or {})
        self.situation = Situation(job(), IDENTITY, self.masker)
        self.counter: int | None = 5
        self.evidence = Evidence(
            job(),
            self.folder,
            self.store,
            self.masker,
            self.situation,
            Training(),
            self.attention,
            lambda: self.counter,
        )

    @property
    def stored(self) -> Any:
        return json.loads(self.store.calm.get(runfiles.agent_evidence(RUN, 1))[0])


def test_kills_for_memory_are_those_since_the_start_and_unknown_is_not_zero(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
    keeper.evidence.observe_start()
    assert keeper.evidence.oom_kills() == 0
    keeper.counter = 7
    assert keeper.evidence.oom_kills() == 2
    keeper.counter = None
    assert keeper.evidence.oom_kills() is None
    keeper.evidence.observe_start()
    keeper.counter = 7
    assert keeper.evidence.oom_kills() is None, "without a figure of the start there is no difference"


def test_secrets_are_masked_in_every_text(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, {"TOKEN": "hunter2hunter2"})
    Path(keeper.folder.output).write_text("x" * 995 + "hunter2hunter2\nlogin with hunter2hunter2 done\n")
    keeper.situation.note("agent", "hunter2hunter2")
    keeper.evidence.keep(Exit(1, None, False, 1.0, "key hunter2hunter2"), None)
    text = json.dumps(keeper.stored)
    assert "hunter2" not in text
    assert "unter2" not in text
    assert "login with [secret TOKEN] done" in text


def test_a_store_that_hangs_does_not_hold_the_end_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper, gate = Keeper(tmp_path), threading.Event()
    monkeypatch.setattr(module, "STORE_S", 0.2)
    monkeypatch.setattr(keeper.evidence, "_put", lambda part: gate.wait(30))
    began = time.monotonic()
    keeper.evidence.keep(None, "stopped")
    assert time.monotonic() - began < 10
    assert not keeper.evidence.kept
    gate.set()
    wait_for(lambda: keeper.evidence.kept, 10, "the writer to end")


def test_a_notice_that_comes_meanwhile_ends_the_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper, gate = Keeper(tmp_path), threading.Event()
    monkeypatch.setattr(module, "STORE_S", 60.0)
    monkeypatch.setattr(keeper.evidence, "_put", lambda part: gate.wait(60))
    keeper.notice_s = 50.0  # nobody has looked for one yet
    began = time.monotonic()
    keeper.evidence.keep(Exit(0, None, False), None)
    assert time.monotonic() - began < 20
    gate.set()
    wait_for(lambda: keeper.evidence.kept, 10, "the writer to end")


def test_a_store_that_fails_is_told_apart_from_a_part_that_is_kept(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
    keeper.store.away = True
    keeper.evidence.keep(None, "stopped")
    assert not keeper.evidence.kept
    with pytest.raises(StoreUnavailable):
        keeper.evidence.insist(None, "stopped")
    keeper.store.away = False
    keeper.evidence.insist(None, "stopped")
    assert keeper.evidence.kept


def test_nothing_is_written_when_no_time_is_left(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
    keeper.attention.ask("cut_off")
    keeper.evidence.keep(None, "cut_off")
    assert not keeper.evidence.kept


def test_a_stall_that_is_told_late_does_not_cover_the_end(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
    keeper.evidence.insist(Exit(1, None, False), None)
    keeper.evidence.stalled(60.0)
    assert keeper.stored["when"] == "end"


def test_where_the_threads_stand_is_kept_when_the_store_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = Keeper(tmp_path)
    monkeypatch.setattr("supervisor.agent.patience.FIRST_PAUSE_S", 0.0)
    keeper.store.lose_answers = 1
    keeper.evidence.stalled(60.0)
    assert keeper.stored["when"] == "stall"
    assert keeper.store.calls.count(("put", runfiles.agent_evidence(RUN, 1))) == 2


def test_who_has_lost_the_baton_keeps_no_dump(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
    keeper.attention.ask("closed", may_write=False)
    keeper.evidence.stalled(60.0)
    assert keeper.store.calls == []


def test_lines_are_few_and_short() -> None:
    tail = "\n".join(f"{number} " + "x" * 2000 for number in range(500)).encode() + b"\n\xff"
    lines = log_tail(tail)
    assert len(lines) == 200
    assert lines[-1] == "�"
    assert lines[-2].startswith("499 ")
    assert {len(line) for line in lines[:-1]} == {1000}


@pytest.mark.parametrize("char", ["x", "\x1b", "😀", '"'])
def test_it_fits_whatever_the_log_and_the_stacks_hold(char: str) -> None:
    dumps = [{"pid": n, "command": char * 9000, "how": "proc", "text": char * 65536} for n in range(31)]
    dumps.append({"pid": 99, "command": "", "how": "faulthandler", "text": "with lock_b:"})
    part: Any = {
        "trimmed": [],
        "processes": [{"pid": n, "rss_bytes": n, "command": char * 300} for n in range(200)],
        "stall": {"threads": dumps},
        "log_tail": [char * 1000 for _ in range(199)] + ["the last line"],
    }
    data = fitted(part)
    assert len(data) <= MAX_BYTES
    kept = json.loads(data)
    assert kept["trimmed"][:2] == ["processes", "threads"]
    assert [one["pid"] for one in kept["processes"]] == list(range(199, 189, -1))
    assert kept["stall"]["threads"][0]["pid"] == 99
    assert kept["log_tail"][-1] == "the last line" or char == "\x1b"
