"""The duties that go on beside the command: checkpoints and the log, each with the step of its thread.

Both have a last round when the command has ended: everything that is still new goes to the store then.
"""

from __future__ import annotations

import logging
import time
from typing import Callable, Optional

from supervisor.agent.checkpoints.candidates import CheckpointFolder
from supervisor.agent.checkpoints.keeping import CheckpointSaver
from supervisor.agent.store.patience import GaveUp
from supervisor.agent.watch.attention import Attention
from supervisor.agent.watch.logs import FOLLOW_S, LogShipper
from supervisor.contract.baton import BatonRefused
from supervisor.contract.stores.errors import StoreUnavailable

SCAN_S = 0.2
_SCAN_SHARE = 20  # a scan that takes long is made less often
_log = logging.getLogger("agent")


class CheckpointDuty:
    """The step ends for good after the last round, when the time for uploads is over, and when the baton is lost."""

    def __init__(
        self,
        saver: CheckpointSaver,
        folder: CheckpointFolder,
        attention: Attention,
        why_lost: Callable[[], str],
    ) -> None:
        self._saver = saver
        self._folder = folder
        self._attention = attention
        self._why_lost = why_lost
        self._last = False

    def finish(self) -> None:
        """The command has ended: one more round, in which nothing is being written any more."""
        self._last = True

    def step(self) -> Optional[float]:
        last = self._last
        try:
            self._saver.save_new(self._folder, time.monotonic(), last)
        except GaveUp:
            _log.warning("the newest checkpoint could not be uploaded in time")
            return None
        except BatonRefused as error:
            _log.warning("the baton is not ours any more: %s", error)
            self._attention.ask(self._why_lost(), may_write=False)
            return None
        return None if last else max(SCAN_S, _SCAN_SHARE * self._folder.scan_s)


class LogDuty:
    """`phase` tells the present phase: the log is shipped when it changes."""

    def __init__(
        self, shipper: LogShipper, pace_s: float, attention: Attention, phase: Callable[[], str]
    ) -> None:
        self._shipper = shipper
        self._pace_s = pace_s
        self._attention = attention
        self._phase = phase
        self._shipped_phase = ""
        self._due = 0.0
        self._last = False
        self._failing = False
        self.followed = False

    def follow(self, followed: bool) -> None:
        self.followed = followed

    def finish(self) -> None:
        """Ship the rest, and wait for the store if it must be."""
        self._last = True

    def ship_rest(self) -> None:
        """After the last round: what was written since. StoreUnavailable."""
        try:
            self._shipper.ship(last=True)
        except OSError as error:
            _log.warning("the end of the log cannot be read: %s", error)

    def step(self) -> Optional[float]:
        last, now = self._last, time.monotonic()
        if self._attention.writing_over():
            return None
        pace_s = min(self._pace_s, FOLLOW_S) if self.followed else self._pace_s
        phase = self._phase()
        if not last and phase == self._shipped_phase and now < self._due:
            return min(1.0, pace_s)
        try:
            self._shipper.ship(last)
        except (StoreUnavailable, OSError) as error:
            if not self._failing:
                _log.warning("the log waits: %s", error)
            self._failing = True
            return min(5.0, max(0.2, pace_s))
        self._failing = False
        self._shipped_phase, self._due = phase, now + pace_s
        return None if last else min(1.0, pace_s)
