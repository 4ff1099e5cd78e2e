"""A `Loop` is a thread that repeats one step at its own pace, at once when it is woken, and once more at the end if
required. A step that fails unexpectedly is logged and repeated: an error in one part must not end the training or the
others. In its last round it is repeated only LAST_TRIES times, because the agent must end at some time.
"""

from __future__ import annotations

import logging
import threading
from typing import Callable, Optional

AFTER_ERROR_S = 5.0
LAST_TRIES, LAST_WAIT_S = 3, 1.0
_log = logging.getLogger("agent")


class Loop:
    """`step` returns the seconds until it is due again, None when this loop's work is over for good. `report` gets the
    text of an unexpected error, "" once a step succeeds again."""

    def __init__(
        self, name: str, step: Callable[[], Optional[float]], report: Callable[[str], None] = lambda text: None
    ) -> None:
        self._name, self._step, self._report = name, step, report
        self._last_tries: Optional[int] = None  # None: not its last round
        self._failing = False
        self._wake = threading.Event()
        self._stop = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Twice is once."""
        if not self.started:
            self._thread.start()

    def wake(self) -> None:
        """Do the next step at once."""
        self._wake.set()

    def finish(self) -> None:
        """The last round: do the next step at once, and end after it even when it keeps failing unexpectedly."""
        self._last_tries = LAST_TRIES
        self._wake.set()

    def stop(self, wait_s: float = 0.0) -> None:
        """No further step starts. A running step may last longer than `wait_s`; it ends with the process."""
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
        while True:
            self._wake.clear()  # before the check: the wake of `stop` must not be lost after it
            if self._stop:
                return
            wait_s = self._run_step()
            if wait_s is None:
                return
            self._wake.wait(wait_s)

    def _run_step(self) -> Optional[float]:
        try:
            wait_s = self._step()
        except Exception as error:  # noqa: BLE001 - any error, see above
            _log.exception("%s: an unexpected error", self._name)
            self._failing = True
            self._report("%s: unexpected %s: %s" % (self._name, type(error).__name__, error))
            return self._after_error()
        if self._failing:
            self._failing = False
            self._report("")
        return wait_s

    def _after_error(self) -> Optional[float]:
        if self._last_tries is None:
            return AFTER_ERROR_S
        self._last_tries -= 1
        return LAST_WAIT_S if self._last_tries > 0 else None
