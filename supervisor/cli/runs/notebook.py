"""cell: what a person pastes into a notebook, so that the machine of a waiting run begins.

The cell alone goes to standard output, so that it can be piped to the clipboard; what to do with it is a note beside.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json, run_path
from supervisor.cli.exits import FAILED, CliError
from supervisor.cli.finding import choose_run
from supervisor.cli.options import output_options, run_argument
from supervisor.cli.output import note, safe, suggest
from supervisor.wording.figures import duration


@click.command("cell")
@run_argument
@click.option(
    "--notebook", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write it as an .ipynb instead."
)
@output_options
def cell(*, client: Client, form: str, run_id: str | None, notebook: Path | None) -> None:
    """Print the notebook cell that starts the machine of a run; it is good for one notebook, and for some minutes.

    \b
      spot cell my-run | xclip -selection clipboard
      spot cell my-run --notebook my-run.ipynb
    """
    name = choose_run(client, run_id)
    shown = client.get(run_path(name, "cell"))
    if notebook is not None:
        _write(notebook, str(shown["notebook"]))
    if not output.emit(shown, [shown], form, "run_id") and notebook is None:
        click.echo(shown["cell"].rstrip("\n"))
    for line in _advice(shown, notebook):
        note(line)
    suggest(f"spot watch {name}")


def _write(path: Path, text: str) -> None:
    """For its user alone: whoever has the ticket first gets the job. Raises CliError."""
    try:
        with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as target:
            target.write(text)
    except OSError as error:
        raise CliError(f"{safe(str(path))} cannot be written: {error.strerror or error}.", FAILED) from None


def _advice(shown: Json, notebook: Path | None) -> list[str]:
    left_s = (datetime.fromisoformat(shown["expires_at"]) - datetime.now(UTC)).total_seconds()
    within = f"within {duration(max(0.0, left_s))}"
    if notebook is not None:  # the address with a fragment makes an empty notebook
        where = f" at {safe(shown['url'].partition('#')[0])}" if shown["url"] else ""
        hardware = f" Its hardware: {safe(shown['wanted'])}." if shown["wanted"] else ""
        return [f"Upload {safe(str(notebook))}{where} (File > Upload notebook), and run cell 1 {within}.{hardware}"]
    where = f" at {safe(shown['url'])}" if shown["url"] else ""
    first = f", choose {safe(shown['wanted'])}" if shown["wanted"] else ""
    return [f"Open a new notebook{where}{first}, paste this into cell 1, and run it {within}."]
