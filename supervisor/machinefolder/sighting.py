"""What one machine is at this instant, read from its papers and its processes.

    agent lives, or anything of the machine does    UP; ENDING while a notice runs
    no agent.json, but its process is there         STARTING
    nothing lives, a record or an unsettled notice  ENDED with the record
    nothing lives, the computer was booted since    ENDED, host_rebooted
    nothing lives, none of these                    gone: not a machine any more (gone.json says since when)
A look settles what it finds over: a notice whose time has come, or a death not yet on record.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from supervisor.domain.causes import Cause
from supervisor.domain.machines import LAUNCH_LABEL, RUN_LABEL, SUPERVISOR_LABEL, Machine, MachineRecord, MachineState
from supervisor.machinefolder import processes
from supervisor.machinefolder.folders import Folder, Job, Notice
from supervisor.machinefolder.papers import Unreadable
from supervisor.machinefolder.processes import Identity, Process, Table
from supervisor.ports.clock import Clock
from supervisor.telemetry import logs as telemetry

LOG = logging.getLogger(__name__)
KILL_WAIT_S = 10.0
LOOK_KILL_WAIT_S = 1.0  # a look must not wait long for what cannot die; the next one goes on


def boottime() -> float:
    """Seconds since boot, those asleep included: the clock of notices."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Sight:
    """Looks at machines within one boot, which is read once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._boot = processes.boot_id()

    def look(self, folder: Folder) -> Machine | None:
        """The machine in this folder, or None when there is none. Unreadable, OSError: nothing is known."""
        job = folder.job()
        agent = folder.agent()
        if job is None:
            self._refuse_lost_job(folder, agent)
            return None
        if job.name != folder.name:
            return None  # somebody's copy of a machine's folder: its papers speak of another one
        if folder.gone_at() is not None:
            return None
        notice = folder.notice()
        if agent is not None and self.same_boot(agent) and self._lives(folder, agent):
            if notice is None or boottime() < notice.deadline_boottime_s:
                return self._living(job, agent, notice)
            end(folder, agent, LOOK_KILL_WAIT_S)
            if self._lives(folder, agent):
                return self._living(job, agent, notice)
        elif agent is None and self.members(folder, None):
            return _machine(job, None, MachineState.STARTING)
        return self._dead(folder, job, agent, notice)

    def same_boot(self, agent: Identity) -> bool:
        return agent.boot_id[:8] == self._boot[:8]

    def members(self, folder: Folder, agent: Identity | None) -> list[Process]:
        """Living processes of this machine. The table is read after the papers, each time: an older one would miss
        an agent that was born in between, and a missing agent looks like a death."""
        return Table().members(folder.path, agent)

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
        detail = "" if process is not None and process.alive else "the agent is gone, processes of it remain"
        return _machine(job, agent, MachineState.UP, detail=detail)

    def _dead(self, folder: Folder, job: Job, agent: Identity | None, notice: Notice | None) -> Machine | None:
        record = folder.record()
        now = self._clock.now()
        if record is None and agent is not None:
            if not self.same_boot(agent):
                record = MachineRecord(Cause.HOST_REBOOTED, "this computer was booted since", now)
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


@contextmanager
def _best_effort(folder: Folder) -> Iterator[None]:
    """What cannot be written now (a full disk) is found again by the next look; it must not hide the machine."""
    try:
        yield
    except OSError as error:
        if not folder.path.exists():
            return  # released meanwhile: there is nothing left to write about
        LOG.warning(
            "The end of machine %s could not be written down: %s.",
            folder.name,
            error,
            extra={telemetry.ACTION: "machine_end_unwritten", telemetry.MACHINE: folder.name},
        )


def end(folder: Folder, agent: Identity | None, wait_s: float = KILL_WAIT_S) -> list[int]:
    """Kill everything of this machine; the pids that would not die in `wait_s`. Nothing is written."""
    boot = processes.boot_id()
    living = agent if agent is not None and agent.boot_id[:8] == boot[:8] else None
    left = processes.kill_all(lambda: Table().members(folder.path, living), living, wait_s)
    return [process.pid for process in left]


def ended(job: Job, agent: Identity | None) -> Machine:
    """A machine that came to be and is over, for whoever asked for it."""
    return _machine(job, agent, MachineState.ENDED, detail="started and already over")


def _machine(
    job: Job, agent: Identity | None, state: MachineState, record: MachineRecord | None = None, detail: str = ""
) -> Machine:
    labels: Mapping[str, str] = {
        SUPERVISOR_LABEL: job.supervisor_id,
        RUN_LABEL: job.run_id,
        LAUNCH_LABEL: job.launch_id,
    }
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
        labels=labels,
    )


def _preempted(notice: Notice, at: float) -> MachineRecord:
    detail = f"preempted with {notice.notice_s:g} s notice" if notice.notice_s else "preempted without notice"
    return MachineRecord(Cause.PREEMPTED, detail, at, notice.notice_s)
