"""When a delivery that was not taken is tried again, and when its endpoint is given up.

Ten tries over 76 hours, the pauses of Standard Webhooks: a receiver that is deployed wrongly on a Friday gets on Monday
what it has missed. Each pause is spread by a tenth to either side, by the delivery's own number, so that what failed
together does not come back together; the same delivery always waits the same.
"""

from __future__ import annotations

import zlib

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
