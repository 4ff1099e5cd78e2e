"""spot webhook: added, looked at, tried, repeated, switched off and on, removed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import click
import pytest

from supervisor.cli import output
from supervisor.cli.server import webhook as webhook_command

SHOWN = {
    "webhook_id": "wh-0123456789ab", "url": "https://hooks.example.org/***", "form": "standard", "owner": "lab",
    "everything": False, "kinds": [], "note": "\x1b[31mpager", "enabled": True, "disabled_at": None, "disabled_why": "",
    "failing_since": None, "old_secret_until": None, "created_at": "2026-11-22T06:50:21.000Z", "created_by": "ann",
}  # fmt: skip
SENT = {
    "delivery_id": 7, "event_id": 9, "run_id": "digits-7", "sequence": 3, "kind": "failed", "text": "It failed.",
    "at": "2026-11-22T06:50:21.000Z", "state": "given_up", "tries": 10, "next_try_at": None,
    "last_try_at": "2026-11-25T10:50:21.000Z", "delivered_at": None, "status": 500, "detail": "HTTP 500 from h",
}  # fmt: skip
HERE = "/v1/webhooks/wh-0123456789ab"


def test_a_new_secret_is_alone_on_the_output(api, spot) -> None:
    api.respond("POST", "/v1/webhooks", {**SHOWN, "secret": "whsec_eA=="}, 201)
    ended = spot("webhook", "add", "https://hooks.example.org/t0ken", "--kind", "failed", "--note", "x")
    assert (ended.code, ended.out) == (0, "whsec_eA==\n")
    assert "t0ken" not in ended.err
    assert "spot webhook test wh-0123456789ab" in ended.err
    assert api.bodies("/v1/webhooks") == [
        {"url": "https://hooks.example.org/t0ken", "kinds": ["failed"], "note": "x", "everything": False}
    ]
    api.respond("POST", f"{HERE}/rotate", {**SHOWN, "secret": "whsec_eQ=="})
    assert spot("webhook", "rotate", "wh-0123456789ab").out == "whsec_eQ==\n"
    api.respond("POST", "/v1/webhooks", {**SHOWN, "form": "slack", "secret": None}, 201)
    assert spot("webhook", "add", "https://hooks.slack.com/x", "--form", "slack").out == ""


def test_the_list_says_what_is_wrong(api, spot) -> None:
    off = {**SHOWN, "webhook_id": "wh-2", "enabled": False, "disabled_why": "HTTP 410", "kinds": ["a", "b"]}
    failing = {**SHOWN, "webhook_id": "wh-3", "failing_since": "2026-11-22T06:50:21.000Z", "everything": True}
    api.respond("GET", "/v1/webhooks", {"webhooks": [SHOWN, off, failing]})
    lines = spot("webhook", "ls").lines
    assert "\x1b[31mpager" not in "".join(lines)
    assert lines[1].split()[:5] == ["wh-0123456789ab", "https://hooks.example.org/***", "standard", "lab", "all"]
    assert "a,b" in lines[2]
    assert lines[2].endswith("off: HTTP 410")
    assert lines[3].endswith("failing since 2026-11-22 06:50Z")
    assert spot("webhook", "ls", "-o", "name").lines == ["wh-0123456789ab", "wh-2", "wh-3"]
    assert len(json.loads(spot("webhook", "ls", "--json").out)["webhooks"]) == 3


def test_a_test_that_is_not_taken_is_a_failure(api, spot) -> None:
    api.respond("POST", f"{HERE}/test", {"delivered": True, "status": 204, "detail": ""})
    assert spot("webhook", "test", "wh-0123456789ab").code == 0
    api.respond("POST", f"{HERE}/test", {"delivered": False, "status": None, "detail": "connection refused (h)"})
    ended = spot("webhook", "test", "wh-0123456789ab")
    assert ended.code == 1
    assert "connection refused (h)" in ended.err


def test_deliveries_and_again(api, spot) -> None:
    api.respond("GET", f"{HERE}/deliveries", {"deliveries": [SENT], "next_cursor": None})
    lines = spot("webhook", "deliveries", "wh-0123456789ab", "--failed").lines
    assert lines[1].split()[:5] == ["7", "2026-11-22", "06:50Z", "digits-7", "failed"]
    assert lines[1].endswith("HTTP 500 from h")
    assert api.requests[-1].query["failed"] == ["true"]
    assert json.loads(spot("webhook", "deliveries", "wh-0123456789ab", "--json").out)["deliveries"] == [SENT]
    api.respond("POST", f"{HERE}/deliveries/7/replay", {"replayed": 1}, 202)
    api.respond("POST", f"{HERE}/replay", {"replayed": 2}, 202)
    assert spot("webhook", "replay", "wh-0123456789ab", "7").out == "1 message to be sent again.\n"
    assert spot("webhook", "replay", "wh-0123456789ab", "--failed", "--since", "3d").code == 0
    assert api.bodies(f"{HERE}/replay")[0]["since"].endswith("Z")
    for wrong in ((), ("7", "--failed")):
        assert spot("webhook", "replay", "wh-0123456789ab", *wrong).code == 2


def test_off_on_and_away(api, spot) -> None:
    api.respond("PATCH", HERE, {**SHOWN, "enabled": False})
    assert spot("webhook", "disable", "wh-0123456789ab").out == "Webhook wh-0123456789ab is off.\n"
    api.respond("PATCH", HERE, SHOWN)
    assert spot("webhook", "enable", "wh-0123456789ab").out == "Webhook wh-0123456789ab is on.\n"
    assert api.bodies(HERE) == [{"enabled": False}, {"enabled": True}]
    api.respond("DELETE", HERE, SHOWN)
    assert spot("webhook", "rm", "wh-0123456789ab").code == 2, "nobody can answer"
    assert "is removed" in spot("webhook", "rm", "wh-0123456789ab", "--yes").out
    api.refuse("DELETE", "/v1/webhooks/wh-9", 404, "WEBHOOK_NOT_FOUND", "There is no webhook with this id.")
    assert spot("webhook", "rm", "wh-9", "-y").code == 5


def test_a_narrow_terminal_shows_that_a_webhook_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "terminal_columns", lambda: 80)
    off = {**SHOWN, "note": "the pager of the lab", "enabled": False, "disabled_why": "HTTP 410"}
    assert click.unstyle(webhook_command.WEBHOOKS.lines([off])[1]).endswith("off: HTTP 410")
    failing = {**SHOWN, "failing_since": (datetime.now(UTC) - timedelta(minutes=18)).isoformat()}
    assert click.unstyle(webhook_command.webhook_state(failing)) == "failing for 18 min"
    broken = replace(webhook_command.WEBHOOKS, spare=())
    assert "HTTP 410" not in broken.lines([off])[1], "the broken variant"


def test_nothing_is_said_to_be_nothing(api, spot) -> None:
    api.respond("GET", "/v1/webhooks", {"webhooks": []})
    ended = spot("webhook", "ls")
    assert (ended.out, ended.err) == ("", "There is no webhook yet.\n")
    api.respond("GET", f"{HERE}/deliveries", {"deliveries": [], "next_cursor": None})
    assert "No message was given up" in spot("webhook", "deliveries", "wh-0123456789ab", "--failed").err
    assert "No message was sent" in spot("webhook", "deliveries", "wh-0123456789ab").err


def test_add_says_of_whose_runs_it_sends(api, spot) -> None:
    api.respond("POST", "/v1/webhooks", {**SHOWN, "secret": None}, 201)
    assert "all announcements, of runs of lab." in spot("webhook", "add", "https://h.example.org/x").err
    api.respond("POST", "/v1/webhooks", {**SHOWN, "everything": True, "secret": None}, 201)
    assert "of every owner" in spot("webhook", "add", "https://h.example.org/x", "--everything").err


def test_a_refused_address_names_the_setting_that_allows_it(api, spot) -> None:
    api.refuse("POST", "/v1/webhooks", 422, "URL_REFUSED", "This address cannot be used.")
    ended = spot("webhook", "add", "http://127.0.0.1:9")
    assert (ended.code, "webhook_allow_hosts" in ended.err) == (2, True)
