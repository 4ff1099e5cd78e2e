"""Figures as the API tells them to clients, where null is one that is not known: for people a dash, never a guess."""

from __future__ import annotations

from datetime import datetime

from supervisor.wording.figures import DASH, age_text, count_text, money_text


def count(number: int | None) -> str:
    return DASH if number is None else count_text(number)


def duration(seconds: float | None) -> str:
    return DASH if seconds is None else age_text(seconds)


def money(usd: float | None) -> str:
    return DASH if usd is None else money_text(usd)


def percent(part: float | None, whole: float | None) -> float | None:
    """0 to 100; None where it cannot be told."""
    return None if part is None or not whole else min(100.0, max(0.0, 100.0 * part / whole))


def epoch(moment: str | None) -> float | None:
    """Epoch seconds of an RFC 3339 text."""
    return None if moment is None else datetime.fromisoformat(moment).timestamp()
