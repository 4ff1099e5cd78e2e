"""Streams of events over real sockets: what is told, to whom, in which order, and when a stream ends."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from supervisor.api.stream import WAITING_MAX
from supervisor.api.streams import Limits
from supervisor.domain.callers import LOCAL, Caller, Scope
from supervisor.domain.errors import Unauthorized
from supervisor.domain.events import Event, EventKind
from supervisor.ports.history import KEPT_S
from supervisor.services import following
from supervisor.services.submit import SubmitRequest, submit
from tests.api.listening import Listener, Serving, Told, serving
from tests.services.bed import COMMAND, Bed, Client
from tests.waiting import wait_for

QUICK = Limits(ping_s=0.3, look_s=0.1, hang_s=0.5)
ADA = Caller("ada", "ada", frozenset({Scope.READ}), "token-ada")
BOB = Caller("bob", "bob", frozenset({Scope.READ}), "token-bob")


@pytest.fixture
def served(bed: Bed) -> Iterator[Serving]:
    with serving(replace(bed.services, streams=QUICK)) as one:
        yield one


def patrol(bed: Bed, count: int = 1, text: str = "All is well.") -> None:
    bed.store.add_events(None, [Event(EventKind.PATROL, text)] * count, bed.clock.now())


def listed(bed: Bed) -> list[int]:
    return [stored.id for stored in bed.store.events(None, 0, 10_000)]


def test_an_event_comes_as_in_the_list(bed: Bed, served: Serving, client: Client) -> None:
    stream = served.listen()
    stream.wait_until_here()
    bed.submit("run-1")
    stream.wait(1)
    block = stream.events[0]
    assert block.event == "submitted"
    assert block.json == client.get("/v1/events").json()["events"][0]
    assert block.id == str(block.json["id"])
    assert 1000 <= int(stream.told[0].retry) <= 4000
    assert stream.headers["Content-Type"].startswith("text/event-stream")
    assert stream.headers["Cache-Control"] == "no-store"
    assert stream.headers["X-Accel-Buffering"] == "no"


def test_a_commit_wakes_the_reader(bed: Bed, served: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "LOOK_S", 3600.0)
    stream = served.listen()
    stream.wait_until_here()
    for count in range(1, 6):
        patrol(bed)
        stream.wait(count)


def test_without_a_word_about_streams_the_list_is_answered(bed: Bed, client: Client) -> None:
    bed.submit("run-1")
    for accept in ("application/json", "*/*", "text/event-stream;q=0, application/json"):
        assert len(client.get("/v1/events", headers={"Accept": accept}).json()["events"]) == 1


def test_many_who_come_at_any_time_get_everything_once_and_in_order(bed: Bed, served: Serving) -> None:
    """They join while events are written as fast as possible: between a page and the reader nothing may be lost."""
    going = threading.Event()

    def write() -> None:
        while not going.is_set():
            patrol(bed, 3)

    writer = threading.Thread(target=write)
    writer.start()
    streams = [served.listen("/v1/events?after=0") for _ in range(8)]
    wait_for(lambda: all(len(stream.ids) > 300 for stream in streams), 30)
    going.set()
    writer.join()
    everything = listed(bed)
    for stream in streams:
        assert stream.wait(len(everything)) == everything


def test_who_comes_back_gets_what_was_missed_and_goes_on(bed: Bed, served: Serving) -> None:
    first = served.listen("/v1/events?after=0")
    patrol(bed, 3)
    seen = first.wait(3)
    first.close()
    patrol(bed, 500)
    again = served.listen("/v1/events?after=0", Last_Event_ID=str(seen[-1]))  # the header counts
    again.wait(500)
    patrol(bed, 2)
    assert seen + again.wait(502) == listed(bed)


def test_filters(bed: Bed, served: Serving) -> None:
    bed.submit("run-1")
    bed.submit("run-2")
    before = [served.listen("/v1/runs/run-2/events?after=0"), served.listen("/v1/events?kind=patrol&after=0")]
    for stream in before:
        stream.wait_until_here()
    patrol(bed)
    bed.end("run-2")
    bed.store.add_events(bed.run("run-2").key, [Event(EventKind.STOPPED, "Stopped.")], bed.clock.now())
    assert [block.json["run_id"] for block in wait_events(before[0], 2)] == ["run-2", "run-2"]
    assert [block.event for block in wait_events(before[1], 1)] == ["patrol"]
    late = served.listen("/v1/events?after=0&kind=stopped&kind=patrol")
    assert [block.event for block in wait_events(late, 2)] == ["patrol", "stopped"]


def wait_events(stream: Listener, count: int) -> list[Told]:
    stream.wait(count)
    return stream.events


@pytest.mark.parametrize(
    ("path", "headers", "pointer"),
    [
        ("/v1/events?limit=5", {}, "?limit"),
        ("/v1/events?newest_first=true", {}, "?newest_first"),
        ("/v1/runs/run-1/events?cloud=true", {}, "?cloud"),
        ("/v1/events?kind=finshed", {}, "?kind"),
        ("/v1/events?after=-1", {}, "?after"),
        ("/v1/events", {"Last-Event-ID": "12; DROP"}, "Last-Event-ID"),
        ("/v1/events", {"Last-Event-ID": "9" * 30}, "Last-Event-ID"),
        ("/v1/events", {"Last-Event-ID": "\xb2"}, "Last-Event-ID"),
    ],
)
def test_what_makes_no_sense_is_refused(
    bed: Bed, client: Client, path: str, headers: dict[str, str], pointer: str
) -> None:
    bed.submit("run-1")
    raw = {name: value.encode("latin-1") for name, value in headers.items()}
    answer = client.get(path, headers={"Accept": "text/event-stream", **raw})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert "DROP" not in answer.text


def test_a_list_takes_no_kinds(client: Client) -> None:
    assert client.get("/v1/events?kind=patrol").json()["errors"][0]["pointer"] == "?kind"


def test_no_stream_of_a_run_that_is_not_there(client: Client) -> None:
    answer = client.get("/v1/runs/no-such-run/events", headers={"Accept": "text/event-stream"})
    assert answer.json()["code"] == "RUN_NOT_FOUND"


def test_reset_where_the_missed_cannot_be_told(bed: Bed, served: Serving) -> None:
    patrol(bed, 3)
    unknown = served.listen(Last_Event_ID="90000")
    wait_for(lambda: unknown.events, 20)
    assert (unknown.events[0].event, unknown.events[0].id) == ("reset", "3")
    assert unknown.events[0].json == {"reason": "unknown", "newest": 3}
    known = served.listen(Last_Event_ID="1")
    assert known.wait(2) == [2, 3]
    bed.clock.advance(KEPT_S + 10)
    old = served.listen(Last_Event_ID="2")
    wait_for(lambda: old.events, 20)
    assert old.events[0].json == {"reason": "too_old", "newest": 3}
    patrol(bed)
    for stream in (unknown, old):
        assert stream.wait(1) == [4]  # and on it goes


def test_pings_say_where_a_quiet_stream_is(bed: Bed, served: Serving) -> None:
    stream = served.listen("/v1/events?kind=failed")
    stream.wait_until_here()
    patrol(bed, 5)
    wait_for(lambda: stream.last_id == "5" and stream.told[-1].comment == "ping", 20)
    assert stream.ids == []


def test_a_listener_that_reads_nothing_is_cut_off_and_others_are_not_kept_waiting(
    bed: Bed, served: Serving
) -> None:
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


class Tokens:
    """`identify` of two people, of whom one loses her token."""

    def __init__(self) -> None:
        self.revoked = False

    def identify(self, authorization: str, request_id: str) -> Caller:
        known = {"Bearer ada": ADA, "Bearer bob": BOB, "Bearer root": LOCAL}
        if authorization not in known or (self.revoked and authorization == "Bearer ada"):
            raise Unauthorized("No.")
        return known[authorization]


def test_everybody_hears_of_his_own_runs_until_his_token_is_revoked(bed: Bed) -> None:
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
        assert [block.event for block in wait_events(ada, 2)] == ["submitted", "started"]
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


def test_the_end_of_the_server_does_not_wait_for_listeners(bed: Bed) -> None:
    with serving(bed.services) as served:
        streams = [served.listen() for _ in range(50)]
        for stream in streams:
            stream.wait_until_here()
        began = time.monotonic()
    assert time.monotonic() - began < 3.0
    for stream in streams:
        stream.wait_over()
        assert stream.told[-1].comment == "the supervisor is going"
        stream.close()
