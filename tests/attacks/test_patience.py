"""A connection ends when its client lets it wait, and only then; without that patience it would stay."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from supervisor.api import server
from supervisor.api.wire.connection import Patience
from tests.attacks.wire import HERE, JSON, ask, together
from tests.services.bed import Bed
from tests.services.conftest import bed
from tests.waiting import wait_for

__all__ = ["bed"]

SHORT = Patience(head_s=0.3, body_s=0.3, body_bytes=100, rest_s=0.3, taking_s=0.3, waiting_most=5)
HALF_HEAD = b"GET /livez HTTP/1.1\r\nHost: local"
BEAT = "/v1/runs/healthy/heartbeat"
LONG = ask("POST", BEAT, JSON, "Content-Length: 9000")
REFUSED = ask("POST", "/v1/none", JSON, "Content-Length: 9000")  # answered before its body


@contextmanager
def serving(bed: Bed, patience: Patience = SHORT) -> Iterator[int]:
    """Its port."""
    started = threading.Event()
    with server.bind(HERE, 0) as listener:
        made = server.make(bed.services, started.set, patience=patience)
        thread = threading.Thread(target=made.run, args=([listener],))
        thread.start()
        assert started.wait(30)
        try:
            yield listener.getsockname()[1]
        finally:
            made.should_exit = True
            thread.join(30)
    assert not thread.is_alive()


def ends(port: int, data: bytes, again: bytes = b"", within_s: float = 2.0) -> bool:
    """Does the server end a connection on which this was sent, and `again` each 50 ms?"""
    with socket.create_connection((HERE, port)) as wire:
        wire.sendall(data)
        wire.settimeout(0.05)
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            try:
                if wire.recv(65536) == b"":
                    return True
            except TimeoutError:
                with suppress(OSError):
                    wire.sendall(again)
            except OSError:
                return True
    return False


LETS_WAIT = {
    "nothing at all": (b"", b""),
    "half a head": (HALF_HEAD, b""),
    "a head drop by drop": (HALF_HEAD, b"x"),
    "half a body": (LONG, b""),
    "a body drop by drop": (LONG, b" "),
    "a body that nobody wants, in a stream": (REFUSED, b" " * 100),
    "half of a second head": (ask("GET", "/livez") + HALF_HEAD, b"x"),
}


@pytest.mark.parametrize("case", LETS_WAIT)
def test_who_lets_it_wait_is_left(bed: Bed, case: str) -> None:
    with serving(bed) as port:
        assert ends(port, *LETS_WAIT[case])


def test_without_patience_he_would_stay(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "protocol", lambda patience: H11Protocol)
    with serving(bed) as port:
        assert not ends(port, *LETS_WAIT["a head drop by drop"], within_s=1.0)
        assert not ends(port, *LETS_WAIT["a body drop by drop"], within_s=1.0)


def test_a_long_body_that_goes_on_is_waited_for(bed: Bed) -> None:
    with serving(bed) as port, socket.create_connection((HERE, port), timeout=60) as wire:
        wire.sendall(LONG)
        for _ in range(20):
            time.sleep(0.05)  # together more than three times as long as a silence may be
            wire.sendall(b" " * 450)
        assert wire.recv(100).startswith(b"HTTP/1.1 422 ")


def test_requests_one_after_the_other_on_one_connection(bed: Bed) -> None:
    with serving(bed) as port, socket.create_connection((HERE, port), timeout=60) as wire:
        for _ in range(4):
            wire.sendall(ask("GET", "/livez"))
            got = b""
            while not got.endswith(b'{"live":true}'):
                more = wire.recv(4096)
                assert more, "it was broken off"
                got += more
            time.sleep(0.2)


def test_of_too_many_that_ask_for_nothing_the_oldest_goes(bed: Bed) -> None:
    with serving(bed, Patience(head_s=60, waiting_most=5)) as port:
        idle = [socket.create_connection((HERE, port), timeout=60) for _ in range(6)]
        assert idle[0].recv(1) == b""
        [answer] = together(port, [ask("GET", "/livez")])
        assert answer.told == "200", "one that asks at once is served all the same"
        idle[5].sendall(ask("GET", "/livez"))
        assert idle[5].recv(12) == b"HTTP/1.1 200"
        for wire in idle:
            wire.close()


def test_who_takes_nothing_of_a_large_answer_is_left(bed: Bed) -> None:
    for number in range(60):
        bed.submit(f"run-{number}")
    with serving(bed) as port, socket.socket() as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        wire.connect((HERE, port))
        wire.settimeout(10)
        asked = ask("GET", "/v1/runs?page_size=1000") * 150

        def broken() -> bool:
            try:
                wire.sendall(asked)
            except OSError:
                return True
            return False

        wait_for(broken, 20, "the connection to be broken off")


def too_large(port: int, path: str = BEAT, size: int = 8_000_000) -> int:
    """What urllib is answered, which announces the end of its connection and reads nothing before all is sent."""
    request = urllib.request.Request(
        f"http://{HERE}:{port}{path}", b"x" * size, {"Content-Type": "application/json"}, method="POST"
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=30)  # noqa: S310 - our own server
    with caught.value as refusal:
        assert json.loads(refusal.read())["status"] == refusal.code
        return refusal.code


@pytest.mark.parametrize("path", [BEAT, "/v1/runs", "/livez", "/v1/nothing"])
def test_who_sends_too_much_reads_the_refusal(bed: Bed, path: str) -> None:
    with serving(bed, Patience()) as port:
        assert too_large(port, path) == 413


def test_a_server_that_closes_at_once_resets_that_client(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant."""
    monkeypatch.setattr("supervisor.api.wire.connection._Connection._close", lambda self: self._real.close())
    with serving(bed, Patience()) as port, pytest.raises(OSError):  # noqa: PT011 - a reset or a broken pipe
        too_large(port)


@pytest.mark.parametrize("patience", [SHORT, Patience(rest_bytes=1_000_000)])
def test_the_rest_of_a_refused_body_is_read_for_a_while_only(bed: Bed, patience: Patience) -> None:
    """Whoever stands still, and whoever never ends, is cut off."""
    head = ask("POST", BEAT, JSON, "Content-Length: 90000000", "Connection: close")
    piece = b"" if patience is SHORT else b"x" * 100_000
    with serving(bed, patience) as port, socket.create_connection((HERE, port)) as wire:
        wire.sendall(head + b"x")
        with pytest.raises(OSError, match=r"reset|pipe"):  # noqa: PT012 - whichever of both calls meets it
            end = time.monotonic() + 20
            while time.monotonic() < end:
                wire.sendall(piece or b"x")
                time.sleep(0.01 if piece else 0.5)
