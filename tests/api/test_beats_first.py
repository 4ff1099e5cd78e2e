"""A beat that is accepted in front of the framework has the same response, and the same effects, as by its route."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import ASGIApp, Message

from supervisor.api.routes import beats
from supervisor.api.server import create_app
from supervisor.contract.heartbeat import MAX_BYTES, encode
from supervisor.ports.store import StoreDown
from supervisor.telemetry import metrics
from tests.services.bed import NONCE, Bed, beat, make_bed
from tests.services.fresh import open_fresh

COUNTED = (metrics.REQUESTS, metrics.REFUSALS, metrics.BEATS_PUSHED)
RUNS = ("training", "ended", "unknown", "NO RUN")

BEATS = st.builds(
    lambda run_id, **fields: encode(beat(run_id, **fields)),
    st.sampled_from(RUNS[:3]),
    sequence=st.integers(0, 4),
    launch_id=st.sampled_from(["1.1.1", "1.1.1", "1.1.1", "1.1.2"]),
    nonce=st.sampled_from([NONCE, NONCE, NONCE, "another"]),
    phase=st.sampled_from(["training", "restoring", "evaluation"]),
    notice_s=st.sampled_from([None, None, 30.0]),
    step=st.none() | st.integers(0, 10**6),
)
BODIES = st.one_of(
    BEATS,
    BEATS,
    st.builds(lambda raw, at: raw[: at % len(raw)], BEATS, st.integers(0, 400)),
    st.builds(lambda raw: raw + b" " * (MAX_BYTES + 1 - len(raw)), BEATS),
    st.sampled_from([b"", b"{}", b"[1]", b"\xff", b"null"]),
)
REQUESTS = st.fixed_dictionaries(
    {
        "method": st.sampled_from(["POST"] * 12 + ["GET", "HEAD", "PUT"]),
        "path": st.sampled_from(
            [f"/v1/runs/{RUNS[0]}/heartbeat"] * 9
            + [f"/v1/runs/{run_id}/heartbeat" for run_id in RUNS[1:]]
            + ["/v1/runs/training/heartbeat/", "/v1/runs//heartbeat", "/v1/runs/a/b/heartbeat", "/ui/runs"]
        ),
        "query": st.sampled_from([b""] * 9 + [b"x=1", b"="]),
        "body": BODIES,
        "pieces": st.integers(1, 3),
        "ends": st.sampled_from([True] * 9 + [False]),
        "headers": st.lists(
            st.sampled_from(
                [(b"content-length", b"99999999"), (b"origin", b"https://evil.example"), (b"host", b"evil.example"),
                 (b"content-type", b"text/plain"), (b"cookie", b"a=b"), (b"cookie", b"a=c")]
            ),
            max_size=1,
        ) | st.just([]),
        "before": st.sampled_from(["", "", "", "", "away", "here", "stop", "follow", "end", "down", "up"]),
    }
)  # fmt: skip


class Through:
    """In the place of BeatsFirst: the framework has every beat."""

    def __init__(self, app: ASGIApp, inbox: object) -> None:
        self._app = app

    async def __call__(self, *exchange: Any) -> None:
        await self._app(*exchange)


class House:
    """One server and everything that a beat may change."""

    def __init__(self, bed: Bed) -> None:
        self.bed, self.app, self.down = bed, create_app(bed.services), False
        bed.inbox._store = _Unsure(bed.store, lambda: self.down)
        for run_id in RUNS[:2]:
            bed.submit(run_id)
            bed.train(run_id)
        bed.end(RUNS[1])

    def send(self, request: dict[str, Any]) -> list[Message]:
        self.prepare(request["before"])
        return asyncio.run(_exchange(self.app, request))

    def start_over(self) -> None:
        """Examples do not depend on each other; the launch of the run that trains is known."""
        for what in ("here", "up"):
            self.prepare(what)
        inbox = self.bed.inbox
        for run_id in RUNS:
            inbox.forget(run_id)
        inbox.set_stopping({})
        inbox.learn(beat(RUNS[0]))
        inbox._rejected_at.clear()

    def prepare(self, what: str) -> None:
        inbox = self.bed.inbox
        if what in ("away", "here"):
            inbox.useful = lambda: what == "here"
        elif what in ("down", "up"):
            self.down = what == "down"
        elif what == "stop":
            inbox.set_stopping({RUNS[0]: 1})
        elif what == "follow":
            inbox.follow(RUNS[0])
        elif what == "end":
            inbox.forget(RUNS[0])
        self.bed.clock.advance(1.0)

    def effects(self) -> Any:
        events = [(stored.event.kind, stored.event.text) for stored in self.bed.store.events(RUNS[0], 0, 1000)]
        return self.bed.inbox.take(), self.bed.wake.sets, events


class _Unsure:
    """The store, which is down when a test says so."""

    def __init__(self, store: Any, down: Any) -> None:
        self._store, self._down = store, down

    def __getattr__(self, name: str) -> Any:
        if self._down():
            raise StoreDown("no database")
        return getattr(self._store, name)


async def _exchange(app: ASGIApp, request: dict[str, Any]) -> list[Message]:
    body, count = request["body"], request["pieces"]
    size = max(1, -(-len(body) // count))
    pieces = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
    received: list[Message] = [
        {"type": "http.request", "body": piece, "more_body": n < len(pieces) - 1 or not request["ends"]}
        for n, piece in enumerate(pieces)
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return received.pop(0) if received else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = {b"host": b"127.0.0.1:8787", b"x-request-id": b"test", b"content-length": b"%d" % len(body)}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": request["method"],
        "path": request["path"], "raw_path": request["path"].encode(), "query_string": request["query"],
        "scheme": "http", "root_path": "",
        "headers": [*(headers | dict(request["headers"])).items()], "client": ("127.0.0.1", 1), "server": None,
    }  # fmt: skip
    await app(scope, receive, send)
    return sent


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[House, House]]:
    """The server as it is, and one whose framework has every beat."""
    folders = [tmp_path_factory.mktemp(name) for name in ("first", "framework")]
    with closing(open_fresh(folders[0] / "a.db")) as one, closing(open_fresh(folders[1] / "a.db")) as two:
        beside = House(make_bed(one, folders[0]))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(beats, "BeatsFirst", Through)
            yield beside, House(make_bed(two, folders[1]))


@given(st.lists(REQUESTS, min_size=1, max_size=8))
def test_a_beat_has_the_response_and_the_effects_of_its_route(
    houses: tuple[House, House], requests: list[dict[str, Any]]
) -> None:
    shown = []
    for house in houses:
        house.start_over()
        before = [series.values() for series in COUNTED]
        responses = [house.send(request) for request in requests]
        counts = [_growth(old, series.values()) for old, series in zip(before, COUNTED, strict=True)]
        shown.append((responses, counts, house.effects()))
    assert shown[0] == shown[1]


def _growth(before: dict[Any, float], after: dict[Any, float]) -> dict[Any, float]:
    return {labels: value - before.get(labels, 0.0) for labels, value in after.items() if value != before.get(labels)}


def test_an_accepted_beat_does_not_reach_the_framework(houses: tuple[House, House], monkeypatch: Any) -> None:
    house, _ = houses
    house.start_over()
    request = {"method": "POST", "path": "/v1/runs/training/heartbeat", "query": b"", "pieces": 1, "ends": True}
    request |= {"headers": [], "before": "", "body": encode(beat("training", sequence=90))}
    assert house.send(request)[0]["status"] == 200
    reached = []
    monkeypatch.setattr(house.app.router, "middleware_stack", lambda *_: reached.append("router"))
    request["body"] = encode(beat("training", sequence=91))
    assert house.send(request)[0]["status"] == 200
    assert not reached
