"""Reads all machines of this computer, or a single one: an unreadable machine is never taken for an absent one.

The observer remembers the zone of every machine that it could read once, so that a folder that becomes unreadable makes
only that zone Unknown. It also keeps the timers that end machines when their notice is over: the file in the machine's
folder is the intent, and a timer only makes the end come between two ticks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from supervisor.domain.causes import Cause
from supervisor.domain.machines import (
    LAUNCH_LABEL,
    RUN_LABEL,
    SUPERVISOR_LABEL,
    Machine,
    MachineListing,
    MachineRecord,
    MachineState,
)
from supervisor.host import inspector
from supervisor.host.files import Unreadable
from supervisor.host.inspector import Inspection, boottime_s, machine_values
from supervisor.host.machines import Machines
from supervisor.ports.provider import ProviderUnavailable
from supervisor.telemetry import logs as telemetry

LOG = logging.getLogger(__name__)
TIMER_MARGIN_S = 0.01  # a timer that fires slightly too early would find its notice still running


@dataclass(frozen=True, slots=True)
class Survey:
    """All folders at one instant: as this computer has them, and as a listing of the port."""

    folders: inspector.Survey
    listing: MachineListing


@contextmanager
def as_unavailable(what: str) -> Iterator[None]:
    """OSError and Unreadable become ProviderUnavailable. `what`: the thing that was read or changed."""
    try:
        yield
    except (OSError, Unreadable) as error:
        raise ProviderUnavailable(f"{what}: {error}") from error


def machine_of(values: Mapping[str, Any]) -> Machine:
    """From host.inspector.machine_values."""
    record, labels = values["record"], (SUPERVISOR_LABEL, RUN_LABEL, LAUNCH_LABEL)
    return Machine(
        machine_id=values["machine_id"],
        name=values["name"],
        zone=values["zone"],
        state=MachineState(values["state"]),
        supervisor_id=values["supervisor_id"],
        run_id=values["run_id"],
        launch_id=values["launch_id"],
        created_at=values["created_at"],
        record=None if record is None else MachineRecord(**{**record, "cause": Cause(record["cause"])}),
        detail=values["detail"],
        labels=dict(zip(labels, (values["supervisor_id"], values["run_id"], values["launch_id"]), strict=True)),
    )


class Observer:
    """`zones`: those of the settings."""

    def __init__(self, machines: Machines, zones: frozenset[str]) -> None:
        self._machines = machines
        self._offered = zones
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

    def seen(self, inspection: Inspection) -> Machine:
        machine = machine_of(machine_values(inspection))
        with self._lock:
            self._zones[machine.name] = machine.zone
        if inspection.notice is not None:
            self._timers.watch(machine.name, inspection.notice.deadline_boottime_s)
        return machine

    def survey(self) -> Survey:
        """OSError when not even the names of the folders can be read."""
        survey = self._machines.survey()
        machines = tuple(map(self.seen, survey.machines))
        unreachable: set[str] = set()
        for name in survey.unreadable:
            zone = self._zones.get(name)
            unreachable |= self.zones() if zone is None else {zone}
        present = {machine.name for machine in machines} | {folder.name for folder in survey.over}
        with self._lock:
            for name in self._zones.keys() - present - survey.unreadable.keys():
                del self._zones[name]
        return Survey(survey, MachineListing(machines, frozenset(unreachable)))

    def log_unreadable(self, survey: Survey) -> None:
        """Log each folder once when it becomes unreadable."""
        unreadable = survey.folders.unreadable
        for name in unreadable.keys() - self._logged:
            _warn(name, "cannot be read, so nothing is concluded about its zone", unreadable[name])
        self._logged = set(unreadable)

    def _end_noticed(self, name: str) -> None:
        """Called on a timer's thread, between two ticks: the inspection itself ends the machine."""
        try:
            self._machines.inspect(self._machines.folder(name))
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
