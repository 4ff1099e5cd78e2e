"""Where an axis has its marks, and how figures are written beside it and in words.

Every figure has its unit. Units: `steps`, `rate` (steps/s), `percent` (0 to 100), `bytes` (in powers of 1000), and ``
for a metric of the training, of which nothing is known. static/chart_words.js writes the same for whoever points at a
chart.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

from supervisor.wording.figures import count_text, rate_text, size_text

DAY_S = 86_400
TIME_STEPS_S = (
    1, 5, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200,
    DAY_S, 2 * DAY_S, 7 * DAY_S, 14 * DAY_S, 28 * DAY_S, 91 * DAY_S, 364 * DAY_S,
)  # fmt: skip
SHORT = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
SCIENTIFIC_FROM, SCIENTIFIC_BELOW = 1e7, 1e-4
LONG_FROM = 1e9  # too long for an axis when written out
DIGITS = 4  # that count, of a metric


def time_marks(begin: float, end: float, most: int) -> list[tuple[float, str]]:
    """At most so many round times between the two, in UTC: the clock, and at midnight the day."""
    step = next((step for step in TIME_STEPS_S if end // step - math.ceil(begin / step) + 1 <= most), TIME_STEPS_S[-1])
    first = math.ceil(begin / step) * step
    marks = [first + number * step for number in range(most) if first + number * step <= end]
    return [(float(at), _time_text(at, step)) for at in marks]


def _time_text(at: float, step: float) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    if at % DAY_S == 0:
        return f"{moment:%b} {moment.day}"
    return f"{moment:%H:%M}" if step >= 60 else f"{moment:%H:%M:%S}"


def value_marks(low: float, high: float, most: int) -> list[float]:
    """At most so many round values between the two (which differ), in order."""
    step = _round_up((high - low) / most)
    first = math.ceil(low / step)
    marks = [(first + number) * step for number in range(most + 1)]
    return [mark for mark in marks if low <= mark <= high][:most]


def _round_up(step: float) -> float:
    """To 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(size * power for size in (1, 2, 5, 10) if size * power >= step * (1 - 1e-9))


def mark_text(value: float, step: float, unit: str) -> str:
    """Beside an axis whose marks lie `step` apart: short, and no two marks of one axis read alike."""
    if unit == "percent":
        return f"{_decimals(value, step)} %"
    if unit == "bytes":
        return _shortened(value, step, "B") if value else "0 B"
    if unit == "steps":
        return _shortened(value, step, "").replace(" ", "")
    if value == 0:
        return "0"
    if abs(value) >= LONG_FROM or step < SCIENTIFIC_BELOW:
        return _scientific(value, max(0, math.floor(math.log10(abs(value))) - math.floor(math.log10(step))))
    return _decimals(value, step)


def _shortened(value: float, step: float, unit: str) -> str:
    for size, letter in SHORT:
        if abs(value) >= size:
            return f"{_decimals(value / size, step / size)} {letter}{unit}"
    return f"{_decimals(value, step)} {unit}".strip()


def _decimals(value: float, step: float) -> str:
    """As many as tell marks apart that lie `step` apart."""
    return f"{value:,.{max(0, min(9, -math.floor(math.log10(step) + 1e-9)))}f}"


def _scientific(value: float, decimals: int) -> str:
    head, _, power = f"{value:.{min(6, decimals)}e}".partition("e")
    return f"{head}e{int(power)}"


def value_text(value: float, unit: str) -> str:
    """In words of its own: `12,300`, `3.1 steps/s`, `87.5 %`, `24.1 GB`, `0.3112`."""
    if unit == "steps":
        return count_text(round(value))
    if unit == "rate":
        return rate_text(value)
    if unit == "percent":
        return f"{_trimmed(f'{value:.1f}')} %"
    if unit == "bytes":
        return size_text(round(value))
    return metric_text(value)


def metric_text(value: float) -> str:
    size = abs(value)
    if size != 0 and (size >= SCIENTIFIC_FROM or size < SCIENTIFIC_BELOW):
        head, _, power = f"{value:.{DIGITS - 1}e}".partition("e")
        return f"{_trimmed(head)}e{int(power)}"
    whole = len(str(int(size))) if size >= 1 else 0
    leading = -math.floor(math.log10(size)) - 1 if 0 < size < 1 else 0  # zeros after the point
    return _trimmed(f"{value:,.{max(0, DIGITS - whole) + leading}f}")


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
