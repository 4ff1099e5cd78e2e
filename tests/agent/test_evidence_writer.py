"""The writer of the agent's part of the evidence: it masks, it fits, and neither a store nor a stall delays an end."""

import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from supervisor.agent.facts import evidence as module
from supervisor.agent.facts.evidence import MAX_BYTES, Evidence, fitted, log_tail
from supervisor.agent.facts.looks import Surroundings
from supervisor.agent.machine.command import Training
from supervisor.agent.machine.folder import MachineFolder
from supervisor.agent.machine.masking import Masker
from supervisor.agent.store.access import Contact
from supervisor.agent.watch.beat_state import BeatState
from supervisor.agent.watch.ends import EndReasons
from supervisor.contract import runfiles
from supervisor.contract.heartbeat import Exit
from supervisor.contract.stores.promise import StoreUnavailable
from tests.agent.bench import IDENTITY, RUN, job, store_in
from tests.waiting import wait_for


class Keeper:
    """An Evidence with all its collaborators."""

    def __init__(self, folder: Path, secrets: "dict[str, str] | None" = None) -> None:
        self.store = store_in(folder)
        self.folder = MachineFolder(str(folder / "machine"))
        self.folder.prepare()
        self.notice_s: float | None = None
        self.end_reasons = EndReasons(job(), Contact(), time.monotonic, lambda: self.notice_s)
        self.masker = Masker(secrets or {})
        self.beat_state = BeatState(job(), IDENTITY, self.masker)
        self.surroundings = SimpleNamespace(
            part=lambda wait: {}, at_stall=lambda: None, oom=SimpleNamespace(kills=lambda: self.counter)
        )
        self.counter: int | None = 5
        self.evidence = Evidence(
            job(),
            self.folder,
            store=self.store,
            masker=self.masker,
            beat_state=self.beat_state,
            training=Training(),
            end_reasons=self.end_reasons,
            surroundings=cast(Surroundings, self.surroundings),
        )

    @property
    def stored(self) -> Any:
        return json.loads(self.store.inner.get(runfiles.agent_evidence(RUN, 1))[0])


def test_secrets_are_masked_in_every_text(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, {"TOKEN": "hunter2hunter2"})
    Path(keeper.folder.output).write_text("x" * 995 + "hunter2hunter2\nlogin with hunter2hunter2 done\n")
    keeper.beat_state.note("agent", "hunter2hunter2")
    keeper.surroundings.part = lambda wait: {
        "start": {"conda_prefix": "/home/hunter2hunter2/x"},
        "files": {"newest": [["/x/hunter2hunter2.pt", 1, 2.0, 0]]},
    }
    keeper.evidence.try_to_store(Exit(1, None, False, 1.0, "key hunter2hunter2"), None)
    text = json.dumps(keeper.stored)
    assert "hunter2" not in text
    assert "unter2" not in text
    assert "login with [secret TOKEN] done" in text


def test_a_store_that_hangs_does_not_delay_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper, gate = Keeper(tmp_path), threading.Event()
    monkeypatch.setattr(module, "STORE_S", 0.2)
    monkeypatch.setattr(keeper.evidence, "_put", lambda part: gate.wait(30))
    began = time.monotonic()
    keeper.evidence.try_to_store(None, "stopped")
    assert time.monotonic() - began < 10
    assert not keeper.evidence.stored
    gate.set()
    wait_for(lambda: keeper.evidence.stored, 10, "the writer to end")


def test_a_notice_that_comes_meanwhile_ends_the_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper, gate = Keeper(tmp_path), threading.Event()
    monkeypatch.setattr(module, "STORE_S", 60.0)
    monkeypatch.setattr(keeper.evidence, "_put", lambda part: gate.wait(60))
    keeper.notice_s = 50.0  # no check has seen it yet
    began = time.monotonic()
    keeper.evidence.try_to_store(Exit(0, None, False), None)
    assert time.monotonic() - began < 20
    gate.set()
    wait_for(lambda: keeper.evidence.stored, 10, "the writer to end")


