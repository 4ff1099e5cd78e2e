"""The pages of alerts: the receivers, the result of each message, and what a person may do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.api.wire.deps import with_tokens
from supervisor.domain.callers import LOCAL, Scope
from supervisor.domain.events import Event, EventKind
from supervisor.domain.run import Person
from supervisor.domain.status import Status
from supervisor.domain.texts import visible
from supervisor.ports.notifier import DeliveryResult, EndpointHealth
from supervisor.services.access.tokens import TokenRequest, create
from supervisor.services.webhooks import webhooks
from supervisor.services.webhooks.webhooks import WebhookRequest
from tests.dashboard.document import Element, read
from tests.dashboard.looking import Looking
from tests.fakes.courier import FakeCourier, failing
from tests.services.bed import Bed, make_bed
from tests.services.fresh import open_fresh

SECRET_PATH = "t0ken-of-mine"
URL = f"https://hooks.example.org/{SECRET_PATH}"
HOSTILE = "<b onclick=x>note</b> & \u202egnp"


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Bed]:
    """A bed whose announcements go to webhooks."""
    with closing(open_fresh(tmp_path / "supervisor.db", ("log", "webhooks"))) as store:
        bed = make_bed(store, tmp_path)
        parts = replace(bed.parts, courier=FakeCourier())
        yield replace(bed, parts=parts, services=replace(bed.services, parts=parts))


@pytest.fixture
def looking(told: Bed) -> Looking:
    return Looking(told.services, now=told.clock.now)


def hook(bed: Bed, **wish: Any) -> str:
    return str(webhooks.add(bed.parts, WebhookRequest(**{"url": URL, **wish}), LOCAL)["webhook_id"])


def announced(bed: Bed, count: int) -> list[int]:
    """So many messages to each webhook; their numbers in order."""
    bed.submit("digits-7")
    bed.store.add_events(bed.run("digits-7").key, [Event(EventKind.STARTED, "It trains.")] * count, bed.clock.now())
    bed.store.deliveries.fan_out(bed.clock.now(), 500)
    return [one.id for _, due in bed.store.deliveries.due(bed.clock.now(), 500) for one in due]


def settle(bed: Bed, number: int, taken: bool, next_at: float | None = None, detail: str = "HTTP 503") -> None:
    status = 204 if taken else 503
    settled = DeliveryResult(number, 0, taken, next_at, status, "" if taken else detail)
    bed.store.deliveries.settle([settled], [], bed.clock.now())


def rows(page: Element) -> list[str]:
    return [row.text for row in page.one("section", id="deliveries").all("tbody")[0].all("tr")]


def test_nobody_is_told_yet(looking: Looking) -> None:
    page = looking.page("/ui/alerts")
    assert "spot webhook add" in page.one("section", id="webhooks").one("pre").text
    assert page.one("section", id="persons").one("h2").text == "No run needs a person"


def test_who_is_told_and_how_it_goes(told: Bed, looking: Looking) -> None:
    good, bad, off, gone = (hook(told, note=name) for name in ("good", "bad", "off", HOSTILE))
    now = told.clock.now()
    told.store.deliveries.settle([], [EndpointHealth(bad, now - 60, now + 60)], now)
    looking.post(f"/ui/alerts/{off}/disable")
    told.store.endpoints.disable(gone, "it took nothing for 5 d", Event(EventKind.WEBHOOK_DISABLED, "x"), now)
    answer = looking.get("/ui/alerts").text
    assert HOSTILE not in answer
    assert SECRET_PATH not in answer
    page = looking.page("/ui/alerts")
    chips = [page.one("tr", id=f"webhook-{name}").one("span", class_="chip") for name in (good, bad, off, gone)]
    assert [chip.attributes["class"].split()[1] for chip in chips] == ["good", "wait", "still", "bad"]
    assert "1 min ago" in page.one("tr", id=f"webhook-{bad}").text
    assert "switched off by a person" in page.one("tr", id=f"webhook-{off}").text
    assert visible(HOSTILE) in page.one("tr", id=f"webhook-{gone}").text.replace(" - ", "")
    assert "it took nothing for 5 d" in page.one("tr", id=f"webhook-{gone}").text


def test_runs_that_need_a_person_come_first(told: Bed, looking: Looking) -> None:
    for name in ("fine", "quota", "over"):
        told.submit(name)
    told.change("quota", status=Status.WAITING, person=Person(why="quota L4 is 0", since=told.clock.now()))
    told.change("over", status=Status.FAILED, person=Person(why="too late"))
    persons = looking.page("/ui/alerts").one("section", id="persons")
    assert persons.one("h2").text == "1 run needs a person"
    assert [link.attributes["href"] for link in persons.all("a")] == ["/ui/runs/quota"]


def test_one_is_added_and_its_secret_is_told_once(told: Bed, looking: Looking) -> None:
    wish = {"url": URL, "note": "pager", "kind": ["failed", "completed"], "everything": "yes", "form": ""}
    answer = looking.post("/ui/alerts/add", wish)
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    [made] = looking.get("/v1/webhooks").json()["webhooks"]
    assert (made["note"], made["kinds"], made["everything"]) == ("pager", ["failed", "completed"], True)
    secret = told.store.endpoints.find(made["webhook_id"]).secrets[0].text  # type: ignore[union-attr]
    assert secret in answer.text
    assert SECRET_PATH not in answer.text
    for path in ("/ui/alerts", f"/ui/alerts/{made['webhook_id']}"):
        assert secret not in looking.get(path).text
    again = looking.post(f"/ui/alerts/{made['webhook_id']}/rotate")
    assert (again.status_code, again.headers["cache-control"]) == (200, "no-store")
    assert "whsec_" in again.text
    assert secret not in again.text


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        ({"url": f"https://inside.example/{SECRET_PATH}", "note": "mine"}, "no public address"),
        ({"url": "gopher://x"}, ""),
        ({"url": URL, "kind": ["nothing"]}, "docs/webhooks.md lists the kinds"),
        ({"url": URL, "form": "telegram"}, ""),
    ],
)
def test_what_cannot_be_added_says_why_in_its_place(looking: Looking, wish: dict[str, Any], why: str) -> None:
    answer = looking.post("/ui/alerts/add", wish)
    assert answer.status_code == 422
    page = read(answer.text)
    told = page.one("p", role="alert").text
    assert why in told
    assert told
    assert SECRET_PATH not in answer.text
    assert page.one("input", name="note").attributes["value"] == wish.get("note", "")
    assert looking.get("/v1/webhooks").json()["webhooks"] == []


def test_what_became_of_each_message(told: Bed, looking: Looking) -> None:
    here = f"/ui/alerts/{hook(told)}"
    assert "No message was sent yet." in looking.page(here).text
    taken, tried, given_up, waits = announced(told, 4)
    settle(told, taken, True)
    settle(told, tried, False, told.clock.now() + 300, "HTTP 503 <slow>")
    settle(told, given_up, False)
    told.clock.advance(30.0)
    page = looking.page(here)
    assert "Last accepted message 30 s ago : started" in page.one("section", id="webhook").text
    messages = page.one("section", id="deliveries").all("tbody")[0].all("tr")
    found = {row.attributes["id"]: row.text for row in messages}
    assert list(found) == [f"delivery-{number}" for number in (waits, given_up, tried, taken)]
    assert "delivered 30 s ago 1 HTTP 204" in found[f"delivery-{taken}"]
    assert "pending next try in 4 min 30 s 1 HTTP 503 <slow>" in found[f"delivery-{tried}"]
    assert "given up 30 s ago 1 HTTP 503" in found[f"delivery-{given_up}"]
    assert "It trains." in found[f"delivery-{waits}"]
    for state, number in (("delivered", 1), ("pending", 2), ("given_up", 1)):
        assert len(rows(looking.page(f"{here}?state={state}"))) == number
    assert looking.get(f"{here}?state=lost").status_code == 422
    assert looking.get("/ui/alerts/wh-000000000000").status_code == 404


def test_pages_lead_to_the_oldest_message(told: Bed, looking: Looking) -> None:
    here = f"/ui/alerts/{hook(told)}"
    announced(told, 60)
    page = looking.page(f"{here}?state=pending")
    assert len(rows(page)) == 50
    [older] = page.all("a", rel="next")
    last = looking.page(older.attributes["href"])
    assert "state=pending" in older.attributes["href"]
    assert len(rows(last)) == 10
    assert not last.all("a", rel="next")
    assert f"{here}?state=pending" in [link.attributes["href"] for link in last.all("a")]


def test_messages_are_sent_again(told: Bed, looking: Looking) -> None:
    here = f"/ui/alerts/{hook(told)}"
    first, second, third = announced(told, 3)
    for number in (first, second):
        settle(told, number, False)
    settle(told, third, True)
    answer = looking.post(f"{here}/deliveries/{third}/replay")
    assert (answer.status_code, answer.headers["location"]) == (303, f"{here}?again=1")
    told.clock.advance(7200.0)
    assert looking.post(f"{here}/replay", {"within": "3600"}).headers["location"] == f"{here}?again=0"
    assert "none is sent again" in looking.page(f"{here}?again=0").text
    assert looking.post(f"{here}/replay", {"within": "86400"}).headers["location"] == f"{here}?again=2"
    assert "2 messages are sent again." in looking.page(f"{here}?again=2").text
    assert len(rows(looking.page(f"{here}?state=pending"))) == 3
    assert looking.post(f"{here}/deliveries/99999/replay").status_code == 404
    assert "sent again" not in looking.page(f"{here}?again=<script>").text.replace("Send again", "")


def test_a_test_message_says_whether_it_was_taken(told: Bed, looking: Looking) -> None:
    here = f"/ui/alerts/{hook(told)}"
    answer = read(looking.post(f"{here}/test").text)
    assert answer.one("p", id="result", class_="good").text.startswith("The test message was accepted")
    [asks] = [element.attributes["hx-get"] for element in answer.all() if "hx-select-oob" in element.attributes]
    assert asks == here, "the answer to a form cannot be asked for again: its page is"
    assert answer.all("input", name="next")[0].attributes["value"] == here
    courier = told.parts.courier
    assert isinstance(courier, FakeCourier)
    courier.answer = failing(500)
    answer = read(looking.post(f"{here}/test").text)
    assert "was not accepted: HTTP 500" in answer.one("p", id="result", class_="bad").text


def test_it_is_switched_off_and_on_and_removed(told: Bed, looking: Looking) -> None:
    name = hook(told)
    here = f"/ui/alerts/{name}"
    for deed, enabled in (("disable", False), ("enable", True)):
        assert looking.page(here).all("form", action=f"{here}/{deed}")
        assert looking.post(f"{here}/{deed}").headers["location"] == here
        found = told.store.endpoints.find(name)
        assert found is not None
        assert (found.disabled_at is None) is enabled
    assert looking.post(f"{here}/explode").status_code == 404
    assert looking.post(f"{here}/remove").headers["location"] == "/ui/alerts"
    assert told.store.endpoints.find(name) is None
    assert looking.post(f"{here}/remove").status_code == 404


def test_who_may_only_look_is_offered_nothing_else(told: Bed) -> None:
    wish = TokenRequest(name="eve", owner="local", scopes=frozenset({Scope.READ}))
    looking = Looking(with_tokens(told.services))
    looking.sign_in(create(told.parts, wish, LOCAL)["token"])
    name = hook(told)
    settle(told, announced(told, 1)[0], False)
    for path in ("/ui/alerts", f"/ui/alerts/{name}"):
        actions = {form.attributes["action"] for form in looking.page(path).one("main").all("form")}
        assert actions == set()
    assert looking.post(f"/ui/alerts/{name}/disable").status_code == 403
