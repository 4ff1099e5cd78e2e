"""events and cost: what happened to a run, and what it came to."""

from __future__ import annotations

import time
from typing import Any

import click

from supervisor.cli import exits, output, views
from supervisor.cli.client import Client, Json, run_path
from supervisor.cli.finding import TERMINAL, choose_run
from supervisor.cli.options import duration_s, output_option, run_argument, server_options
from supervisor.cli.words import money, rfc3339_ago

POLL_S = 1.0
PAGE = 1000


@click.command()
@run_argument
@click.option("--since", type=duration_s, metavar="AGE", help="Only events within this time, such as 24h.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new events until the run ends.")
@output_option
@server_options
@click.pass_context
def events(
    ctx: click.Context, /, client: Client, form: str, run_id: str | None, since: float | None, follow: bool
) -> None:
    """Print what happened to a run: when, in which attempt, and why."""
    name = choose_run(client, run_id)
    moment = None if since is None else rfc3339_ago(since)
    found, after = [], 0
    try:
        while True:
            # The run first: events of its end are written with its status.
            over = (
                not follow
                or client.patiently(lambda: client.get(run_path(name)), output.note)["status"] in TERMINAL
            )
            while True:
                page = client.get(run_path(name, "events"), after=after, limit=PAGE, since=moment)
                found += page["events"]
                _print(page["events"], form)
                after = page["events"][-1]["id"] if page["events"] else after
                if moment is not None and not page["complete"]:
                    output.note(f"Only the newest {PAGE} events of this time are shown.")
                moment = None
                if page["complete"] or not page["events"]:
                    break
            if over:
                break
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        output.note(f"\nDetached from the events of {name}; the run goes on.")
        ctx.exit(exits.DETACHED)
    if form == "json":
        output.emit({"events": found}, found, form, "id")


def _print(found: list[Json], form: str) -> None:
    if form == "json" or output.emit(None, found, form, "id"):
        return
    for event in found:
        click.echo("\n".join(views.event_lines(event)))


@click.command()
@run_argument
@output_option
@server_options
def cost(client: Client, form: str, run_id: str | None) -> None:
    """What a run has cost so far, attempt by attempt, and what on-demand machines would have cost."""
    name = choose_run(client, run_id)
    run = client.get(run_path(name))
    attempts = client.get(run_path(name, "attempts"))["attempts"]
    document = {"run_id": name, "cost": run["cost"], "attempts": [_figures(attempt) for attempt in attempts]}
    if output.emit(document, document["attempts"], form, "number"):
        return
    rows = [
        [
            str(attempt["number"]),
            views.where(attempt["placement"]),
            views.lasted(attempt, time.time()),
            money(attempt["price_usd_per_h"]) + "/h" if attempt["price_usd_per_h"] is not None else "unknown",
            money(attempt["cost_usd"]),
        ]
        for attempt in attempts
    ]
    for line in output.columns(("#", "WHERE", "HOW LONG", "PRICE", "COST"), rows) if rows else ():
        click.echo(line)
    click.echo(total_line(run))


def _figures(attempt: Json) -> dict[str, Any]:
    names = ("number", "placement", "started_at", "ended_at", "gone_at", "price_usd_per_h", "cost_usd")
    return {name: attempt.get(name) for name in names}


def total_line(run: Json) -> str:
    """`$6.12 so far, $1.20/h now; on-demand $18.40 (67 % saved); budget $20.00.`"""
    cost_of = run["cost"]
    spent, plain = cost_of["usd"] or 0.0, cost_of["on_demand_usd"] or 0.0
    parts = [f"{'' if cost_of['known'] else 'at least '}{money(spent)} so far"]
    if run.get("price_usd_per_h"):
        parts[0] += f", {money(run['price_usd_per_h'])}/h now"
    if plain > 0:
        parts.append(f"on-demand {money(plain)} ({100 * (1 - spent / plain):.0f} % saved)")
    if cost_of["budget_usd"] is not None:
        parts.append(f"budget {money(cost_of['budget_usd'])}")
    return "; ".join(parts) + "."
