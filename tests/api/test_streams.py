"""Streams of events over real sockets: content, order and refusals."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator

import pytest
from starlette.requests import Request

from supervisor.api.routes import events
from supervisor.api.streams.listener import Stream
from supervisor.api.streams.listeners import Streams
from supervisor.domain.events import Event, EventKind
from supervisor.ports.history import KEPT_S
from supervisor.services.reading import following
from tests.api.listening import Serving, listed, patrol
from tests.services.bed import Bed, Client
from tests.waiting import wait_for


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


def test_without_an_accept_header_the_list_comes(bed: Bed, client: Client) -> None:
    bed.submit("run-1")
    for accept in ("application/json", "*/*", "text/event-stream;q=0, application/json"):
        assert len(client.get("/v1/events", headers={"Accept": accept}).json()["events"]) == 1


def test_listeners_that_join_at_any_time_get_everything_once_and_in_order(bed: Bed, served: Serving) -> None:
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


def test_a_listener_that_reconnects_gets_what_it_missed(bed: Bed, served: Serving) -> None:
    first = served.listen("/v1/events?after=0")
    patrol(bed, 3)
    seen = first.wait(3)
    first.close()
    patrol(bed, 500)
    again = served.listen("/v1/events?after=0", Last_Event_ID=str(seen[-1]))  # the header counts
    again.wait(500)
    patrol(bed, 2)
    assert seen + again.wait(502) == listed(bed)


def test_that_the_test_of_joining_catches_a_join_without_a_read(
    bed: Bed, served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def joins(streams: Streams, stream: Stream, position: int) -> AsyncIterator[bytes]:
        streams.join(stream)
        missed: tuple[bytes, ...] = ()
        for data in missed:
            yield data

    monkeypatch.setattr(events, "_missed", joins)
    patrol(bed, 3)
    stream = served.listen("/v1/events?after=0")
    wait_for(lambda: served.streams._joined, 20)
    patrol(bed, 2)
    assert stream.wait(2) == [4, 5] != listed(bed)


def test_a_listener_ahead_of_this_replica_gets_nothing_twice(
    bed: Bed, served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "LOOK_S", 3600.0)
    first = served.listen()
    first.wait_until_here()
    bed.store.history.on_written(lambda: None)  # as if another replica wrote, and its word was lost
    patrol(bed, 3)
    second = served.listen(Last_Event_ID="2")
    wait_for(lambda: len(served.streams._admitted) == 2, 20)
    patrol(bed)
    served.streams._wake()
    assert second.wait(2) == [3, 4]
    assert first.wait(4) == [1, 2, 3, 4]


def test_a_head_is_no_stream() -> None:
    scope = {"type": "http", "method": "HEAD", "headers": [(b"accept", b"text/event-stream")]}
    assert not events.wants_stream(Request(scope))
    assert events.wants_stream(Request({**scope, "method": "GET"}))


def test_filters(bed: Bed, served: Serving) -> None:
    bed.submit("run-1")
    bed.submit("run-2")
    before = [served.listen("/v1/runs/run-2/events?after=0"), served.listen("/v1/events?kind=patrol&after=0")]
    for stream in before:
        stream.wait_until_here()
    patrol(bed)
    bed.end("run-2")
    bed.store.add_events(bed.run("run-2").key, [Event(EventKind.STOPPED, "Stopped.")], bed.clock.now())
    assert [block.json["run_id"] for block in before[0].wait_told(2)] == ["run-2", "run-2"]
    assert [block.event for block in before[1].wait_told(1)] == ["patrol"]
    late = served.listen("/v1/events?after=0&kind=stopped&kind=patrol")
    assert [block.event for block in late.wait_told(2)] == ["patrol", "stopped"]


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


def test_no_stream_of_an_unknown_run(client: Client) -> None:
    answer = client.get("/v1/runs/no-such-run/events", headers={"Accept": "text/event-stream"})
    assert answer.json()["code"] == "RUN_NOT_FOUND"


def test_reset_where_missed_events_cannot_be_sent(bed: Bed, served: Serving) -> None:
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
