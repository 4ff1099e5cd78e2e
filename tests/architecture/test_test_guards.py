"""The guards around the tests: no network, no silent skips in CI, warnings are errors."""

import os
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tests import forked
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


@pytest.mark.parametrize("words", [("--version",), ("ls",), ("submit", "--no-such-option")])
def test_a_forked_command_says_what_the_command_says(tmp_path: Path, words: tuple[str, ...]) -> None:
    environ = {"PATH": os.environ["PATH"], "SPOT_DATA_DIR": str(tmp_path / "data"), "NO_COLOR": "1"}
    own = [str(Path(sys.executable).with_name("spot")), *words]
    command = subprocess.run(own, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    fork = forked.spot(*words, environ=environ, folder=tmp_path)
    assert (fork.returncode, fork.stdout, fork.stderr) == (command.returncode, command.stdout, command.stderr)
    assert fork.stdout or fork.stderr
