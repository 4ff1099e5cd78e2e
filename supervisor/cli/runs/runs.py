"""ls and show: the runs, and one of them."""

from __future__ import annotations

from collections.abc import Iterable

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json, pages, run_path
from supervisor.cli.exits import NOT_FOUND, CliError, Problem
from supervisor.cli.files.codedir import code_lines
from supervisor.cli.finding import TERMINAL, choose_run
from supervisor.cli.options import list_filters, output_option, run_argument, server_options
from supervisor.cli.output import emit, note, paragraph, safe, safe_log, suggest
from supervisor.cli.views import runs as views
from supervisor.cli.views.runs import telemetry_lines
from supervisor.cli.views.show import (
    account_lines,
    beat_lines,
    evidence_lines,
    files_lines,
    last_failure,
    machine_lines,
    spec_text,
)


@click.command()
@click.option("--machines", is_flag=True, help="List the machines that the cloud shows now instead of runs.")
@click.option("--all", "everything", is_flag=True, help="With --machines: also those of others.")
@list_filters
@output_option
@server_options
def ls(*, client: Client, form: str, limit: int, query: Json, machines: bool, everything: bool) -> None:
    """List runs, newest first; or the machines."""
    if machines:
        from supervisor.cli.machines.machines import show_machines

        if any(query.values()):
            raise click.UsageError("The filters are for runs; --machines takes --all and -o only.")
        show_machines(client, form, everything)
        return
    if everything:
        raise click.UsageError("--all goes with --machines; `spot ls` lists every run.")
    runs: list[Json] = []
    summary: Json = {}
    for page in pages(client, "/v1/runs", "runs", limit, **query):
        runs += page["runs"]
        summary = page.get("summary") or summary
    if emit({"runs": runs, "summary": summary}, runs, form, "run_id"):
        return
    if not runs:
        note("No run matches." if any(query.values()) else "There is no run yet.")
        suggest("spot ls" if any(query.values()) else "spot submit -- COMMAND")
    output.show(views.run_lines(runs, summary) if runs else [views.summary_line(summary)])


@click.command()
@run_argument
@click.option("--facts", is_flag=True, help="What its attempts ran on, as a paper needs it, and which of them differ.")
@click.option("--spec", is_flag=True, help="What was submitted, as a file that `spot submit` takes.")
@click.option(
    "--evidence",
    type=click.IntRange(0),  # 0: the last one, as without a number
    is_flag=False,
    flag_value=0,
    metavar="[N]",
    help="Why attempt N ended, or the last one that did, and what is known of it.",
)
@output_option
@server_options
def show(*, client: Client, form: str, run_id: str | None, facts: bool, spec: bool, evidence: int | None) -> None:
    """Show one run: what it is doing, what happened, what it cost, what is next."""
    if facts + spec + (evidence is not None) > 1:
        raise click.UsageError("Give one of --facts, --spec and --evidence.")
    run = client.get(run_path(choose_run(client, run_id)))
    name = run["run_id"]
    if spec:
        _show_spec(client.get(run_path(name, "facts"))["spec"], form)
        return
    if facts:
        _show_facts(client.get(run_path(name, "facts")), run, form)
        return
    answer = client.get(run_path(name, "attempts"))
    attempts = answer["attempts"]
    if evidence is not None:
        _show_evidence(client, run, attempts, evidence, form)
        return
    if emit({**run, "attempts": attempts}, [run], form, "run_id"):
        return
    _print_run(run, attempts, answer.get("next"))
    output.show(_last_evidence(client, name, attempts))
    suggest(next_command(run))


def _print_run(run: Json, attempts: list[Json], placing: Json | None) -> None:
    image = views.image_line(run)
    above = [safe(run["status_text"]), *telemetry_lines(run), *([image] if image else [])]
    where = (*machine_lines(attempts), *account_lines(run))
    below = (*where, *code_lines(attempts), *beat_lines(run), *files_lines(run))
    click.echo(views.headline(run))
    _print_paragraphs(above)
    if attempts:
        click.echo()
    output.show(views.attempt_lines(attempts))
    _print_paragraphs(below)
    output.show(views.placing_lines(placing))


def _print_paragraphs(lines: Iterable[str]) -> None:
    for line in lines:
        for part in paragraph(line):
            click.echo(part)


def _show_evidence(client: Client, run: Json, attempts: list[Json], number: int, form: str) -> None:
    over = [attempt["number"] for attempt in attempts if attempt.get("ended_at") is not None]
    if not number and not over:
        raise CliError(f"No attempt of {run['run_id']} is over yet.", NOT_FOUND, "EVIDENCE_NOT_FOUND")
    kept = client.get(run_path(run["run_id"], f"attempts/{number or over[-1]}/evidence"))
    if emit(kept, [kept], form, "run_id"):
        return
    click.echo(views.headline(run))
    output.show(evidence_lines(kept))


def _last_evidence(client: Client, name: str, attempts: list[Json]) -> list[str]:
    """Of the last failure, at a glance; nothing where nothing was kept (yet)."""
    number = last_failure(attempts)
    if number is None:
        return []
    try:
        kept = client.get(run_path(name, f"attempts/{number}/evidence"))
    except Problem:
        return []
    return ["", *evidence_lines(kept, brief=True)]


def _show_spec(spec: Json, form: str) -> None:
    if form in ("json", "jsonl"):
        emit(spec, [spec], form, "")
    else:
        click.echo(safe_log(spec_text(spec)), nl=False)


def _show_facts(answer: Json, run: Json, form: str) -> None:
    from supervisor.cli.views.show import facts_lines

    if emit(answer, [answer], form, "run_id"):
        return
    click.echo(views.headline(run) + "\n")
    output.show(facts_lines(answer))


def release_command(run: Json) -> str:
    """What lets the machine of a finished run go."""
    results = run.get("results") or {}
    waits = results.get("pull_required") and not results.get("pulled")
    return f"spot {'pull' if waits else 'approve'} {run['run_id']}"


def next_command(run: Json) -> str:
    """What somebody who looks at this run most likely wants to do."""
    name, status = run["run_id"], run["status"]
    if status == "awaiting_teardown":
        return release_command(run)
    if status == "finishing" and run.get("needs_person"):
        return f"spot approve {name} --accept-loss REASON"
    if status == "completed":
        results = run.get("results") or {}
        return f"spot logs {name}" if results.get("pulled") or not results.get("files") else f"spot pull {name}"
    if status in TERMINAL:
        return f"spot resume {name}"
    return f"spot watch {name}"
