"""The one thread that reads the history for all who follow it: each event once, in its final order.

It is woken after commits, and looks by itself too, because a wake may be lost. After it has handed out events it rests
twice as long as that took: many listeners get fewer and larger pieces, and the API keeps two thirds of the processor.

The history is handed out up to the first hole in the ids that an open writer may still fill. An event that was handed
out keeps its place in the order for ever, so an event with a lower id may never follow it. A hole is closed when every
writer that was open after it was seen has ended and its events were read, or when that took too long.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from supervisor.ports.clock import Clock
from supervisor.ports.history import History, StoredEvent, Writers
from supervisor.ports.store import StoreDown
from supervisor.telemetry import logs as telemetry

LOG = logging.getLogger(__name__)
PAGE = 200
LOOK_S = 1.0  # without a wake
HOLE_LOOK_S = 0.05
REST_MIN_S, REST_MAX_S = 0.01, 0.3
PATIENCE_S = 10.0  # for one writer that does not end; every other statement of ours is cancelled by then

HandOut = Callable[[Sequence[StoredEvent], int], None]
"""The next events, and the id up to which everything was handed out; the first call has no events and names the start.
Called from the thread; returns when the events are on their way."""
Over = Callable[[], None]
"""No more events follow. Called from the thread, also where a bug has ended it."""


@dataclass(frozen=True, slots=True)
class Hole:
    """Ids are missing below `below`, the highest id that was seen. `writers`: open afterwards. `since`: on the
    monotonic clock."""

    below: int
    writers: Writers
    since: float

    def closed(self, writers: Writers, now: float) -> bool:
        """`writers`: open now, asked for before the next read."""
        return self.late(now) or not (self.writers & writers)

    def late(self, now: float) -> bool:
        return now - self.since >= PATIENCE_S


def in_order(passed: int, ids: Sequence[int], closed_below: int) -> int:
    """How many of these ids, which rise from above `passed` on, may be handed out: holes below `closed_below` are
    closed."""
    expected = passed + 1
    for count, event_id in enumerate(ids):
        if event_id > max(expected, closed_below):
            return count
        expected = event_id + 1
    return len(ids)


class Follower:
    """`begin` once, `end` once. Every event that is written after `begin` is handed out. Earlier events are found by
    their ids, up to the id of the first call."""

    def __init__(self, history: History, clock: Clock, hand_out: HandOut, over: Over) -> None:
        self._history, self._clock, self._hand_out, self._over = history, clock, hand_out, over
        self._passed: int | None = None  # None: not known yet, because earlier writers are open
        self._hole: Hole | None = None
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="history", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def end(self) -> None:
        """Does not wait for the thread, which may be in a read."""
        self._ending.set()
        self._wake.set()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _follow(self) -> None:
        try:
            self._go_on()
        finally:
            self._over()

    def _go_on(self) -> None:
        down = False
        while not self._ending.is_set():
            began = self._clock.monotonic()
            try:
                more = self.look()
                down = False
            except StoreDown as error:
                if not down:
                    extra = {telemetry.ACTION: "follow", telemetry.DETAIL: str(error)}
                    LOG.warning("The history cannot be followed for now.", extra=extra)
                more, down = False, True
            if not more:
                self._wake.wait(LOOK_S if self._hole is None else HOLE_LOOK_S)
                # A wake between these two lines is not lost: the next look reads what it was about.
                self._wake.clear()
                continue
            self._ending.wait(min(max(2 * (self._clock.monotonic() - began), REST_MIN_S), REST_MAX_S))

    def look(self) -> bool:
        """Read once, and hand out what may be handed out; whether there was something. Raises StoreDown."""
        hole = self._hole
        closed_below = 0
        if hole is not None:
            now = self._clock.monotonic()
            # Asked for before the read, so that the read contains everything that the ended writers have written.
            if hole.closed(self._history.writers(), now):
                closed_below, self._hole = hole.below, None
                self._warn_if_late(hole, now)
        if self._passed is None:
            return self._find_beginning(closed_below if hole is not None else None)
        events = self._history.after(self._passed, PAGE)
        count = in_order(self._passed, [stored.id for stored in events], closed_below)
        if count:
            self._passed = events[count - 1].id
            if self._hole is not None and self._passed >= self._hole.below:
                self._hole = None
        if count < len(events) and self._hole is None:
            self._open_hole(events[-1].id)
        if count:
            self._hand_out(events[:count], self._passed)
        # Without a writer that could fill it, a hole is closed by the next read.
        return count > 0 or (self._hole is not None and not self._hole.writers)

    def _find_beginning(self, closed_below: int | None) -> bool:
        """`closed_below` None: this is the first look; 0: earlier writers are still open."""
        if closed_below is None:
            self._open_hole(self._history.newest())
            assert self._hole is not None
            if self._hole.writers:
                return False
            closed_below, self._hole = self._hole.below, None
        elif self._hole is not None:
            return False
        self._passed = closed_below
        self._hand_out((), closed_below)
        return True

    def _open_hole(self, below: int) -> None:
        self._hole = Hole(below, self._history.writers(), self._clock.monotonic())

    def _warn_if_late(self, hole: Hole, now: float) -> None:
        if hole.late(now):
            extra = {telemetry.ACTION: "follow", telemetry.EVENT_ID: hole.below}
            LOG.warning("A transaction that may write events does not end; its events may be left out.", extra=extra)
