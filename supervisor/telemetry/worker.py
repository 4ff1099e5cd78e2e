"""A thread of this process that does one piece of work again and again, and never dies of it unseen.

A thread that died would leave its work undone for good: a cell without a leader, receivers without messages. So
whatever the work raises becomes a line of the log, and the next turn tries again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)


def nothing() -> None:
    """No work."""


class Worker:
    """Calls `work` `every_s` seconds after its last turn, at once after a `wake`, and at most once in `rest_s` seconds.

    `failed`: the line of the log when a turn raises; `fields`: what stands beside it. An error of the kind `expected`
    (the database is away) is told in one line, any other with its trace. `at_end`: a last piece of work, after `stop`.
    A wake during the work is not lost: another turn follows. Stopped before its start, it does nothing.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], object],
        every_s: float,
        *,
        failed: str,
        fields: Mapping[str, object],
        expected: type[Exception],
        rest_s: float = 0.0,
        at_end: Callable[[], object] = nothing,
    ) -> None:
        self._work, self._every_s, self._rest_s, self._at_end = work, every_s, rest_s, at_end
        self._failed, self._fields, self._expected = failed, fields, expected
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._woken.set()

    def stop(self, wait_s: float) -> None:
        """No further turn. Waits at most `wait_s` seconds for the running one; what hangs longer is left behind."""
        self._stopping.set()
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=wait_s)

    def _run(self) -> None:
        while True:
            self._woken.wait(self._every_s)
            self._woken.clear()
            if self.stopping:
                break
            self._turn(self._work)
            self._stopping.wait(self._rest_s)
        self._turn(self._at_end)

    def _turn(self, work: Callable[[], object]) -> None:
        try:
            work()
        except self._expected as error:
            log.warning(self._failed, extra={**self._fields, telemetry.ERROR: str(error)})
        except Exception:
            log.exception(self._failed, extra=dict(self._fields))
