"""How commands print: tables for people, JSON for programs, names for pipes, and text that is safe in a terminal.

Every list is a `Table`. At a terminal its lines are cut to the width; elsewhere each record is one whole line without
color. JSON is printed as the API sent it. Text from outside loses everything that a terminal would obey.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from supervisor.cli.exits import DETACHED
from supervisor.domain.texts import HIDDEN, visible
from supervisor.wording.figures import CHECK_LOOKS, DASH, STATUS_LOOKS, Look, age_text

_COLOR = re.compile(r"(\x1b\[[0-9;]*m)")
# Everything that moves a cursor, renames a window or clears a screen; colors included.
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
_COLORS = {  # tone of a look -> color
    "good": "green", "busy": "cyan", "wait": "yellow", "person": "magenta", "bad": "red", "still": "bright_black",
}  # fmt: skip
UNKNOWN_LOOK = Look("?", "", "")  # a word of a newer supervisor


@dataclass(frozen=True)
class Table:
    """A list for people. `key`: the field of a record that `-o name` prints. `columns`: title -> text of a cell, which
    may have colors. `spare`: titles that a too narrow terminal drops, in this order, before a line is cut."""

    key: str
    columns: Mapping[str, Callable[[Any], str]]
    spare: Sequence[str] = ()

    def lines(self, records: Sequence[Any]) -> list[str]:
        """A title line and one line for each record."""
        texts = {title: [title, *map(cell, records)] for title, cell in self.columns.items()}
        width = terminal_columns()
        for title in self.spare:
            if width is None or max(map(_length, _rows(texts))) <= width:
                break
            texts.pop(title, None)
        return [_cut(line, width) for line in _rows(texts)]

    def show(self, document: Any, records: Sequence[Any], form: str) -> bool:
        """Print the records in the form of -o; True where it is the table. No table without records."""
        if emit(document, records, form, self.key):
            return False
        if records:
            show(self.lines(records))
        return True


def _rows(texts: Mapping[str, Sequence[str]]) -> list[str]:
    widths = [max(map(_length, column)) for column in texts.values()]
    return [
        "  ".join(cell + " " * (width - _length(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in zip(*texts.values(), strict=True)
    ]


def _length(text: str) -> int:
    return len(click.unstyle(text))


def _cut(line: str, width: int | None) -> str:
    """The first `width` visible characters; color codes have no width and are never cut."""
    if width is None or _length(line) <= width:
        return line
    kept, left = [], width - 1
    for part in _COLOR.split(line):
        if part.startswith("\x1b"):
            kept.append(part)
        elif left > 0:
            kept.append(part[:left])
            left -= len(part)
            if left <= 0:
                kept.append("…")
    return "".join(kept)


def emit(document: Any, records: Sequence[Any], form: str, key: str) -> bool:
    """Print json (the document), jsonl or name (a line for each record); False where the form is for people."""
    if form == "json":
        click.echo(json_text(document, 2))
    elif form == "jsonl":
        show(json_text(record) for record in records)
    elif form == "name":
        show(str(record[key]) for record in records)
    else:
        return False
    return True


def json_text(document: object, indent: int | None = None) -> str:
    """JSON as people read it; hidden characters are written as `\\u202e`."""
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    return HIDDEN.sub(lambda match: json.dumps(match[0])[1:-1], text)


def show(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def terminal_columns() -> int | None:
    """The width of the terminal; None where the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def paragraph(text: str, indent: str = "") -> list[str]:
    """`text` broken between words at a terminal, further lines indented; elsewhere one line."""
    width = terminal_columns()
    if width is None or len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)


def paragraphs(texts: Iterable[str], indent: str = "") -> list[str]:
    return [line for text in texts for line in paragraph(text, indent)]


def labeled(rows: Sequence[tuple[str, str]]) -> list[str]:
    """`label  text` for each row, the texts below each other."""
    width = max(len(label) for label, _ in rows) + 2
    return paragraphs((f"{label:<{width}}{text}" for label, text in rows), " " * width)


def safe(text: object) -> str:
    """Text from outside as one line: without control characters and line breaks, hidden characters as numbers."""
    return visible(re.sub(r"[\n\r\t]", " ", _CONTROL.sub("", str(text))))


