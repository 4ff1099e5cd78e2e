"""The ends of streams: slow listeners, revoked tokens, too many streams, the end of the server."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from dataclasses import replace

import pytest

from supervisor.api import server
from supervisor.api.streams.listener import WAITING_BYTES, WAITING_MAX, Piece, Stream
from supervisor.domain.callers import LOCAL, Caller, Scope
from supervisor.domain.errors import Unauthorized
from supervisor.domain.events import Event, EventKind
from supervisor.ports.history import EventFilter
from supervisor.services.runs.submit import SubmitRequest, submit
from tests.api.listening import QUICK, Serving, listed, patrol, serving
from tests.services.bed import COMMAND, Bed
from tests.waiting import wait_for

ADA = Caller("ada", "ada", frozenset({Scope.READ}), "token-ada")
BOB = Caller("bob", "bob", frozenset({Scope.READ}), "token-bob")


def test_what_waits_for_a_listener_is_bounded_in_events_and_bytes() -> None:
    stream = Stream(EventFilter(), ADA, "", None)
    assert stream.put(Piece(b"x" * (WAITING_BYTES + 1), 1), 0.0)  # alone it may be as large as it is
    assert not stream.put(Piece(b"x", 1), 0.0)
    stream = Stream(EventFilter(), ADA, "", None)
    assert stream.put(Piece(b"x", WAITING_MAX), 0.0)
    assert stream.put(Piece(b": ping", 0), 0.0)
    assert not stream.put(Piece(b"x", 1), 0.0)
    assert asyncio.run(stream.take()) == b"x: ping"
    assert stream.put(Piece(b"x", WAITING_MAX), 0.0)


def test_pings_carry_the_position_of_a_quiet_stream(bed: Bed, served: Serving) -> None:
    stream = served.listen("/v1/events?kind=failed")
    stream.wait_until_here()
    patrol(bed, 5)
    wait_for(lambda: stream.last_id == "5" and stream.told[-1].comment == "ping", 20)
    assert stream.ids == []


def test_a_listener_that_reads_nothing_is_disconnected_and_others_do_not_wait(bed: Bed, served: Serving) -> None:
    lazy = socket.socket()
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    lazy.connect(("127.0.0.1", served.port))
    lazy.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
    quick = served.listen()
    quick.wait_until_here()
    wait_for(lambda: len(served.streams._joined) == 2, 20)
    written = 0
    while len(served.streams._admitted) == 2:
        patrol(bed, 50, "x" * 20_000)
        written += 50
        began = time.monotonic()
        quick.wait(written)
        assert time.monotonic() - began < 5.0
        assert written < 20 * WAITING_MAX
    assert quick.ids == listed(bed)
    lazy.close()


def test_a_listener_that_reads_nothing_is_disconnected_even_with_few_events(bed: Bed, served: Serving) -> None:
    with socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect(("127.0.0.1", served.port))
        lazy.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
        wait_for(lambda: len(served.streams._joined) == 1)
        (stream,) = served.streams._joined

        def tell() -> str:
            """As much as may wait for it, and no more. Once it is cut off, nobody listens and nothing is passed on."""
            if stream._bytes < WAITING_BYTES // 2:
                patrol(bed, 50, "x" * 20_000)
                wait_for(lambda: stream.over or served.streams.passed == listed(bed)[-1])
            return stream.over

        wait_for(tell, 60, "it to be cut off")
        assert stream.over == "slow"


class Tokens:
    """`identify` of two people, of whom one loses her token."""

    def __init__(self) -> None:
        self.revoked = False

    def identify(self, authorization: str, request_id: str) -> Caller:
        known = {"Bearer ada": ADA, "Bearer bob": BOB, "Bearer root": LOCAL}
        if authorization not in known or (self.revoked and authorization == "Bearer ada"):
            raise Unauthorized("No.")
        return known[authorization]


def test_a_listener_receives_its_own_runs_until_its_token_is_revoked(bed: Bed) -> None:
    tokens = Tokens()
    with serving(replace(bed.services, streams=QUICK, identify=tokens.identify)) as served:
        ada, bob, root = (served.listen(Authorization=f"Bearer {who}") for who in ("ada", "bob", "root"))
        for stream in (ada, bob, root):
            stream.wait_until_here()
        submit(bed.parts, SubmitRequest(COMMAND, "run-1"), ADA)
        run = bed.run("run-1")
        told = Event(EventKind.STARTED, "It trains.")
        bed.store.add_events(run.key, [told], bed.clock.now())
        patrol(bed)
        assert len(root.wait(3)) == 3
        assert [block.event for block in ada.wait_told(2)] == ["submitted", "started"]
        assert bob.ids == []
        theirs = served.listen("/v1/events?owner=ada&after=0", Authorization="Bearer bob")
        theirs.wait_until_here()
        tokens.revoked = True
        ada.wait_over()
        assert ada.told[-1].comment == "revoked"
        bed.store.add_events(run.key, [told], bed.clock.now())
        assert len(root.wait(4)) == 4
        assert (bob.over, bob.ids, theirs.ids) == (False, [], [])
        assert len(ada.events) == 2


def test_only_so_many_streams(bed: Bed) -> None:
    limits, identify = replace(QUICK, streams=3, each=2), Tokens().identify
    with serving(replace(bed.services, streams=limits, identify=identify)) as served:
        opened = [served.listen(Authorization=f"Bearer {who}") for who in ("ada", "ada", "bob")]
        mine = served.listen(Authorization="Bearer root")
        assert (mine.status, mine.body["code"]) == (503, "STREAMS_FULL")
        assert mine.headers["Retry-After"]
        opened.pop().close()
        wait_for(lambda: len(served.streams._admitted) == 2, 20)
        mine = served.listen(Authorization="Bearer ada")
        assert (mine.status, mine.body["code"]) == (429, "TOO_MANY_STREAMS")
        opened.append(served.listen(Authorization="Bearer bob"))
        assert opened[-1].status == 200
        for stream in opened:
            stream.close()
        wait_for(lambda: not served.streams._admitted, 20)
        assert served.streams._follower is None  # nobody listens: nothing is read


def test_the_end_of_the_server_does_not_wait_for_listeners(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "GRACE_S", 60)  # who waited for a listener would wait so long
    with serving(bed.services) as served:
        streams = [served.listen() for _ in range(50)]
        for stream in streams:
            stream.wait_until_here()
        began = time.monotonic()
    assert time.monotonic() - began < 20
    for stream in streams:
        stream.wait_over()
        assert stream.told[-1].comment == "the supervisor is stopping"
        stream.close()


def test_a_bug_in_the_watch_ends_the_streams_and_the_next_are_served(
    bed: Bed, served: Serving, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stream = served.listen()
    stream.wait_until_here()
    with monkeypatch.context() as broken, caplog.at_level(logging.CRITICAL):
        broken.setattr(served.streams, "_ping", lambda: 1 / 0)
        stream.wait_over()
    assert stream.told[-1].comment == "lost"
    again = served.listen(Last_Event_ID="0")
    patrol(bed)
    assert again.wait(1) == [1]
