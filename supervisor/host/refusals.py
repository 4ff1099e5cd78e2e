"""What a call for a machine may end with, other than its result. OSError and Unreadable say that nothing is known."""

from __future__ import annotations


class Refused(Exception):
    """A definite refusal: this launch makes no machine."""


class NoCapacity(Exception):
    """Something that is not ours uses the capacity, or it is unknown. Nothing was started."""


class InUse(Exception):
    """Our own machines use the capacity. Nothing was started."""


class Missing(Exception):
    """There is no such living machine, or it has another id."""


class Unfinished(Exception):
    """No definite result: repeat the same call."""
