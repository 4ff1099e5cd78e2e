"""stop, resume, retry, approve: the commands that change a run, or every run that filters name.

Of many runs: first what it would be, then the question, then page after page. The question names the number that was
seen, and the supervisor is told that number: where it is another one by then, nothing is done.
"""

from __future__ import annotations

import time
from typing import Any

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json, run_path
from supervisor.cli.exits import DETACHED, FAILED, CliError, Problem
from supervisor.cli.files.codedir import settle_code
from supervisor.cli.finding import TERMINAL, choose_run, machines_here
from supervisor.cli.options import output_option, run_argument, run_filters, server_options
from supervisor.cli.output import safe
from supervisor.cli.runs.specfile import settle_environment
from supervisor.wording.figures import money, plural

NAMED = 5


def each(client: Client, deed: str, query: Json, form: str, yes: bool) -> None:
    """`deed`: stop or resume. Raises click.Abort where the person says no, Exit where a run refuses."""
    seen = _pages(client, deed, query, {"dry_run": True})
    if not seen["changed"]:
        output.note(f"{plural(seen['matched'], 'run')} {_match(seen['matched'])}; there is nothing to {deed}.")
    elif not output.confirmed(_question(deed, seen), yes):
        raise click.Abort
    done = _pages(client, deed, query, {"expect": seen["matched"]}) if seen["changed"] else seen
    if not output.emit(done, [{"run_id": name} for name in done["runs"]], form, "run_id") and seen["changed"]:
        click.echo(f"{deed}: {plural(done['changed'], 'run')}, {done['unchanged']} left as they are.")
    for refusal in done["refused"]:
        output.note(f"{safe(refusal['run_id'])}: {safe(refusal['detail'])}     ({safe(refusal['code'])})")
    if done["refused"]:
        raise click.exceptions.Exit(FAILED)


def _question(deed: str, seen: Json) -> str:
    names, more = seen["runs"][:NAMED], seen["changed"] - NAMED
    listed = ", ".join(safe(name) for name in names) + (f" and {more} more" if more > 0 else "")
    others = seen["matched"] - seen["changed"]
    rest = (
        f"; {plural(others, 'other')} that {_match(others)} {'stay as they are' if others > 1 else 'stays as it is'}"
        if others
        else ""
    )
    return f"{deed.capitalize()} {plural(seen['changed'], 'run')} ({listed}{rest})?"


def _match(count: int) -> str:
    return "matches" if count == 1 else "match"


def _pages(client: Client, deed: str, query: Json, body: Json) -> Json:
    """All pages as one answer; how many match is what the first one says."""
    result: Json = {}
    cursor: str | None = None
    while True:
        page = client.send(
            "POST", f"/v1/runs/{deed}", {**query, "cursor": cursor}, body if cursor is None else _going_on(body)
        ).json()
        if not result:
            result = {name: page[name] for name in ("dry_run", "matched", "changed", "unchanged", "refused", "runs")}
        else:
            for name in ("changed", "unchanged", "refused", "runs"):
                result[name] += page[name]
        cursor = page["next_cursor"]
        if not page["more"]:
            return result


def _going_on(body: Json) -> Json:
    return {name: value for name, value in body.items() if name != "expect"}


POLL_S = 0.5
YES = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def show_change(run: Json, form: str) -> None:
    """The run after the change, in the form that was asked for."""
    if not output.emit(run, [run], form, "run_id"):
        click.echo(output.run_line(run))


@click.command()
@run_argument
@click.option("--all", "everything", is_flag=True, help="Every active run of this supervisor.")
@run_filters
@YES
@output_option
@server_options
def stop(*, client: Client, form: str, yes: bool, everything: bool, query: Json, run_id: str | None) -> None:
    """Stop a run: its last checkpoint is saved, its machine is released. With filters: every run that they name."""
    if _filtered(query):
        _many(client, "stop", query, run_id, form=form, yes=yes)
        return
    if everything:
        if run_id is not None:
            raise click.UsageError(f"Name {run_id} or say --all, not both.")
        _stop_all(client, form, yes)
        return
    name = choose_run(client, run_id)
    if run_id is None and not output.confirmed(f"Stop {name}?", yes):
        raise click.Abort
    run = client.post(run_path(name, "stop"), {})
    show_change(run, form)
    output.suggest(f"spot resume {name}" if run["status"] in TERMINAL else f"spot watch {name}")


def _filtered(query: Json) -> bool:
    """A filter was given, if only an empty one: from a variable that is not set, it must not mean another run."""
    return any(value is not None for value in query.values())


def _many(client: Client, deed: str, query: Json, run_id: str | None, *, form: str, yes: bool) -> None:

    if run_id is not None:
        raise click.UsageError(f"Name {run_id} or say which runs by filters, not both.")
    each(client, deed, query, form, yes)


