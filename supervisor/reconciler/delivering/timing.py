"""When announcements are sent: the next message of a chat, the next try of a delivery, and the end of an endpoint. All
functions are pure.

A chat accepts one message a second, and its readers fewer. What needs a person goes at once, together with everything
that waits. The rest is gathered: for a moment, because events often come together, and then for half a minute between
messages, so that forty preemptions in one minute are three messages at most.

A delivery has ten tries over 76 hours, with the intervals of Standard Webhooks: a receiver that is deployed wrongly on
a Friday gets on Monday what it has missed. Each interval is spread by a tenth to either side, by the delivery's own
number, so that deliveries that failed together are not retried together.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

from supervisor.domain.events import KINDS
from supervisor.ports.notifier import Delivery

BETWEEN_S = 1.0  # Slack's own limit for one address
GATHER_S = 2.0  # events that come together are seen within a few moments
PAUSE_S = 30.0  # from one gathered message to the next
MOST = 50  # announcements in one message; when more wait, the next one follows at once
BACKOFFS_S = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
MOST_TRIES = len(BACKOFFS_S) + 1
SPREAD = 0.1
GIVE_UP_ENDPOINT_S = 5 * 86_400.0  # of failures only: longer than all tries of one delivery


def next_message(waiting: Sequence[Delivery], sent_at: Sequence[float], now: float) -> Sequence[Delivery]:
    """The deliveries of the next message of one endpoint, in the order in which they became due; () = wait. `sent_at`:
    times of its last messages. Times ahead of now were written before the clock was set back: they do not count."""
    due = sorted(
        (item for item in waiting if _due_at(item, now) <= now), key=lambda item: (_due_at(item, now), item.id)
    )
    since_s = now - max((at for at in sent_at if at <= now), default=-math.inf)
    if not due or since_s < BETWEEN_S:
        return ()
    urgent = [item for item in due if _is_urgent(item)]
    if urgent:
        rest = [item for item in due if not _is_urgent(item)]
        chosen = {item.id for item in [*urgent, *rest][:MOST]}
        return [item for item in due if item.id in chosen]
    if len(due) >= MOST or (since_s >= PAUSE_S and now - _due_at(due[0], now) >= GATHER_S):
        return due[:MOST]
    return ()


def _due_at(delivery: Delivery, now: float) -> float:
    return now if delivery.next_at is None else delivery.next_at


def _is_urgent(delivery: Delivery) -> bool:
    """A kind that is unknown here was announced by a newer version."""
    kind = KINDS.get(delivery.kind)
    return kind is not None and kind.urgent


def next_try_at(delivery_id: int, tries: int, retry_after_s: float | None, now: float) -> float | None:
    """After the failure of a try that had `tries` before it; None = it is given up. Never before the time that the
    receiver requests."""
    if tries + 1 >= MOST_TRIES:
        return None
    chance = zlib.crc32(f"{delivery_id}.{tries}".encode()) / 2**32  # 0 to 1, without 1
    backoff_s = BACKOFFS_S[tries] * (1 - SPREAD + 2 * SPREAD * chance)
    return now + max(backoff_s, retry_after_s or 0.0)


def failed_too_long(failing_since: float | None, now: float) -> bool:
    """Whether an endpoint that has just failed again is to be disabled. `failing_since`: its first failure after its
    last success; None = this is the first."""
    return failing_since is not None and now - failing_since >= GIVE_UP_ENDPOINT_S
