"""Numbers as people read them: always with a unit, thousands separated, times in UTC.

Every text here is short and free of None: a figure that is not known is left out by the caller, never guessed.

Figures as the API tells them to clients, where null is one that is not known: for people a dash, never a guess. And
how the words for a status and for a check look, in a terminal as on a page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

FACT_CHARS = 300
DASH = "\N{EN DASH}"  # where a column has nothing to show
_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")


def count_text(number: int) -> str:
    """12300 -> '12,300'."""
    return f"{number:,}"


def age_text(seconds: float) -> str:
    """'8 s', '3 min 20 s', '42 min', '2 h 14 min', '3 d 4 h'; seconds are dropped from ten minutes on."""
    # Rounded down, so that "within 60 s" is never said of 60.4 s that have passed.
    whole = int(max(0.0, seconds)) if math.isfinite(seconds) else 0
    if whole < 60:
        return f"{whole} s"
    if whole < 600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 2 * 86400:
        minutes = whole % 3600 // 60
        return f"{whole // 3600} h" + (f" {minutes:02d} min" if minutes else "")
    hours = whole % 86400 // 3600
    return f"{count_text(whole // 86400)} d" + (f" {hours} h" if hours else "")


def until_text(at: float, now: float) -> str:
    """How long it is until `at`; rounded up, so that a thing that is due in half a second is not 'in 0 s'."""
    return age_text(math.ceil(max(0.0, at - now)))


def clock_text(at: float, now: float) -> str:
    """'14:00 UTC', with the date when it is not the day of now."""
    try:
        moment = datetime.fromtimestamp(at, UTC)
        today = moment.date() == datetime.fromtimestamp(now, UTC).date()
        return moment.strftime("%H:%M UTC" if today else "%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):  # a time no calendar holds
        return "an unknown time"


def money_text(usd: float) -> str:
    """'$6.12'; a sum below a cent that is not zero is '<$0.01'."""
    return "<$0.01" if 0 < usd < 0.005 else f"${usd:,.2f}"


def size_text(size_bytes: int) -> str:
    """'412 MB', in powers of 1000."""
    amount, units = float(size_bytes), ["B", "kB", "MB", "GB", "TB"]
    while amount >= 1000 and len(units) > 1:
        amount, units = amount / 1000, units[1:]
    return f"{amount:.0f} {units[0]}" if amount >= 100 or units[0] == "B" else f"{amount:.1f} {units[0]}"


def gib_text(size_bytes: float) -> str:
    """'22.5' of GiB: memory and disks, which are sold in powers of 1024; the caller adds the unit."""
    amount = size_bytes / 2**30
    return f"{amount:.0f}" if amount >= 100 or amount == int(amount) else f"{amount:.1f}"


def rate_text(steps_per_s: float) -> str:
    """'3.1 steps/s', or for a slow training '40 s per step'."""
    if 0 < steps_per_s < 0.1:
        return f"{age_text(1 / steps_per_s)} per step"
    return f"{steps_per_s:,.1f} steps/s"


def plural(number: int, word: str) -> str:
    """'1 file', '3 files', '6 tries'."""
    many = word[:-1] + "ies" if word.endswith("y") else word + "s"
    return f"{count_text(number)} {word if number == 1 else many}"


def step_text(step: int | None) -> str:
    """'step 12,300', or 'the beginning' where no step is known."""
    return "the beginning" if step is None else f"step {count_text(step)}"


def after_colon(text: str) -> str:
    """A sentence of ours where a colon goes before it: 'The command ended …' -> 'the command ended …'."""
    return "the " + text[4:] if text.startswith("The ") else text


def ended(clause: str) -> str:
    """A clause with its full stop; one that was cut off has its dots."""
    return clause if clause.endswith("…") else clause + "."


def short_digests(text: str) -> str:
    """`train@sha256:fe316894b662`: twelve of the 64 digits tell images apart, and leave room for the rest."""
    return _DIGEST.sub(r"\1", text)


def clip(text: str, limit: int) -> str:
    """One line of at most `limit` characters without a full stop at its end; line breaks and control characters,
    which a log line may hold, become spaces."""
    plain = text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
    line = " ".join(plain.split()).rstrip(". ")
    return line if len(line) <= limit else line[: max(0, limit - 1)].rstrip(". ") + "…"


def count(number: int | None) -> str:
    return DASH if number is None else count_text(number)


def duration(seconds: float | None) -> str:
    return DASH if seconds is None else age_text(seconds)


def money(usd: float | None) -> str:
    return DASH if usd is None else money_text(usd)


def spent(cost: Mapping[str, object] | None) -> str:
    """Where a price is unknown, what is known of it as a lower bound; and nothing known is not $0."""
    usd = (cost or {}).get("usd")
    if not isinstance(usd, int | float):
        return DASH
    if (cost or {}).get("known", True):
        return money_text(usd)
    return f"≥ {money_text(usd)}" if usd else DASH


def percent(part: float | None, whole: float | None) -> float | None:
    """0 to 100; None where it cannot be told."""
    return None if part is None or not whole else min(100.0, max(0.0, 100.0 * part / whole))


def epoch(moment: str | None) -> float | None:
    """Epoch seconds of an RFC 3339 text."""
    return None if moment is None else datetime.fromisoformat(moment).timestamp()


class Look(NamedTuple):
    """How a word looks: the colour never stands alone. `tone`: good, busy, wait, person, bad or still."""

    sign: str
    tone: str
    text: str


STATUS_LOOKS = {
    "pending": Look("○", "busy", "pending"),
    "waiting": Look("○", "wait", "waiting"),
    "launching": Look("◔", "busy", "launching"),
    "running": Look("●", "good", "running"),
    "recovering": Look("◐", "wait", "recovering"),
    "finishing": Look("◕", "good", "finishing"),
    "stopping": Look("◌", "wait", "stopping"),
    "awaiting_teardown": Look("◆", "person", "to approve"),
    "completed": Look("✔", "good", "completed"),
    "partial": Look("◑", "person", "partial"),
    "failed": Look("✗", "bad", "failed"),
    "stopped": Look("■", "still", "stopped"),
}
CHECK_LOOKS = {
    "ok": Look("✔", "good", "ok"),
    "warn": Look("!", "wait", "look at it"),
    "fail": Look("✗", "bad", "broken"),
}


def fact_text(value: object) -> str | None:
    """One fact for people: `2 x NVIDIA L4`; None stays None."""
    if value is None:
        return None
    if isinstance(value, list) and value and len(set(map(str, value))) == 1 and len(value) > 1:
        return f"{len(value)} x {value[0]}"[:FACT_CHARS]
    if isinstance(value, list):
        return ", ".join(map(str, value))[:FACT_CHARS] or None
    return str(value)[:FACT_CHARS]
