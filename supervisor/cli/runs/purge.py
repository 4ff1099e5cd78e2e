"""purge: delete all files of a run, after its name was typed once more."""

from __future__ import annotations

import sys
import time

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json, run_path
from supervisor.cli.exits import CONFLICT, FAILED, USAGE, CliError, Unreachable
from supervisor.cli.finding import TERMINAL
from supervisor.cli.options import not_empty, output_option, server_options
from supervisor.cli.runs.control import show_change
from supervisor.cli.runs.cost import stored_line
from supervisor.cli.words import safe
from supervisor.wording.figures import count

POLL_S = 5.0
STUCK_S = 60.0  # without one file less: nobody deletes any more


@click.command()
@click.argument("run_id", metavar="RUN", callback=not_empty)
@click.option("--confirm", metavar="RUN", help="The run's name once more, instead of being asked for it.")
@output_option
@server_options
def purge(client: Client, form: str, run_id: str, confirm: str | None) -> None:
    """Delete all files of a run: results, checkpoints, logs. Its history stays, and so does shared code.

    Only after the run has ended and its machines are gone. Cut off, it is finished by the same command.
    """
    run, kept = client.get(run_path(run_id)), client.get(run_path(run_id, "cost"))
    if confirm is None and run["status"] not in TERMINAL:
        text = (
            f"Nothing of {run_id} was deleted: it is {run['status']}: stop it, and wait until it has stopped."
        )
        raise CliError(text, CONFLICT, "PURGE_REFUSED", (f"spot stop {run_id}",))
    for line in what_goes(run, kept):
        output.note(line)
    typed = _typed(run_id) if confirm is None else confirm
    if typed != run_id:
        raise CliError(f"Nothing was deleted: {typed!r} is not {run_id}.", USAGE, "INVALID_REQUEST")
    answer = _purge(client, run_id)
    show_change(answer, form)
    output.suggest(f"spot events {run_id}")


def what_goes(run: Json, kept: Json) -> list[str]:
    """What the person is about to lose."""
    results = run.get("results")
    files = "none verified" if results is None else f"{count(results['files'])} verified"
    return [
        safe(run["status_text"]),
        stored_line(kept),
        f"Newest checkpoint: {count(run['checkpoint_step'])}. Results: {files}. All of it is deleted for good.",
    ]


def _typed(run_id: str) -> str:
    if not sys.stdin.isatty():
        raise click.UsageError(f"Say --confirm {run_id}: there is no terminal to ask on.")
    return str(click.prompt(f"Type {run_id} to delete all of its files", err=True)).strip()


def _purge(client: Client, run_id: str) -> Json:
    """One request; where its answer takes longer than we wait for one, the run says when it is over, and the number of
    its files whether somebody is still at it."""
    try:
        return dict(client.post(run_path(run_id, "purge"), {"confirm": run_id}))
    except Unreachable as error:
        if not error.sent:
            raise
        lost = error
    run = client.get(run_path(run_id))
    if not run["purging"] and run["purged_at"] is None:
        raise lost
    output.note("It takes longer than one answer may; Ctrl-C leaves, the purge goes on.")
    left, since = 0, time.monotonic()
    while run["purging"]:
        time.sleep(POLL_S)
        files = client.get(run_path(run_id, "cost"))["files"]
        if files != left:
            left, since = files, time.monotonic()
        elif time.monotonic() - since > STUCK_S:
            text = f"The purge of {run_id} was cut off. Repeat it: it goes on where it stopped."
            raise CliError(text, FAILED, "UNAVAILABLE", (f"spot purge {run_id}",))
        run = client.get(run_path(run_id))
    return dict(run)
