"""serial: the console of a run's machine, while it lives or as it was kept."""

from __future__ import annotations

import sys

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json, run_path
from supervisor.cli.finding import choose_run
from supervisor.cli.options import run_argument, server_options
from supervisor.cli.words import safe_log


@click.command()
@run_argument
@click.option(
    "-a", "--attempt", type=click.IntRange(min=1), metavar="N", help="This attempt (default: the newest)."
)
@click.option(
    "-n", "--lines", type=click.IntRange(1, 100_000), default=200, show_default=True, help="At most so many."
)
@server_options
def serial(client: Client, run_id: str | None, attempt: int | None, lines: int) -> None:
    """Print the end of what a machine wrote to its console: the boot, the driver, the container."""
    name = choose_run(client, run_id)
    answer: Json = client.get(run_path(name, "console"), attempt=attempt)
    text = "\n".join(answer["text"].splitlines()[-lines:])
    state = "now" if answer["live"] else "as it was kept"
    output.note(f"--- {answer['machine']} in {answer['zone']}, attempt {answer['attempt']}, {state} ---")
    click.echo(safe_log(text) if sys.stdout.isatty() else text)
