"""A line of output made harmless: what a terminal would obey is turned into looks, into signs, or left out.

Colours, bold, italic and underline (ECMA-48, SGR) become spans with classes of log.css; every other escape sequence is
left out. Of a progress bar that writes over itself the last state is shown. All other control characters are shown as
signs, those that turn the direction of reading too: nothing is hidden, moved or named for what it is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from supervisor.domain.texts import INVISIBLE
from supervisor.wording.figures import count_text

LINE_CHARS = 2000  # of one line that are shown
MOST = 200  # marks, looks and signs of one line: a page of it stays bounded, whatever it holds
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)([0-?]*)[ -/]*([@-~])"  # a control sequence; `m` is a look
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x00-\x1f\x7f-\x9f]*(?:\x07|\x1b\\|\x9c)"  # a string, such as a title
    r"|\x1b[ -/]*[0-Z\\`-~]"  # a short one; not [ ] ^ _ that begin a long one which has no end
)
_CONTROLS = re.compile(f"([\x00-\x08\x0a-\x1f\x7f-\x9f{INVISIBLE}\ud800-\udfff]+)")
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


class _Look(NamedTuple):
    """Classes of log.css; an empty one is none."""

    colour: str = ""
    bold: str = ""
    italic: str = ""
    underline: str = ""


def shown(line: str, mark: re.Pattern[str] | None = None, limit: int = LINE_CHARS) -> Markup:
    """One line, without its end. `mark`: what is marked in it. At most `limit` characters, and how many more there
    are."""
    pieces: list[tuple[_Look, str]] = []
    left, more = limit, 0
    for piece_look, text in _pieces(line.rstrip("\r").rpartition("\r")[2]):
        look = piece_look if len(pieces) < MOST else _Look()
        if pieces and pieces[-1][0] == look:
            pieces[-1] = (look, pieces[-1][1] + text[:left])
        else:
            pieces.append((look, text[:left]))
        more += max(0, len(text) - left)
        left = max(0, left - len(text))
    marked = list(_marked("".join(text for _, text in pieces), mark))
    out: list[Markup] = []
    at = 0
    for look, text in pieces:
        out += _piece(look, text, at, marked)
        at += len(text)
    if more:
        out.append(Markup('<span class="cut">…({} more characters)</span>').format(count_text(more)))
    return Markup("").join(out)


def pattern(text: str, match_case: bool) -> re.Pattern[str] | None:
    """For `mark`; None for an empty text."""
    return re.compile(re.escape(text), 0 if match_case else re.IGNORECASE) if text else None


def _pieces(text: str) -> Iterator[tuple[_Look, str]]:
    look, at = _Look(), 0
    for sequence in _SEQUENCE.finditer(text):
        if sequence.start() > at:
            yield look, text[at : sequence.start()]
        at = sequence.end()
        if sequence[2] == "m":
            look = _looks(look, sequence[1])
    if at < len(text):
        yield look, text[at:]


def _looks(look: _Look, codes: str) -> _Look:
    """After these parameters. Those that we do not show, or that make no sense, change nothing."""
    numbers = [
        int(part) if part.isascii() and part.isdigit() and len(part) < 4 else 0 for part in re.split("[;:]", codes)
    ]
    given = iter(numbers)
    for number in given:
        if number == 0:
            look = _Look()
        elif number in (38, 48):
            colour = _of_many(next(given, 0), given)
            look = look._replace(colour=colour) if number == 38 else look
        else:
            look = look._replace(**_SIMPLE.get(number, {}))
    return look


_SIMPLE: dict[int, dict[str, str]] = {
    1: {"bold": "bold"}, 3: {"italic": "italic"}, 4: {"underline": "underline"},
    22: {"bold": ""}, 23: {"italic": ""}, 24: {"underline": ""}, 39: {"colour": ""},
    **{30 + at: {"colour": name} for at, name in enumerate(_COLOURS)},
    **{90 + at: {"colour": f"bright-{name}"} for at, name in enumerate(_COLOURS)},
}  # fmt: skip


def _of_many(kind: int, given: Iterator[int]) -> str:
    """One of 256 colours (5) or of all (2) as the nearest of ours."""
    if kind == 2:
        return _nearest(next(given, 0), next(given, 0), next(given, 0))
    if kind != 5:
        return ""
    number = next(given, 0)
    if number < 16:
        return ("bright-" if number > 7 else "") + _COLOURS[number % 8]
    if number < 232:
        red, rest = divmod(number - 16, 36)
        return _nearest(red * 51, rest // 6 * 51, rest % 6 * 51)
    return "bright-black"


def _nearest(red: int, green: int, blue: int) -> str:
    top = max(red, green, blue)
    at = sum(bit for part, bit in ((red, 1), (green, 2), (blue, 4)) if part * 3 > top * 2)
    return "" if at in (0, 7) else _COLOURS[at]


def _marked(text: str, mark: re.Pattern[str] | None) -> Iterator[tuple[int, int]]:
    for number, match in enumerate(mark.finditer(text) if mark is not None else ()):
        if number == MOST:
            return
        yield match.span()


def _piece(look: _Look, text: str, at: int, marked: list[tuple[int, int]]) -> Iterator[Markup]:
    """`at`: where the text begins in its line."""
    cuts = {0, len(text), *(edge - at for span in marked for edge in span if 0 < edge - at < len(text))}
    edges = sorted(cuts)
    classes = " ".join(f"a-{name}" for name in look if name)
    for begin, end in pairwise(edges):
        made = _signs(text[begin:end])
        if classes:
            made = Markup('<span class="{}">{}</span>').format(classes, made)
        if any(first <= at + begin < last for first, last in marked):
            made = Markup("<mark>{}</mark>").format(made)
        yield made


def _signs(text: str) -> Markup:
    *parts, rest = _CONTROLS.split(text, MOST)
    out: list[str] = []
    for plain, controls in zip(parts[::2], parts[1::2], strict=True):
        out += (plain, Markup('<span class="ctl">{}</span>').format("".join(map(_sign, controls))))
    return Markup("").join([*out, _CONTROLS.sub(lambda match: "".join(map(_sign, match[0])), rest)])


def _sign(control: str) -> str:
    code = ord(control)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"⟨U+{code:04X}⟩"
