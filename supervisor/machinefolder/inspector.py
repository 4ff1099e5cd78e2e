"""The state of one machine at this instant, read from its files and its processes.

    the agent or any other process lives            UP; ENDING while a notice runs
    no agent.json, but a process is there           STARTING
    nothing lives, a record or an unsettled notice  ENDED with the record
    nothing lives, the computer was rebooted since  ENDED, host_rebooted
    nothing lives, none of these                    gone: not a machine any more (gone.json says since when)
An inspection settles what it sees: a notice whose time is over, or a death that is not yet on record.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from supervisor.domain.causes import Cause
from supervisor.domain.machines import LAUNCH_LABEL, RUN_LABEL, SUPERVISOR_LABEL, Machine, MachineRecord, MachineState
from supervisor.machinefolder import processes
from supervisor.machinefolder.files import Unreadable
from supervisor.machinefolder.folders import Folder, Job, Notice
from supervisor.machinefolder.processes import Identity, Process, Table
from supervisor.ports.clock import Clock
from supervisor.telemetry import logs as telemetry

LOG = logging.getLogger(__name__)
KILL_WAIT_S = 10.0
INSPECTION_KILL_WAIT_S = 1.0  # an inspection must not wait long for a process that cannot die; the next one continues


class Inspector:
    """Inspects machines within one boot, which is read once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._boot = processes.boot_id()

    def machine(self, folder: Folder) -> Machine | None:
        """The machine in this folder; None: there is none. Unreadable, OSError: nothing is known."""
        job = folder.job()
        agent = folder.agent()
        if job is None:
            self._refuse_lost_job(folder, agent)
            return None
        if job.name != folder.name:
            return None  # a user's copy of a machine's folder: its files belong to another machine
        if folder.gone_at() is not None:
            return None
        notice = folder.notice()
        if agent is not None and self._is_of_this_boot(agent) and self._lives(folder, agent):
            if notice is None or boottime_s() < notice.deadline_boottime_s:
                return self._living(job, agent, notice)
            end_processes(folder, agent, INSPECTION_KILL_WAIT_S)
            if self._lives(folder, agent):
                return self._living(job, agent, notice)
        elif agent is None and self.members(folder, None):
            return _machine(job, None, MachineState.STARTING)
        return self._dead(folder, job, agent, notice)

    def members(self, folder: Folder, agent: Identity | None) -> list[Process]:
        """Living processes of this machine. The process table is read after the files, each time: an older table would
        miss an agent that started in between, and a missing agent looks like a death."""
        return Table().members(folder.path, agent)

    def _is_of_this_boot(self, agent: Identity) -> bool:
        return processes.same_boot(agent.boot_id, self._boot)

    def _lives(self, folder: Folder, agent: Identity) -> bool:
        process = processes.find(agent, self._boot)
        return (process is not None and process.alive) or bool(self.members(folder, agent))

    def _refuse_lost_job(self, folder: Folder, agent: Identity | None) -> None:
        released = not folder.path.exists()  # since the folders were listed
        if not released and (agent is not None or self.members(folder, None)):
            raise Unreadable(f"{folder.path} has an agent but no job.json")

    def _living(self, job: Job, agent: Identity, notice: Notice | None) -> Machine:
        if notice is not None:
            return _machine(job, agent, MachineState.ENDING, _preempted(notice, notice.at))
        process = processes.find(agent, self._boot)
        detail = "" if process is not None and process.alive else "the agent has ended, and other processes remain"
        return _machine(job, agent, MachineState.UP, detail=detail)

    def _dead(self, folder: Folder, job: Job, agent: Identity | None, notice: Notice | None) -> Machine | None:
        record = folder.record()
        now = self._clock.now()
        if record is None and agent is not None:
            if not self._is_of_this_boot(agent):
                record = MachineRecord(Cause.HOST_REBOOTED, "this computer was rebooted since", now)
            elif notice is not None:
                record = _preempted(notice, now)
            if record is not None:
                with _best_effort(folder):
                    folder.write_record(record)
        if record is not None:
            return _machine(job, agent, MachineState.ENDED, record)
        if agent is not None:
            with _best_effort(folder):
                folder.write_gone(now)
        return None


def boottime_s() -> float:
    """Since boot, time in suspend included: the clock of notices."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def end_processes(folder: Folder, agent: Identity | None, wait_s: float = KILL_WAIT_S) -> list[int]:
    """Kill all processes of this machine. Returns the pids that did not die within `wait_s`. Writes nothing."""
    boot = processes.boot_id()
    current = agent if agent is not None and processes.same_boot(agent.boot_id, boot) else None
    left = processes.kill_all(lambda: Table().members(folder.path, current), current, wait_s)
    return [process.pid for process in left]


def ended(job: Job, agent: Identity | None) -> Machine:
    """A machine that started and has already ended, as the result of its launch."""
    return _machine(job, agent, MachineState.ENDED, detail="started and already ended")


@contextmanager
def _best_effort(folder: Folder) -> Iterator[None]:
    """What cannot be written now (a full disk) is found again by the next inspection; it must not hide the machine."""
    try:
        yield
    except OSError as error:
        if not folder.path.exists():
            return  # released in the meantime: there is nothing left to write about
        LOG.warning(
            "The end of machine %s could not be written down: %s.",
            folder.name,
            error,
            extra={telemetry.ACTION: "machine_end_unwritten", telemetry.MACHINE: folder.name},
        )


def _machine(
    job: Job, agent: Identity | None, state: MachineState, record: MachineRecord | None = None, detail: str = ""
) -> Machine:
    return Machine(
        machine_id="" if agent is None else agent.machine_id,
        name=job.name,
        zone=job.zone,
        state=state,
        supervisor_id=job.supervisor_id,
        run_id=job.run_id,
        launch_id=job.launch_id,
        created_at=job.created_at,
        record=record,
        detail=detail,
        labels={SUPERVISOR_LABEL: job.supervisor_id, RUN_LABEL: job.run_id, LAUNCH_LABEL: job.launch_id},
    )


def _preempted(notice: Notice, at: float) -> MachineRecord:
    detail = f"preempted with {notice.notice_s:g} s notice" if notice.notice_s else "preempted without notice"
    return MachineRecord(Cause.PREEMPTED, detail, at, notice.notice_s)
