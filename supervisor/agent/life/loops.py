"""A thread that repeats one step at its own pace, at once when it is woken, and once more at the end if asked to.

A step that fails unexpectedly is told and repeated: an error in one duty must not end the training or the others. In
its last round it is repeated only LAST_TRIES times: nobody is helped by an end that never comes.
"""

from __future__ import annotations

import logging
import threading
from typing import Callable, Optional

_log = logging.getLogger("agent")
AFTER_ERROR_S = 5.0
LAST_TRIES, LAST_PAUSE_S = 3, 1.0


class Loop:
    """`step` gives the seconds until it is due again, None when this loop's work is over for good. `tell` gets the
    text of an unexpected error, "" once a step succeeds again."""

    def __init__(
        self,
        name: str,
        step: Callable[[], Optional[float]],
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._name = name
        self._step = step
        self._tell = tell
        self._last_tries: Optional[int] = None  # None: not its last round
        self._failing = False
        self._wake = threading.Event()
        self._stop = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Do the next step at once."""
        self._wake.set()

    def finish(self) -> None:
        """The last round: do the next step at once, and end after it even when it keeps failing unexpectedly."""
        self._last_tries = LAST_TRIES
        self._wake.set()

    def stop(self, wait_s: float = 0.0) -> None:
        """No further step begins. One that is under way may outlast `wait_s`; it dies with the process."""
        self._stop = True
        self._wake.set()
        if wait_s > 0 and self._thread.is_alive():
            self._thread.join(wait_s)

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop:
            self._wake.clear()
            wait_s = self._once()
            if wait_s is None:
                return
            self._wake.wait(wait_s)

    def _once(self) -> Optional[float]:
        try:
            wait_s = self._step()
        except Exception as error:  # noqa: BLE001 - any error, see above
            _log.exception("%s: an unexpected error", self._name)
            self._failing = True
            self._tell("%s: unexpected %s: %s" % (self._name, type(error).__name__, error))
            return self._after_error()
        if self._failing:
            self._failing = False
            self._tell("")
        return wait_s

    def _after_error(self) -> Optional[float]:
        if self._last_tries is None:
            return AFTER_ERROR_S
        self._last_tries -= 1
        return LAST_PAUSE_S if self._last_tries > 0 else None
