"""Retries of requests to Google, with a random backoff and a budget that all calls of one client share.

Google's own clients wait up to 600 s and retry only 503. Here a call with all its retries ends within its deadline. A
burst of errors does not increase the load: each retry takes a token from a bucket that fills slowly, and while the
bucket is empty each request is sent once.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from supervisor.providers.gce.calls.errors import ApiError

FIRST_BACKOFF_S = 0.25
LONGEST_BACKOFF_S = 8.0
TRIES = 5
TOKENS = 60.0
TOKENS_PER_S = 1.0

T = TypeVar("T")


class Budget:
    """Tokens for retries."""

    def __init__(self, monotonic: Callable[[], float], tokens: float = TOKENS, per_s: float = TOKENS_PER_S) -> None:
        self._monotonic, self._most, self._per_s = monotonic, tokens, per_s
        self._left, self._at = tokens, monotonic()
        self._lock = threading.Lock()

    def take(self) -> bool:
        with self._lock:
            now = self._monotonic()
            self._left = min(self._most, self._left + (now - self._at) * self._per_s)
            self._at = now
            if self._left < 1.0:
                return False
            self._left -= 1.0
            return True


@dataclass
class Retry:
    """`deadline_s`: of a call with all its retries; `per_try_s`: of one request."""

    deadline_s: float = 20.0
    per_try_s: float = 10.0
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random
    budget: Budget = field(init=False)

    def __post_init__(self) -> None:
        self.budget = Budget(self.monotonic)

    def call(self, request: Callable[[float], T], deadline_s: float | None = None) -> T:
        """`request(timeout_s)`, repeated until it succeeds. Raises the last ApiError."""
        end = self.monotonic() + (deadline_s or self.deadline_s)
        backoff_s, unclear = FIRST_BACKOFF_S, False
        for tries_left in reversed(range(TRIES)):
            try:
                return request(max(0.1, min(self.per_try_s, end - self.monotonic())))
            except ApiError as error:
                error.after_unclear, unclear = unclear, True
                # Random: clients that failed at the same time do not retry at the same time.
                wait_s = backoff_s * (0.5 + self.chance() / 2)
                if not (tries_left and error.transient) or self.monotonic() + wait_s >= end or not self.budget.take():
                    raise
            self.sleep(wait_s)
            backoff_s = min(LONGEST_BACKOFF_S, 2 * backoff_s)
        raise AssertionError("a call is made at least once")
