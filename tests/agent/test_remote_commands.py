"""Commands beside the training: signed, once at most, in bounds, without secrets. Real processes, a folder store."""

import gzip
import json
import os
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.agent.life import remote
from supervisor.agent.life.orders import CodeSync
from supervisor.agent.life.remote import EXEC, Commands, Refused, collect
from supervisor.agent.machine.command import Workplace, inside
from supervisor.agent.machine.folder import MachineFolder
from supervisor.agent.machine.masking import Masker
from supervisor.contract import runfiles
from supervisor.contract.identifiers import nonce_hash
from supervisor.contract.runfiles import StoredDelta, Synced
from supervisor.contract.stores.promise import StoreUnavailable
from tests.agent.bench import RUN, job, store_in
from tests.deltas import delta_of
from tests.waiting import wait_for

SECRET = "hunter2hunter2"


class Bench:
    """An agent whose training runs in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "training"
        self.folder.mkdir()
        self.store = store_in(folder)
        self.made: list[Commands] = []
        self.parts: Any = SimpleNamespace(
            job=job(), store=self.store, masker=Masker({"KEY": SECRET}), training=SimpleNamespace(status=None),
            folder=MachineFolder(str(folder / "machine")),
            workplace=Workplace(str(self.folder), {**os.environ, "KEY": SECRET}),
        )  # fmt: skip

    def agent(self) -> Commands:
        """A new start of it."""
        self.made.append(Commands(self.parts, None))
        return self.made[-1]

    def signed(self, *words: str, name: str = "ab" * 8, **more: Any) -> dict[str, Any]:
        row = {
            "id": name, "kind": EXEC, "launch_id": "1.1.1", "words": list(words), "folder": "", "timeout_s": 30.0,
            "paths": [], "at": 0.0, "by": "ann", **more,
        }  # fmt: skip
        return {**row, "mac": runfiles.signature(row, nonce_hash("secret"))}

    def result(self, name: str = "ab" * 8) -> dict[str, Any]:
        key = runfiles.command_result(RUN, name)
        return json.loads(self.store.inner.get(key)[0])

    def exists(self, name: str = "ab" * 8) -> bool:
        return any(name in info.key for page in self.store.inner.pages("runs/") for info in page.objects)

    def done(self, agent: Commands, command: dict[str, Any]) -> dict[str, Any]:
        agent.take([command], time.time())
        return self.settled(agent)

    def settled(self, agent: Commands) -> dict[str, Any]:
        def over() -> bool:
            agent.step()
            return self.result()["state"] not in ("waiting", "running")

        wait_for(over, 30, "the command to end")
        return self.result()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for agent in made.made:
        agent.end()


def test_it_runs_where_the_training_does(bench: Bench) -> None:
    result = bench.done(bench.agent(), bench.signed("sh", "-c", "pwd; echo to stderr >&2; cat; exit 3"))
    assert (result["state"], result["exit_code"], result["signal"]) == ("done", 3, None)
    assert result["output"] == f"{bench.folder}\nto stderr\n"
    assert result["folder"] == str(bench.folder)
    assert 0 <= result["ran_s"] < 30


def test_it_runs_once_at_most(bench: Bench) -> None:
    command = bench.signed("sh", "-c", "echo ran >> ran.txt")
    agent = bench.agent()
    bench.done(agent, command)
    agent.take([command], time.time())
    agent.step()
    restarted = bench.agent()
    restarted.take([command], time.time())
    restarted.step()
    assert (bench.folder / "ran.txt").read_text() == "ran\n"


def test_an_agent_that_died_in_the_middle_leaves_it_alone(bench: Bench) -> None:
    """Its result says that it runs. A new agent does not know how far it came."""
    command = bench.signed("sh", "-c", "echo ran >> ran.txt; sleep 60")
    first = bench.agent()
    first.take([command], time.time())
    first.step()
    wait_for((bench.folder / "ran.txt").exists, 20, "the first start")
    again = bench.agent()
    again.take([command], time.time())
    assert again.step() > 1
    assert (bench.folder / "ran.txt").read_text() == "ran\n"
    assert bench.result()["state"] == "running"


def test_without_the_claim_it_would_run_twice(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken on purpose: the two tests before rely on the claim."""
    command = bench.signed("sh", "-c", "echo ran >> ran.txt")
    bench.done(bench.agent(), command)
    monkeypatch.setattr(remote, "ABSENT", None)
    bench.done(bench.agent(), command)
    assert (bench.folder / "ran.txt").read_text() == "ran\nran\n"


def test_a_lost_response_is_no_second_start(bench: Bench) -> None:
    command = bench.signed("sh", "-c", "echo ran >> ran.txt")
    real, lost = bench.store.inner.put, [True]

    def put(*args: Any, **more: Any) -> Any:
        info = real(*args, **more)
        if lost.pop() if lost else False:
            raise StoreUnavailable("the response was lost")
        return info

    bench.store.inner.put = put  # type: ignore[method-assign]
    agent = bench.agent()
    agent.take([command], time.time())
    assert agent.step() == remote.STORE_S
    assert bench.settled(agent)["exit_code"] == 0
    assert (bench.folder / "ran.txt").read_text() == "ran\n"


