"""logs: what the command wrote, attempt by attempt, read in pieces by byte offset so that nothing comes twice."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import click

from supervisor.cli import exits, output
from supervisor.cli.client import Client, Json, run_path
from supervisor.cli.finding import TERMINAL, choose_run
from supervisor.cli.options import run_argument, server_options
from supervisor.cli.words import safe_log

POLL_S = 1.0


@click.command()
@run_argument
@click.option("-f", "--follow", is_flag=True, help="Go on as the log grows, through all following attempts.")
@click.option(
    "-a",
    "--attempt",
    type=click.IntRange(min=1),
    metavar="N",
    help="This attempt only (default: the newest).",
)
@click.option(
    "-n", "--lines", type=click.IntRange(1, 10_000), metavar="N", help="Only the last N lines of it."
)
@server_options
@click.pass_context
def logs(
    ctx: click.Context,
    /,
    *,
    client: Client,
    run_id: str | None,
    follow: bool,
    attempt: int | None,
    lines: int | None,
) -> None:
    """Print the log of an attempt."""
    name = choose_run(client, run_id)
    reader = Reader(client, name, attempt, lines)
    try:
        while reader.print_more() or (follow and not reader.over(attempt is not None)):
            if not reader.more:
                time.sleep(POLL_S)
    except KeyboardInterrupt:
        output.note(f"\nDetached from the log of {name}; the run goes on.")
        ctx.exit(exits.DETACHED)
    if reader.attempt is None:
        output.note(f"{name} has no log yet.")


@dataclass
class Reader:
    """Where we are: attempt (None = none had begun yet) and byte offset. `more`: the last answer left text unread."""

    client: Client
    run_id: str
    attempt: int | None
    tail: int | None = None  # begin with so many last lines; None = with the first byte
    offset: int = 0
    more: bool = False
    complete: bool = False

    def print_more(self) -> bool:
        """Print the next piece; True while there is text that can be read at once."""
        answer: Json = self.client.patiently(self._ask, output.note)
        if self.attempt is None and answer["attempt"] is not None:
            self.attempt = answer["attempt"]
        self.offset = answer["next_offset"]
        self.complete = bool(answer["complete"])
        # A piece that ends within a character leaves its bytes for later: only a moved offset is progress.
        self.more = bool(answer["text"]) and self.offset < answer["size"]
        text = answer["text"]
        click.echo(safe_log(text) if sys.stdout.isatty() else text, nl=False)
        sys.stdout.flush()
        return self.more

    def _ask(self) -> Json:
        path = run_path(self.run_id, "logs")
        if self.tail is not None:
            found: Json = self.client.get(path, attempt=self.attempt, tail=self.tail)
            self.tail = None if found["attempt"] is not None else self.tail
            return found
        return dict(self.client.get(path, attempt=self.attempt, offset=self.offset))

    def over(self, one_attempt: bool) -> bool:
        """True when nothing more will come; steps on to the next attempt where there is one."""
        if self.attempt is not None and (not self.complete or one_attempt):
            return self.complete
        run: Json = self.client.patiently(lambda: self.client.get(run_path(self.run_id)), output.note)
        newest = run.get("attempt") or 0
        if self.attempt is not None and newest > self.attempt:
            self.attempt, self.offset, self.complete = self.attempt + 1, 0, False
            output.note(f"--- attempt {self.attempt} ---")
            return False
        return run["status"] in TERMINAL
