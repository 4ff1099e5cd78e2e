"""`spot(…)`: one command line in this process, against the fake API."""

import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from supervisor.cli import main
from supervisor.cli.runs import control, fleet, logs, submit, watch
from tests.acceptance.daemon import QUICK, Daemon
from tests.cli.fake_api import FakeApi, accept_submits, serving


@dataclass
class Ended:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with serving() as fake:
        yield fake


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No settings of the user who runs the tests, an own home folder, and no wait between polls."""
    for name in [name for name in os.environ if name.startswith("SPOT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for module in (watch, logs, control, fleet):
        monkeypatch.setattr(module, "POLL_S", 0.0)
    monkeypatch.setattr(control, "PURGE_POLL_S", 0.0)
    monkeypatch.setattr(submit, "APPEARS_S", 0.0)
    return tmp_path


@pytest.fixture
def run_cli(clean: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Runs words as a command line, without naming any supervisor."""

    def run(*words: str) -> Ended:
        capsys.readouterr()
        code = main.run(list(words))
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return run


@pytest.fixture
def spot(run_cli: Callable[..., Ended], api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """The same, with SPOT_URL naming the fake API."""
    monkeypatch.setenv("SPOT_URL", api.url)
    return run_cli


@pytest.fixture
def accepting(api: FakeApi) -> FakeApi:
    """The API accepts every submit."""
    accept_submits(api)
    return api


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port without a listener while the test runs: it is bound, and refuses."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
def daemon(clean: Path) -> Iterator[Daemon]:
    """A real supervisor on this computer, whose machines have a price."""
    served = Daemon(clean / "data", {**QUICK, "SPOT_LOCAL_PRICES": "cpu=0.3/0.9"})
    try:
        served.start()
        yield served
    finally:
        served.close()
