"""Figures as people read them: always with a unit, thousands separated, times in UTC.

Sentences leave an unknown figure out: the functions of the first part take no None. Tables show a dash in its place:
the functions below them take None, which is how the API reports an unknown figure. At the end: how a status and the
result of a check look, in a terminal and on a page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

DASH = "\N{EN DASH}"  # where a column has nothing to show
_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")
_SIZES = ("B", "kB", "MB", "GB", "TB")


class Look(NamedTuple):
    """How a word looks; its color never stands alone. `tone`: good, busy, wait, person, bad or still."""

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


def count_text(number: int) -> str:
    """12300 -> '12,300'."""
    return f"{number:,}"


def age_text(seconds: float) -> str:
    """'8 s', '3 min 20 s', '42 min', '2 h 14 min', '3 d 4 h'; no seconds from ten minutes on."""
    # Rounded down, so that "within 60 s" is never said of 60.4 s.
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
    """The time until `at`, rounded up: an action due in half a second is not due 'in 0 s'."""
    return age_text(math.ceil(max(0.0, at - now)))


def clock_text(at: float, now: float) -> str:
    """'14:00 UTC', with the date where it is not today."""
    try:
        moment = datetime.fromtimestamp(at, UTC)
        today = moment.date() == datetime.fromtimestamp(now, UTC).date()
        return moment.strftime("%H:%M UTC" if today else "%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):  # outside of every calendar
        return "an unknown time"


def day_text(at: float, now: float) -> str:
    """'14:00 UTC', 'Sat 00:00 UTC' within the next six days, else with the date."""
    if not 0 <= at - now < 6 * 86_400.0 or clock_text(at, now).count(" ") == 1:
        return clock_text(at, now)
    return datetime.fromtimestamp(at, UTC).strftime("%a %H:%M UTC")


def money_text(usd: float) -> str:
    """'$6.12', '-$6.12'; a sum below a cent that is not zero is '<$0.01'."""
    if round(usd, 2) < 0:
        return f"-${-usd:,.2f}"
    return "<$0.01" if 0 < usd < 0.005 else f"${abs(usd):,.2f}"


def size_text(size_bytes: int) -> str:
    """'412 MB', in powers of 1000."""
    amount, power = float(size_bytes), 0
    while amount >= 1000 and power < len(_SIZES) - 1:
        amount, power = amount / 1000, power + 1
    return f"{amount:.{1 if power and amount < 100 else 0}f} {_SIZES[power]}"


def pruned_text(files: int, size_bytes: int) -> str:
    """What the repair of a full disk did."""
    return f"the agent removed {plural(files, 'file')} of `scratch` ({size_text(size_bytes)})"


def gib_text(size_bytes: float) -> str:
    """'22.5' of GiB, without the unit: memory and disks are sold in powers of 1024."""
    amount = size_bytes / 2**30
    return f"{amount:.0f}" if amount >= 100 or amount == int(amount) else f"{amount:.1f}"


def rate_text(steps_per_s: float) -> str:
    """'3.1 steps/s', or for a slow training '40 s per step'."""
    if 0 < steps_per_s < 0.1:
        return f"{age_text(1 / steps_per_s)} per step"
    return f"{steps_per_s:,.1f} steps/s"


def only_on_host_text(checkpoint_step: int, copied_step: int | None, zone: str) -> str:
    """A checkpoint that is not in the object store yet."""
    here = "no copy is here yet" if copied_step is None else f"the copy here is of step {count_text(copied_step)}"
    return f"step {count_text(checkpoint_step)} is on {zone} only; {here}"


def plural(number: int, word: str) -> str:
    """'1 file', '3 files', '6 tries'."""
    many = word[:-1] + "ies" if word.endswith("y") else word + "s"
    return f"{count_text(number)} {word if number == 1 else many}"


def step_text(step: int | None) -> str:
    """'step 12,300', or 'the beginning' where no step is known."""
    return "the beginning" if step is None else f"step {count_text(step)}"


def after_colon(text: str) -> str:
    """One of our sentences after a colon: 'The command ended …' -> 'the command ended …'."""
    return "the " + text[4:] if text.startswith("The ") else text


def ended(clause: str) -> str:
    """A clause with its full stop; a clause that was cut has its dots."""
    return clause if clause.endswith("…") else clause + "."


def short_digests(text: str) -> str:
    """`train@sha256:fe316894b662`: twelve of the 64 digits are enough to tell images apart."""
    return _DIGEST.sub(r"\1", text)


def clip(text: str, limit: int) -> str:
    """One line of at most `limit` characters, without a full stop at its end; line breaks and control characters of a
    log line become spaces."""
    plain = text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text)
    line = " ".join(plain.split()).rstrip(". ")
    return line if len(line) <= limit else line[: max(0, limit - 1)].rstrip(". ") + "…"


Figure = TypeVar("Figure", int, float)


def _or_dash(text_of: Callable[[Figure], str]) -> Callable[[Figure | None], str]:
    return lambda figure: DASH if figure is None else text_of(figure)


count = _or_dash(count_text)
duration = _or_dash(age_text)
money = _or_dash(money_text)
size = _or_dash(size_text)
rate = _or_dash(rate_text)


_ODD = {"nan": "NaN", "inf": "∞", "-inf": "-∞"}


def metric_text(value: float | str | None) -> str:
    """A value of a metric, as the API has it."""
    if value is None or isinstance(value, str):
        return _ODD.get(value or "", DASH)
    return f"{value:.4g}"


def spent(cost: Mapping[str, object] | None) -> str:
    """Where a price is unknown, the known part as a lower bound; a cost of which nothing is known is not $0."""
    usd, complete = (cost or {}).get("usd"), (cost or {}).get("known", True)
    if not isinstance(usd, int | float) or not (usd or complete):
        return DASH
    return money_text(usd) if complete else f"≥ {money_text(usd)}"


def percent(part: float | None, whole: float | None) -> float | None:
    """0 to 100; None where it is unknown."""
    return None if part is None or not whole else min(100.0, max(0.0, 100.0 * part / whole))


def epoch(moment: str | None) -> float | None:
    """Epoch seconds of an RFC 3339 text."""
    return None if moment is None else datetime.fromisoformat(moment).timestamp()