@pytest.mark.parametrize(
    "change",
    [{"words": ["touch", "ran.txt"]}, {"launch_id": "1.2.1"}, {"timeout_s": 600.0}, {"mac": ""}, {"folder": "/"}],
)
def test_what_is_not_signed_for_this_launch_is_not_run(bench: Bench, change: dict[str, Any]) -> None:
    agent = bench.agent()
    agent.take([{**bench.signed("touch", "other.txt"), **change}], time.time())
    agent.step()
    assert os.listdir(bench.folder) == []
    assert not bench.exists()


def test_one_that_comes_late_is_not_run(bench: Bench) -> None:
    agent = bench.agent()
    agent.take([bench.signed("touch", "ran.txt")], time.time() - remote.START_WITHIN_S - 60)
    assert bench.settled(agent)["state"] == "refused"
    assert os.listdir(bench.folder) == []


def test_one_that_was_taken_back_is_not_run(bench: Bench) -> None:
    bench.store.inner.put(runfiles.command_result(RUN, "ab" * 8), b'{"state": "refused"}')
    agent = bench.agent()
    agent.take([bench.signed("touch", "ran.txt")], time.time())
    agent.step()
    assert os.listdir(bench.folder) == []


def test_its_time_is_limited_with_all_that_it_started(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "TERM_S", 0.2)
    script = "trap '' TERM; (sleep 1000 & echo $! > child); echo begins; while :; do sleep 0.05; done"
    result = bench.done(bench.agent(), bench.signed("sh", "-c", script, timeout_s=0.3))
    assert (result["timed_out"], result["exit_code"], result["signal"]) == (True, None, 9)
    assert result["output"] == "begins\n"
    child = int((bench.folder / "child").read_text())
    wait_for(lambda: _is_gone(child), 20, "its child to be killed")


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_what_it_leaves_behind_is_killed(bench: Bench) -> None:
    result = bench.done(bench.agent(), bench.signed("sh", "-c", "sleep 1000 & echo $! > child"))
    assert result["exit_code"] == 0
    wait_for(lambda: _is_gone(int((bench.folder / "child").read_text())), 20, "its child to be killed")


def test_its_output_is_limited_and_masked(bench: Bench) -> None:
    script = "echo $KEY; head -c 300000 /dev/zero | tr '\\0' x"
    result = bench.done(bench.agent(), bench.signed("sh", "-c", script))
    kept = remote.OUTPUT_BYTES - len(SECRET) - 1
    assert result["output"] == "[secret KEY]\n" + "x" * kept
    assert result["dropped"] == 300_000 - kept


def test_its_output_is_there_while_it_runs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "STORE_S", 0.0)
    agent = bench.agent()
    agent.take([bench.signed("sh", "-c", "echo first; while [ ! -e go ]; do sleep 0.02; done; echo last")], time.time())

    def printed() -> bool:
        agent.step()
        return bench.result().get("output") == "first\n"

    wait_for(printed, 20, "the first line")
    assert bench.result()["state"] == "running"
    (bench.folder / "go").touch()
    assert bench.settled(agent)["output"] == "first\nlast\n"


def test_a_result_waits_for_the_store(bench: Bench) -> None:
    agent = bench.agent()
    agent.take([bench.signed("sh", "-c", "while [ ! -e go ]; do sleep 0.02; done")], time.time())
    agent.step()
    bench.store.away = True
    (bench.folder / "go").touch()
    wait_for(lambda: agent.step() == remote.STORE_S, 20, "the end of the command")
    bench.store.away = False
    assert bench.settled(agent)["exit_code"] == 0


@pytest.mark.parametrize(
    ("words", "more", "why"),
    [
        (("no-such-program",), {}, "no-such-program: command not found"),
        (("true",), {"folder": "missing"}, "does not exist"),
        (("true",), {"kind": "dance"}, "does not know it"),
    ],
)
def test_what_cannot_be_run_says_why(bench: Bench, words: tuple[str, ...], more: Any, why: str) -> None:
    result = bench.done(bench.agent(), bench.signed(*words, **more))
    assert result["state"] == "refused"
    assert why in result["text"]


def test_two_threads_never_start_something_in_each_others_folder(tmp_path: Path) -> None:
    """A command, and a training that a drill starts again. Broken variant: one of them began in the wrong folder."""
    (tmp_path / "a").mkdir()
    entered = threading.Event()

    def other() -> None:
        with inside(str(tmp_path)):
            entered.set()

    thread, before = threading.Thread(target=other), os.getcwd()
    with inside(str(tmp_path / "a")):
        thread.start()
        assert not entered.wait(0.05)
        assert os.getcwd() == str(tmp_path / "a")
    thread.join()
    assert entered.is_set()
    assert os.getcwd() == before


