"""gates: the table of a run's gates, and waivers at a submit and later."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.fake_api import a_run

REASON = "saves are small"


def verdict(check: str, state: str, **fields: Any) -> dict[str, Any]:
    base = {"check": check, "state": state, "fact": f"the fact of {check}", "fix": "", "code": "", "waived": False}
    return {**base, "at": "2026-11-26T03:00:00Z", "by": "supervisor", **fields}


def gate(number: int, name: str, state: str, *verdicts: dict[str, Any]) -> dict[str, Any]:
    return {"gate": f"G{number}", "name": name, "state": state, "text": "", "verdicts": list(verdicts)}


SHOWN = {
    "run_id": "digits-7",
    "provider": "lab",
    "gates": [
        gate(
            0, "audit", "stopped",
            verdict("inodes", "fail", code="INODES_LOW", fix="Delete or pack folders."),
            verdict("region", "pass"), verdict("driver", "unknown", fix="Read it."),
            verdict("notice", "warn", fix="Save more often.", waived=True),
        ),
        gate(3, "launch", "not_reached"),
        gate(4, "monitor", "a_new_word"),
    ],
    "waivers": [{"check": "notice", "reason": REASON, "actor": "ada", "at": "2026-11-26T03:00:00Z"}],
}  # fmt: skip


def test_the_checks_that_did_not_pass_have_fact_code_and_fix(api, spot) -> None:
    api.respond("GET", "/v1/runs/digits-7/gates", SHOWN)
    ended = spot("gates", "digits-7")
    assert ended.code == 0
    assert ended.lines == [
        "digits-7 on lab",
        "G0  audit      ✗ stopped         1 of 4 checks passed",
        "    ✗ inodes: the fact of inodes [INODES_LOW]",
        "      fix: Delete or pack folders.",
        "    ? driver: the fact of driver",
        "    ~ notice: the fact of notice",
        "G3  launch     · not reached",
        "G4  monitor    · a_new_word",
        f"notice waived by ada, 2026-11-26 03:00Z: {REASON}",
    ]


def test_all_shows_the_passed_checks_too_and_json_is_what_the_api_sent(api, spot) -> None:
    api.respond("GET", "/v1/runs/digits-7/gates", SHOWN)
    assert "    ✔ region: the fact of region" in spot("gates", "digits-7", "--all").lines
    assert json.loads(spot("gates", "digits-7", "-o", "json").out) == SHOWN
    assert spot("gates", "digits-7", "-o", "name").lines == ["G0", "G3", "G4"]


def test_a_waiver_is_sent_with_its_reason_and_then_the_gates_are_shown(api, spot) -> None:
    api.respond("POST", "/v1/runs/digits-7/gates/waivers", a_run())
    api.respond("GET", "/v1/runs/digits-7/gates", SHOWN)
    ended = spot("gates", "digits-7", "--waive", "notice", "--reason", REASON)
    assert ended.lines[0] == "digits-7 on lab"
    assert api.bodies("/v1/runs/digits-7/gates/waivers") == [{"check": "notice", "reason": REASON}]


def test_a_waiver_without_a_reason_is_refused_here(api, spot) -> None:
    for words in (("--waive", "notice"), ("--reason", REASON), ("--waive", "notice", "--reason", " ")):
        assert spot("gates", "digits-7", *words).code == 2
        assert spot("submit", *words, "--", "x").code == 2
    assert api.bodies("/v1/runs/digits-7/gates/waivers") == []


def test_a_refused_waiver_says_what_to_do(api, spot) -> None:
    api.refuse("POST", "/v1/runs/digits-7/gates/waivers", 409, "CHECK_NOT_WAIVABLE", "approved belongs to G6.")
    ended = spot("gates", "digits-7", "--waive", "approved", "--reason", "hurry")
    assert ended.code == 6
    assert "CHECK_NOT_WAIVABLE" in ended.err


def test_a_submit_carries_its_waivers(api, spot) -> None:
    spot("submit", "--waive", "notice", "--waive", "inodes", "--reason", REASON, "--", "python", "train.py")
    [sent] = api.bodies("/v1/runs")
    assert sent["waive"] == [{"check": "notice", "reason": REASON}, {"check": "inodes", "reason": REASON}]
