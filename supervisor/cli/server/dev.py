"""dev: disasters on purpose, to see with one's own eyes that a training survives them. All of them on local machines; a
Spot VM can be preempted, which costs real work, so that a person is asked."""

from __future__ import annotations

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.exits import Problem
from supervisor.cli.finding import choose_run
from supervisor.cli.options import duration_s, run_argument, server_options
from supervisor.cli.output import safe


@click.group()
def dev() -> None:
    """Disasters on purpose (local machines; a Spot VM can only be preempted)."""


@dev.command()
@run_argument
@click.option(
    "--notice", "notice_s", type=duration_s, default="30", show_default=True, help="Time between notice and end."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask, where machines are rented.")
@server_options
def preempt(client: Client, run_id: str | None, notice_s: float, yes: bool) -> None:
    """Give the machine of a run notice, then take it away; on Google Cloud in earnest, with the VM's own notice."""
    name = choose_run(client, run_id)
    body: Json = {"run_id": name, "notice_s": notice_s, **({"confirm": True} if yes else {})}
    try:
        answer = client.post("/v1/dev/preempt", body)
    except Problem as problem:
        if problem.code != "CONFIRM_NEEDED":
            raise
        if not output.confirmed(f"{safe(problem.text)} Go on?", False):
            raise click.Abort from None
        answer = client.post("/v1/dev/preempt", {**body, "confirm": True})
    if answer.get("notice_s", notice_s) is None:
        _done(name, f"Google was asked to take the machine of {name} away; it goes after the VM's own notice.")
    else:
        _done(name, f"The machine of {name} was told that it goes in {notice_s:g} s.")


@dev.command()
@run_argument
@server_options
def kill(client: Client, run_id: str | None) -> None:
    """Kill everything on the machine of a run at once (kill -9), without any record."""
    name = choose_run(client, run_id)
    client.post("/v1/dev/kill", {"run_id": name})
    _done(name, f"The machine of {name} is dead.")


@dev.command()
@run_argument
@server_options
def freeze(client: Client, run_id: str | None) -> None:
    """Freeze the training of a run (SIGSTOP): its beats go on, its progress does not."""
    name = choose_run(client, run_id)
    client.post("/v1/dev/freeze", {"run_id": name})
    _done(name, f"The training of {name} is frozen; its beats go on.")


@dev.command()
@click.argument("zones", nargs=-1, required=True, metavar="ZONE...")
@click.option(
    "--for",
    "for_s",
    type=duration_s,
    metavar="TIME",
    help="For this time (90s, 30m); 0 ends it (default: until ended).",
)
@server_options
def stockout(client: Client, zones: tuple[str, ...], for_s: float | None) -> None:
    """Let these zones have no capacity."""
    body: Json = {"zones": list(zones)}
    if for_s is not None:
        body["for_s"] = for_s
    client.post("/v1/dev/stockout", body)
    where = ", ".join(safe(zone) for zone in zones)
    click.echo(f"There is capacity in {where} again." if for_s == 0 else f"There is no capacity in {where}.")


def _done(run_id: str, text: str) -> None:
    click.echo(safe(text))
    output.suggest(f"spot watch {run_id}")
