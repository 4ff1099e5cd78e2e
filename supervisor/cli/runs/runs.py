"""ls, show, why, metrics and compare: the list of runs (or machines); one run with its attempts, spec, facts or
evidence; what the end of an attempt means; what a training reported, and several runs beside each other."""

from __future__ import annotations

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json, pages, run_path
from supervisor.cli.exits import NOT_FOUND, CliError, Problem
from supervisor.cli.finding import choose_run
from supervisor.cli.options import attempt_option, limit_option, output_options, run_argument, run_filters
from supervisor.cli.output import emit, note, paragraphs, safe, safe_log, suggest
from supervisor.cli.views import runs as views
from supervisor.cli.views import show as sections
from supervisor.domain.status import TERMINAL
from supervisor.wording.attempt import last_failure

CELLS_SHOWN = 1000  # of a group, at least


@click.command()
@click.option("--machines", is_flag=True, help="List the machines that the cloud shows now, instead of runs.")
@click.option("--all", "everything", is_flag=True, help="With --machines: foreign machines too.")
@run_filters
@limit_option
@output_options
def ls(*, client: Client, form: str, limit: int, query: Json, machines: bool, everything: bool) -> None:
    """List runs, the newest first; or the machines. With --group the cells of a group, the oldest first."""
    filtered = any(query.values())
    if machines:
        from supervisor.cli.machines.machines import show_machines

        if filtered:
            raise click.UsageError("The filters are for runs; --machines takes only --all and -o.")
        show_machines(client, form, everything)
        return
    if everything:
        raise click.UsageError("--all goes with --machines; `spot ls` lists every run.")
    if query["group"] is not None:
        limit, query = max(limit, CELLS_SHOWN), {**query, "sort": "created"}
    runs, summary = runs_and_summary(client, limit, query)
    if emit({"runs": runs, "summary": summary}, runs, form, "run_id"):
        return
    if not runs:
        note("No run matches." if filtered else "There is no run yet.")
        suggest("spot ls" if filtered else "spot submit -- COMMAND")
    if runs and query["group"] is not None:
        output.show(views.cell_lines(query["group"], runs, summary))
        return
    output.show(views.run_lines(runs, summary))


def runs_and_summary(client: Client, limit: int, query: Json) -> tuple[list[Json], Json]:
    """The newest runs that match, and the summary of all runs."""
    runs: list[Json] = []
    summary: Json = {}
    for page in pages(client, "/v1/runs", "runs", limit, **query):
        runs += page["runs"]
        summary = page.get("summary") or summary
    return runs, summary


@click.command()
@run_argument
@click.option("--facts", is_flag=True, help="The software and hardware of its attempts, as a paper needs them.")
@click.option("--spec", is_flag=True, help="The submitted spec, as a file for `spot submit`.")
@click.option(
    "--evidence",
    type=click.IntRange(0),  # 0: the last one, as without a number
    is_flag=False,
    flag_value=0,
    metavar="[N]",
    help="Why attempt N (default: the last) ended, with all that is known.",
)
@click.option("--attempts", "every", is_flag=True, help="All attempts (default: the newest 20).")
@output_options
def show(
    *, client: Client, form: str, run_id: str | None, facts: bool, spec: bool, evidence: int | None, every: bool
) -> None:
    """Show one run: its status, attempts and cost, and what happens next."""
    if facts + spec + (evidence is not None) > 1:
        raise click.UsageError("Use one of --facts, --spec and --evidence.")
    run = client.get(run_path(choose_run(client, run_id)))
    name = run["run_id"]
    if spec:
        submitted = client.get(run_path(name, "facts"))["spec"]
        if form == "name" or not emit(submitted, [submitted], form, ""):
            click.echo(safe_log(sections.spec_text(submitted)), nl=False)
        return
    if facts:
        response = client.get(run_path(name, "facts"))
        if not emit(response, [response], form, "run_id"):
            output.show([views.headline(run), "", *sections.facts_lines(response)])
        return
    response = client.get(run_path(name, "attempts"))
    attempts = response["attempts"]
    if evidence is not None:
        _show_evidence(client, run, attempts, evidence, form)
        return
    outlook = _forecast(client, run)
    if emit({**run, "attempts": attempts, "forecast": outlook}, [run], form, "run_id"):
        return
    output.show([*run_sections(run, attempts, every, outlook), *views.placing_lines(response.get("next"))])
    output.show(_last_evidence(client, name, attempts))
    suggest(next_command(run))


@click.command()
@run_argument
@attempt_option
@output_options
def why(*, client: Client, form: str, run_id: str | None, attempt: int | None) -> None:
    """Show why an attempt ended: the cause, the evidence, what helps, and whether it was restarted."""
    name = choose_run(client, run_id)
    diagnosis = client.get(run_path(name, "diagnosis"), **({} if attempt is None else {"attempt": attempt}))
    if output.emit(diagnosis, [diagnosis], form, "run_id"):
        return
    output.show(sections.why_lines(diagnosis))
    number = diagnosis["attempt"]
    if diagnosis["ended"]:
        suggest(f"spot show {safe(name)} --evidence {number}")
    elif number > 1:
        suggest(f"spot why {safe(name)} --attempt {number - 1}")


