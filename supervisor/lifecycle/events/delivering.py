"""When announcements go out: the next message of a chat, the next try of a delivery, and the end of an endpoint.

A chat takes one message a second, and people fewer. What needs a person goes at once, and takes along all that waits.
The rest is gathered: a moment for what happens at the same time, and then half a minute from message to message, so
that forty preemptions in one minute are three messages at most. The caller keeps the times of the messages and settles
what they held.

A delivery has ten tries over 76 hours, with the pauses of Standard Webhooks: a receiver that is deployed wrongly on a
Friday gets on Monday what it has missed. Each pause is spread by a tenth to either side, by the delivery's own number,
so that what failed together does not come back together; the same delivery always waits the same.
"""

from __future__ import annotations

import math
import zlib
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
    due = sorted((item for item in waiting if item.due_at <= now), key=lambda item: (item.due_at, item.delivery_id))
    since_s = now - max((at for at in sent_at if at <= now), default=-math.inf)
    if not due or since_s < BETWEEN_S:
        return ()
    urgent = [item for item in due if item.urgent]
    if urgent:
        rest = [item for item in due if not item.urgent]
        chosen = {item.delivery_id for item in [*urgent, *rest][:MOST]}
        return [item for item in due if item.delivery_id in chosen]
    if len(due) >= MOST or (since_s >= PAUSE_S and now - due[0].due_at >= GATHER_S):
        return due[:MOST]
    return ()


PAUSES_S = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
MOST_TRIES = len(PAUSES_S) + 1
SPREAD = 0.1
GIVE_UP_ENDPOINT_S = 5 * 86_400.0  # of failures only: longer than all tries of one delivery


def next_try_at(delivery_id: int, tries: int, retry_after_s: float | None, now: float) -> float | None:
    """After the failure of a try that had `tries` before it; None = it is given up. Never before the time that the
    receiver has asked for."""
    if tries + 1 >= MOST_TRIES:
        return None
    chance = zlib.crc32(f"{delivery_id}.{tries}".encode()) / 2**32  # 0 to 1, without 1
    pause_s = PAUSES_S[tries] * (1 - SPREAD + 2 * SPREAD * chance)
    return now + max(pause_s, retry_after_s or 0.0)


def failed_too_long(failing_since: float | None, now: float) -> bool:
    """Whether an endpoint that has just failed again is to be disabled. `failing_since`: its first failure after its
    last success; None = this is the first."""
    return failing_since is not None and now - failing_since >= GIVE_UP_ENDPOINT_S
