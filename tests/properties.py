"""How much a test tries: as much as finds each broken variant in `make test`, all of it in `make campaign`."""

from __future__ import annotations

from hypothesis import settings


def is_campaign() -> bool:
    return settings.get_current_profile_name() == "campaign"


def examples(quick: int, full: int) -> int:
    """How many examples a property tries."""
    return full if is_campaign() else quick
