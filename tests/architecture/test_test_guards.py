"""The guards around the tests: no network, no silent skips in CI, warnings are errors, each test runs once."""

import os
import socket
import subprocess
import sys
import warnings
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import forked, scheduling
from tests.components import require_component
from tests.network_guard import NetworkRefused, is_loopback

BEYOND = "192.0.2.1"  # reserved for documentation (RFC 5737): nobody is there


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", b"localhost", "", None])
def test_loopback_is_this_machine(host: str | bytes | None) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", [BEYOND, "0.0.0.0", "::", "example.invalid", "localhost.example.invalid"])  # noqa: S104 - nothing binds
def test_everything_else_is_not(host: str) -> None:
    assert not is_loopback(host)


def test_a_connection_beyond_loopback_is_refused() -> None:
    with socket.socket() as a_socket, pytest.raises(NetworkRefused):
        a_socket.connect((BEYOND, 80))
    with pytest.raises(NetworkRefused):
        socket.create_connection(("example.invalid", 80))
    with socket.socket(type=socket.SOCK_DGRAM) as a_socket, pytest.raises(NetworkRefused):
        a_socket.sendto(b"hello", (BEYOND, 53))


def test_a_look_up_is_refused() -> None:
    with pytest.raises(NetworkRefused):
        socket.getaddrinfo("example.invalid", 80)


def test_loopback_is_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        pass


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_missing_component_fails_in_ci_and_skips_elsewhere(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match=r"a thing is missing here.*buy one"):
        require_component("a thing", False, "buy one")
    require_component("a thing", True, "buy one")


def test_a_warning_is_an_error() -> None:
    with pytest.raises(UserWarning):
        warnings.warn("careful", stacklevel=1)


class Worker:
    """As much of a worker of xdist as a scheduler uses. It completes its tests in order."""

    shutting_down = False
    gateway = SimpleNamespace(id="a worker")

    def __init__(self) -> None:
        self.indices: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.indices += indices

    def shutdown(self) -> None:
        self.shutting_down = True


ITEMS = [
    *(f"tests/acceptance/test_a.py::test_{number}@stories-a" for number in range(3)),
    *(f"tests/acceptance/test_b.py::test_{number}@stories-a" for number in range(3)),
    *(f"tests/agent/test_c.py::test_it[{number}@b]" for number in range(4)),
    *(f"tests/cli/test_d.py::test_{number}" for number in range(2)),
    *(f"tests/lifecycle/test_e.py::test_{number}" for number in range(5)),
    "tests/storage/test_f.py::test_it",
]


def _played(config: pytest.Config, workers: list[Worker]) -> list[list[str]]:
    """What each worker has run when all have completed."""
    scheduler = scheduling.ByFile(config)
    scheduler.numnodes = len(workers)
    for worker in workers:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, ITEMS)
    scheduler.schedule()
    done = [0] * len(workers)
    while any(place < len(worker.indices) for place, worker in zip(done, workers, strict=True)):
        for number, worker in enumerate(workers):
            if done[number] < len(worker.indices):
                scheduler.mark_test_complete(worker, worker.indices[done[number]])
                done[number] += 1
    assert scheduler.tests_finished
    assert not scheduler.has_pending
    return [[ITEMS[index] for index in worker.indices] for worker in workers]


@pytest.fixture
def xdist_config(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(pytestconfig.option, "tx", ["popen"], raising=False)
    return pytestconfig


@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_test_runs_once_and_a_file_or_group_on_one_worker(xdist_config: pytest.Config, count: int) -> None:
    played = _played(xdist_config, [Worker() for _ in range(count)])
    assert sorted(nodeid for items in played for nodeid in items) == sorted(ITEMS)
    for part in ("stories", "test_c.py", "test_d.py", "test_e.py"):
        assert sum(any(part in nodeid for nodeid in items) for items in played) == 1


def test_files_that_wait_alternate_with_files_that_compute_the_dearest_first(xdist_config: pytest.Config) -> None:
    [items] = _played(xdist_config, [Worker()])
    files = OrderedDict.fromkeys("stories" if "@stories-a" in nodeid else nodeid.split("::")[0] for nodeid in items)
    dearest = ["stories", "tests/lifecycle/test_e.py", "tests/agent/test_c.py"]
    assert list(files) == [*dearest, "tests/cli/test_d.py", "tests/storage/test_f.py"]


@pytest.mark.parametrize("start", [*scheduling.WAITING, *scheduling.COMPUTING])
def test_the_order_names_files_and_groups_that_exist(start: str) -> None:
    root = Path(__file__).parents[2]
    groups = (path for path in root.glob("tests/*/test_*.py") if f'xdist_group("{start}' in path.read_text())
    assert list(root.glob(f"{start}*.py")) or list(groups)


@pytest.mark.parametrize("words", [("--version",), ("ls",), ("submit", "--no-such-option")])
def test_a_forked_command_says_what_the_command_says(tmp_path: Path, words: tuple[str, ...]) -> None:
    environ = {"PATH": os.environ["PATH"], "SPOT_DATA_DIR": str(tmp_path / "data"), "NO_COLOR": "1"}
    own = [str(Path(sys.executable).with_name("spot")), *words]
    command = subprocess.run(own, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    fork = forked.spot(*words, environ=environ, folder=tmp_path)
    assert (fork.returncode, fork.stdout, fork.stderr) == (command.returncode, command.stdout, command.stderr)
    assert fork.stdout or fork.stderr
