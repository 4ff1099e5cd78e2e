"""The state of one machine at this instant, read from its files and its processes.

    the agent or any other process lives            up; ending while a notice runs
    no agent.json (of this boot), but a process     starting
    nothing lives, a record or an unsettled notice  ended, with the record
    nothing lives, the computer was rebooted since  ended, host_rebooted
    nothing lives, and the machine is kept          ended, also without a record
    nothing lives, and it is to be started again    asked
    nothing lives, none of these                    gone: not a machine any more (gone.json says since when)
An inspection settles what it sees: a notice whose time is over, or a death that is not yet on record.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from supervisor.host import processes
from supervisor.host.files import Unreadable, warn
from supervisor.host.folders import Folder, Folders, Job, Notice, Record
from supervisor.host.processes import Identity, Process, Table

KILL_WAIT_S = 10.0
INSPECTION_KILL_WAIT_S = 1.0  # an inspection must not wait long for a process that cannot die; the next one continues
# Values of domain.machines.MachineState.
ASKED, STARTING, UP, ENDING, ENDED = "asked", "starting", "up", "ending", "ended"
PREEMPTED, HOST_REBOOTED = "preempted", "host_rebooted"  # values of domain.causes.Cause


class Inspection(NamedTuple):
    """One machine at one instant. `agent` None: it has not written its identity. `notice`: of a machine that is
    ending."""

    job: Job
    agent: Optional[Identity]
    state: str
    record: Optional[Record] = None
    detail: str = ""
    notice: Optional[Notice] = None


class Survey(NamedTuple):
    """All folders at one instant. `unreadable`: folder name -> reason. `over`: folders without a machine any more."""

    machines: Tuple[Inspection, ...]
    unreadable: Dict[str, str]
    over: Tuple[Folder, ...]


def machine_values(machine: Inspection) -> Dict[str, Any]:
    """As JSON: what supervisor/domain/machines.py needs of it."""
    job, agent, record = machine.job, machine.agent, machine.record
    return {
        "name": job.name,
        "zone": job.zone,
        "supervisor_id": job.supervisor_id,
        "run_id": job.run_id,
        "launch_id": job.launch_id,
        "created_at": job.created_at,
        "gpu_ids": job.gpu_ids,
        "machine_id": "" if agent is None else agent.machine_id,
        "state": machine.state,
        "record": None if record is None else record._asdict(),
        "detail": machine.detail,
    }


class Inspector:
    """Inspects machines within one boot, which is read once. `now`: epoch seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._boot = processes.boot_id()

    def survey(self, folders: Folders) -> Survey:
        """OSError when not even the names of the folders can be read."""
        machines: List[Inspection] = []
        unreadable: Dict[str, str] = {}
        over: List[Folder] = []
        for folder in folders.all():
            try:
                machine = self.machine(folder)
            except (OSError, Unreadable) as error:
                unreadable[folder.name] = str(error)
            else:
                if machine is None:
                    over.append(folder)
                else:
                    machines.append(machine)
        return Survey(tuple(machines), unreadable, tuple(over))

    def machine(self, folder: Folder) -> Optional[Inspection]:
        """The machine in this folder; None: there is none. Unreadable, OSError: nothing is known."""
        job = folder.job()
        agent = folder.agent()
        if job is None:
            self._refuse_lost_job(folder, agent)
            return None
        if job.name != folder.name:
            return None  # a user's copy of a machine's folder: its files belong to another machine
        if job.is_after(agent):
            return Inspection(job, None, STARTING if self.members(folder, None) else ASKED, detail="starts again")
        if folder.gone_at() is not None:
            return None
        notice = folder.notice()
        if agent is not None and self._is_of_this_boot(agent) and self._lives(folder, agent):
            if notice is None or boottime_s() < notice.deadline_boottime_s:
                return self._living(job, agent, notice)
            end_processes(folder, agent, INSPECTION_KILL_WAIT_S)
            if self._lives(folder, agent):
                return self._living(job, agent, notice)
        elif (agent is None or folder.is_relaunched_in(self._boot)) and self.members(folder, None):
            return Inspection(job, agent, STARTING)
        return self._dead(folder, job, agent, notice)

    def members(self, folder: Folder, agent: Optional[Identity]) -> List[Process]:
        """Living processes of this machine. The process table is read after the files, each time: an older table would
        miss an agent that started in between, and a missing agent looks like a death."""
        return Table().members(folder.path, agent)

    def _is_of_this_boot(self, agent: Identity) -> bool:
        return processes.same_boot(agent.boot_id, self._boot)

    def _lives(self, folder: Folder, agent: Identity) -> bool:
        process = processes.find(agent, self._boot)
        return (process is not None and process.alive) or bool(self.members(folder, agent))

    def _refuse_lost_job(self, folder: Folder, agent: Optional[Identity]) -> None:
        released = not folder.path.exists()  # since the folders were listed
        if not released and (agent is not None or self.members(folder, None)):
            raise Unreadable(f"{folder.path} has an agent but no job.json")

    def _living(self, job: Job, agent: Identity, notice: Optional[Notice]) -> Inspection:
        if notice is not None:
            return Inspection(job, agent, ENDING, _preempted(notice, notice.at), notice=notice)
        process = processes.find(agent, self._boot)
        detail = "" if process is not None and process.alive else "the agent has ended, and other processes remain"
        return Inspection(job, agent, UP, detail=detail)

    def _dead(
        self, folder: Folder, job: Job, agent: Optional[Identity], notice: Optional[Notice]
    ) -> Optional[Inspection]:
        record = folder.record()
        now = self._now()
        if record is None and agent is not None:
            if not self._is_of_this_boot(agent):
                record = Record(HOST_REBOOTED, "this computer was rebooted since", now)
            elif notice is not None:
                record = _preempted(notice, now)
            if record is not None:
                with _best_effort(folder):
                    folder.write_record(record)
        if record is not None:
            return Inspection(job, agent, ENDED, record)
        if agent is not None and job.kept:
            return Inspection(job, agent, ENDED, detail="its processes have ended")
        if agent is not None:
            with _best_effort(folder):
                folder.write_gone(now)
        return None


def boottime_s() -> float:
    """Since boot, time in suspend included: the clock of notices."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def end_processes(folder: Folder, agent: Optional[Identity], wait_s: float = KILL_WAIT_S) -> List[int]:
    """Kill all processes of this machine. Returns the pids that did not die within `wait_s`. Writes nothing."""
    boot = processes.boot_id()
    current = agent if agent is not None and processes.same_boot(agent.boot_id, boot) else None
    left = processes.kill_all(lambda: Table().members(folder.path, current), current, wait_s)
    return [process.pid for process in left]


@contextmanager
def _best_effort(folder: Folder) -> Iterator[None]:
    """What cannot be written now (a full disk) is found again by the next inspection; it must not hide the machine."""
    try:
        yield
    except OSError as error:
        if not folder.path.exists():
            return  # released in the meantime: there is nothing left to write about
        text = "The end of machine %s could not be written down: %s."
        warn("machine_end_unwritten", text, folder.name, error, machine=folder.name)


def _preempted(notice: Notice, at: float) -> Record:
    detail = f"preempted with {notice.notice_s:g} s notice" if notice.notice_s else "preempted without notice"
    return Record(PREEMPTED, detail, at, notice.notice_s)
