"""The picture of `plan --what-if`: for each combination the range of its cost and of its end, as one SVG file.

A bar goes from p10 to p90 and its dot is p50; an end that some futures never reach goes on to the edge. A deadline is a
line across its row. Everything that is drawn is in the description, too, in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from textwrap import shorten, wrap
from typing import Any

from supervisor.cli.client import Json
from supervisor.cli.output import safe, utc_minute
from supervisor.cli.views.plan import cost_of, cost_text, done_text, names_of, no_figure
from supervisor.wording.figures import DASH, epoch, money

WIDTH, HEAD, ROW, FOOT = 1000, 64, 52, 34
LABEL_CHARS, LABEL_LINES, REASON_CHARS = 42, 3, 110
COST, END = (290, 610), (660, 960)  # from left to right, in pixels
_STYLE = """
svg { color: #1c2126; background: #fff; font: 13px system-ui, sans-serif; --range: #0a4fa8; --deadline: #b3261e }
@media (prefers-color-scheme: dark) {
  svg { color: #e8eaed; background: #14181d; --range: #8cbcff; --deadline: #ff9a92 }
}
text { fill: currentColor } .label { font-size: 12px } .head { font-weight: 600 }
.quiet { opacity: .75; font-size: 11.5px }
.grid { stroke: currentColor; opacity: .18 } .range { stroke: var(--range); stroke-width: 6; opacity: .55 }
.middle { fill: var(--range) } .deadline { stroke: var(--deadline); stroke-width: 2 } .late { fill: var(--deadline) }
"""


def picture(rows: Sequence[Json], wish: Mapping[str, Any]) -> str:
    """An SVG document. `rows`, `wish`: of POST /v1/what-if."""
    names = [names_of(row, wish) or "as in the spec" for row in rows]
    said = [f"{name}: {_in_words(row)}" for name, row in zip(names, rows, strict=True)]
    bottom = HEAD + ROW * len(rows)
    costs = [cost for row in rows for cost in cost_of(row)]
    ends = [at for row in rows for at in (*_ends(row), epoch(row["deadline"])) if at is not None]
    most = max(costs, default=0.0) or 1.0
    first, last = min(ends, default=0.0), max(ends, default=1.0)
    last = max(last, first + 60.0)
    size = f'viewBox="0 0 {WIDTH} {bottom + FOOT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title description">',
        '<title id="title">What if: cost and end of each combination</title>',
        f'<desc id="description">{escape(". ".join(said))}.</desc>',
        f"<style>{_STYLE}</style>",
        _text(16, 26, "Combination", "head"),
        _text(COST[0], 26, "Cost", "head"),
        _text(END[0], 26, "End (UTC)", "head"),
        _text(16, bottom + 24, "Bar: p10 to p90. Dot: p50.", "quiet"),
    ]
    if any(row["deadline"] for row in rows):
        parts.append(_text(END[0], bottom + 24, "Red line: the deadline.", "quiet late"))
    for share in (0.0, 0.5, 1.0):
        at = datetime.fromtimestamp(first + share * (last - first), UTC)
        parts += _mark(COST, share, money(share * most) if costs else "", bottom)
        parts += _mark(END, share, f"{at:%m-%d %H:%M}" if ends else "", bottom)
    for number, (name, row) in enumerate(zip(names, rows, strict=True)):
        parts += _row(row, name, HEAD + ROW * number, most=most, first=first, last=last)
    return "\n".join([*parts, "</svg>", ""])


def _row(row: Json, name: str, top: int, *, most: float, first: float, last: float) -> list[str]:
    label = wrap(name, LABEL_CHARS, max_lines=LABEL_LINES, placeholder=" …")
    parts = [_text(16, top + 16 + 15 * number, line, "label") for number, line in enumerate(label)]
    why = no_figure(row)
    if why and not cost_of(row):
        most_chars = REASON_CHARS // 2 if _ends(row) else REASON_CHARS
        reason = shorten(f"No figure: {safe(why)}", most_chars, placeholder=" …")
        parts.append(_text(COST[0], top + 38, reason, "quiet"))
    deadline = epoch(row["deadline"])
    if deadline is not None:
        x = _across(END, (deadline - first) / (last - first))
        parts.append(f'<line class="deadline" x1="{x}" x2="{x}" y1="{top}" y2="{top + ROW}"/>')
    cost, ends = cost_of(row), _ends(row)
    if cost:
        parts += _range(COST, [each / most for each in cost], top)
        parts.append(_text(COST[0], top + 38, cost_text(row), "quiet"))
    if ends:
        parts += _range(END, [None if at is None else (at - first) / (last - first) for at in ends], top)
        parts.append(_text(END[0], top + 38, done_text(row), "quiet"))
    return parts


def _range(between: tuple[int, int], shares: Sequence[float | None], top: int) -> list[str]:
    """`shares`: p10, p50, p90 from 0 to 1; None = never."""
    low, middle, high = shares
    if low is None:
        return []
    left, right = _across(between, low), _across(between, 1.0 if high is None else high)
    y = top + 16
    parts = [f'<line class="range" x1="{left}" x2="{max(right, left + 1)}" y1="{y}" y2="{y}"/>']
    if middle is not None:
        parts.append(f'<circle class="middle" cx="{_across(between, middle)}" cy="{y}" r="6"/>')
    return parts


def _mark(between: tuple[int, int], share: float, text: str, bottom: int) -> list[str]:
    x, anchor = _across(between, share), {0.0: "start", 1.0: "end"}.get(share, "middle")
    line = f'<line class="grid" x1="{x}" x2="{x}" y1="{HEAD - 4}" y2="{bottom}"/>'
    return [line, f'<text class="quiet" x="{x}" y="{HEAD - 14}" text-anchor="{anchor}">{escape(text)}</text>']


def _ends(row: Json) -> list[float | None]:
    """p10, p50, p90 in epoch seconds, None = never; [] = not known."""
    ends = (row["forecast"] or {}).get("ends_at")
    return [epoch(ends[name]) for name in ("p10", "p50", "p90")] if ends else []


def _in_words(row: Json) -> str:
    deadline = f", deadline {utc_minute(row['deadline'])}" if row["deadline"] else ""
    why = no_figure(row)
    if why and not _ends(row):
        return f"no figure, {safe(why).rstrip('.')}{deadline}"
    cost = cost_text(row)
    return f"cost {'unknown' if cost == DASH else cost}, done {done_text(row)}{deadline}"


def _across(between: tuple[int, int], share: float) -> float:
    return round(between[0] + share * (between[1] - between[0]), 1)


def _text(x: int, y: int, text: str, kind: str = "") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(text)}</text>'