def safe_log(text: str) -> str:
    """A log for a terminal: colors, tabs and line breaks stay, everything else that drives the terminal goes."""
    parts = _COLOR.split(text)  # text and color by turns
    return "".join(part if at % 2 else visible(_CONTROL.sub("", part)) for at, part in enumerate(parts))


def show_log(text: str) -> None:
    """Print text that a run or machine wrote, at once; made safe at a terminal, unchanged elsewhere."""
    click.echo(safe_log(text) if sys.stdout.isatty() else text, nl=False)
    sys.stdout.flush()


def status_mark(status: str) -> str:
    look = STATUS_LOOKS.get(status, UNKNOWN_LOOK)
    return colored(f"{look.sign} {safe(status)}", look.tone)


def colored(text: str, tone: str) -> str:
    """`tone`: of a look; the text says the same without it."""
    return click.style(text, fg=_COLORS.get(tone, "white"))


def run_line(run: dict[str, Any]) -> str:
    """`digits-7  ● running  Training at step …`: one line, more only on a narrow terminal."""
    mark = status_mark(run["status"])
    plain = click.unstyle(mark)
    text = "\n".join(paragraph(f"{safe(run['run_id'])}  {plain}  {safe(run['status_text'])}", "  "))
    return text.replace(plain, mark, 1)


def show_run(run: dict[str, Any], form: str) -> None:
    """A run that a command has changed."""
    if not emit(run, [run], form, "run_id"):
        click.echo(run_line(run))


def show_warnings(warnings: Iterable[str]) -> None:
    for warning in warnings:
        note(f"warning: {safe(warning)}")


def check_lines(result: str, text: str, indent: str = "  ") -> list[str]:
    """`✔ text` of a check, the sign in the color of its result."""
    look = CHECK_LOOKS.get(result, UNKNOWN_LOOK)
    first, *rest = paragraph(f"{look.sign} {text}", indent)
    return [colored(first[:1], look.tone) + first[1:], *rest]


def check_advice(check: Mapping[str, Any]) -> list[str]:
    """The cause and the fix of a check. The fix is never broken, because people paste it."""
    cause = paragraph(f"    cause: {safe(check['cause'])}", " " * 11) if check.get("cause") else []
    return [*cause, *([f"    fix: {safe(check['fix'])}"] if check.get("fix") else [])]


def bar(value: float | None, cells: int = 10) -> str:
    """`▇▇▁▁ 50 %` of a percentage; full at 100 % only."""
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


def utc_minute(moment: str | None) -> str:
    """`2026-11-22 06:50Z` of an RFC 3339 text."""
    return DASH if moment is None else safe(moment[:16].replace("T", " ")) + "Z"


def when(moment: str | None) -> str:
    """How far off a time is, in its largest unit (`3 min ago`, `in 90 d`); without a terminal `utc_minute`."""
    if moment is None or terminal_columns() is None:
        return utc_minute(moment)
    away_s = datetime.fromisoformat(moment).timestamp() - datetime.now(UTC).timestamp()
    figure = " ".join(age_text(abs(away_s)).split()[:2])
    return f"in {figure}" if away_s > 0 else f"{figure} ago"


def rfc3339_ago(seconds: float) -> str:
    """The time so long ago, as the API writes it."""
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def note(text: str) -> None:
    """A remark for the user, on standard error."""
    click.echo(text, err=True)


def suggest(command: str) -> None:
    """The next useful command, at a terminal only."""
    if sys.stdout.isatty() and sys.stderr.isatty():
        note(click.style(f"next: {command}", dim=True))


def confirm(question: str, yes: bool) -> None:
    """Ask unless `yes`. Raises Abort at a no, UsageError without a terminal."""
    if not confirmed(question, yes):
        raise click.Abort


def confirmed(question: str, yes: bool) -> bool:
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(f"{question} Add --yes: there is no terminal to ask on.")
    return click.confirm(question)


@contextmanager
def detaching(text: str) -> Iterator[None]:
    """Ctrl-C leaves the command with `text` and exit code 130; the runs continue."""
    try:
        yield
    except KeyboardInterrupt:
        note(f"\n{text}")
        raise click.exceptions.Exit(DETACHED) from None
