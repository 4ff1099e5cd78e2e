"""Figures, times and statuses as the pages write them: plain text, or markup that is made safe here.

Times are relative, with the absolute time in their title; scripts keep them current.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache

from markupsafe import Markup

from supervisor.wording.figures import (
    DASH,
    STATUS_LOOKS,
    Look,
    age_text,
    count,
    duration,
    epoch,
    money,
    money_text,
    plural,
    rate,
    short_digests,
    size,
    spent,
)
from supervisor.wording.gates import GATE_LOOKS, VERDICT_LOOKS, WAIVED_LOOK

NOTHING = Markup("&ndash;")
_CODE = re.compile(r"`([^`]+)`")
_COUNTED = re.compile(r"(.*?) (?:in|within) \d.*|(ETA(?: ≈)?) .*", re.DOTALL)


def look_of(word: str, looks: Mapping[str, Look]) -> Look:
    """An unknown word is shown as it is."""
    return looks.get(word, Look("·", "still", word))


def status_look(status: str) -> Look:
    return look_of(status, STATUS_LOOKS)


def gate_look(state: str) -> Look:
    return look_of(state, GATE_LOOKS)


def verdict_look(verdict: Mapping[str, object]) -> Look:
    """Of a verdict as the API has it."""
    return WAIVED_LOOK if verdict["waived"] else look_of(str(verdict["state"]), VERDICT_LOOKS)


def chip(look: Look) -> Markup:
    text = '<span class="chip {}"><span aria-hidden="true">{}</span> {}</span>'
    return Markup(text).format(look.tone, look.sign, look.text)  # noqa: S704 - a constant


def price(usd_per_h: float | None) -> str:
    """Small prices per hour differ behind the cents: `$0.2871`, `$0.10`, `$34.20`."""
    if usd_per_h is None:
        return DASH
    if not 0 < usd_per_h < 10:
        return money_text(usd_per_h)
    whole, _, cents = f"{usd_per_h:.4f}".partition(".")
    return f"${whole}.{cents[:2]}{cents[2:].rstrip('0')}"


def share(part_of_100: float) -> str:
    """`88 %`; a share below half a percent is not 0."""
    return "<1 %" if 0 < part_of_100 < 0.5 else f"{part_of_100:.0f} %"


def ago(moment: str | None, now: float) -> Markup:
    """`3 min 20 s ago`, `in 40 s`: an element that scripts keep current (`data-tick`)."""
    at = epoch(moment)
    if moment is None or at is None:
        return NOTHING
    return _ticking(moment, f"in {age_text(at - now)}" if at > now else f"{age_text(now - at)} ago")


@lru_cache(4096)  # a list shows three for each row, and mostly the same a minute later
def _ticking(moment: str, text: str) -> Markup:
    return Markup('<time datetime="%s" title="%s" data-tick>%s</time>') % (moment, whole_time(moment), text)


def what_next(action: dict[str, object], now: float) -> Markup:
    """The next action of a run: `launch in 4 s`; a known time is an element that scripts keep current."""
    what, at = str(action["what"]), action["at"]
    parts = _COUNTED.fullmatch(what)
    if not isinstance(at, str) or parts is None:
        return Markup("{}").format(what)
    words = "≈ ETA" if parts[2] == "ETA ≈" else parts[1] or parts[2]
    return Markup("{} {}").format(words, ago(at, now))


def clock(moment: str | None) -> Markup:
    """The time of day in UTC, with the date in its title."""
    if moment is None:
        return NOTHING
    whole = whole_time(moment)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(moment, whole, whole[11:19])


def moment_text(at: float) -> str:
    """Epoch seconds as RFC 3339 in whole seconds, as the API takes a time."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def whole_time(moment: str) -> str:
    return datetime.fromisoformat(moment).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def with_code(text: str | None) -> Markup:
    """A sentence of the API, with its parts between backticks as `<code>`."""
    parts = _CODE.split(text or "")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else part for number, part in enumerate(parts)
    )


def pretty_json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


FILTERS = {
    "count": count, "duration": duration, "money": money, "rate": rate, "size": size,
    **{
        function.__name__: function
        for function in (
            pretty_json, price, spent, share, short_digests, clock, whole_time, plural, status_look, gate_look,
            verdict_look, with_code,
        )
    },
}  # fmt: skip