@click.command()
@run_argument
@click.option("-m", "--metric", "names", multiple=True, metavar="NAME", help="Only this metric; repeatable.")
@click.option(
    "--points", type=click.IntRange(10, 2000), default=2000, metavar="N", help="At most N points of each (2000)."
)
@click.option("--csv", "as_csv", is_flag=True, help="One line for each point: metric, step, attempt, time, value.")
@output_options
def metrics(
    *, client: Client, form: str, run_id: str | None, names: tuple[str, ...], points: int, as_csv: bool
) -> None:
    """Show the metrics that a training has reported, over all attempts, each step once."""
    if as_csv and form != "table":
        raise click.UsageError("Use --csv or -o, not both.")
    path, query = run_path(choose_run(client, run_id), "metrics"), {"metric": list(names) or None, "points": points}
    if as_csv:
        click.echo(client.send("GET", path, {**query, "format": "csv"}).body.decode().replace("\r\n", "\n"), nl=False)
        return
    shown = client.get(path, **query)
    rows = [row for row in shown["metrics"] if not names or row["name"] in names]
    if not emit(shown, rows, form, "name"):
        output.show(views.metric_lines(rows))
        for text in views.metric_remarks(shown, rows):
            note(text)


@click.command()
@click.argument("run_ids", metavar="[RUN]...", nargs=-1)
@click.option("-g", "--group", metavar="NAME", help="The runs of this group (the first 20), instead of names.")
@click.option("-m", "--metric", "names", multiple=True, metavar="NAME", help="Show this metric; repeatable.")
@click.option("--by", metavar="METRIC", help="The metric by which a run is the best (default: a common loss).")
@click.option("--better", type=click.Choice(["min", "max"]), help="Which values are better (default: by the name).")
@output_options
def compare(
    *,
    client: Client,
    form: str,
    run_ids: tuple[str, ...],
    group: str | None,
    names: tuple[str, ...],
    by: str | None,
    better: str | None,
) -> None:
    """Compare runs: last and best values, where their specs differ, and the best checkpoint."""
    if bool(run_ids) == (group is not None):
        raise click.UsageError("Name the runs, or a group with --group.")
    query = {"run_id": list(run_ids) or None, "group": group, "metric": list(names) or None, "by": by, "better": better}
    comparison = client.get("/v1/compare", **query)
    if not emit(comparison, comparison["runs"], form, "run_id"):
        output.show(views.comparison_lines(comparison, names))


def _forecast(client: Client, run: Json) -> Json | None:
    """None: it is over, or its supervisor makes no forecasts."""
    if run["status"] in TERMINAL:
        return None
    try:
        return dict(client.get(run_path(run["run_id"], "forecast")))
    except Problem:
        return None


def run_sections(run: Json, attempts: list[Json], every: bool = False, forecast: Json | None = None) -> list[str]:
    """The run now, its newest attempts or all, and where its machines and files are."""
    table = views.attempt_lines(attempts, every)
    return [
        views.headline(run),
        *paragraphs(
            [
                safe(run["status_text"]),
                *sections.telemetry_lines(run),
                *sections.image_lines(run),
                *sections.drill_lines(run),
                *sections.session_lines(run),
                *sections.forecast_lines(forecast),
            ]
        ),
        *(["", *table] if table else []),
        *paragraphs([*sections.machine_lines(attempts), *sections.account_lines(run), *sections.code_lines(attempts)]),
        *paragraphs([*sections.beat_lines(run), *sections.files_lines(run)]),
    ]


def _show_evidence(client: Client, run: Json, attempts: list[Json], number: int, form: str) -> None:
    ended = [attempt["number"] for attempt in attempts if attempt.get("ended_at") is not None]
    if not number and not ended:
        raise CliError(f"No attempt of {run['run_id']} has ended yet.", NOT_FOUND, "EVIDENCE_NOT_FOUND")
    kept = client.get(run_path(run["run_id"], f"attempts/{number or ended[-1]}/evidence"))
    if not emit(kept, [kept], form, "run_id"):
        output.show([views.headline(run), *sections.evidence_lines(kept)])


def _last_evidence(client: Client, name: str, attempts: list[Json]) -> list[str]:
    """The main rows of the evidence, where the last attempt failed; nothing where none was kept (yet)."""
    failed = last_failure(attempts)
    if failed is None:
        return []
    try:
        kept = client.get(run_path(name, f"attempts/{failed['number']}/evidence"))
    except Problem:
        return []
    return ["", *sections.evidence_lines(kept, brief=True)]


def release_command(run: Json) -> str:
    """The command that releases the machine of a finished run."""
    results = run.get("results") or {}
    needs_pull = results.get("pull_required") and not results.get("pulled")
    return f"spot {'pull' if needs_pull else 'approve'} {run['run_id']}"


def next_command(run: Json) -> str:
    """The most useful command after a look at this run."""
    name, status = run["run_id"], run["status"]
    if status == "awaiting_teardown":
        return release_command(run)
    if status == "finishing" and run.get("needs_person"):
        return f"spot approve {name} --accept-loss REASON"
    if status == "completed":
        results = run.get("results") or {}
        return f"spot logs {name}" if results.get("pulled") or not results.get("files") else f"spot pull {name}"
    return f"spot resume {name}" if status in TERMINAL else f"spot watch {name}"
