"""events: what happened to a run."""

from __future__ import annotations

import time

import click

from supervisor.cli import exits, output, views
from supervisor.cli.client import Client, Json, run_path
from supervisor.cli.finding import TERMINAL, choose_run
from supervisor.cli.options import duration_s, output_option, run_argument, server_options
from supervisor.cli.words import rfc3339_ago

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
