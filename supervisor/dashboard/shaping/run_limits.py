"""The limits and zones of a live run as fields of a form, and the patch that its answers ask for: pure.

What is left as it was is not in the patch; an emptied field asks for the default. What cannot be read is sent as it
was typed, for the API to refuse by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from supervisor.dashboard.forms import first

ZONES = "zones"


class Limit(NamedTuple):
    name: str  # in the spec's `limits`
    text: str
    hint: str
    kind: str = "float"


LIMITS = (
    Limit("budget_usd", "Budget, $", "all attempts since it was last started or resumed; empty: no budget"),
    Limit(
        "max_runtime_s", "Training time at most, s", "since it was last started or resumed; empty: no limit"
    ),
    Limit("deadline", "Deadline", "such as 2030-01-31T08:00:00Z; empty: none", "text"),
    Limit(
        "max_attempts",
        "Attempts at most",
        "failures; preemptions do not count; empty: as the settings say",
        "int",
    ),
    Limit(
        "wait_for_capacity_s",
        "Wait for capacity at most, s",
        "then the run fails; empty: as the settings say",
    ),
)


def shown_limits(spec: Mapping[str, Any]) -> dict[str, str]:
    """What stands in each field; "" = the default counts."""
    limits = spec.get("limits", {})
    shown = {one.name: _text(limits.get(one.name)) for one in LIMITS}
    return {**shown, ZONES: ", ".join(spec.get(ZONES, []))}


def patch_of(spec: Mapping[str, Any], form: Mapping[str, list[str]]) -> dict[str, Any]:
    """A merge patch (RFC 7396); empty = nothing was changed."""
    shown, patch = shown_limits(spec), dict[str, Any]()
    changed = {
        one.name: _value(one.kind, first(form, one.name))
        for one in LIMITS
        if one.name in form and first(form, one.name) != shown[one.name]
    }
    if changed:
        patch["limits"] = changed
    if ZONES in form:
        zones = [zone for zone in first(form, ZONES).replace(",", " ").split() if zone]
        if zones != list(spec.get(ZONES, [])):
            patch[ZONES] = zones
    return patch


def _text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)


def _value(kind: str, text: str) -> object:
    if not text:
        return None
    try:
        number = float(text) if kind == "float" else int(text) if kind == "int" else text
    except ValueError:
        return text
    endless = isinstance(number, float) and number - number != 0  # what JSON cannot hold
    return text if endless else number
