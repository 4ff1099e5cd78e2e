"""Limits that contradict each other are refused before they can kill healthy work, always with both numbers.

One place for the pairs of RULES section 4: the settings check their defaults here, a submit checks its own limits.
"""

from __future__ import annotations

from supervisor.domain.errors import InvalidTimeouts
from supervisor.domain.policies import StallLimits

BEATS_PER_SILENCE = 3  # a silence limit must hold at least this many stored beats
BOOT_MARGIN_S = 300.0  # what a boot needs beyond the wait for its GPU
CUT_OFF_MIN_S = 3600.0


def check_stall(
    stall: StallLimits, beat_store_s: float, gpu_timeout_s: float, prefix: str = "stall."
) -> None:
    """Raises InvalidTimeouts. `prefix` is put before the names of `stall`'s fields; gpu_timeout_s 0 = no GPU to wait
    for, so any boot limit may stand."""
    silence_min_s = BEATS_PER_SILENCE * beat_store_s
    if stall.silence_s < silence_min_s:
        raise contradiction(
            f"{prefix}silence_s", stall.silence_s, "%d x beat_store_s" % BEATS_PER_SILENCE, bound=silence_min_s,
            why="one late beat would be taken for a dead agent",
            cure=f"Set silence_s >= {silence_min_s:g}, or lower beat_store_s.",
        )  # fmt: skip
    boot_min_s = gpu_timeout_s + BOOT_MARGIN_S
    if gpu_timeout_s > 0 and stall.boot_timeout_s < boot_min_s:
        raise contradiction(
            f"{prefix}boot_timeout_s", stall.boot_timeout_s, f"gpu_timeout_s + {BOOT_MARGIN_S:g}", bound=boot_min_s,
            why="a VM that is still installing its driver would be taken for dead",
            cure=f"Set boot_timeout_s >= {boot_min_s:g}, or lower gpu_timeout_s.",
        )  # fmt: skip


def check_cut_off(cut_off_s: float) -> None:
    """Raises InvalidTimeouts: the cut-off clock only saves money, the baton protects the data."""
    if cut_off_s < CUT_OFF_MIN_S:
        raise contradiction(
            "cut_off_s", cut_off_s, "its minimum", bound=CUT_OFF_MIN_S,
            why="an outage of the store would end healthy trainings", cure=f"Set cut_off_s >= {CUT_OFF_MIN_S:g}.",
        )  # fmt: skip


def check_order(lower_name: str, lower: float, upper_name: str, upper: float, why: str) -> None:
    """Raises InvalidTimeouts unless lower <= upper."""
    if upper < lower:
        raise contradiction(
            upper_name, upper, lower_name, bound=lower, why=why,
            cure=f"Set {upper_name} >= {lower:g}, or lower {lower_name}.",
        )  # fmt: skip


def contradiction(
    name: str, value: float, other: str, *, bound: float, why: str, cure: str
) -> InvalidTimeouts:
    text = f"{name} = {value:g} is shorter than {other} = {bound:g} s: {why}. {cure}"
    return InvalidTimeouts(text, {"field": name, "value": value, "bound": other, "bound_value": bound})
