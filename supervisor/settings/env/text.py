"""The syntax of an environment file of the older runner: KEY=value as a shell reads it, but without a shell.

It accepts quotes, `export`, comments, bash arrays, and `$NAME` or `${NAME}` of a key earlier in the same file. Nothing
is executed, and nothing is read from the environment: a value that needs that is marked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from supervisor.domain.errors import SettingsRefused

_ASSIGNMENT = re.compile(r"(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)=")
_NAME = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")

Lines = Mapping[str, "Line"]  # by key


@dataclass(frozen=True)
class Line:
    """One assignment. `shell`: the value contains a substitution that needs a shell."""

    number: int
    key: str
    value: str
    shell: bool = False


def parse(text: str, complain: Callable[[int, str], None]) -> list[Line]:
    """All assignments of the text, in order. `complain(line, what)` is called for every other line. Raises
    SettingsRefused for an unclosed quote or array."""
    lines: list[Line] = []
    by_key: dict[str, Line] = {}
    at = 0
    while at < len(text):
        if text[at] in " \t\r\n;":
            at += 1
        elif text[at] == "#":
            at = _line_end(text, at)
        elif (match := _ASSIGNMENT.match(text, at)) is None:
            complain(text.count("\n", 0, at) + 1, "not KEY=value; ignored, nothing here is run.")
            at = _line_end(text, at)
        else:
            number = text.count("\n", 0, at) + 1
            value, shell, at = _value(text, match.end(), number, by_key)
            lines.append(Line(number, match.group(1), value, shell))
            by_key[match.group(1)] = lines[-1]
    return lines


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _value(text: str, at: int, number: int, lines: Lines) -> tuple[str, bool, int]:
    """(value, needs a shell, end position); the words of an array are joined by spaces."""
    if text[at : at + 1] != "(":
        return _word(text, at, number, lines)
    words, shell, at = [], False, at + 1
    while at < len(text) and text[at] != ")":
        if text[at] in " \t\r\n":
            at += 1
        elif text[at] == "#":
            at = _line_end(text, at)
        else:
            word, substituted, at = _word(text, at, number, lines)
            words.append(word)
            shell = shell or substituted
    if at >= len(text):
        raise SettingsRefused("environment file line %d: the array is not closed" % number)
    return " ".join(words), shell, at + 1


def _word(text: str, at: int, number: int, lines: Lines) -> tuple[str, bool, int]:
    """One shell word without its quotes: (word, needs a shell, end position)."""
    word, shell, quote = [], False, ""
    while at < len(text):
        char = text[at]
        if not quote and char in " \t\r\n;)":
            break
        if char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
        elif char == "\\" and quote != "'":
            at += 1
            word.append(text[at : at + 1].replace("\n", ""))
        elif char == "$" and quote != "'" and (reference := _reference(text, at, lines)) is not None:
            word.append(reference[0])
            at = reference[1]
            continue
        else:
            shell = shell or (char in "$`" and quote != "'")
            word.append(char)
        at += 1
    if quote:
        raise SettingsRefused("environment file line %d: the quote %s is not closed" % (number, quote))
    return "".join(word), shell, max(at, 0)


def _reference(text: str, at: int, lines: Lines) -> tuple[str, int] | None:
    """(value, end position) of a reference to an earlier key; None for anything else."""
    match = _NAME.match(text, at)
    line = lines.get(match.group(1) or match.group(2)) if match is not None else None
    return None if match is None or line is None or line.shell else (line.value, match.end())
