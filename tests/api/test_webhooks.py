"""Webhooks over the API: their owners, what is shown of them, and refusals."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.domain.events import Event, EventKind
from supervisor.ports.notifier import SETTINGS_ID, DeliveryResult, Endpoint, Form
from supervisor.services.webhooks import webhooks
from supervisor.services.webhooks.webhooks import MOST, OLD_SECRET_S
from tests.api.test_owners import ask, people
from tests.fakes.courier import FakeCourier, failing
from tests.services.bed import Bed, Client, make_bed
from tests.services.fresh import open_fresh

URL = "https://hooks.example.org/t0ken-of-mine"


@pytest.fixture
def told_bed(tmp_path: Path) -> Iterator[Bed]:
    """A bed whose announcements go to endpoints, too."""
    with closing(open_fresh(tmp_path / "supervisor.db", ("log", "webhooks"))) as store:
        bed = make_bed(store, tmp_path)
        parts = replace(bed.parts, courier=FakeCourier())
        yield replace(bed, parts=parts, services=replace(bed.services, parts=parts))


@pytest.fixture
def client(told_bed: Bed) -> Client:
    return people(told_bed)


def courier(bed: Bed) -> FakeCourier:
    found = bed.parts.courier
    assert isinstance(found, FakeCourier)
    return found


def add(client: Client, who: str = "ann", **body: Any) -> Any:
    answer = ask(client, who, "POST", "/v1/webhooks", json={"url": URL, **body})
    assert answer.status_code == 201, answer.text
    return answer.json()


def refused(client: Client, who: str, method: str, path: str, **more: Any) -> tuple[int, str]:
    answer = ask(client, who, method, path, **more)
    assert "t0ken" not in answer.text
    return answer.status_code, answer.json()["code"]


def test_an_added_webhook_is_shown_without_its_secrets(client: Client, told_bed: Bed) -> None:
    answer = ask(client, "ann", "POST", "/v1/webhooks", json={"url": URL, "kinds": ["failed"], "note": "pager"})
    made = answer.json()
    assert answer.headers["location"] == f"/v1/webhooks/{made['webhook_id']}"
    assert answer.headers["cache-control"] == "no-store"
    secret = made.pop("secret")
    assert secret.startswith("whsec_")
    assert len(base64.b64decode(secret.removeprefix("whsec_"))) == 32
    assert (made["url"], made["form"], made["kinds"], made["enabled"]) == (
        "https://hooks.example.org/***", "standard", ["failed"], True,
    )  # fmt: skip
    assert ask(client, "ann", "GET", answer.headers["location"]).json() == made
    assert ask(client, "ann", "GET", "/v1/webhooks").json() == {"webhooks": [made]}
    events = ask(client, "ops", "GET", "/v1/events?limit=100").text
    assert "webhook_added" in events
    for hidden in ("t0ken", secret):
        assert hidden not in events
    assert add(client, url="https://hooks.slack.com/services/x")["secret"] is None


def test_a_webhook_of_another_owner_does_not_exist(client: Client) -> None:
    mine = add(client)["webhook_id"]
    assert ask(client, "bob", "GET", "/v1/webhooks").json() == {"webhooks": []}
    assert len(ask(client, "ops", "GET", "/v1/webhooks").json()["webhooks"]) == 1
    here = f"/v1/webhooks/{mine}"
    for method, path in (
        ("GET", here), ("PATCH", here), ("DELETE", here), ("POST", f"{here}/test"), ("POST", f"{here}/rotate"),
        ("GET", f"{here}/deliveries"), ("POST", f"{here}/deliveries/1/replay"), ("POST", f"{here}/replay"),
    ):  # fmt: skip
        body = {"json": {}} if method == "PATCH" else {}
        assert refused(client, "bob", method, path, **body) == (404, "WEBHOOK_NOT_FOUND")
        assert refused(client, "ann", method, path.replace(mine, "wh-000000000000"), **body)[0] == 404
    for strange in ("wh-1", "%00", "..%2f", "settings"):
        assert refused(client, "ann", "GET", f"/v1/webhooks/{strange}")[0] == 404


def test_a_webhook_for_everything_is_for_administrators_alone(client: Client, told_bed: Bed) -> None:
    """A token of the same owner without his rights would read strangers' runs in its log, or lead them to itself."""
    mine = add(client, "ops")["webhook_id"]
    assert ask(client, "script", "GET", f"/v1/webhooks/{mine}").status_code == 200
    here = "/v1/webhooks/" + (wide := add(client, "ops", everything=True)["webhook_id"])
    for method, path in (
        ("GET", here), ("PATCH", here), ("DELETE", here), ("POST", f"{here}/test"), ("POST", f"{here}/rotate"),
        ("GET", f"{here}/deliveries"), ("POST", f"{here}/deliveries/1/replay"), ("POST", f"{here}/replay"),
    ):  # fmt: skip
        body = {"json": {"url": "https://evil.example.org/"}} if method == "PATCH" else {}
        assert refused(client, "script", method, path, **body) == (404, "WEBHOOK_NOT_FOUND")
    listed = ask(client, "script", "GET", "/v1/webhooks").json()["webhooks"]
    assert [one["webhook_id"] for one in listed] == [mine]
    # When it hears of everything no longer, its log tells of no stranger either.
    store, now = told_bed.store, told_bed.clock.now()
    for who, run_id in (("bob", "b-1"), ("script", "o-1")):
        ask(client, who, "POST", "/v1/runs", json={"run_id": run_id, "spec": {"command": ["x"]}})
        store.add_events(told_bed.run(run_id).key, [Event(EventKind.STARTED, "trains")], now)
    store.deliveries.fan_out(now, 99)
    assert {one.run_id for one in store.deliveries.page(wide, None, 9)} == {"b-1", "o-1"}
    assert ask(client, "ops", "PATCH", here, json={"everything": False}).status_code == 200
    told = ask(client, "script", "GET", f"{here}/deliveries").json()["deliveries"]
    assert {one["run_id"] for one in told} == {"o-1"}


