"""ls and show: the runs, and one of them."""

from __future__ import annotations

from typing import Any

import click

from supervisor.cli import views
from supervisor.cli.client import Client, Json, pages, run_path
from supervisor.cli.finding import TERMINAL, choose_run
from supervisor.cli.options import duration_s, key_value, output_option, run_argument, server_options
from supervisor.cli.output import emit, note, paragraph, suggest
from supervisor.cli.views_telemetry import telemetry_lines
from supervisor.cli.words import rfc3339_ago, safe


@click.command()
@click.option(
    "-s", "--status", multiple=True, metavar="STATUS", help="Only runs in this status; may be repeated."
)
@click.option(
    "-l", "--label", multiple=True, type=key_value, metavar="KEY=VALUE", help="Only runs with this label."
)
@click.option("--zone", help="Only runs in this zone.")
@click.option("--owner", help="Only runs of this owner.")
@click.option(
    "--since", type=duration_s, metavar="AGE", help="Only runs submitted within this time, such as 24h."
)
@click.option("-q", "text", metavar="TEXT", help="Only runs whose id contains this.")
@click.option(
    "-n", "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="At most so many."
)
@output_option
@server_options
def ls(client: Client, form: str, limit: int, **filters: Any) -> None:
    """List runs, newest first."""
    runs: list[Json] = []
    summary: Json = {}
    for page in pages(client, "/v1/runs", "runs", limit, **_query(**filters)):
        runs += page["runs"]
        summary = page.get("summary") or summary
    if emit({"runs": runs, "summary": summary}, runs, form, "run_id"):
        return
    if not runs:
        note("No run matches." if any(filters.values()) else "There is no run yet.")
        suggest("spot submit -- COMMAND")
    for line in views.run_lines(runs, summary) if runs else [views.summary_line(summary)]:
        click.echo(line)


def _query(
    status: tuple[str, ...],
    label: tuple[tuple[str, str], ...],
    zone: str | None,
    owner: str | None,
    since: float | None,
    text: str | None,
) -> Json:
    """The filters as query parameters; those not given are left out."""
    return {
        "status": list(status) or None,
        "label": [f"{key}={value}" for key, value in label] or None,
        "zone": zone,
        "owner": owner,
        "created_after": None if since is None else rfc3339_ago(since),
        "q": text,
    }


@click.command()
@run_argument
@click.option(
    "--facts", is_flag=True, help="What its attempts ran on, as a paper needs it, and which of them differ."
)
@output_option
@server_options
def show(client: Client, form: str, run_id: str | None, facts: bool) -> None:
    """Show one run: what it is doing, what happened, what it cost, what is next."""
    run = client.get(run_path(choose_run(client, run_id)))
    name = run["run_id"]
    if facts:
        _show_facts(client.get(run_path(name, "facts")), run, form)
        return
    answer = client.get(run_path(name, "attempts"))
    attempts = answer["attempts"]
    if emit({**run, "attempts": attempts}, [run], form, "run_id"):
        return
    click.echo(views.headline(run))
    for line in paragraph(safe(run["status_text"])):
        click.echo(line)
    for line in telemetry_lines(run):
        for part in paragraph(line):
            click.echo(part)
    if attempts:
        click.echo()
    for line in views.attempt_lines(attempts):
        click.echo(line)
    for line in views.placing_lines(answer.get("next")):
        click.echo(line)
    suggest(next_command(run))


def _show_facts(answer: Json, run: Json, form: str) -> None:
    from supervisor.cli.facts_view import facts_lines

    if emit(answer, [answer], form, "run_id"):
        return
    click.echo(views.headline(run))
    for line in facts_lines(answer):
        click.echo(line)


def next_command(run: Json) -> str:
    """What somebody who looks at this run most likely wants to do."""
    name, status = run["run_id"], run["status"]
    if status == "awaiting_teardown":
        return f"spot approve {name}"
    if status == "finishing" and run.get("needs_person"):
        return f"spot approve {name} --accept-loss REASON"
    if status == "completed":
        return f"spot logs {name}"
    if status in TERMINAL:
        return f"spot resume {name}"
    return f"spot watch {name}"
