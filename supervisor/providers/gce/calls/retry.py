"""Asking again, with a pause that chance decides and a budget that all calls share.

Google's own clients wait up to 600 s and repeat only 503. Here a call with its repeats ends within its deadline, and a
storm of refusals does not make the load worse: every repeat takes a token from a bucket that fills slowly, and with the
bucket empty each call is made once.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from supervisor.providers.gce.calls.errors import ApiError

T = TypeVar("T")

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 8.0
TRIES = 5
TOKENS = 60.0
TOKENS_PER_S = 1.0


class Budget:
    """Tokens for repeats."""

    def __init__(
        self, monotonic: Callable[[], float], tokens: float = TOKENS, per_s: float = TOKENS_PER_S
    ) -> None:
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
    """`deadline_s`: of a call with all its repeats; `per_try_s`: of one request."""

    deadline_s: float = 20.0
    per_try_s: float = 10.0
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random
    budget: Budget = field(init=False)

    def __post_init__(self) -> None:
        self.budget = Budget(self.monotonic)

    def call(self, ask: Callable[[float], T], deadline_s: float | None = None) -> T:
        """`ask(timeout_s)` until it answers. Raises the last ApiError."""
        end = self.monotonic() + (deadline_s or self.deadline_s)
        pause, unclear = FIRST_PAUSE_S, False
        for left in reversed(range(TRIES)):
            try:
                return ask(max(0.1, min(self.per_try_s, end - self.monotonic())))
            except ApiError as error:
                error.after_unclear, unclear = unclear, True
                # By chance: those who were refused together do not come back together.
                wait_s = pause * (0.5 + self.chance() / 2)
                if (
                    not (left and error.transient)
                    or self.monotonic() + wait_s >= end
                    or not self.budget.take()
                ):
                    raise
            self.sleep(wait_s)
            pause = min(LONGEST_PAUSE_S, 2 * pause)
        raise AssertionError("a call is made at least once")
