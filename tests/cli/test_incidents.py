"""incidents: the list for people and programs, and the closing of one."""

from __future__ import annotations

import json
from typing import Any

AT = "2026-11-26T03:00:00Z"
OPEN: dict[str, Any] = {
    "id": 4, "open": True, "text": "3 runs ended as user_error with the same error: KeyError: 'loss'",
    "fix": "Runs that would start with this code wait", "cause": "user_error",
    "common": [{"kind": "error", "value": "KeyError: 'loss'"}], "blocks": True, "runs": ["one", "two", "three"],
    "ends": [], "opened_at": AT, "last_at": AT, "closed_at": None, "closed_by": None, "reason": "",
}  # fmt: skip
CLOSED = {**OPEN, "id": 3, "open": False, "blocks": False, "runs": [f"run-{n}" for n in range(10)], "closed_at": AT}


def test_each_incident_says_what_is_common_which_runs_and_what_to_do(api, spot) -> None:
    api.respond(
        "GET", "/v1/incidents", {"incidents": [OPEN, {**CLOSED, "closed_by": "ada", "reason": "fixed"}, CLOSED]}
    )
    ended = spot("incidents", "--all")
    assert ended.code == 0
    assert ended.lines == [
        "4  ✗ stops launches  since 2026-11-26 03:00Z, last 2026-11-26 03:00Z",
        "3 runs ended as user_error with the same error: KeyError: 'loss'.",
        "3 runs: one, two, three",
        "fix: Runs that would start with this code wait.",
        "3  ✔ closed  since 2026-11-26 03:00Z, last 2026-11-26 03:00Z",
        "3 runs ended as user_error with the same error: KeyError: 'loss'.",
        "10 runs: run-0, run-1, run-2, run-3, run-4, run-5, run-6, run-7 and 2 more",
        "closed by ada, 2026-11-26 03:00Z: fixed",
        "3  ✔ closed  since 2026-11-26 03:00Z, last 2026-11-26 03:00Z",
        "3 runs ended as user_error with the same error: KeyError: 'loss'.",
        "10 runs: run-0, run-1, run-2, run-3, run-4, run-5, run-6, run-7 and 2 more",
        "closed by a quiet day, 2026-11-26 03:00Z",
    ]


def test_json_and_names_are_what_the_api_sent(api, spot) -> None:
    api.respond("GET", "/v1/incidents", {"incidents": [OPEN]})
    assert json.loads(spot("incidents", "-o", "json").out) == {"incidents": [OPEN]}
    assert spot("incidents", "-o", "name").lines == ["4"]


def test_without_an_incident_it_says_so(api, spot) -> None:
    api.respond("GET", "/v1/incidents", {"incidents": []})
    assert "No incident is open." in spot("incidents").err


def test_one_is_closed_with_a_reason(api, spot) -> None:
    api.respond("POST", "/v1/incidents/4/close", {**OPEN, "open": False})
    ended = spot("incidents", "close", "4", "--reason", "the column is renamed")
    assert (ended.code, ended.lines[0][:23]) == (0, "Incident 4 is closed: 3")
    assert "start with the next tick" in ended.err
    assert spot("incidents", "close", "4", "-o", "json").code == 0
    assert api.bodies("/v1/incidents/4/close") == [{"reason": "the column is renamed"}, {}]


def test_a_refusal_is_shown_and_a_wrong_number_is_refused_here(api, spot) -> None:
    api.refuse("POST", "/v1/incidents/4/close", 409, "INCIDENT_CLOSED", "This incident is closed already.")
    assert spot("incidents", "close", "4").code == 6
    assert spot("incidents", "close", "zero").code == spot("incidents", "close", "0").code == 2
