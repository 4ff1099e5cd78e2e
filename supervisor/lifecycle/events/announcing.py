"""When a chat gets its next message, and what stands in it. A chat takes one message a second, and people fewer.

What needs a person goes at once, and takes along all that waits. The rest is gathered: a moment for what happens at the
same time, and then half a minute from message to message, so that forty preemptions in one minute are three messages
at most. Pure: whoever sends keeps the times of the messages and settles what they held.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

BETWEEN_S = 1.0  # Slack's own limit for one address
GATHER_S = 2.0  # what happens at the same time is seen within a few moments
PAUSE_S = 30.0  # from one gathered message to the next
MOST = 50  # announcements in one message; when more wait, the next one follows at once


@dataclass(frozen=True, slots=True)
class Waiting:
    """One announcement on its way to one endpoint. `due_at`: epoch seconds, not before. `urgent`: as in its Kind."""

    delivery_id: int
    kind: str
    due_at: float
    urgent: bool


def next_message(waiting: Sequence[Waiting], sent_at: Sequence[float], now: float) -> Sequence[Waiting]:
    """Those that make the next message of one endpoint now, in the order in which they became due; () = wait.
    `sent_at`: when it got its last messages; times ahead of now were read before the clock was set back and say
    nothing."""
    due = sorted((one for one in waiting if one.due_at <= now), key=lambda one: (one.due_at, one.delivery_id))
    since_s = now - max((at for at in sent_at if at <= now), default=-math.inf)
    if not due or since_s < BETWEEN_S:
        return ()
    urgent = [one for one in due if one.urgent]
    if urgent:
        rest = [one for one in due if not one.urgent]
        chosen = {one.delivery_id for one in [*urgent, *rest][:MOST]}
        return [one for one in due if one.delivery_id in chosen]
    if len(due) >= MOST or (since_s >= PAUSE_S and now - due[0].due_at >= GATHER_S):
        return due[:MOST]
    return ()