def test_invalid_webhooks_are_refused(client: Client) -> None:
    assert refused(client, "ann", "POST", "/v1/webhooks", json={"url": "https://inside/t0ken"}) == (422, "URL_REFUSED")
    assert refused(client, "ann", "POST", "/v1/webhooks", json={"url": URL, "everything": True}) == (403, "FORBIDDEN")
    for body in (
        {}, {"url": 7}, {"url": "ftp://x"}, {"url": ""}, {"url": "https://" + "x" * 3000}, {"url": URL, "kinds": ["x"]},
        {"url": URL, "kinds": ["failed", "failed"]}, {"url": URL, "form": "teams"}, {"url": URL, "note": "a\nb"},
        {"url": URL, "note": "x" * 201}, {"url": URL, "secret": "mine"}, {"url": "https://a\u0000b/"},
    ):  # fmt: skip
        assert refused(client, "ann", "POST", "/v1/webhooks", json=body) == (422, "INVALID_REQUEST")
    nonsense = ask(client, "ann", "POST", "/v1/webhooks", json={"url": "hooks"})
    assert "must be an https:// address" in nonsense.json()["detail"]
    here = "/v1/webhooks/" + add(client)["webhook_id"]
    assert refused(client, "ann", "PATCH", here, json={"everything": True}) == (403, "FORBIDDEN")
    assert refused(client, "ann", "PATCH", here, json={"url": "https://inside/"}) == (422, "URL_REFUSED")
    assert refused(client, "ann", "POST", f"{here}/deliveries/0x1/replay") == (404, "DELIVERY_NOT_FOUND")
    assert refused(client, "ann", "POST", f"{here}/deliveries/{2**62}/replay") == (404, "DELIVERY_NOT_FOUND")
    assert refused(client, "ann", "GET", f"{here}/deliveries?cursor=x") == (400, "CURSOR_INVALID")
    assert refused(client, "ann", "POST", f"{here}/replay", json={"since": "soon"}) == (422, "INVALID_REQUEST")


