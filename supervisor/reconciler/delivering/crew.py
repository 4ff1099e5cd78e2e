"""A few threads for work that may hang for seconds, which nobody waits for when the process ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue


class Crew:
    """The work raises nothing. Not started before its first work."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def submit(self, work: Callable[[], None]) -> None:
        """From one thread only."""
        if len(self._threads) < self.size:
            number = len(self._threads)
            thread = threading.Thread(target=self._run, name=f"{self.name} {number}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._work.put(work)

    def close(self) -> None:
        """Whoever is free goes home; what hangs is left behind."""
        for _ in self._threads:
            self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
