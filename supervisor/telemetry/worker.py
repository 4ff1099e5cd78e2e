"""A thread of this process that repeats one piece of work, and never dies unnoticed.

A dead thread would leave its work undone for good: a cell without a leader, receivers without messages. So any error of
the work becomes a log line, and the next turn retries.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)
T = TypeVar("T")


def nothing() -> None:
    """No work."""


class Worker:
    """Calls `work` `every_s` seconds after its last turn, at once after a `wake`, and at most once in `rest_s` seconds.

    `failed`: the log line when a turn raises; `fields`: its fields. An error of the kind `expected` (the database is
    unavailable) is logged in one line, any other with its trace. `at_end`: a last piece of work, after `stop`. A wake
    during the work is not lost: another turn follows. Stopped before its start, it does nothing.
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
        """No further turn. Waits at most `wait_s` seconds for the current one, then leaves it behind."""
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


class Daemons(Executor):
    """A thread for each call, which ends with the process: a call that hangs delays no end. The caller bounds them."""

    def __init__(self, name: str) -> None:
        self._name = name

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - the future carries it to its reader
                future.set_exception(error)

        threading.Thread(target=work, name=self._name, daemon=True).start()
        return future
