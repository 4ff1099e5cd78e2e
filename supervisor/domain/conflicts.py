"""Errors of callers who say what they have seen, where that is not what is there. Nothing was changed then."""

from __future__ import annotations

from supervisor.domain.errors import Conflict, SpotError


class VersionDiffers(SpotError):
    """The run has changed since the caller read it."""

    code = "PRECONDITION_FAILED"


class CountDiffers(Conflict):
    """Another number of runs match than the caller has seen."""

    code = "COUNT_DIFFERS"
