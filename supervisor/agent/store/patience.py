"""Store calls that wait out an unreachable store: could not read is not absent, could not write is not done.

A call is repeated, with growing pauses, until the store answers or `gives_up` says that waiting is over (the machine
is being taken away, the grace of a stop has passed). Everything repeated here is safe to repeat.
"""

from __future__ import annotations

import logging
import time
from typing import Callable, TypeVar

from supervisor.contract.stores.errors import StoreUnavailable

T = TypeVar("T")
FIRST_PAUSE_S, LAST_PAUSE_S, LOOK_S = 0.2, 5.0, 0.1
_log = logging.getLogger("agent")


class GaveUp(Exception):
    """Waiting is over; what was to be done was not done, or its answer never came."""


class Patience:
    """`gives_up` is asked before each call and ten times a second in between; `tell` gets the latest trouble, "" when
    it is over."""

    def __init__(
        self,
        gives_up: Callable[[], bool],
        tell: Callable[[str], None] = lambda text: None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._gives_up = gives_up
        self._tell = tell
        self._monotonic = monotonic
        self._sleep = sleep

    def insist(self, what: str, deed: Callable[[], T]) -> T:
        """The result of `deed`, called until it raises no StoreUnavailable. Raises GaveUp; other errors pass."""
        pause_s, troubled = FIRST_PAUSE_S, False
        while True:
            self.check(what)
            try:
                result = deed()
            except StoreUnavailable as error:
                if not troubled:
                    _log.warning("%s: %s; trying again", what, error)
                troubled = True
                self._tell("%s: %s" % (what, error))
            else:
                if troubled:
                    _log.info("%s: the object store answers again", what)
                    self._tell("")
                return result
            self.pause(what, pause_s)
            pause_s = min(pause_s * 2, LAST_PAUSE_S)

    def pause(self, what: str, for_s: float) -> None:
        """Wait, looking up often. Raises GaveUp."""
        until = self._monotonic() + for_s
        while self._monotonic() < until:
            self.check(what)
            self._sleep(min(LOOK_S, for_s))

    def check(self, what: str) -> None:
        """Raises GaveUp when waiting is over. For loops that work between store calls."""
        if self._gives_up():
            raise GaveUp(what)
