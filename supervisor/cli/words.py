"""Bars, times, durations as people type them, and text from elsewhere made safe for a terminal."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

from supervisor.domain.access.plaintext import HIDDEN, visible
from supervisor.wording.figures import DASH, age_text

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
    return HIDDEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


def safe_log(text: str) -> str:
    """Log text for a terminal: colours, tabs and line ends stay, everything that drives the terminal goes."""
    parts = _COLOUR.split(text)
    colours = [*_COLOUR.findall(text), ""]
    return "".join(
        visible(_CONTROL.sub("", part)) + colour for part, colour in zip(parts, colours, strict=True)
    )


def rfc3339_ago(seconds: float) -> str:
    """The moment so long ago, as the API writes times."""
    moment = datetime.now(UTC) - timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
