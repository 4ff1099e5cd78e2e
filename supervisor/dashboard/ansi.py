"""A line of output made harmless: terminal sequences become styles, visible signs, or nothing.

Colors, bold, italic and underline (ECMA-48, SGR) become spans with classes of log.css; every other escape sequence is
left out. A progress bar that overwrites itself shows its last state. All other control characters become visible signs,
also the ones that change the direction of reading: no text is hidden, moved, or shown as another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from supervisor.domain.texts import INVISIBLE
from supervisor.wording.figures import count_text

LINE_CHARS = 2000  # shown of one line
MARKS_MAX = 200  # marks, styles and signs of one line: a page stays bounded
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)([0-?]*)[ -/]*([@-~])"  # a control sequence; `m` sets a style
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x00-\x1f\x7f-\x9f]*(?:\x07|\x1b\\|\x9c)"  # a string, such as a title
    r"|\x1b[ -/]*[0-Z\\`-~]"  # a short sequence; not [ ] ^ _, which begin a long one that is not complete
)
_CONTROLS = re.compile(f"([\x00-\x08\x0a-\x1f\x7f-\x9f{INVISIBLE}\ud800-\udfff]+)")
_COLORS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


class _Style(NamedTuple):
    """Classes of log.css; "" = none."""

    color: str = ""
    bold: str = ""
    italic: str = ""
    underline: str = ""


def shown(line: str, mark: re.Pattern[str] | None = None, limit: int = LINE_CHARS) -> Markup:
    """One line, without its line end. `mark`: what to mark in it. At most `limit` characters, then how many more there
    are."""
    pieces: list[tuple[_Style, str]] = []
    left, more = limit, 0
    for piece_style, text in _pieces(line.rstrip("\r").rpartition("\r")[2]):
        style = piece_style if len(pieces) < MARKS_MAX else _Style()
        if pieces and pieces[-1][0] == style:
            pieces[-1] = (style, pieces[-1][1] + text[:left])
        else:
            pieces.append((style, text[:left]))
        more += max(0, len(text) - left)
        left = max(0, left - len(text))
    marked = list(_marked("".join(text for _, text in pieces), mark))
    out: list[Markup] = []
    at = 0
    for style, text in pieces:
        out += _piece(style, text, at, marked)
        at += len(text)
    if more:
        out.append(Markup('<span class="cut">…({} more characters)</span>').format(count_text(more)))
    return Markup("").join(out)


def pattern(text: str, match_case: bool) -> re.Pattern[str] | None:
    """For `mark`; None for an empty text."""
    return re.compile(re.escape(text), 0 if match_case else re.IGNORECASE) if text else None


def _pieces(text: str) -> Iterator[tuple[_Style, str]]:
    style, at = _Style(), 0
    for sequence in _SEQUENCE.finditer(text):
        if sequence.start() > at:
            yield style, text[at : sequence.start()]
        at = sequence.end()
        if sequence[2] == "m":
            style = _styled(style, sequence[1])
    if at < len(text):
        yield style, text[at:]


def _styled(style: _Style, codes: str) -> _Style:
    """The style after these parameters. Unsupported and invalid ones change nothing."""
    numbers = [
        int(part) if part.isascii() and part.isdigit() and len(part) < 4 else 0 for part in re.split("[;:]", codes)
    ]
    given = iter(numbers)
    for number in given:
        if number == 0:
            style = _Style()
        elif number in (38, 48):
            color = _of_many(next(given, 0), given)
            style = style._replace(color=color) if number == 38 else style
        else:
            style = style._replace(**_SIMPLE.get(number, {}))
    return style


_SIMPLE: dict[int, dict[str, str]] = {
    1: {"bold": "bold"}, 3: {"italic": "italic"}, 4: {"underline": "underline"},
    22: {"bold": ""}, 23: {"italic": ""}, 24: {"underline": ""}, 39: {"color": ""},
    **{30 + at: {"color": name} for at, name in enumerate(_COLORS)},
    **{90 + at: {"color": f"bright-{name}"} for at, name in enumerate(_COLORS)},
}  # fmt: skip


def _of_many(kind: int, given: Iterator[int]) -> str:
    """One of 256 colors (5) or an RGB color (2) as the nearest of ours."""
    if kind == 2:
        return _nearest(next(given, 0), next(given, 0), next(given, 0))
    if kind != 5:
        return ""
    number = next(given, 0)
    if number < 16:
        return ("bright-" if number > 7 else "") + _COLORS[number % 8]
    if number < 232:
        red, rest = divmod(number - 16, 36)
        return _nearest(red * 51, rest // 6 * 51, rest % 6 * 51)
    return "bright-black"


def _nearest(red: int, green: int, blue: int) -> str:
    top = max(red, green, blue)
    at = sum(bit for part, bit in ((red, 1), (green, 2), (blue, 4)) if part * 3 > top * 2)
    return "" if at in (0, 7) else _COLORS[at]


def _marked(text: str, mark: re.Pattern[str] | None) -> Iterator[tuple[int, int]]:
    for number, match in enumerate(mark.finditer(text) if mark is not None else ()):
        if number == MARKS_MAX:
            return
        yield match.span()


def _piece(style: _Style, text: str, at: int, marked: list[tuple[int, int]]) -> Iterator[Markup]:
    """`at`: the position of the text in its line."""
    cuts = {0, len(text), *(edge - at for span in marked for edge in span if 0 < edge - at < len(text))}
    edges = sorted(cuts)
    classes = " ".join(f"a-{name}" for name in style if name)
    for begin, end in pairwise(edges):
        made = _signs(text[begin:end])
        if classes:
            made = Markup('<span class="{}">{}</span>').format(classes, made)
        if any(first <= at + begin < last for first, last in marked):
            made = Markup("<mark>{}</mark>").format(made)
        yield made


def _signs(text: str) -> Markup:
    *parts, rest = _CONTROLS.split(text, MARKS_MAX)
    out: list[str] = []
    for plain, controls in zip(parts[::2], parts[1::2], strict=True):
        out += (plain, Markup('<span class="ctl">{}</span>').format("".join(map(_sign, controls))))
    return Markup("").join([*out, _CONTROLS.sub(lambda match: "".join(map(_sign, match[0])), rest)])


def _sign(control: str) -> str:
    code = ord(control)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"⟨U+{code:04X}⟩"
