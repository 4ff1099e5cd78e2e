"""Reads all machines of this computer, or a single one: an unreadable machine is never taken for an absent one.

The observer remembers the zone of every machine that it could read once, so that a folder that becomes unreadable makes
only that zone Unknown. It also keeps the timers that end machines when their notice is over: the file in the machine's
folder is the intent, and a timer only makes the end come between two ticks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from supervisor.domain.machines import Machine, MachineListing, MachineState
from supervisor.machinefolder.files import Unreadable
from supervisor.machinefolder.folders import Folder, Folders
from supervisor.machinefolder.inspector import Inspector, boottime_s
from supervisor.ports.clock import Clock
from supervisor.telemetry import logs as telemetry

LOG = logging.getLogger(__name__)
TIMER_MARGIN_S = 0.01  # a timer that fires slightly too early would find its notice still running


@dataclass(frozen=True, slots=True)
class Survey:
    """All folders at one instant. `unreadable`: folder name -> reason. `over`: folders without a machine any more."""

    listing: MachineListing
    unreadable: dict[str, str]
    over: tuple[Folder, ...]


class Observer:
    """`zones`: those of the settings."""

    def __init__(self, folders: Folders, zones: frozenset[str], clock: Clock) -> None:
        self._folders = folders
        self._offered = zones
        self._clock = clock
        self._timers = NoticeTimers(self._end_noticed)
        self._lock = threading.Lock()
        self._zones: dict[str, str] = {}  # machine name -> zone
        self._logged: set[str] = set()  # unreadable folders

    def zones(self) -> frozenset[str]:
        """Those of the settings, and those of existing machines."""
        with self._lock:
            return self._offered | frozenset(self._zones.values())

    def watch(self, name: str, deadline_boottime_s: float) -> None:
        self._timers.watch(name, deadline_boottime_s)

    def machine(self, folder: Folder, inspector: Inspector | None = None) -> Machine | None:
        """As Inspector.machine."""
        machine = (inspector or Inspector(self._clock)).machine(folder)
        if machine is not None:
            with self._lock:
                self._zones[machine.name] = machine.zone
            if machine.state is MachineState.ENDING and (notice := folder.notice()) is not None:
                self._timers.watch(folder.name, notice.deadline_boottime_s)
        return machine

    def survey(self) -> Survey:
        """OSError when not even the names of the folders can be read."""
        inspector = Inspector(self._clock)
        machines: list[Machine] = []
        over: list[Folder] = []
        unreadable: dict[str, str] = {}
        unreachable: set[str] = set()
        folders = self._folders.all()
        for folder in folders:
            try:
                machine = self.machine(folder, inspector)
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
        return Survey(MachineListing(tuple(machines), frozenset(unreachable)), unreadable, tuple(over))

    def log_unreadable(self, survey: Survey) -> None:
        """Log each folder once when it becomes unreadable."""
        for name in survey.unreadable.keys() - self._logged:
            _warn(name, "cannot be read, so nothing is concluded about its zone", survey.unreadable[name])
        self._logged = set(survey.unreadable)

    def _end_noticed(self, name: str) -> None:
        """Called on a timer's thread, between two ticks: the inspection itself ends the machine."""
        try:
            self.machine(self._folders.folder(name))
        except (OSError, Unreadable) as error:
            _warn(name, "could not be ended when its notice was over; the next tick retries", str(error))


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
            wait_s = max(0.0, deadline_boottime_s - boottime_s()) + TIMER_MARGIN_S
            timer = self._timers[key] = threading.Timer(wait_s, self._fire, key)
            timer.daemon = True
            timer.start()

    def _fire(self, name: str, deadline_boottime_s: float) -> None:
        try:
            self._due(name)
        finally:  # otherwise no later inspection could set it again
            with self._lock:
                self._timers.pop((name, deadline_boottime_s), None)


def _warn(name: str, what: str, why: str) -> None:
    extra = {telemetry.ACTION: "machine_unreadable", telemetry.MACHINE: name}
    LOG.warning("Machine %s %s: %s.", name, what, why, extra=extra)
