"""incidents: several runs that failed alike, and the command that closes one."""

from __future__ import annotations

from collections.abc import Iterator

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.options import json_options, limit_option, not_empty, output_options
from supervisor.cli.output import paragraph, safe, when
from supervisor.wording.figures import Look, plural

OPEN, BLOCKING, CLOSED = Look("!", "wait", "open"), Look("✗", "bad", "stops launches"), Look("✔", "still", "closed")
RUNS_SHOWN = 8


@click.group(invoke_without_command=True)
@click.option("--all", "everything", is_flag=True, help="The closed ones, too.")
@limit_option
@output_options
@click.pass_context
def incidents(ctx: click.Context, /, client: Client, form: str, everything: bool, limit: int) -> None:
    """Show incidents: three runs or more that ended within an hour and have something in common.

    Each has one alert. Some stop launches, until you close them: spot incidents close ID.
    """
    if ctx.invoked_subcommand is not None:
        return
    response = client.get("/v1/incidents", all="true" if everything else None, limit=limit)
    if output.emit(response, response["incidents"], form, "id"):
        return
    for incident in response["incidents"]:
        output.show(incident_lines(incident))
    if not response["incidents"]:
        output.note("There is no incident." if everything else "No incident is open.")


@incidents.command()
@click.argument("number", metavar="ID", type=click.IntRange(min=1))
@click.option("--reason", metavar="TEXT", callback=not_empty, help="Why, for the history.")
@json_options
def close(client: Client, form: str, number: int, reason: str | None) -> None:
    """Close an incident: what it stopped may start again."""
    closed = client.post(f"/v1/incidents/{number}/close", {} if reason is None else {"reason": reason})
    if not output.emit(closed, [closed], form, "id"):
        click.echo(f"Incident {closed['id']} is closed: {safe(closed['text'])}.")
        if closed["blocks"]:
            output.note("Runs that waited for this start with the next tick.")


def incident_lines(incident: Json) -> Iterator[str]:
    look = CLOSED if not incident["open"] else BLOCKING if incident["blocks"] else OPEN
    mark = output.colored(f"{look.sign} {look.text}", look.tone)
    yield f"{incident['id']}  {mark}  since {when(incident['opened_at'])}, last {when(incident['last_at'])}"
    yield from paragraph(safe(f"{incident['text']}."), "    ")
    runs = incident["runs"]
    more = f" and {len(runs) - RUNS_SHOWN} more" if len(runs) > RUNS_SHOWN else ""
    yield from paragraph(f"{plural(len(runs), 'run')}: {', '.join(map(safe, runs[:RUNS_SHOWN]))}{more}", "    ")
    if incident["open"]:
        yield from paragraph(safe(f"fix: {incident['fix']}."), "    ")
    else:
        by = safe(incident["closed_by"] or "a quiet day")
        reason = f": {safe(incident['reason'])}" if incident["reason"] else ""
        yield from paragraph(f"closed by {by}, {when(incident['closed_at'])}{reason}", "    ")
