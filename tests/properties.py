"""How much a test tries: as much as finds each broken variant in `make test`, all of it in `make campaign`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import settings


def is_campaign() -> bool:
    return settings.get_current_profile_name() == "campaign"


def examples(quick: int, full: int) -> int:
    """How many examples a property tries."""
    return full if is_campaign() else quick


def with_defaults(record: Callable[..., Any]) -> Callable[..., Any]:
    """For `builds`, which invents every field of a named tuple that it is not told of."""
    return partial(record)