def _stop_all(client: Client, form: str, yes: bool) -> None:
    from supervisor.cli.runs import fleet

    runs = fleet.active(client)
    for line in fleet.run_lines(runs):
        output.note(line)
    if not runs:
        output.note("No run is active.")
    elif not output.confirmed(f"Stop {plural(len(runs), 'run')} ({fleet.cost_of(runs)})?", yes):
        raise click.Abort
    stopped = fleet.stop_each(client, runs)
    if not output.emit({"runs": stopped}, stopped, form, "run_id"):
        for run in stopped:
            show_change(run, form)
    output.suggest("spot ls --machines")


@click.command()
@run_argument
@click.option("--spec", "file", metavar="FILE", help="Go on with this spec (YAML); needs --replace-spec if it differs.")
@click.option("--replace-spec", is_flag=True, help="Accept another spec than the run had.")
@click.option("--rerun", is_flag=True, help="Start over: a completed run too, without its checkpoint.")
@click.option("--no-wait", is_flag=True, help="Refuse (exit 6) while the run is still stopping.")
@run_filters
@YES
@output_option
@server_options
@click.pass_context
def resume(
    ctx: click.Context, /, *, client: Client, form: str, yes: bool, query: Json, run_id: str | None, **how: Any
) -> None:
    """Start a run that has ended again, from its checkpoint; one that is stopping, when it has stopped.

    A live run is left alone. With filters: every run that they name, each with the spec that it has.
    """
    if _filtered(query):
        if how["file"] is not None or how["replace_spec"] or how["rerun"]:
            raise click.UsageError("With filters each run goes on with its own spec: leave the other options out.")
        _many(client, "resume", query, run_id, form=form, yes=yes)
        return
    name = choose_run(client, run_id)
    body: Json = {"replace_spec": how["replace_spec"], "rerun": how["rerun"]}
    if how["file"] is not None:
        from supervisor.cli.runs.specfile import read_spec

        is_local = machines_here(client)
        body["spec"] = read_spec(how["file"], is_local=is_local)[1]
        settle_environment(body["spec"], None, client.url, is_local)
        settle_code(client, body["spec"])
    try:
        run = _resume(client, name, body, how["no_wait"])
    except Problem as error:
        if how["file"] is not None:
            from supervisor.cli.runs.specfile import in_words_of_file

            in_words_of_file(error, how["file"])
        raise
    if run is None:
        ctx.exit(DETACHED)
    show_change(run, form)
    output.suggest(f"spot watch {name}")


def _resume(client: Client, name: str, body: Json, no_wait: bool) -> Json | None:
    """The resumed run; None when the person left while it was still stopping."""
    path = run_path(name, "resume")
    try:
        return dict(client.post(path, body))
    except Problem as error:
        if no_wait or error.code != "RUN_STOPPING":
            raise
    output.note(f"{name} is still stopping; it is resumed when it has stopped. Ctrl-C leaves.")
    try:
        while True:
            time.sleep(POLL_S)
            try:  # asked again as a whole: a repeated resume of a run that lives changes nothing
                return dict(client.patiently(lambda: client.post(path, body), output.note))
            except Problem as error:
                if error.code != "RUN_STOPPING":
                    raise
    except KeyboardInterrupt:
        output.note(f"\nLeft; {name} goes on stopping. Resume it when it has stopped: spot resume {name}")
        return None


@click.command()
@run_argument
@output_option
@server_options
def retry(client: Client, form: str, run_id: str | None) -> None:
    """Try now: ask for the machine of a waiting run at once, whatever pause is left."""
    name = choose_run(client, run_id)
    show_change(client.post(run_path(name, "retry"), {}), form)
    output.suggest(f"spot watch {name}")


@click.command()
@run_argument
@click.option("--accept-loss", metavar="REASON", help="Give up results that cannot be verified; the reason is kept.")
@YES
@output_option
@server_options
def approve(client: Client, form: str, run_id: str | None, accept_loss: str | None, yes: bool) -> None:
    """Let the machine of a finished run go, after you have seen that its results are safe."""
    name = choose_run(client, run_id)
    run = client.get(run_path(name))
    machine_id = run.get("machine_id")
    if not machine_id:
        raise CliError(
            f"{name} is {run['status']} and holds no machine: nothing to approve.", FAILED, "NOTHING_TO_APPROVE"
        )
    output.note(safe(run["status_text"]))
    output.note(f"machine {safe(machine_id)}, {money(run.get('price_usd_per_h'))}/h, results manifest "
                f"{safe(run.get('results_manifest_sha256') or 'none')}")  # fmt: skip
    question = f"Give up the results of {name} and release it?" if accept_loss else f"Release {safe(machine_id)}?"
    if not output.confirmed(question, yes):
        raise click.Abort
    body: Json = {"machine_id": machine_id, "results_sha256": run.get("results_manifest_sha256")}
    if accept_loss:
        body["accept_loss"] = accept_loss
    show_change(client.post(run_path(name, "approve"), body), form)
    output.suggest(f"spot show {name}")