def test_nothing_runs_without_the_training(bench: Bench) -> None:
    bench.parts.training.status = 0
    assert "does not run" in bench.done(bench.agent(), bench.signed("touch", "ran.txt"))["text"]
    bench.parts.workplace = None
    command = bench.signed("touch", "ran.txt", name="cd" * 8)
    agent = bench.agent()
    agent.take([command], time.time())
    agent.step()
    assert os.listdir(bench.folder) == []


def test_the_end_of_the_training_ends_it(bench: Bench) -> None:
    agent = bench.agent()
    agent.take([bench.signed("sleep", "1000")], time.time())
    agent.step()
    agent.end()
    assert bench.settled(agent)["signal"] == 9


# --- files of the code ------------------------------------------------------------------------------------------------


def unpacked(folder: Path, files: dict[str, str]) -> MachineFolder:
    machine = MachineFolder(str(folder / "machine"))
    for name, text in files.items():
        path = Path(machine.code, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    Path(machine.synced).mkdir()
    wait_for(lambda: _later(machine), 10, "a later time of the file system")
    return machine


def _later(machine: MachineFolder) -> bool:
    """Times of a file system are coarse: the marker is later than all files, and a next file later than the marker."""
    newest = max(path.stat().st_ctime_ns for path in Path(machine.code).rglob("*"))
    Path(machine.unpacked).write_text("")
    if os.stat(machine.unpacked).st_ctime_ns <= newest:
        return False
    probe = Path(machine.root, "probe")
    wait_for(lambda: probe.write_text("") == 0 and probe.stat().st_ctime_ns > os.stat(machine.unpacked).st_ctime_ns)
    return True


@pytest.fixture
def collected(tmp_path: Path) -> Callable[..., dict[str, str]]:
    def names(machine: MachineFolder, *paths: str, placed: Any = None) -> dict[str, str]:
        target = str(tmp_path / "collected")
        collect(machine, placed or {}, paths, target)
        with gzip.open(target) as raw, tarfile.open(fileobj=raw) as archive:
            return {info.name: archive.extractfile(info).read().decode() for info in archive}  # type: ignore[union-attr]

    return names


def test_what_the_machine_changed_is_collected(tmp_path: Path, collected: Callable[..., dict[str, str]]) -> None:
    machine = unpacked(tmp_path, {"train.py": "1", "lib/model.py": "1", "lib/same.py": "1"})
    code = Path(machine.code)
    for name in ("lib/model.py", "out/plot.txt", ".env", "env/pyvenv.cfg", "env/x.py", "__pycache__/a.pyc", ".git/x"):
        (code / name).parent.mkdir(exist_ok=True)
        (code / name).write_text("2")
    (code / "link").symlink_to("/etc/passwd")
    os.mkfifo(code / "pipe")
    assert collected(machine) == {"lib/model.py": "2", "out/plot.txt": "2"}
    assert collected(machine, "out", "missing") == {"out/plot.txt": "2"}


def test_what_came_with_changed_code_is_not(tmp_path: Path, collected: Callable[..., dict[str, str]]) -> None:
    machine = unpacked(tmp_path, {"train.py": "1", "other.py": "1"})
    bench_store = store_in(tmp_path).inner
    sha256, raw = delta_of({"train.py": b"1", "other.py": b"1"}, {"train.py": b"2", "other.py": b"2"})
    bench_store.put("d", raw)
    sync = CodeSync(job(code="c"), machine, bench_store, lambda text: None)
    sync.catch_up(Synced("c", 1, "", "", (StoredDelta(1, 1, "d", sha256, 1),)))
    Path(machine.code, "other.py").write_text("3")
    assert collected(machine, placed=sync.placed) == {"other.py": "3"}


def test_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = unpacked(tmp_path, {"train.py": "1"})
    for number in range(3):
        Path(machine.code, f"{number}.py").write_text("2")
    monkeypatch.setattr(remote, "MAX_FILES", 2)
    with pytest.raises(Refused, match="name the paths"):
        collect(machine, {}, (), str(tmp_path / "collected"))


@pytest.mark.parametrize("guarded", [True, False])
def test_a_start_beside_the_end_is_ended_too(bench: Bench, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    """Broken variant: the end saw no process yet, and the command outlived the training."""
    spawned, seen, spawn = threading.Event(), threading.Event(), remote.spawn

    def slow_spawn(*args: Any) -> int:
        pid = spawn(*args)
        spawned.set()
        seen.wait(20)
        return pid

    monkeypatch.setattr(remote, "spawn", slow_spawn)
    agent = bench.agent()
    if not guarded:
        monkeypatch.setattr(agent, "_starting", nullcontext())
    agent.take([bench.signed("sleep", "60")], time.time())
    threads = [threading.Thread(target=agent.step), threading.Thread(target=agent.end)]
    threads[0].start()
    assert spawned.wait(20)
    threads[1].start()
    if not guarded:
        threads[1].join(20)
    seen.set()
    for thread in threads:
        thread.join(20)
    if guarded:
        assert bench.settled(agent)["signal"] == 9
    else:
        agent.step()
        assert bench.result()["state"] == "running"
