"""A thread that repeats one step at its own pace, at once when it is woken, and once more at the end if asked to.

A step that fails unexpectedly is logged and repeated: an error in one duty must not end the training or the others.
"""

from __future__ import annotations

import logging
import threading
from typing import Callable, Optional

_log = logging.getLogger("agent")
AFTER_ERROR_S = 5.0


class Loop:
    """`step` gives the seconds until it is due again, None when this loop's work is over for good."""

    def __init__(self, name: str, step: Callable[[], Optional[float]]) -> None:
        self._name = name
        self._step = step
        self._wake = threading.Event()
        self._stop = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Do the next step at once."""
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
            try:
                wait_s = self._step()
            except Exception:  # noqa: BLE001 - any error, see above
                _log.exception("%s: an unexpected error; it goes on", self._name)
                wait_s = AFTER_ERROR_S
            if wait_s is None:
                return
            self._wake.wait(wait_s)
