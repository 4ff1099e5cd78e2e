"""The cloud's own events and ours in one time line: in order, page by page, and honest where the cloud is silent."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from supervisor.domain.attempt import Try
from supervisor.domain.events import Event, EventKind
from supervisor.ports.platform import PlatformEvent
from supervisor.ports.provider import NotSupported, ProviderUnavailable
from supervisor.ports.store import Change
from tests.services.bed import PLACE, Bed, Client

NAME = "digits-7"


@pytest.fixture
def start(bed: Bed) -> float:
    """A run with one machine, five events of ours ten seconds apart, and one of the cloud's between any two."""
    bed.submit(NAME)
    bed.train(NAME)
    start = bed.clock.now()
    for n in range(5):
        bed.clock.advance(10.0)
        happens(bed, n)
        bed.platform.events.append(cloud(bed.clock.now() + 5.0, n))
    return start


def happens(bed: Bed, n: int) -> None:
    with bed.store.begin(bed.clock.now()) as tx:
        run = tx.find(NAME)
        assert run is not None
        told = Event(EventKind.READINGS_DISAGREE, f"ours {n}")
        tx.apply(Change(run, replace(run, detail=str(n)), (told,)), bed.clock.now())


def cloud(at: float, n: int, machine: str = "m-a1") -> PlatformEvent:
    return PlatformEvent(at, str(900 + n), "compute.instances.preempted", f"theirs {n}", "system", machine, "local-a")


def ask(bed: Bed, **query: Any) -> dict[str, Any]:
    words = "&".join(f"{name}={value}" for name, value in {"cloud": "true", **query}.items())
    answer = Client(bed.services).get(f"/v1/runs/{NAME}/events?{words}")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def texts(page: dict[str, Any]) -> list[str]:
    return [event["text"].removeprefix("m-a1: ") for event in page["events"] if event["kind"] != "submitted"]


BOTH = [f"{whose} {n}" for n in range(5) for whose in ("ours", "theirs")]


def test_both_stand_in_one_time_line_each_with_its_source(bed: Bed, start: float) -> None:
    page = ask(bed)
    assert texts(page) == BOTH
    assert page["complete"] is True
    assert page["cloud_unread"] is None
    ours, theirs = page["events"][-2:]
    assert (ours["source"], theirs["source"], theirs["id"]) == ("supervisor", "cloud", None)
    assert (theirs["attempt"], theirs["generation"], theirs["kind"]) == (1, 1, "compute.instances.preempted")
    assert theirs["data"] == {"operation_id": "904", "machine": "m-a1", "zone": "local-a"}
    assert texts(ask(bed, newest_first="true")) == BOTH[::-1]


def test_without_being_asked_for_the_cloud_is_not_asked(bed: Bed, start: float) -> None:
    bed.platform.trouble = AssertionError("asked")
    page = ask(bed, cloud="false")
    assert texts(page) == [text for text in BOTH if text.startswith("ours")]
    assert page["cloud_unread"] is None
    assert Client(bed.services).get("/v1/events?cloud=true").status_code == 422


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 7])
def test_pages_hold_each_line_once(bed: Bed, start: float, size: int) -> None:
    after, found = 0, []
    for _ in range(20):
        page = ask(bed, after=after, limit=size)
        found += texts(page)
        own = [event["id"] for event in page["events"] if event["id"] is not None]
        assert len(own) <= size
        after = own[-1] if own else after
        if page["complete"]:
            break
    assert found == BOTH


def test_a_line_of_theirs_at_the_very_moment_of_ours_is_on_one_page_only(bed: Bed, start: float) -> None:
    bed.platform.events = [cloud(start + 20.0, 8)]
    pages = [ask(bed, after=after, limit=1) for after in range(1, 7)]
    assert sum(texts(page).count("theirs 8") for page in pages) == 1


def test_within_the_millisecond_of_the_clouds_times_ours_comes_first(bed: Bed, start: float) -> None:
    bed.clock.advance(10.0007)
    happens(bed, 5)
    bed.platform.events = [cloud(math.floor(bed.clock.now() * 1000) / 1000, 5)]
    assert texts(ask(bed))[-2:] == ["ours 5", "theirs 5"]


def test_since_shows_both_from_then_on(bed: Bed, start: float) -> None:
    moment = "2286-01-01T00:00:00Z"
    assert texts(ask(bed, since=moment)) == []
    page = ask(bed)
    third = next(event["at"] for event in page["events"] if event["text"] == "ours 3")
    assert texts(ask(bed, since=third)) == BOTH[6:]
    newest = ask(bed, since=page["events"][0]["at"], limit=2)
    assert newest["complete"] is False
    assert texts(newest) == BOTH[6:], "the time that the newest two of ours cover"


def test_ours_come_all_the_same_where_the_cloud_cannot_be_read(bed: Bed, start: float) -> None:
    bed.platform.trouble = ProviderUnavailable("Google's own events: HTTP 503")
    page = ask(bed)
    assert texts(page) == [text for text in BOTH if text.startswith("ours")]
    assert page["cloud_unread"] == "Google's own events: HTTP 503"
    bed.platform.trouble = NotSupported("there is no cloud here")
    assert ask(bed)["cloud_unread"] is None


def test_the_machines_of_another_supervisor_are_not_asked_about(bed: Bed, start: float) -> None:
    bed.change(NAME, cell="gce elsewhere gs://other")
    bed.platform.trouble = AssertionError("asked")
    assert "another supervisor" in str(ask(bed)["cloud_unread"])


def test_a_machine_that_never_came_is_asked_about_too(bed: Bed, start: float) -> None:
    run = bed.run(NAME)
    now = bed.clock.now()
    bed.change(NAME, try_=Try(2, 1, "1.2.1", "m-a2", PLACE, now, ended_at=now))
    bed.platform.events.append(cloud(now + 6.0, 7, machine="m-a2"))
    told = ask(bed)["events"][-1]
    assert (told["text"], told["attempt"]) == ("m-a2: theirs 7", 2)
    assert run.attempt is not None


def test_a_clock_that_was_set_back_leaves_ours_in_their_order(bed: Bed, start: float) -> None:
    bed.clock.step(-3600.0)
    with bed.store.begin(bed.clock.now()) as tx:
        run = tx.find(NAME)
        assert run is not None
        tx.apply(
            Change(run, replace(run, detail="x"), (Event(EventKind.READINGS_DISAGREE, "ours 5"),)), bed.clock.now()
        )
    own = [event["text"] for event in ask(bed)["events"] if event["source"] == "supervisor"]
    assert own[-6:] == [f"ours {n}" for n in range(6)]


def test_pages_read_backwards_hold_each_once(bed: Bed, start: float) -> None:
    found, before, pages = [], 1 << 60, 0
    while True:
        page = ask(bed, newest_first="true", limit=2, before=before)
        found, pages = found + texts(page), pages + 1
        ours = [event["id"] for event in page["events"] if event["id"] is not None]
        if page["complete"]:
            break
        before = min(ours)
    assert (found, pages) == (BOTH[::-1], 4)
