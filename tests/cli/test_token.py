"""spot token: made, listed, revoked."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import click
import pytest

from supervisor.cli import output
from supervisor.cli.output import utc_minute, when
from supervisor.cli.server import token as token_command
from supervisor.domain import callers
from supervisor.wording.figures import DASH

SHOWN = {
    "token_id": "tok-0123456789ab", "name": "ci", "owner": "lab", "scopes": ["runs:read"], "max_active_runs": 3,
    "max_usd_per_day": 20.0, "max_usd_per_run": None, "plans_only": True,
    "created_by": "local", "valid": True, "created_at": "2026-11-22T06:50:21.000Z", "last_used_at": None,
    "expires_at": "2027-02-20T06:50:21.000Z", "revoked_at": None,
}  # fmt: skip
TEXT = "sup_" + "x" * 49


def test_a_new_token_is_alone_on_the_output(api, spot) -> None:
    api.respond("POST", "/v1/tokens", {**SHOWN, "token": TEXT}, 201)
    words = ("--owner", "lab", "--scope", "runs:read", "--expires", "90d", "--max-active-runs", "3")
    words += ("--max-usd-per-day", "20", "--max-usd-per-run", "5", "--plans-only")
    ended = spot("token", "create", "ci", *words)
    assert (ended.code, ended.out) == (0, f"{TEXT}\n")
    assert "shown only once" in ended.err
    assert "at most 3 active runs, at most $20.00 in 24 hours, with plans only" in ended.err
    assert "spot token revoke tok-0123456789ab" in ended.err
    assert TEXT not in ended.err
    assert api.bodies("/v1/tokens") == [
        {
            "name": "ci",
            "owner": "lab",
            "scopes": ["runs:read"],
            "expires_in_s": 7776000.0,
            "max_active_runs": 3,
            "max_usd_per_day": 20.0,
            "max_usd_per_run": 5.0,
            "plans_only": True,
        }
    ]
    assert json.loads(spot("token", "create", "ci", "--json").out)["token"] == TEXT
    assert api.bodies("/v1/tokens")[1] == {"name": "ci"}


def test_the_list_has_a_line_for_each(api, spot) -> None:
    gone = {**SHOWN, "token_id": "tok-2", "valid": False, "revoked_at": "2026-11-22T07:00:00.000Z"}
    ended_ = {**SHOWN, "token_id": "tok-3", "valid": False, "name": "\x1b[31mred"}
    api.respond("GET", "/v1/tokens", {"tokens": [SHOWN, gone, ended_]})
    lines = spot("token", "ls").lines
    assert lines[0].split()[:4] == ["ID", "NAME", "OWNER", "SCOPES"]
    assert lines[1].split() == [
        "tok-0123456789ab", "ci", "lab", "runs:read", "3", "$20.00", DASH, "only", "2026-11-22", "06:50Z", "2027-02-20",
        "06:50Z", DASH,
    ]  # fmt: skip
    assert lines[2].split()[-2:] == ["revoked", DASH]
    assert lines[3].split()[-2:] == ["expired", DASH]
    assert "\x1b[31mred" not in "".join(lines)
    assert spot("token", "ls", "-o", "name").lines == ["tok-0123456789ab", "tok-2", "tok-3"]
    assert len(json.loads(spot("token", "ls", "--json").out)["tokens"]) == 3


def test_revoke(api, spot) -> None:
    api.respond("DELETE", "/v1/tokens/tok-0123456789ab", {**SHOWN, "valid": False})
    ended = spot("token", "revoke", "tok-0123456789ab")
    assert (ended.code, ended.out) == (0, "Token ci (tok-0123456789ab) of lab is revoked.\n")
    api.refuse("DELETE", "/v1/tokens/tok-9", 404, "TOKEN_NOT_FOUND", "There is no token with this id.")
    assert spot("token", "revoke", "tok-9").code == 5


def test_a_token_itself_is_not_sent_as_an_id(api, spot) -> None:
    ended = spot("token", "revoke", TEXT)
    assert (ended.code, api.requests) == (2, [])
    assert TEXT not in ended.err


@pytest.mark.parametrize(
    ("scopes", "text"),
    [
        (["metrics:read"], "/metrics"),
        (["runs:write"], "spot submit"),
        (["runs:read", "runs:write"], "sup_… spot ls"),
        (["admin"], "sup_… spot ls"),
    ],
)
def test_the_shown_first_use_is_allowed_for_the_token(api, spot, scopes: list[str], text: str) -> None:
    api.respond("POST", "/v1/tokens", {**SHOWN, "scopes": scopes, "token": TEXT}, 201)
    (line,) = (row for row in spot("token", "create", "x").err.splitlines() if row.startswith("Use it"))
    assert text in line


def test_a_narrow_terminal_shows_the_end_and_the_last_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that say less go, nothing is cut; without `spare` the end of the line would be."""
    monkeypatch.setattr(output, "terminal_columns", lambda: 80)
    now = datetime.now(UTC)
    used = {
        **SHOWN,
        "name": "prometheus",
        "scopes": ["runs:read", "runs:write"],
        "last_used_at": (now - timedelta(minutes=3, seconds=5)).isoformat(),
        "expires_at": (now + timedelta(days=90, minutes=1)).isoformat(),
    }
    tokens = [{**used, "valid": valid} for valid in (True, False)]
    lines = [click.unstyle(line) for line in token_command.TOKENS.lines(tokens)]
    assert "CREATED" not in lines[0]
    assert "LAST USED" in lines[0]
    assert "OWNER" in lines[0]
    assert lines[1].endswith("runs:read,runs:write  in 90 d  3 min ago")
    assert lines[2].endswith("runs:read,runs:write  expired  3 min ago")
    broken = replace(token_command.TOKENS, spare=())
    assert click.unstyle(broken.lines(tokens)[1]).endswith("…"), "the broken variant"


def test_moments_are_exact_elsewhere() -> None:
    assert when("2026-11-22T06:50:21.000Z") == utc_minute("2026-11-22T06:50:21.000Z") == "2026-11-22 06:50Z"
    assert when(None) == DASH


def test_a_token_for_the_settings_needs_no_supervisor(spot) -> None:
    first, second = spot("token", "generate"), spot("token", "generate")
    assert callers.is_token(first.out.strip())
    assert first.out != second.out
    assert (first.err, first.code) == ("", 0)
