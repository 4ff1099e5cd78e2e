"""Figures, times and statuses as the pages write them. Everything here gives plain text or marks it up as safe itself.

Times are relative, with the absolute one beside them for whoever points at them; scripts keep them going.
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
    rate_text,
    short_digests,
    size_text,
    spent,
)

NOTHING = Markup("&ndash;")
_CODE = re.compile(r"`([^`]+)`")
_COUNTED = re.compile(r"(.*?) (?:in|within) \d.*|(ETA) .*", re.DOTALL)


def look_of(word: str, looks: Mapping[str, Look]) -> Look:
    """A word that we do not know yet is shown as it is."""
    return looks.get(word, Look("·", "still", word))


def status_look(status: str) -> Look:
    return look_of(status, STATUS_LOOKS)


def price(usd_per_h: float | None) -> str:
    """Of an hour: small ones differ behind the cents. `$0.2871`, `$0.10`, `$34.20`."""
    if usd_per_h is None:
        return DASH
    if not 0 < usd_per_h < 10:
        return money_text(usd_per_h)
    whole, _, cents = f"{usd_per_h:.4f}".partition(".")
    return f"${whole}.{cents[:2]}{cents[2:].rstrip('0')}"


def size(size_bytes: int | None) -> str:
    return DASH if size_bytes is None else size_text(size_bytes)


def rate(steps_per_s: float | None) -> str:
    return DASH if steps_per_s is None else rate_text(steps_per_s)


def share(part_of_100: float) -> str:
    """`88 %`; what is there but less than half of one is not 0."""
    return "<1 %" if 0 < part_of_100 < 0.5 else f"{part_of_100:.0f} %"


def ago(moment: str | None, now: float) -> Markup:
    """`3 min 20 s ago`, `in 40 s`: an element that scripts keep going (`data-tick`); its title is the whole time."""
    at = epoch(moment)
    if moment is None or at is None:
        return NOTHING
    return _ticking(moment, f"in {age_text(at - now)}" if at > now else f"{age_text(now - at)} ago")


@lru_cache(4096)  # a list shows three for each row, and a minute later mostly the same
def _ticking(moment: str, text: str) -> Markup:
    return Markup('<time datetime="%s" title="%s" data-tick>%s</time>') % (moment, whole_time(moment), text)


def what_next(action: dict[str, object], now: float) -> Markup:
    """The next action of a run: `launch in 4 s`, where the time is known as an element that scripts keep going."""
    what, at = str(action["what"]), action["at"]
    parts = _COUNTED.fullmatch(what)
    if not isinstance(at, str) or parts is None:
        return Markup("{}").format(what)
    return Markup("{} {}").format(parts[1] or parts[2], ago(at, now))


def clock(moment: str | None) -> Markup:
    """The time of day in UTC, with the date as its title."""
    if moment is None:
        return NOTHING
    local = datetime.fromisoformat(moment).astimezone(UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        moment, whole_time(moment), local.strftime("%H:%M:%S")
    )


def moment_text(at: float) -> str:
    """Epoch seconds as the API takes a time: RFC 3339, whole seconds."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def whole_time(moment: str) -> str:
    return datetime.fromisoformat(moment).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def with_code(text: str | None) -> Markup:
    """A sentence of the API, in which what is typed or quoted stands between backticks, as a terminal has it: that as
    `<code>`."""
    parts = _CODE.split(text or "")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else part for number, part in enumerate(parts)
    )


def pretty_json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


FILTERS = {
    function.__name__: function
    for function in (
        pretty_json, money, price, spent, count, duration, size, rate, share, short_digests, clock, whole_time, plural,
        status_look, with_code,
    )
}  # fmt: skip