def test_a_slow_name_server_delays_no_other_request(
    client: Client, told_bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()
    monkeypatch.setattr(webhooks, "LOOK_UP_S", 0.05)
    monkeypatch.setattr(courier(told_bed), "why_refused", lambda url: str(answered.wait(20)))
    answer = ask(client, "ann", "POST", "/v1/webhooks", json={"url": URL})
    answered.set()
    assert (answer.status_code, answer.json()["code"]) == (422, "URL_REFUSED")
    assert "in time" in answer.json()["detail"]


def test_receivers_that_hang_take_only_some_of_the_servers_threads(client: Client, told_bed: Bed) -> None:
    here = "/v1/webhooks/" + add(client)["webhook_id"] + "/test"
    for _ in range(webhooks.OUTSIDE_MAX):
        assert webhooks._at_once.acquire(blocking=False)
    try:
        assert refused(client, "ann", "POST", here) == (409, "CONFLICT")
        assert refused(client, "ann", "POST", "/v1/webhooks", json={"url": URL}) == (409, "CONFLICT")
    finally:
        webhooks._at_once.release(webhooks.OUTSIDE_MAX)
    courier(told_bed).answer = failing(503)
    for _ in range(webhooks.OUTSIDE_MAX + 1):
        assert ask(client, "ann", "POST", here).status_code == 200, "each gives its turn back"


def test_an_owner_has_twenty_webhooks_at_most(client: Client) -> None:
    for _ in range(MOST):
        add(client)
    assert refused(client, "ann", "POST", "/v1/webhooks", json={"url": URL}) == (409, "TOO_MANY_WEBHOOKS")
    add(client, "bob")


def test_a_change_records_the_old_and_the_new_values(client: Client, told_bed: Bed) -> None:
    here = "/v1/webhooks/" + add(client, note="old")["webhook_id"]
    wish = {"note": "new", "kinds": ["stalled"], "url": "https://other.example.org/t0ken", "enabled": False}
    changed = ask(client, "ann", "PATCH", here, json=wish).json()
    assert (changed["note"], changed["url"], changed["enabled"]) == ("new", "https://other.example.org/***", False)
    (event,) = [one.event for one in told_bed.store.events(None, 0, 99) if one.event.kind == EventKind.WEBHOOK_CHANGED]
    assert event.actor == "ann's laptop"
    assert event.data["before"] == {
        "note": "old", "kinds": [], "url": "https://hooks.example.org/***", "enabled": True,
    }  # fmt: skip
    assert set(event.data["fields"]) >= {"url", "note", "kinds"}
    assert ask(client, "ann", "PATCH", here, json={}).json() == changed
    # Another path at the same host looks the same, and is told of by its name all the same.
    ask(client, "ann", "PATCH", here, json={"url": "https://other.example.org/t0ken2"})
    last = told_bed.store.events(None, 0, 99)[-1].event
    assert (last.data["before"], last.data["fields"]) == ({}, ["url"])
    assert ask(client, "ann", "PATCH", here, json={"enabled": True}).json()["enabled"]
    assert ask(client, "ann", "DELETE", here).status_code == 200
    assert refused(client, "ann", "GET", here) == (404, "WEBHOOK_NOT_FOUND")


def test_for_a_day_two_secrets_sign(client: Client, told_bed: Bed) -> None:
    made = add(client)
    here = f"/v1/webhooks/{made['webhook_id']}"
    first = ask(client, "ann", "POST", f"{here}/rotate").json()["secret"]
    second = ask(client, "ann", "POST", f"{here}/rotate").json()
    found = told_bed.store.endpoints.find(made["webhook_id"])
    assert found is not None
    now = told_bed.clock.now()
    assert found.secrets_at(now) == (second["secret"], first), "of three only the last two"
    assert second["old_secret_until"] is not None
    assert found.secrets_at(now + OLD_SECRET_S) == (second["secret"],)
    chat = add(client, url="https://hooks.slack.com/services/x")["webhook_id"]
    assert refused(client, "ann", "POST", f"/v1/webhooks/{chat}/rotate") == (409, "CONFLICT")


def test_a_test_message_shows_the_receivers_response(client: Client, told_bed: Bed) -> None:
    here = "/v1/webhooks/" + add(client)["webhook_id"]
    assert ask(client, "ann", "POST", f"{here}/test").json() == {"delivered": True, "status": 204, "detail": ""}
    courier(told_bed).answer = failing(503)
    answer = ask(client, "ann", "POST", f"{here}/test").json()
    assert answer == {"delivered": False, "status": 503, "detail": "HTTP 503"}


def test_deliveries_are_listed_and_replayed(client: Client, told_bed: Bed) -> None:
    store, now = told_bed.store, told_bed.clock.now()
    here = "/v1/webhooks/" + add(client)["webhook_id"]
    for who, run_id in (("ann", "a-1"), ("bob", "b-1")):
        ask(client, who, "POST", "/v1/runs", json={"run_id": run_id, "spec": {"command": ["x"]}})
    for run_id in ("a-1", "b-1"):
        store.add_events(told_bed.run(run_id).key, [Event(EventKind.STARTED, "trains")] * 3, now)
    store.deliveries.fan_out(now, 99)
    ((_, due),) = store.deliveries.due(now, 9)
    store.deliveries.settle([DeliveryResult(one.id, 9, False, None, 500, "HTTP 500 from h") for one in due], [], now)
    store.deliveries.settle(
        [DeliveryResult(one.id, 0, False, None, 500, "HTTP 500 from h") for one in due[:2]], [], now
    )
    page = ask(client, "ann", "GET", f"{here}/deliveries?page_size=2").json()
    assert [one["state"] for one in page["deliveries"]] == ["pending", "given_up"]
    rest = ask(client, "ann", "GET", f"{here}/deliveries?cursor={page['next_cursor']}").json()
    assert rest["next_cursor"] is None
    told = page["deliveries"] + rest["deliveries"]
    assert {one["run_id"] for one in told} == {"a-1"}, "nothing of Bob's"
    assert (told[1]["kind"], told[1]["status"], told[1]["detail"]) == ("started", 500, "HTTP 500 from h")
    failed = ask(client, "ann", "GET", f"{here}/deliveries?failed=true").json()["deliveries"]
    assert len(failed) == 2
    one = f"{here}/deliveries/{failed[0]['delivery_id']}/replay"
    assert ask(client, "ann", "POST", one).json() == {"replayed": 1}
    assert refused(client, "ann", "POST", one) == (404, "DELIVERY_NOT_FOUND")
    assert ask(client, "ann", "POST", f"{here}/replay").json() == {"replayed": 1}
    assert ask(client, "ann", "GET", f"{here}/deliveries?failed=true").json()["deliveries"] == []


def test_the_webhook_of_the_settings_is_shown_and_not_changed(client: Client, told_bed: Bed) -> None:
    own = Endpoint(SETTINGS_ID, "local", True, Form.STANDARD, "https://h/***", (), (), "alert_url", 1.0, "settings")
    told_bed.store.endpoints.put_settings(own, told_bed.clock.now())
    here = f"/v1/webhooks/{SETTINGS_ID}"
    assert ask(client, "ops", "GET", here).json()["url"] == "https://h/***"
    assert ask(client, "ops", "GET", f"{here}/deliveries").json()["deliveries"] == []
    for method, path in (("PATCH", here), ("DELETE", here), ("POST", f"{here}/rotate"), ("POST", f"{here}/test")):
        body = {"json": {"note": "mine"}} if method == "PATCH" else {}
        assert refused(client, "ops", method, path, **body) == (409, "CONFLICT")
