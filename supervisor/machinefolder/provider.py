"""Machines that are a folder and the processes of one agent each, on the computer where the supervisor runs.

No state in memory matters: any later supervisor finds the machines by their folders and processes. A launch makes a
folder (by one rename), then a process; a crash between the two is completed by the same launch. Only the lock that the
agent itself takes on the folder ensures that there is exactly one agent.

A provider of such machines subclasses this class with its name and traits, and with an admission of its own where more
than the number of machines is limited.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from signal import SIGSTOP, SIGTERM

from supervisor.domain.machines import Machine, MachineListing, MachineRef, MachineState, Offer
from supervisor.domain.texts import clause
from supervisor.machinefolder import processes, secrets
from supervisor.machinefolder.capacity import Admission, MachineLimits, Stockouts
from supervisor.machinefolder.files import Unreadable, as_unavailable, remove
from supervisor.machinefolder.folders import Folder, Folders, Job, Notice
from supervisor.machinefolder.inspector import KILL_WAIT_S, Inspector, boottime_s, end_processes, ended
from supervisor.machinefolder.observer import Observer
from supervisor.machinefolder.starting import Agents
from supervisor.ports.clock import Clock
from supervisor.ports.provider import LaunchFailed, LaunchRejected, LaunchRequest, MachineMissing, ProviderUnavailable
from supervisor.ports.traits import Traits
from supervisor.telemetry import logs as telemetry

LOG = logging.getLogger(__name__)
START_WAIT_S = 10.0
START_POLL_S = 0.05
DEAD_KEPT_S = 3600.0  # an ended machine that was not released: its raw output may contain secrets


class FolderProvider:
    """Provider and Disasters of ports/provider.py. `data_dir`: of the supervisor; `agent`: the zipapp that is copied
    into each machine's folder; `capacity`: machines at once by zone, absent or None = no limit; `most`: machines at
    once in total, None = no limit. A subclass has `name` and `traits`; the folder of its own files has the name of its
    kind."""

    name: str
    traits: Traits

    def __init__(
        self,
        data_dir: Path,
        offers: Sequence[Offer],
        capacity: Mapping[str, int | None],
        *,
        agent: Path,
        clock: Clock,
        dead_kept_s: float = DEAD_KEPT_S,
        most: int | None = None,
    ) -> None:
        self._folders = Folders(data_dir.resolve(), self.traits.kind)
        self._offers = tuple(offers)
        self.agent = agent
        self._clock = clock
        self._observer = Observer(self._folders, frozenset(o.placement.zone for o in self._offers), clock)
        self._agents = Agents(sys.executable)
        self._limits = MachineLimits(
            offers=self._offers,
            capacity=capacity,
            most=most,
            stockouts=Stockouts(self._folders.own / "stockouts.json"),
            observer=self._observer,
            clock=clock,
        )
        self._admission: Admission = self._limits
        self._dead_kept_s = dead_kept_s

    def scope(self, before: Callable[[], str] = lambda: "") -> str:
        """This provider sees the machines of its data folder, also after a move. `before`: as in Folders.scope."""
        with as_unavailable("the name of this set of machines"):
            return self._folders.scope(before)

    def pin(self, image: str) -> str:
        return ""

    def offers(self) -> tuple[Offer, ...]:
        return self._offers

    def gpus(self, shape: str) -> str:
        return ""  # only the tools of the driver know the type of the cards, and this method must not call them

    def launch(self, request: LaunchRequest) -> Machine:
        with as_unavailable(f"launch of {request.name}"):
            try:
                folder = self._folders.folder(request.name)
            except ValueError as error:
                raise LaunchRejected(str(error)) from None
            with self._folders.locked():
                job = folder.job()
                if job is None:
                    self._make_folder(request)
                elif not job.is_of(request):
                    raise LaunchRejected(
                        f"machine {request.name} already exists, of launch {job.launch_id} of run {job.run_id}"
                    )
                if self._may_start(folder):
                    self._start(folder, request, job)
            return self._await_agent(folder)

    def machines(self) -> MachineListing:
        self._agents.reap()
        with as_unavailable("the list of machines"):
            survey = self._observer.survey()
            self._observer.log_unreadable(survey)
            self._archive_old(survey.over)
            return self._admission.listing(survey)

    def find(self, ref: MachineRef) -> Machine | None:
        self._agents.reap()
        with as_unavailable(f"machine {ref.name}"):
            machine = self._observer.machine(self._folder(ref))
        return machine if machine is not None and _is(ref, machine.machine_id) else None

    def release(self, ref: MachineRef) -> None:
        self._agents.reap()
        with as_unavailable(f"release of {ref.name}"):
            folder = self._folder(ref)
            if not self._is_there(folder, ref):
                return
            end_processes(folder, folder.agent())
            with self._folders.locked():
                if not self._is_there(folder, ref):
                    return
                self._end_all(folder)  # again, under the lock: a start may have come between
                self._archive(folder)
        self._agents.reap()

    def ask_to_stop(self, ref: MachineRef) -> None:
        with as_unavailable(f"stop of {ref.name}"):
            folder = self._folder(ref)
            if (agent := folder.agent()) is None or not self._is_there(folder, ref):
                return
            if (process := processes.find(agent, processes.boot_id())) is not None:
                processes.send(process, SIGTERM)

    def console(self, ref: MachineRef, max_bytes: int = 65536) -> bytes:
        with as_unavailable(f"console of {ref.name}"):
            return self._folders.console(ref.name, max_bytes) if max_bytes > 0 else b""

    def console_after(self, ref: MachineRef, start: int, max_bytes: int) -> tuple[bytes, int]:
        """(bytes, the offset of the first); a negative start counts from the end. Raises MachineMissing,
        ProviderUnavailable."""
        with as_unavailable(f"console of {ref.name}"):
            return self._existing(ref).console_after(start, max_bytes)

    def check_secrets(self, references: Collection[str]) -> Mapping[str, str]:
        return {reference: secrets.problem(reference) for reference in references}

    # --- disasters ----------------------------------------------------------------------------------------------------

    def preempt(self, ref: MachineRef, notice_s: float) -> None:
        with as_unavailable(f"preemption of {ref.name}"):
            folder = self._existing(ref)
            notice = Notice(boottime_s() + notice_s, notice_s, self._clock.now())
            earlier = folder.notice()
            if earlier is None or notice.deadline_boottime_s < earlier.deadline_boottime_s:
                folder.write_notice(notice)
            if notice_s <= 0:
                self._observer.machine(folder)
            else:
                self._observer.watch(folder.name, notice.deadline_boottime_s)

    def kill(self, ref: MachineRef) -> None:
        with as_unavailable(f"kill of {ref.name}"):
            folder = self._existing(ref)
            left = end_processes(folder, folder.agent())
            if left:
                raise ProviderUnavailable(f"{ref.name}: killed, but not ended yet; pids: {left}")

    def freeze(self, ref: MachineRef) -> None:
        with as_unavailable(f"freeze of {ref.name}"):
            folder = self._existing(ref)
            agent = folder.agent()
            members = Inspector(self._clock).members(folder, agent)
            training = [p for p in members if agent is not None and p.group != agent.pid]
            if not training:
                raise ProviderUnavailable(f"{ref.name} has no training process yet; repeat when the training runs")
            for process in training:
                processes.send(process, SIGSTOP)

    def stockout(self, zones: Sequence[str], for_s: float | None) -> None:
        unknown = set(zones) - self._observer.zones()
        if unknown:
            raise ValueError(f"no such zone: {', '.join(sorted(unknown))}")
        with as_unavailable("stock-out"), self._folders.locked():
            self._limits.stockouts.set(zones, for_s, self._clock.now())

    # --- launching ----------------------------------------------------------------------------------------------------

    def _make_folder(self, request: LaunchRequest) -> None:
        """The folder of a machine that may start now. NoCapacity, CapacityInUse, LaunchRejected."""
        gpu_ids = self._admission.admit(request.placement)
        if not self.agent.is_file():
            raise LaunchRejected(f"the agent {self.agent} is missing; `make agent` builds it")
        try:
            self._folders.make(request, self.agent, self._clock.now(), gpu_ids)
        except (OSError, TypeError, ValueError) as error:
            raise LaunchRejected(f"the folder of {request.name} cannot be made: {error}") from error

    def _may_start(self, folder: Folder) -> bool:
        """No agent of this machine ever wrote its identity, and none is starting."""
        if folder.agent() is not None or self._agents.lives(folder):
            return False
        return not Inspector(self._clock).members(folder, None)

    def _start(self, folder: Folder, request: LaunchRequest, cut_off: Job | None) -> None:
        """`cut_off`: the job of an earlier call of this launch, which started no agent. LaunchRejected, NoCapacity,
        CapacityInUse."""
        try:
            if cut_off is not None:
                self._admission.renew(folder, cut_off, request.placement)
            self._agents.start(folder, request.secrets)
        except (OSError, LaunchFailed) as error:
            self._folders.discard(folder)
            if isinstance(error, LaunchFailed):
                raise
            raise LaunchRejected(f"the agent of {folder.name} cannot be started: {error}") from error

    def _await_agent(self, folder: Folder) -> Machine:
        """The machine when its agent has written its identity, or STARTING after START_WAIT_S."""
        deadline = time.monotonic() + START_WAIT_S
        while True:
            machine = self._started(folder, deadline)
            if machine is not None:
                return machine
            # First there was no process, then one: it was between its fork and its exec. Check again.
            if time.monotonic() >= deadline:
                raise ProviderUnavailable(f"{folder.name} is being started again")

    def _started(self, folder: Folder, deadline: float) -> Machine | None:
        """None: an agent appeared between two checks. LaunchRejected: there will be none."""
        while folder.agent() is None and time.monotonic() < deadline and not self._may_start(folder):
            time.sleep(START_POLL_S)
        self._agents.reap()
        machine = self._observer.machine(folder)
        if machine is not None:
            return machine
        job, agent = folder.job(), folder.agent()
        if job is None:
            raise LaunchRejected(f"{folder.name} was released while it started")
        if agent is not None:
            return ended(job, agent)
        with self._folders.locked():
            if not self._may_start(folder):
                return None
            last_output = clause(folder.console(300).decode(errors="replace").strip()) or "it printed nothing"
            self._archive(folder)
        raise LaunchRejected(f"the agent of {folder.name} ended before its work began: {last_output}")

    # --- ending -------------------------------------------------------------------------------------------------------

    def _end_all(self, folder: Folder) -> None:
        """Kill the machine's processes and wait until the agent is reaped. ProviderUnavailable when a process stays.

        Two kinds of agents are in no list of living processes and have not ended: an agent in the moment of its exec,
        and a killed agent whose threads are still ending, which takes time on a busy computer."""
        deadline = time.monotonic() + KILL_WAIT_S
        while (left := end_processes(folder, folder.agent())) or self._agents.lives(folder):
            if time.monotonic() >= deadline:
                raise ProviderUnavailable(f"{folder.name}: killed, but not ended yet; pids: {left}")
            time.sleep(processes.POLL_S)

    def _archive_old(self, over: Sequence[Folder]) -> None:
        """Archive machines that ended long ago and were not released."""
        for folder in over:
            job = folder.job()
            since = folder.gone_at() or (job.created_at if job is not None else None)
            if since is None or self._clock.now() - since < self._dead_kept_s:
                continue
            with self._folders.locked():
                if self._observer.machine(folder) is None and folder.path.exists():
                    self._archive(folder)

    def _archive(self, folder: Folder) -> None:
        """Under the lock of the folders. A machine is archived even if nothing of it can be kept."""
        remove(folder.path / "work")  # first, because nothing can be written to a full disk
        try:
            self._admission.keep(folder)
        except (OSError, Unreadable) as error:
            extra = {telemetry.ACTION: "gpu_set_aside", telemetry.MACHINE: folder.name}
            LOG.warning("Machine %s reported a bad GPU, and this was not saved: %s.", folder.name, error, extra=extra)
        self._folders.archive(folder)

    def _folder(self, ref: MachineRef) -> Folder:
        # Without the folder of the folders nothing is known, least of all that one machine is gone.
        os.stat(self._folders.machines)
        return self._folders.folder(ref.name)

    def _is_there(self, folder: Folder, ref: MachineRef) -> bool:
        """The folder belongs to the machine of this reference, alive or not. Unreadable when this cannot be known."""
        job, agent = folder.job(), folder.agent()
        if job is None and agent is not None:
            raise Unreadable(f"{folder.path} has an agent but no job.json")
        if not folder.path.exists() or (job is not None and job.name != folder.name):
            return False
        return not ref.machine_id or (agent is not None and agent.machine_id == ref.machine_id)

    def _existing(self, ref: MachineRef) -> Folder:
        """The folder of a machine that has not ended. MachineMissing."""
        folder = self._folder(ref)
        machine = self._observer.machine(folder)
        if machine is None or machine.state is MachineState.ENDED or not _is(ref, machine.machine_id):
            raise MachineMissing(f"there is no machine {ref.name} {ref.machine_id or ''}".rstrip())
        return folder


def _is(ref: MachineRef, machine_id: str) -> bool:
    """The id identifies a machine; the name is enough only where the reference, or the machine, has no id yet."""
    return not ref.machine_id or not machine_id or ref.machine_id == machine_id
