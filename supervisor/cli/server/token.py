"""token: who may use this supervisor. The text of a new token is printed once, alone on its line, and nowhere else."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import click

from supervisor.cli.client import Client, Json
from supervisor.cli.options import duration_s, json_flag, json_options, output_options
from supervisor.cli.output import Table, emit, note, safe, suggest, utc_minute, when
from supervisor.domain import callers
from supervisor.domain.callers import Scope
from supervisor.wording.figures import DASH, money_text

AMOUNT = click.FloatRange(0.01, 1e9)


def _expiry(token: Json) -> str:
    if token["valid"]:
        return when(token["expires_at"])
    return click.style("revoked" if token["revoked_at"] else "expired", fg="red")


TOKENS = Table(
    "token_id",
    {
        "ID": lambda token: safe(token["token_id"]),
        "NAME": lambda token: safe(token["name"]),
        "OWNER": lambda token: safe(token["owner"]),
        "SCOPES": lambda token: safe(",".join(token["scopes"])),
        "RUNS": lambda token: str(token["max_active_runs"] or DASH),
        "USD/DAY": lambda token: _usd(token.get("max_usd_per_day")),
        "USD/RUN": lambda token: _usd(token.get("max_usd_per_run")),
        "PLANS": lambda token: "only" if token.get("plans_only") else DASH,
        "CREATED": lambda token: when(token["created_at"]),
        "EXPIRES": _expiry,
        "LAST USED": lambda token: when(token["last_used_at"]),
    },
    spare=("CREATED", "PLANS", "USD/RUN", "USD/DAY", "RUNS", "OWNER"),
)


@click.group()
def token() -> None:
    """Create, list and revoke the tokens of this supervisor. For administrators."""


@token.command()
@click.argument("name")
@click.option("--owner", metavar="NAME", help="Owner of its runs (default: you).")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([scope.value for scope in Scope]),
    help="What it may do; repeatable (default: runs:read and runs:write).",
)
@click.option("--expires", type=duration_s, metavar="TIME", help="Valid for this time, such as 90d.")
@click.option("--max-active-runs", type=click.IntRange(1, 1_000_000), metavar="N", help="At most N active runs.")
@click.option("--max-usd-per-day", type=AMOUNT, metavar="USD", help="Its runs spend at most this in any 24 hours.")
@click.option("--max-usd-per-run", type=AMOUNT, metavar="USD", help="A run of it spends at most this.")
@click.option("--plans-only", is_flag=True, help="It starts a run only with a plan that it was shown (--plan).")
@json_options
def create(
    *,
    client: Client,
    name: str,
    owner: str | None,
    scopes: tuple[str, ...],
    expires: float | None,
    form: str,
    **caps: float | bool | None,
) -> None:
    """Create a token, which is shown once. The history shows NAME beside each action of the token."""
    more = {"owner": owner, "scopes": list(dict.fromkeys(scopes)) or None, "expires_in_s": expires, **caps}
    given = {key: value for key, value in more.items() if value is not None and value is not False}
    body: dict[str, Any] = {"name": name} | given
    created = client.post("/v1/tokens", body)
    if emit(created, [created], form, TOKENS.key):
        return
    token_id = safe(created["token_id"])
    note(f"Token {safe(created['name'])} ({token_id}) for {_scope_text(created)}. It is shown only once:")
    click.echo(safe(created["token"]))
    note(f"Use it:     {_first_use(client.url, created['scopes'])}")
    note(f"Revoke it:  spot token revoke {token_id}")


@token.command()
def generate() -> None:
    """Print a new token for the setting `admin_token`; it counts where a supervisor starts with it."""
    click.echo(callers.write(secrets.token_bytes(callers.RANDOM_BYTES)))


@token.command()
@json_flag
@output_options
def ls(client: Client, form: str) -> None:
    """List the tokens, revoked ones last. The text of a token is never shown again."""
    response = client.get("/v1/tokens")
    if TOKENS.show(response, response["tokens"], form):
        suggest("spot token create NAME")


@token.command()
@click.argument("token_id", metavar="ID")
@json_options
def revoke(client: Client, token_id: str, form: str) -> None:
    """Revoke a token at once. Other replicas follow within five seconds."""
    if token_id.startswith("sup_"):
        raise click.UsageError("That is a token; name its id, which `spot token ls` shows.")
    revoked = client.send("DELETE", f"/v1/tokens/{quote(token_id, safe='')}").json()
    if not emit(revoked, [revoked], form, TOKENS.key):
        click.echo(
            f"Token {safe(revoked['name'])} ({safe(revoked['token_id'])}) of {safe(revoked['owner'])} is revoked."
        )
        suggest("spot token ls")


def _usd(amount: float | None) -> str:
    return DASH if amount is None else money_text(amount)


def _first_use(url: str, scopes: Sequence[str]) -> str:
    """A command that this token may run."""
    if "runs:read" in scopes or "admin" in scopes:
        return f"SPOT_URL={url} SPOT_TOKEN=sup_… spot ls"
    if "runs:write" in scopes:
        return f"SPOT_URL={url} SPOT_TOKEN=sup_… spot submit -- COMMAND"
    return f"curl -H 'Authorization: Bearer sup_…' {url}/metrics"


def _scope_text(created: Json) -> str:
    until = f"until {utc_minute(created['expires_at'])}" if created["expires_at"] else "without expiry"
    most = f", at most {created['max_active_runs']} active runs" if created["max_active_runs"] else ""
    caps = [("a run", created.get("max_usd_per_run")), ("in 24 hours", created.get("max_usd_per_day"))]
    most += "".join(f", at most {money_text(usd)} {each}" for each, usd in caps if usd is not None)
    most += ", with plans only" if created.get("plans_only") else ""
    return f"{safe(created['owner'])}: {safe(', '.join(created['scopes']))}, {until}{most}"
