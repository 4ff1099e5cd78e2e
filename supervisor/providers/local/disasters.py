"""What a person may inject into this provider: stock-outs and preemption notices, both on disk before they act.

A stock-out survives a restart of the supervisor, and so does a notice: the paper in the machine's folder is the
intent, the timer only makes its end come on time between two polls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from supervisor.providers.local.papers import Unreadable, read_json, write_json
from supervisor.providers.local.sighting import boottime

TIMER_MARGIN_S = 0.01  # a timer that fires a hair early would find its notice still running


class Stockouts:
    """Zones that have no capacity for now: {zone: epoch seconds of the end, or null = until called off}."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def set(self, zones: Sequence[str], for_s: float | None, now: float) -> None:
        """`for_s` None = until called off, 0 = called off."""
        until = None if for_s is None else now + for_s
        wanted = {**self._read(), **dict.fromkeys(zones, until)}
        write_json(self._path, {zone: end for zone, end in wanted.items() if end is None or end > now})

    def holds(self, zone: str, now: float) -> bool:
        found = self._read()
        if zone not in found:
            return False
        until = found[zone]
        return until is None or now < until

    def _read(self) -> dict[str, float | None]:
        data = read_json(self._path) or {}
        try:
            return {zone: None if until is None else float(until) for zone, until in data.items()}
        except (TypeError, ValueError) as error:
            raise Unreadable(f"{self._path} is not what was written there: {error}") from None


class NoticeTimers:
    """Calls `due(name)` when a machine's notice is over; once for each notice, on a thread of its own."""

    def __init__(self, due: Callable[[str], None]) -> None:
        self._due = due
        self._lock = threading.Lock()
        self._timers: dict[tuple[str, float], threading.Timer] = {}

    def watch(self, name: str, deadline_boottime_s: float) -> None:
        with self._lock:
            key = (name, deadline_boottime_s)
            if key in self._timers:
                return
            wait_s = max(0.0, deadline_boottime_s - boottime()) + TIMER_MARGIN_S
            timer = self._timers[key] = threading.Timer(wait_s, self._fire, key)
            timer.daemon = True
            timer.start()

    def _fire(self, name: str, deadline_boottime_s: float) -> None:
        try:
            self._due(name)
        finally:  # else no later look could set it again
            with self._lock:
                self._timers.pop((name, deadline_boottime_s), None)
