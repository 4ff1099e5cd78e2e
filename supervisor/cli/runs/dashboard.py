"""`spot watch 60`: all runs in the terminal, as `spot ls` shows them, read anew every so many seconds until Ctrl-C.

On a terminal one picture is kept up to date; elsewhere each look is printed below the last, with its time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

import click

from supervisor.cli import exits, output
from supervisor.cli.client import Client, Json, pages
from supervisor.cli.views import runs as views

SHOWN = 50
HINT = "Ctrl-C leaves; the runs go on."


def watch_all(client: Client, every_s: float, timeout_s: float | None) -> int:
    """The exit code: 130 when the person leaves, 0 when `timeout_s` is over: nothing was waited for."""
    try:
        if sys.stdout.isatty():
            _live(client, every_s, timeout_s)
        else:
            _repeat(client, every_s, timeout_s, _print)
    except KeyboardInterrupt:
        output.note("\nLeft; the runs go on. Come back: spot watch 60")
        return exits.DETACHED
    return exits.OK


def picture(client: Client) -> list[str]:
    """The lines of `spot ls`, the newest runs first."""
    runs: list[Json] = []
    summary: Json = {}
    for page in pages(client, "/v1/runs", "runs", SHOWN):
        runs += page["runs"]
        summary = page.get("summary") or summary
    return views.run_lines(runs, summary) if runs else ["There is no run yet.", views.summary_line(summary)]


def _repeat(
    client: Client, every_s: float, timeout_s: float | None, show: Callable[[list[str]], None]
) -> None:
    began = time.monotonic()
    while True:
        show(client.patiently(lambda: picture(client), output.note))
        left_s = every_s if timeout_s is None else min(every_s, began + timeout_s - time.monotonic())
        if left_s <= 0:
            return
        time.sleep(left_s)


def _print(lines: list[str]) -> None:
    click.echo(datetime.now(UTC).strftime("%H:%M:%S UTC"))
    for line in lines:
        click.echo(line)
    click.echo()
    sys.stdout.flush()


def _live(client: Client, every_s: float, timeout_s: float | None) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console()

    def draw(lines: list[str]) -> None:
        room = max(3, console.size.height - 2)
        at = datetime.now(UTC).strftime("%H:%M:%S UTC")
        head, last = lines[:-1][: room - 1], lines[-1]
        body = [Text.from_ansi(line) for line in [*head, last]]
        live.update(Group(*body, Text(f"{at}, again in {every_s:g} s. {HINT}", style="dim")), refresh=True)

    with Live(console=console, auto_refresh=False, transient=True) as live:
        _repeat(client, every_s, timeout_s, draw)
