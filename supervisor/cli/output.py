"""The forms of output: columns for people, JSON for programs, names for pipes; and text that is safe for a terminal.

Columns are cut to the terminal's width where there is one; without a terminal each record is one whole line, no
colour. JSON goes out as it came from the API. Text from elsewhere loses whatever a terminal would obey.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from supervisor.domain.texts import HIDDEN, visible
from supervisor.wording.figures import CHECK_LOOKS, DASH, STATUS_LOOKS, Look, age_text

_UNITS_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)?")
# Colours only; everything else that moves a cursor, renames a window or clears a screen is taken out.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)


def parse_duration_s(text: str) -> float:
    """Seconds of `90`, `90s`, `30m`, `2h`, `1h30m`, `1d`. ValueError for anything else."""
    rest, total = text.strip().lower(), 0.0
    if not rest:
        raise ValueError("empty")
    while rest:
        match = _DURATION.match(rest)
        if match is None or (match.group(2) is None and (match.end() != len(rest) or total)):
            raise ValueError(f"not a duration: {text!r}")
        total += float(match.group(1)) * _UNITS_S[match.group(2) or "s"]
        rest = rest[match.end() :].lstrip()
    return total


def bar(value: float | None, cells: int = 10) -> str:
    """`▇▇▁▁ 50 %`: never full before it is."""
    if value is None:
        return DASH
    full = int(value / 100.0 * cells)
    return "▇" * full + "▁" * (cells - full) + f" {int(value)} %"


def clock(moment: str | None) -> str:
    """The local time of day of an RFC 3339 text, with its date where it is not today."""
    if moment is None:
        return DASH
    local = datetime.fromisoformat(moment).astimezone()
    today = datetime.now(UTC).astimezone().date()
    return local.strftime("%H:%M:%S" if local.date() == today else "%Y-%m-%d %H:%M:%S")


def moment(text: str | None, short: bool = False) -> str:
    """To the minute, as the API says it: in UTC. `short`: how far off, for a terminal (`3 min ago`, `in 90 d`)."""
    if text is None:
        return DASH
    if not short:
        return safe(text[:16].replace("T", " ")) + "Z"
    away_s = datetime.fromisoformat(text).timestamp() - datetime.now(UTC).timestamp()
    figure = " ".join(age_text(abs(away_s)).split()[:2])  # its largest unit
    return f"in {figure}" if away_s > 0 else f"{figure} ago"


def safe(text: object) -> str:
    """One line of text from elsewhere: no control characters, no line ends, no character that hides others."""
    plain = _CONTROL.sub("", _COLOUR.sub("", str(text)))
    return visible(plain.replace("\n", " ").replace("\r", " ").replace("\t", " "))


def json_text(document: object, indent: int | None = None) -> str:
    """JSON as people read it; what a terminal would obey or a reader would not see stands there as `\\u202e`."""
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    return HIDDEN.sub(lambda match: json.dumps(match[0])[1:-1], text)


def safe_log(text: str) -> str:
    """Log text for a terminal: colours, tabs and line ends stay, everything that drives the terminal goes."""
    parts = _COLOUR.split(text)
    colours = [*_COLOUR.findall(text), ""]
    return "".join(visible(_CONTROL.sub("", part)) + colour for part, colour in zip(parts, colours, strict=True))


def rfc3339_ago(seconds: float) -> str:
    """The moment so long ago, as the API writes times."""
    moment = datetime.now(UTC) - timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


_ESCAPE = re.compile(r"(\x1b\[[0-9;]*m)")
# title → the cell of a record, from left to right.
Table = Mapping[str, Callable[[Any], str]]
_COLOURS = {  # of the tone of a look
    "good": "green", "busy": "cyan", "wait": "yellow", "person": "magenta", "bad": "red", "still": "bright_black",
}  # fmt: skip
NEWER = Look("?", "", "")  # a word of a newer supervisor


def status_mark(status: str) -> str:
    look = STATUS_LOOKS.get(status, NEWER)
    return click.style(f"{look.sign} {safe(status)}", fg=_COLOURS.get(look.tone, "white"))


def check_sign(result: str) -> str:
    """Of a check of the doctor's."""
    return CHECK_LOOKS.get(result, NEWER).sign


def coloured(line: str, result: str) -> str:
    """A line of a check, its sign in the colour of the result."""
    return click.style(line[:1], fg=_COLOURS.get(CHECK_LOOKS.get(result, NEWER).tone, "white")) + line[1:]


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


def table(shown: Table, records: Iterable[Any], spare: Sequence[str] = ()) -> list[str]:
    """The lines of a table with these columns, a record a line; `spare` as in `columns`."""
    return columns([*shown], [[cell(record) for cell in shown.values()] for record in records], spare)


def show(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def paragraph(text: str, indent: str = "") -> list[str]:
    """`text` broken between words where there is a terminal, further lines indented; else one line."""
    room = terminal_columns()
    if room is None or len(text) <= room:
        return [text]
    return textwrap.wrap(text, room, subsequent_indent=indent, break_on_hyphens=False)


def run_line(run: dict[str, Any]) -> str:
    """`digits-7  ● running  Training at step …`: one line, more only where a terminal is too narrow."""
    mark = status_mark(run["status"])
    plain = click.unstyle(mark)
    text = "\n".join(paragraph(f"{safe(run['run_id'])}  {plain}  {safe(run['status_text'])}", "  "))
    return text.replace(plain, mark, 1)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell + " " * (width - len(click.unstyle(cell))) for cell, width in zip(cells, widths, strict=True)]
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
