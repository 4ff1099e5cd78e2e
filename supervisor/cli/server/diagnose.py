"""diagnose: what files say about an end, without a supervisor.

The rules of `spot why` are applied to logs, an evidence document, or loose facts as JSON. Of a very large log the
beginning and the end are read, because the first error and the last one are there.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import click

from supervisor.cli import output
from supervisor.cli.client import Json
from supervisor.cli.exits import USAGE, CliError
from supervisor.cli.options import json_option
from supervisor.cli.output import note, safe
from supervisor.cli.server.server import diagnosed
from supervisor.cli.views.show import why_lines
from supervisor.wording.figures import size_text

PIECE_BYTES = 1 << 20
HEAD_BYTES, TAIL_BYTES = 4 * PIECE_BYTES, 28 * PIECE_BYTES  # of a log, at most
FACTS_BYTES = 4 * PIECE_BYTES  # of a JSON document; a longer one is read as a log
SAMPLE_BYTES = 65_536
BINARY_SHARE = 0.1  # of zero bytes: UTF-16 and programs have more, a torn log fewer
STDIN = "-"


@dataclass(frozen=True)
class Content:
    """What one file holds. `left_out`: bytes in the middle of a log that were not read."""

    name: str
    log: bytes = b""
    fields: Json | None = None
    left_out: int = 0


@click.command()
@click.argument("files", metavar="FILES...", nargs=-1, required=True)
@json_option
def diagnose(*, files: tuple[str, ...], form: str) -> None:
    """Say what an end means from files alone: a log, an evidence document, or facts as JSON; - is standard input.

    No supervisor is needed. docs/evidence.md has the names of the facts.
    """
    if files.count(STDIN) > 1:
        raise click.UsageError("Standard input can be read once.")
    contents = [_content(name) for name in files]
    for content in contents:
        if content.left_out:
            middle = size_text(content.left_out)
            note(f"{safe(content.name)}: {middle} in its middle were not read; its beginning and its end were.")
    fields = [content.fields for content in contents if content.fields is not None]
    name = ", ".join(content.name for content in contents)
    diagnosis = diagnosed(name, b"\n".join(content.log for content in contents if content.log), fields)
    if not output.emit(diagnosis, [diagnosis], form, "name"):
        output.show(why_lines(diagnosis))


def _content(name: str) -> Content:
    """Raises CliError."""
    shown = "standard input" if name == STDIN else name
    try:
        if name == STDIN:
            log, left_out = _ends(sys.stdin.buffer)
        else:
            with _opened(Path(name)) as file:
                log, left_out = _ends(file)
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        raise _unreadable(f"{shown} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    sample = log[:SAMPLE_BYTES]
    if sample.count(0) > BINARY_SHARE * len(sample):
        raise _unreadable(f"{shown} is not a text. A log, an evidence document or a JSON object of facts is needed.")
    fields = None if left_out else _fields(log)
    return Content(shown, b"" if fields is not None else log, fields, left_out)


def _opened(path: Path) -> BinaryIO:
    """Raises CliError for a folder or a device, OSError."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise _unreadable(f"{path} is a folder. Name its files, such as {path / 'train.log'}.")
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
        raise _unreadable(f"{path} is no file with an end.")
    return path.open("rb")


def _unreadable(text: str) -> CliError:
    return CliError(text, USAGE, "FILE_UNREADABLE")


def _fields(data: bytes) -> Json | None:
    """The JSON object that the file is; None for anything else, which is a log."""
    if len(data) > FACTS_BYTES or data.lstrip()[:1] != b"{":
        return None
    try:
        value: Any = json.loads(data)
        # Half of a surrogate pair is legal JSON, and no text that can be printed.
        value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _ends(file: BinaryIO) -> tuple[bytes, int]:
    """(the file, 0); of a longer one its beginning and its end, and how many bytes between them were left out. It may
    be a pipe, which is read once and not kept."""
    head, left_out = file.read(HEAD_BYTES), 0
    if file.seekable():
        end = file.seek(0, os.SEEK_END)
        left_out = max(0, end - TAIL_BYTES - len(head))
        file.seek(len(head) + left_out)
    tail: deque[bytes] = deque(maxlen=TAIL_BYTES // PIECE_BYTES)
    for piece in _pieces(file):
        left_out += len(tail[0]) if len(tail) == tail.maxlen else 0
        tail.append(piece)
    return b"".join([head, *([b"\n"] if left_out else []), *tail]), left_out


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE_BYTES):
        yield piece
