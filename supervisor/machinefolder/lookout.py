"""Looking at all machines of this computer, and at one: what could not be read is never taken for absent.

It remembers the zone of every machine that it could read once, so that a folder which turns unreadable makes only
that zone Unknown. It keeps the timers that end noticed machines on time: the paper in the machine's folder is the
intent, a timer only makes its end come between two polls.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from supervisor.domain.machines import Machine, MachineListing, MachineState
from supervisor.machinefolder.folders import Folder, Folders
from supervisor.machinefolder.papers import Unreadable
from supervisor.machinefolder.sighting import Sight, boottime
from supervisor.ports.clock import Clock
from supervisor.telemetry import logs as telemetry

LOG = logging.getLogger(__name__)
TIMER_MARGIN_S = 0.01  # a timer that fires a hair early would find its notice still running


@dataclass(frozen=True, slots=True)
class Seen:
    listing: MachineListing
    unreadable: dict[str, str]  # folder name -> why
    over: tuple[Folder, ...]  # their machine is gone, or never came to be


class Lookout:
    def __init__(self, folders: Folders, zones: frozenset[str], clock: Clock) -> None:
        self._folders = folders
        self._offered = zones
        self._clock = clock
        self._timers = NoticeTimers(self._notice_over)
        self._lock = threading.Lock()
        self._zones: dict[str, str] = {}  # machine name -> zone
        self._complained: set[str] = set()

    def zones(self) -> frozenset[str]:
        """Those of the settings, and those of machines that are there."""
        with self._lock:
            return self._offered | frozenset(self._zones.values())

    def watch(self, name: str, deadline_boottime_s: float) -> None:
        self._timers.watch(name, deadline_boottime_s)

    def one(self, folder: Folder, sight: Sight | None = None) -> Machine | None:
        """As Sight.look."""
        machine = (sight or Sight(self._clock)).look(folder)
        if machine is not None:
            with self._lock:
                self._zones[machine.name] = machine.zone
            if machine.state is MachineState.ENDING and (notice := folder.notice()) is not None:
                self._timers.watch(folder.name, notice.deadline_boottime_s)
        return machine

    def all(self) -> Seen:
        """One look at every folder. OSError when not even their names can be read."""
        sight = Sight(self._clock)
        machines: list[Machine] = []
        over: list[Folder] = []
        unreadable: dict[str, str] = {}
        unreachable: set[str] = set()
        folders = self._folders.all()
        for folder in folders:
            try:
                machine = self.one(folder, sight)
            except (OSError, Unreadable) as error:
                unreadable[folder.name] = str(error)
                zone = self._zones.get(folder.name)
                unreachable |= self.zones() if zone is None else {zone}
            else:
                if machine is None:
                    over.append(folder)
                else:
                    machines.append(machine)
        with self._lock:
            for name in set(self._zones) - {folder.name for folder in folders}:
                del self._zones[name]
        return Seen(MachineListing(tuple(machines), frozenset(unreachable)), unreadable, tuple(over))

    def complain(self, seen: Seen) -> None:
        """Tell the log of folders that have become unreadable, once."""
        for name in seen.unreadable.keys() - self._complained:
            _warn(name, "cannot be read, so nothing is concluded about its zone", seen.unreadable[name])
        self._complained = set(seen.unreadable)

    def _notice_over(self, name: str) -> None:
        """Called on a timer's thread, between two polls: the look itself ends the machine."""
        try:
            self.one(self._folders.folder(name))
        except (OSError, Unreadable) as error:
            _warn(name, "could not be ended when its notice was over; the next poll tries again", str(error))


def _warn(name: str, what: str, why: str) -> None:
    extra = {telemetry.ACTION: "machine_unreadable", telemetry.MACHINE: name}
    LOG.warning("Machine %s %s: %s.", name, what, why, extra=extra)


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
