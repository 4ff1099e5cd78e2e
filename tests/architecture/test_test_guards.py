"""The guards around the tests: no network, no silent skips in CI, and warnings are errors."""

import socket
import warnings

import pytest

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
