"""Waiting for a condition in tests with real processes: never a fixed sleep, always a generous deadline.

The checks begin close together and become rarer, because each of them is CPU: often a request to a server. A check
that takes long, such as a command on a host, is made at most a third of the time.
"""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LONGEST_S = 600.0  # lowered where a test is meant to wait in vain
FIRST_PAUSE_S, PAUSE_S, LONGEST_PAUSE_S = 0.01, 0.1, 0.25
LATE = 0.05  # of a wait: from PAUSE_S on, its end may be noticed by so much later
LONGEST_REST_S = 0.5  # after a check that took long


def wait_for(condition: Callable[[], T], deadline_s: float = 30, what: str = "") -> T:
    """The first truthy answer of `condition`; AssertionError when there is none before the deadline."""
    start = time.monotonic()
    end = start + min(deadline_s, LONGEST_S)
    pause_s = FIRST_PAUSE_S
    while True:
        began = time.monotonic()
        answer = condition()
        took_s = time.monotonic() - began
        if answer:
            return answer
        if time.monotonic() >= end:
            raise AssertionError(f"waited {deadline_s:g} s in vain for {what or condition}; last answer: {answer!r}")
        time.sleep(max(pause_s, min(2 * took_s, LONGEST_REST_S)))
        pause_s = min(pause_s * 1.25, max(PAUSE_S, LATE * (began - start)), LONGEST_PAUSE_S)
