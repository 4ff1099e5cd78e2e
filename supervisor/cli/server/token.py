"""token: who may ask. The text of a new one is printed once, alone on its line, and is nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.options import AS_JSON, duration_s, output_option, server_options
from supervisor.cli.output import json_text, moment, safe
from supervisor.wording.figures import DASH

# What a narrow terminal goes without first.
SPARE = ("CREATED", "RUNS", "OWNER")
SCOPES = ("runs:read", "runs:write", "metrics:read", "admin")


@click.group()
def token() -> None:
    """Tokens: who may ask this supervisor for what. For administrators."""


@token.command(short_help="Make a token; it is shown once.")
@click.argument("name")
@click.option("--owner", help="Whose runs it submits and sees (default: yours).")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(SCOPES),
    help="What it may do; may be repeated (default: runs:read and runs:write).",
)
@click.option("--expires", type=duration_s, metavar="TIME", help="Valid for this time, such as 90d.")
@click.option("--max-active-runs", type=click.IntRange(1, 1_000_000), metavar="N", help="At most so many runs at once.")
@AS_JSON
@server_options
def create(
    *,
    client: Client,
    name: str,
    owner: str | None,
    scopes: tuple[str, ...],
    expires: float | None,
    max_active_runs: int | None,
    as_json: bool,
) -> None:
    """Make a token. NAME stands in the history of what is done with it."""
    body: dict[str, Any] = {"name": name}
    more = {
        "owner": owner,
        "scopes": list(dict.fromkeys(scopes)) or None,
        "expires_in_s": expires,
        "max_active_runs": max_active_runs,
    }
    made = client.post("/v1/tokens", body | {key: value for key, value in more.items() if value is not None})
    if as_json:
        click.echo(json_text(made, 2))
        return
    output.note(
        f"Token {safe(made['name'])} ({safe(made['token_id'])}) for {_scope_text(made)}. It is shown this once:"
    )
    click.echo(safe(made["token"]))
    output.note(f"Use it:     {_first_use(client.url, made['scopes'])}")
    output.note(f"Revoke it:  spot token revoke {safe(made['token_id'])}")


@token.command(short_help="Show the tokens, without their texts.")
@AS_JSON
@output_option
@server_options
def ls(client: Client, form: str) -> None:
    """Show the tokens: those first that were not revoked. The token itself is never shown again."""
    answer = client.get("/v1/tokens")
    if output.emit(answer, answer["tokens"], form, "token_id"):
        return
    output.show(output.table(shown(output.terminal_columns() is not None), answer["tokens"], SPARE))
    output.suggest("spot token create NAME")


@token.command(short_help="Revoke a token; it counts no more at once.")
@click.argument("token_id", metavar="ID")
@AS_JSON
@server_options
def revoke(client: Client, token_id: str, as_json: bool) -> None:
    """Revoke a token. It counts no more at once; on other replicas within five seconds."""
    if token_id.startswith("sup_"):
        raise click.UsageError("That is a token itself; name its id: `spot token ls` shows it.")
    gone = client.send("DELETE", f"/v1/tokens/{quote(token_id, safe='')}").json()
    if as_json:
        click.echo(json_text(gone, 2))
        return
    click.echo(f"Token {safe(gone['name'])} ({safe(gone['token_id'])}) of {safe(gone['owner'])} is revoked.")
    output.suggest("spot token ls")


def _first_use(url: str, scopes: Sequence[str]) -> str:
    """Something that this token may do."""
    if "runs:read" in scopes or "admin" in scopes:
        return f"SPOT_URL={url} SPOT_TOKEN=sup_… spot ls"
    if "runs:write" in scopes:
        return f"SPOT_URL={url} SPOT_TOKEN=sup_… spot submit -- COMMAND"
    return f"curl -H 'Authorization: Bearer sup_…' {url}/metrics"


def _scope_text(made: Json) -> str:
    until = f"until {moment(made['expires_at'])}" if made["expires_at"] else "without an end"
    most = f", {made['max_active_runs']} active runs at most" if made["max_active_runs"] else ""
    return f"{safe(made['owner'])}: {safe(', '.join(made['scopes']))}, {until}{most}"


def shown(short: bool) -> output.Table:
    """`short`: for a terminal, where what has become of a token takes the place of its end."""
    return {
        "ID": lambda token: safe(token["token_id"]),
        "NAME": lambda token: safe(token["name"]),
        "OWNER": lambda token: safe(token["owner"]),
        "SCOPES": lambda token: safe(",".join(token["scopes"])),
        "RUNS": lambda token: str(token["max_active_runs"] or DASH),
        "CREATED": lambda token: moment(token["created_at"], short),
        "EXPIRES": lambda token: (short and _state(token)) or moment(token["expires_at"], short),
        "LAST USED": lambda token: moment(token["last_used_at"], short),
        "": lambda token: "" if short else _state(token),
    }


def _state(token: Json) -> str:
    state = "" if token["valid"] else "revoked" if token["revoked_at"] else "expired"
    return click.style(state, fg="red") if state else ""