def test_a_failed_store_and_a_stored_part_are_distinguished(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
    keeper.store.away = True
    keeper.evidence.try_to_store(None, "stopped")
    assert not keeper.evidence.stored
    with pytest.raises(StoreUnavailable):
        keeper.evidence.store_end(None, "stopped")
    keeper.store.away = False
    keeper.evidence.store_end(None, "stopped")
    assert keeper.evidence.stored


def test_nothing_is_written_when_no_time_is_left(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
    keeper.end_reasons.add("cut_off")
    keeper.evidence.try_to_store(None, "cut_off")
    assert not keeper.evidence.stored


def test_a_late_stall_does_not_replace_the_end(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
    keeper.evidence.store_end(Exit(1, None, False), None)
    keeper.evidence.stalled({"step": 3, "without_progress_s": 60.0, "threads": []})
    assert keeper.stored["when"] == "end"


def test_a_dump_is_stored_when_the_store_recovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = Keeper(tmp_path)
    monkeypatch.setattr("supervisor.agent.store.access.FIRST_BACKOFF_S", 0.0)
    keeper.store.lose_answers = 1
    keeper.evidence.stalled({"step": 3, "without_progress_s": 60.0, "threads": []})
    assert keeper.stored["when"] == "stall"
    assert keeper.store.calls.count(("put", runfiles.agent_evidence(RUN, 1))) == 2


def test_the_watch_does_not_wait_for_a_store_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken variant: the watch retried until the store was back, so a hang that moved again was never withdrawn."""
    keeper = Keeper(tmp_path)
    monkeypatch.setattr("supervisor.agent.facts.evidence.STORE_S", 0.05)
    monkeypatch.setattr("supervisor.agent.store.access.FIRST_BACKOFF_S", 0.05)
    keeper.store.away = True
    for step in (3, 4):
        keeper.evidence.stalled({"step": step, "without_progress_s": 60.0, "threads": []})
    keeper.store.away = False
    wait_for(lambda: "stall evidence" not in [thread.name for thread in threading.enumerate()], 10, "the retries")
    assert keeper.stored["stall"]["step"] == 4


def test_an_agent_that_lost_the_baton_stores_no_dump(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
    keeper.end_reasons.add("closed", may_write=False)
    keeper.evidence.stalled({"step": 3, "without_progress_s": 60.0, "threads": []})
    assert keeper.store.calls == []


def test_the_next_attempt_begins_with_the_rhythm_of_this_one(tmp_path: Path) -> None:
    first, second = Keeper(tmp_path), Keeper(tmp_path)
    assert first.evidence.usual_before_s() is None, "there is no attempt before it"
    second.evidence._job = job(attempt=2, launch_id="1.2.1")
    assert second.evidence.usual_before_s() is None, "the first one has kept nothing"
    first.evidence.usual_s = lambda: 12.5
    first.evidence.store_end(Exit(1, None, False), None)
    assert first.stored["rhythm"] == {"usual_s": 12.5}
    assert second.evidence.usual_before_s() == 12.5
    for odd in (b"{", b"[]", b'{"rhythm": null}', b'{"rhythm": {"usual_s": "12"}}', b'{"rhythm": {"usual_s": -1}}'):
        first.store.inner.put(runfiles.agent_evidence(RUN, 1), odd)
        assert second.evidence.usual_before_s() is None
    second.store.away = True
    assert second.evidence.usual_before_s() is None


def test_lines_are_few_and_short() -> None:
    tail = "\n".join(f"{number} " + "x" * 2000 for number in range(500)).encode() + b"\n\xff"
    lines = log_tail(tail)
    assert len(lines) == 200
    assert lines[-1] == "�"
    assert lines[-2].startswith("499 ")
    assert {len(line) for line in lines[:-1]} == {1000}


@pytest.mark.parametrize("char", ["x", "\x1b", "😀", '"'])
def test_it_fits_whatever_the_log_and_the_stacks_contain(char: str) -> None:
    dumps = [{"pid": n, "command": char * 9000, "how": "proc", "text": char * 65536} for n in range(31)]
    dumps.append({"pid": 99, "command": "", "how": "faulthandler", "text": "with lock_b:"})
    part: Any = {
        "trimmed": [],
        "tree": [{"pid": n, "threads": [[n, char * 15, "S", char * 30]] * 16} for n in range(64)],
        "processes": [{"pid": n, "rss_bytes": n, "command": char * 300} for n in range(200)],
        "stall": {"threads": dumps},
        "log_tail": [char * 1000 for _ in range(199)] + ["the last line"],
    }
    data = fitted(part)
    assert len(data) <= MAX_BYTES
    kept = json.loads(data)
    assert kept["trimmed"][:3] == ["tree", "processes", "threads"]
    assert [row["threads"] for row in kept["tree"]] == [[]] * 10
    assert [process["pid"] for process in kept["processes"]] == list(range(199, 189, -1))
    assert kept["stall"]["threads"][0]["pid"] == 99
    assert kept["log_tail"][-1] == "the last line" or char == "\x1b"
