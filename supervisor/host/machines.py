"""The machines of one computer, each a folder and the processes of one agent: launch, stop, release.

No state in memory matters: any later process finds the machines by their folders and processes. A launch makes a folder
(by one rename), then a process; a crash between the two is completed by the same launch. Only the lock that the agent
itself takes on the folder ensures that there is exactly one agent. Killing and checking are separate steps, and each
step is safe to repeat.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from signal import SIGSTOP, SIGTERM
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence

from supervisor.host import processes, relaunching
from supervisor.host.files import Unreadable, clause, remove, warn
from supervisor.host.folders import Folder, Folders, Job, Notice
from supervisor.host.inspector import (
    ASKED,
    ENDED,
    KILL_WAIT_S,
    Inspection,
    Inspector,
    Survey,
    boottime_s,
    end_processes,
)
from supervisor.host.refusals import Missing, Refused, Unfinished
from supervisor.host.starting import Agents, Start

START_WAIT_S = 10.0
START_POLL_S = 0.05
DEAD_KEPT_S = 3600.0  # an ended machine that was not released: its raw output may contain secrets


class Admission(NamedTuple):
    """Whether one more machine may start now, under the lock of the folders. `admit()`: the UUIDs of its cards, None =
    cards are not assigned. `renew(folder, job)`: chooses again for a launch that was cut off before its start. What
    they raise refuses the launch."""

    admit: Callable[[], Optional[Sequence[str]]]
    renew: Callable[[Folder, Job], None]


class Machines:
    """`keep(folder)`: saves what must exist longer than a machine's folder, before it is archived; may raise OSError
    and Unreadable. OSError and Unreadable of any method: nothing is known."""

    def __init__(
        self,
        folders: Folders,
        agents: Agents,
        now: Callable[[], float],
        *,
        keep: Callable[[Folder], None] = lambda folder: None,
        dead_kept_s: float = DEAD_KEPT_S,
    ) -> None:
        self.folders, self.agents, self._now, self._keep = folders, agents, now, keep
        self._dead_kept_s = dead_kept_s

    def launch(
        self, launch: Mapping[str, Any], agent: Path, admission: Admission, start: Callable[[], Start]
    ) -> Inspection:
        """The machine of this launch, started now or by an earlier call. `launch`: as in Folders.make. `start()`: what
        its agent is started with; what it raises refuses the launch. Refused, Unfinished."""
        try:
            folder = self.folders.folder(launch["name"])
        except ValueError as error:
            raise Refused(str(error)) from None
        with self.folders.locked():
            job = folder.job()
            if job is None:
                self._make_folder(launch, agent, admission)
            elif not job.is_of(launch):
                raise Refused(f"machine {folder.name} already exists, of launch {job.launch_id} of run {job.run_id}")
            if self.may_start(folder):
                self._start(folder, admission, start, job)
        return self._await_agent(folder)

    def start_again(
        self, launch: Mapping[str, Any], agent: Path, admission: Admission, start: Callable[[], Start]
    ) -> Inspection:
        """The machine of this name, which an earlier launch of the run has made and whose processes have ended, started
        for this launch; or the machine that an earlier call has started. Refused, Unfinished."""
        folder = self.folder(launch["name"])
        with self.folders.locked():
            job = folder.job()
            own = ("supervisor_id", "run_id")
            if job is None or any(getattr(job, name) != launch[name] for name in own):
                raise Refused(f"there is no machine {folder.name} of run {launch['run_id']}")
            if not job.is_of(launch) and self._is_living(folder):
                raise Unfinished(f"{folder.name} is not off yet")
            if not job.is_of(launch) or (job.is_after(folder.agent()) and self.may_start(folder)):
                self._start_on(folder, launch, agent, admission, start)
        return self._await_agent(folder)

    def _is_living(self, folder: Folder) -> bool:
        machine = self.inspect(folder)
        return self.agents.lives(folder) or (machine is not None and machine.state not in (ASKED, ENDED))

    def _start_on(
        self, folder: Folder, launch: Mapping[str, Any], agent: Path, admission: Admission, start: Callable[[], Start]
    ) -> None:
        """Whatever fails here leaves the machine off, with its disk."""
        gpu_ids = admission.admit()
        begin = start()
        if not agent.is_file():
            raise Refused(f"the agent {agent} is missing; `make agent` builds it")
        try:
            folder.start_again(self.folders.job_of(launch, self._now(), gpu_ids), agent)
            if relaunching.wants(folder):
                relaunching.prepare(folder, begin.environment)
            self.agents.start(folder, begin)
        except OSError as error:
            raise Refused(f"the agent of {folder.name} cannot be started: {error}") from error

    def switch_off(self, name: str, machine_id: Optional[str]) -> None:
        """End its processes; its folder stays. A missing machine is success. Unfinished."""
        folder = self.folder(name)
        if self.is_there(folder, machine_id):
            with self.folders.locked():
                self._end_all(folder)

    def survey(self) -> Survey:
        self.agents.reap()
        return Inspector(self._now).survey(self.folders)

    def find(self, name: str, machine_id: Optional[str]) -> Optional[Inspection]:
        self.agents.reap()
        machine = self.inspect(self.folder(name))
        return machine if machine is not None and _is(machine_id, machine) else None

    def inspect(self, folder: Folder) -> Optional[Inspection]:
        return Inspector(self._now).machine(folder)

    def release(self, name: str, machine_id: Optional[str]) -> None:
        """End its processes and archive its folder; a missing machine is success. Unfinished."""
        self.agents.reap()
        folder = self.folder(name)
        if not self.is_there(folder, machine_id):
            return
        end_processes(folder, folder.agent())
        with self.folders.locked():
            if not self.is_there(folder, machine_id):
                return
            self._end_all(folder)  # again, under the lock: a start may have come between
            self._archive(folder)
        self.agents.reap()

    def ask_to_stop(self, name: str, machine_id: Optional[str]) -> None:
        """TERM to the agent, if it lives."""
        folder = self.folder(name)
        agent = folder.agent()
        if agent is None or not self.is_there(folder, machine_id):
            return
        process = processes.find(agent, processes.boot_id())
        if process is not None:
            processes.send(process, SIGTERM)

    def archive_old(self, over: Sequence[Folder]) -> None:
        """Archive machines that ended long ago and were not released."""
        for folder in over:
            job = folder.job()
            since = folder.gone_at()
            if since is None:
                since = job.created_at if job is not None else None
            if since is None or self._now() - since < self._dead_kept_s:
                continue
            with self.folders.locked():
                if self.inspect(folder) is None and folder.path.exists():
                    self._archive(folder)

    def folder(self, name: str) -> Folder:
        # Without the folder of the folders nothing is known, least of all that one machine is gone.
        os.stat(self.folders.machines)
        return self.folders.folder(name)

    def existing(self, name: str, machine_id: Optional[str]) -> Folder:
        """The folder of a machine that has not ended. Missing."""
        folder = self.folder(name)
        machine = self.inspect(folder)
        if machine is None or machine.state == ENDED or not _is(machine_id, machine):
            raise Missing(f"there is no machine {name} {machine_id or ''}".rstrip())
        return folder

    # --- disasters ----------------------------------------------------------------------------------------------------

    def notice(self, folder: Folder, notice_s: float) -> Notice:
        """Write a preemption notice, unless an earlier one ends sooner."""
        notice, earlier = Notice(boottime_s() + notice_s, notice_s, self._now()), folder.notice()
        if earlier is None or notice.deadline_boottime_s < earlier.deadline_boottime_s:
            folder.write_notice(notice)
        return notice

    def kill(self, name: str, machine_id: Optional[str]) -> None:
        """Missing, Unfinished."""
        folder = self.existing(name, machine_id)
        left = end_processes(folder, folder.agent())
        if left:
            raise Unfinished(f"{folder.name}: killed, but not ended yet; pids: {left}")

    def freeze(self, name: str, machine_id: Optional[str]) -> None:
        """Suspend the training; the agent continues. Missing, Unfinished."""
        folder = self.existing(name, machine_id)
        agent = folder.agent()
        members = Inspector(self._now).members(folder, agent)
        training = [p for p in members if agent is not None and p.group != agent.pid]
        if not training:
            raise Unfinished(f"{folder.name} has no training process yet; repeat when the training runs")
        for process in training:
            processes.send(process, SIGSTOP)

    # --- launching ----------------------------------------------------------------------------------------------------

    def may_start(self, folder: Folder) -> bool:
        """No agent of this machine ever wrote its identity, and none is starting."""
        if not self._is_unwritten(folder) or self.agents.lives(folder):
            return False
        return not Inspector(self._now).members(folder, None)

    def _make_folder(self, launch: Mapping[str, Any], agent: Path, admission: Admission) -> None:
        gpu_ids = admission.admit()
        if not agent.is_file():
            raise Refused(f"the agent {agent} is missing; `make agent` builds it")
        try:
            self.folders.make(launch, agent, self._now(), gpu_ids)
        except (OSError, TypeError, ValueError) as error:
            raise Refused(f"the folder of {launch['name']} cannot be made: {error}") from error

    def _start(self, folder: Folder, admission: Admission, start: Callable[[], Start], cut_off: Optional[Job]) -> None:
        """`cut_off`: the job of an earlier call of this launch, which started no agent."""
        try:
            if cut_off is not None:
                admission.renew(folder, cut_off)
            begin = start()
            if relaunching.wants(folder):
                relaunching.prepare(folder, begin.environment)
            self.agents.start(folder, begin)
        except Unreadable:
            raise
        except Exception as error:
            self.folders.discard(folder)
            if isinstance(error, OSError):
                raise Refused(f"the agent of {folder.name} cannot be started: {error}") from error
            raise

    def _await_agent(self, folder: Folder) -> Inspection:
        """The machine when its agent has written its identity, or `starting` after START_WAIT_S."""
        deadline = time.monotonic() + START_WAIT_S
        while True:
            machine = self._started(folder, deadline)
            if machine is not None:
                return machine
            # First there was no process, then one: it was between its fork and its exec. Check again.
            if time.monotonic() >= deadline:
                raise Unfinished(f"{folder.name} is being started again")

    def _started(self, folder: Folder, deadline: float) -> Optional[Inspection]:
        """None: an agent appeared between two checks. Refused: there will be none."""
        while self._is_unwritten(folder) and time.monotonic() < deadline and not self.may_start(folder):
            time.sleep(START_POLL_S)
        self.agents.reap()
        machine = self.inspect(folder)
        if machine is not None and machine.state != ASKED:
            return machine
        job, agent = folder.job(), folder.agent()
        if job is None:
            raise Refused(f"{folder.name} was released while it started")
        if agent is not None and not job.is_after(agent):
            return Inspection(job, agent, ENDED, detail="started and already ended")
        with self.folders.locked():
            if not self.may_start(folder):
                return None
            last_output = clause(folder.console(300).decode(errors="replace").strip()) or "it printed nothing"
            if job.earlier is None:  # else the machine stays, as it was before this start
                self._archive(folder)
        raise Refused(f"the agent of {folder.name} ended before its work began: {last_output}")

    def _is_unwritten(self, folder: Folder) -> bool:
        """No agent of this launch has written its identity."""
        job, agent = folder.job(), folder.agent()
        return agent is None or (job is not None and job.is_after(agent))

    # --- ending -------------------------------------------------------------------------------------------------------

    def is_there(self, folder: Folder, machine_id: Optional[str]) -> bool:
        """The folder belongs to this machine, alive or not. Unreadable when this cannot be known."""
        job, agent = folder.job(), folder.agent()
        if job is None and agent is not None:
            raise Unreadable(f"{folder.path} has an agent but no job.json")
        if not folder.path.exists() or (job is not None and job.name != folder.name):
            return False
        return not machine_id or (agent is not None and agent.machine_id == machine_id)

    def _end_all(self, folder: Folder) -> None:
        """Kill the machine's processes and wait until the agent is reaped. Unfinished when a process stays.

        Two kinds of agents are in no list of living processes and have not ended: an agent in the moment of its exec,
        and a killed agent whose threads are still ending, which takes time on a busy computer."""
        deadline = time.monotonic() + KILL_WAIT_S
        while True:
            left = end_processes(folder, folder.agent())
            if not left and not self.agents.lives(folder):
                return
            if time.monotonic() >= deadline:
                raise Unfinished(f"{folder.name}: killed, but not ended yet; pids: {left}")
            time.sleep(processes.POLL_S)

    def _archive(self, folder: Folder) -> None:
        """Under the lock of the folders. A machine is archived even if nothing of it can be kept."""
        remove(folder.path / "work")  # first, because nothing can be written to a full disk
        try:
            self._keep(folder)
        except (OSError, Unreadable) as error:
            text = "Machine %s reported a bad GPU, and this was not saved: %s."
            warn("gpu_set_aside", text, folder.name, error, machine=folder.name)
        self.folders.archive(folder)


def _is(machine_id: Optional[str], machine: Inspection) -> bool:
    """The id identifies a machine; the name is enough only where the reference, or the machine, has no id yet."""
    own = "" if machine.agent is None else machine.agent.machine_id
    return not machine_id or not own or machine_id == own
