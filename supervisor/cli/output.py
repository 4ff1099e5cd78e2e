"""The forms of output: columns for people, JSON for programs, names for pipes.

Columns are cut to the terminal's width where there is one; without a terminal each record is one whole line, no
colour. JSON goes out as it came from the API.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import click

from supervisor.cli.words import json_text, safe

_ESCAPE = re.compile(r"(\x1b\[[0-9;]*m)")
# status -> (sign, colour); the colour never stands alone.
STATUS_LOOK: dict[str, tuple[str, str]] = {
    "pending": ("○", "cyan"),
    "waiting": ("○", "yellow"),
    "launching": ("◔", "cyan"),
    "running": ("●", "green"),
    "recovering": ("◐", "yellow"),
    "finishing": ("◕", "green"),
    "stopping": ("◌", "yellow"),
    "awaiting_teardown": ("◆", "magenta"),
    "completed": ("✔", "green"),
    "partial": ("◑", "magenta"),
    "failed": ("✗", "red"),
    "stopped": ("■", "bright_black"),
}


def status_mark(status: str) -> str:
    sign, colour = STATUS_LOOK.get(status, ("?", "white"))
    return click.style(f"{sign} {safe(status)}", fg=colour)


def emit(document: Any, records: Sequence[dict[str, Any]], form: str, name: str) -> bool:
    """Print json (the document), jsonl or name (a line for each record); False when the form is for people."""
    if form == "json":
        click.echo(json_text(document, 2))
    elif form == "jsonl":
        for record in records:
            click.echo(json_text(record))
    elif form == "name":
        for record in records:
            click.echo(str(record[name]))
    else:
        return False
    return True


def terminal_columns() -> int | None:
    """The width of the terminal; None where the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def columns(titles: Sequence[str], rows: Iterable[Sequence[str]], spare: Sequence[str] = ()) -> list[str]:
    """The lines of a table: a title line, then one line a row. Cells may carry colours. `spare`: titles of columns that
    a terminal which is too narrow goes without, in this order, before anything is cut."""
    lines = [list(titles), *([cell or "" for cell in row] for row in rows)]
    widths = [max(len(click.unstyle(line[i])) for line in lines) for i in range(len(titles))]
    room = terminal_columns()
    for title in spare:
        if room is None or max(len(click.unstyle(_line(line, widths))) for line in lines) <= room:
            break
        place = lines[0].index(title)
        del widths[place]
        for line in lines:
            del line[place]
    return [_fit(_line(line, widths), room) for line in lines]


def paragraph(text: str, indent: str = "") -> list[str]:
    """`text` broken between words where there is a terminal, further lines indented; else one line."""
    room = terminal_columns()
    if room is None or len(text) <= room:
        return [text]
    return textwrap.wrap(text, room, subsequent_indent=indent, break_on_hyphens=False)


def told(run: dict[str, Any]) -> str:
    """`digits-7  ● running  Training at step …`: one line, more only where a terminal is too narrow."""
    mark = status_mark(run["status"])
    plain = click.unstyle(mark)
    text = "\n".join(paragraph(f"{safe(run['run_id'])}  {plain}  {safe(run['status_text'])}", "  "))
    return text.replace(plain, mark, 1)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell + " " * (width - len(click.unstyle(cell))) for cell, width in zip(cells, widths, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _fit(line: str, room: int | None) -> str:
    """The first `room` visible characters; escape sequences take no room and are never cut."""
    if room is None or len(click.unstyle(line)) <= room:
        return line
    kept, left = [], room - 1
    for part in _ESCAPE.split(line):
        if part.startswith("\x1b"):
            kept.append(part)
        elif left > 0:
            kept.append(part[:left])
            left -= len(part)
            if left <= 0:
                kept.append("…")
    return "".join(kept)


def note(text: str) -> None:
    """A remark for the person at the terminal, out of the way of the output."""
    click.echo(text, err=True)


def suggest(command: str) -> None:
    """The next command that makes sense, shown only where a person reads along."""
    if sys.stdout.isatty() and sys.stderr.isatty():
        click.echo(click.style(f"next: {command}", dim=True), err=True)


def confirmed(question: str, yes: bool) -> bool:
    """True with --yes; asks on a terminal; elsewhere nobody can answer, so the command must say --yes."""
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(f"{question} Say --yes: there is no terminal to ask on.")
    return click.confirm(question)
