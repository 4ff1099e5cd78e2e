"""dev: failures on purpose, to see that a training survives them. They work on local machines; a rented Spot VM can be
preempted, which costs real work, so the user is asked first."""

from __future__ import annotations

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.exits import Problem
from supervisor.cli.finding import choose_run
from supervisor.cli.options import duration_s, run_argument, server_options, yes_option
from supervisor.cli.output import safe


@click.group()
def dev() -> None:
    """Cause failures on purpose, on local machines; a Spot VM can only be preempted."""


@dev.command()
@run_argument
@click.option(
    "--notice", "notice_s", type=duration_s, default="30", metavar="TIME", help="From the notice to the end (30s)."
)
@yes_option("Do not ask, where the machine is rented.")
@server_options
def preempt(client: Client, run_id: str | None, notice_s: float, yes: bool) -> None:
    """Preempt the machine of a run. It gets a notice and ends then; on Google Cloud the preemption is real."""
    name = choose_run(client, run_id)
    body: Json = {"run_id": name, "notice_s": notice_s, **({"confirm": True} if yes else {})}
    try:
        response = client.post("/v1/dev/preempt", body)
    except Problem as problem:
        if problem.code != "CONFIRM_NEEDED":
            raise
        output.confirm(f"{safe(problem.text)} Continue?", False)
        response = client.post("/v1/dev/preempt", {**body, "confirm": True})
    if response.get("notice_s", notice_s) is None:
        _show(name, f"Google preempts the machine of {name}; it ends after the VM's own notice.")
    else:
        _show(name, f"The machine of {name} has its notice and ends in {notice_s:g} s.")


@dev.command()
@run_argument
@server_options
def kill(client: Client, run_id: str | None) -> None:
    """Kill all processes on the machine of a run. Nothing records it (kill -9)."""
    name = choose_run(client, run_id)
    client.post("/v1/dev/kill", {"run_id": name})
    _show(name, f"The machine of {name} is dead.")


@dev.command()
@run_argument
@server_options
def freeze(client: Client, run_id: str | None) -> None:
    """Freeze the training of a run (SIGSTOP). Its beats continue, its progress does not."""
    name = choose_run(client, run_id)
    client.post("/v1/dev/freeze", {"run_id": name})
    _show(name, f"The training of {name} is frozen; its beats continue.")


@dev.command()
@click.argument("zones", nargs=-1, required=True, metavar="ZONE...")
@click.option("--for", "for_s", type=duration_s, metavar="TIME", help="For this time (90s, 30m); 0 ends it.")
@server_options
def stockout(client: Client, zones: tuple[str, ...], for_s: float | None) -> None:
    """Take away the capacity of zones. Without --for: until you end it."""
    client.post("/v1/dev/stockout", {"zones": list(zones), **({} if for_s is None else {"for_s": for_s})})
    names = ", ".join(map(safe, zones))
    click.echo(f"There is capacity in {names} again." if for_s == 0 else f"There is no capacity in {names}.")


def _show(run_id: str, text: str) -> None:
    click.echo(safe(text))
    output.suggest(f"spot watch {run_id}")
