"""Machines that are a folder and the processes of one agent each, on the computer where the supervisor runs.

Nothing here lives in memory that matters: machines are found again from their folders and processes by any later
supervisor. A launch is a folder (by one rename), then a process; whatever a crash leaves between the two, the same
launch finishes. Only the agent itself, by its lock on the folder, decides that there is exactly one.

A provider of such machines subclasses this with its name and traits, and with an admission of its own where more than
places is scarce.
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
from supervisor.machinefolder.folders import Folder, Folders, Job, Notice
from supervisor.machinefolder.lookout import Lookout
from supervisor.machinefolder.papers import Unreadable, clear_answers, remove
from supervisor.machinefolder.room import Admission, Places, Stockouts
from supervisor.machinefolder.sighting import KILL_WAIT_S, Sight, boottime, end, ended
from supervisor.machinefolder.starting import Agents
from supervisor.ports.clock import Clock
from supervisor.ports.provider import LaunchFailed, LaunchRejected, LaunchRequest, MachineMissing, ProviderUnavailable
from supervisor.ports.traits import Traits
from supervisor.telemetry import logs as telemetry

LOG = logging.getLogger(__name__)
START_WAIT_S = 10.0
START_POLL_S = 0.05
DEAD_KEPT_S = 3600.0  # a machine that nobody released, after its end: its raw output may hold secrets


class FolderProvider:
    """Provider and Disasters of ports/provider.py. `data_dir`: the supervisor's; `agent`: the zipapp that is copied
    into each machine's folder; `capacity`: machines at once by zone, absent or None = no limit; `most`: machines at
    once altogether, None = no limit. A subclass gives `name` and `traits`; the folder of its own papers has the name
    of its kind."""

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
        self._agent = agent
        self._clock = clock
        self._lookout = Lookout(self._folders, frozenset(o.placement.zone for o in self._offers), clock)
        self._agents = Agents(sys.executable)
        self._places = Places(
            offers=self._offers,
            capacity=capacity,
            most=most,
            stockouts=Stockouts(self._folders.own / "stockouts.json"),
            lookout=self._lookout,
            clock=clock,
        )
        self._admission: Admission = self._places
        self._dead_kept_s = dead_kept_s

    def scope(self, before: Callable[[], str] = lambda: "") -> str:
        """Which machines it sees: those of its data folder, wherever that is moved. `before`: as in Folders.scope."""
        with clear_answers("the name of this set of machines"):
            return self._folders.scope(before)

    def pin(self, image: str) -> str:
        return ""

    def offers(self) -> tuple[Offer, ...]:
        return self._offers

    def gpus(self, shape: str) -> str:
        return ""  # of which kind cards are is known to their driver's tools only, and nobody may be asked here

    def launch(self, request: LaunchRequest) -> Machine:
        with clear_answers(f"launch of {request.name}"):
            try:
                folder = self._folders.folder(request.name)
            except ValueError as error:
                raise LaunchRejected(str(error)) from None
            with self._folders.locked():
                job = folder.job()
                if job is None:
                    self._make_room(request)
                elif not job.is_of(request):
                    raise LaunchRejected(
                        f"machine {request.name} is there already, of launch {job.launch_id} of run {job.run_id}"
                    )
                if self._may_start(folder):
                    self._start(folder, request, job)
            return self._await_agent(folder)

    def machines(self) -> MachineListing:
        self._agents.reap()
        with clear_answers("the list of machines"):
            seen = self._lookout.all()
            self._lookout.complain(seen)
            self._put_away(seen.over)
            return self._admission.listing(seen)

    def find(self, ref: MachineRef) -> Machine | None:
        self._agents.reap()
        with clear_answers(f"machine {ref.name}"):
            machine = self._lookout.one(self._folder(ref))
        return machine if machine is not None and _is(ref, machine.machine_id) else None

    def release(self, ref: MachineRef) -> None:
        self._agents.reap()
        with clear_answers(f"release of {ref.name}"):
            folder = self._folder(ref)
            if not self._is_there(folder, ref):
                return
            end(folder, folder.agent())
            with self._folders.locked():
                if not self._is_there(folder, ref):
                    return
                self._end_for_good(folder)  # once more: a start may have come between
                self._archive(folder)
        self._agents.reap()

    def ask_to_stop(self, ref: MachineRef) -> None:
        with clear_answers(f"stop of {ref.name}"):
            folder = self._folder(ref)
            if (agent := folder.agent()) is None or not self._is_there(folder, ref):
                return
            if (process := processes.find(agent, processes.boot_id())) is not None:
                processes.send(process, SIGTERM)

    def console(self, ref: MachineRef, max_bytes: int = 65536) -> bytes:
        with clear_answers(f"console of {ref.name}"):
            return self._folders.console(ref.name, max_bytes) if max_bytes > 0 else b""

    def console_after(self, ref: MachineRef, start: int, max_bytes: int) -> tuple[bytes, int]:
        """(bytes, the offset of the first); a negative start counts from the end. Only of a machine that is there.
        Raises MachineMissing, ProviderUnavailable."""
        with clear_answers(f"console of {ref.name}"):
            return self._demand(ref).console_after(start, max_bytes)

    def check_secrets(self, references: Collection[str]) -> Mapping[str, str]:
        return {reference: secrets.problem(reference) for reference in references}

    # --- disasters ----------------------------------------------------------------------------------------------------

    def preempt(self, ref: MachineRef, notice_s: float) -> None:
        with clear_answers(f"preemption of {ref.name}"):
            folder = self._demand(ref)
            notice = Notice(boottime() + notice_s, notice_s, self._clock.now())
            earlier = folder.notice()
            if earlier is None or notice.deadline_boottime_s < earlier.deadline_boottime_s:
                folder.write_notice(notice)
            if notice_s <= 0:
                self._lookout.one(folder)
            else:
                self._lookout.watch(folder.name, notice.deadline_boottime_s)

    def kill(self, ref: MachineRef) -> None:
        with clear_answers(f"kill of {ref.name}"):
            folder = self._demand(ref)
            left = end(folder, folder.agent())
            if left:
                raise ProviderUnavailable(f"{ref.name}: killed, but still there: pids {left}")

    def freeze(self, ref: MachineRef) -> None:
        with clear_answers(f"freeze of {ref.name}"):
            folder = self._demand(ref)
            agent = folder.agent()
            members = Sight(self._clock).members(folder, agent)
            training = [p for p in members if agent is not None and p.group != agent.pid]
            if not training:
                raise ProviderUnavailable(f"{ref.name} has no training process yet; try again when it trains")
            for process in training:
                processes.send(process, SIGSTOP)

    def stockout(self, zones: Sequence[str], for_s: float | None) -> None:
        unknown = set(zones) - self._lookout.zones()
        if unknown:
            raise ValueError(f"no such zone: {', '.join(sorted(unknown))}")
        with clear_answers("stock-out"), self._folders.locked():
            self._places.stockouts.set(zones, for_s, self._clock.now())

    def _end_for_good(self, folder: Folder) -> None:
        """Kill the machine's processes and wait until the agent is reaped. ProviderUnavailable when one stays.

        Two agents are in no list of living processes and not over yet: one just started, in the moment of its exec,
        and one just killed, while threads of it end: a busy computer takes its time, and then it can be reaped."""
        deadline = time.monotonic() + KILL_WAIT_S
        while (left := end(folder, folder.agent())) or self._agents.lives(folder):
            if time.monotonic() >= deadline:
                raise ProviderUnavailable(f"{folder.name}: killed, but still there: pids {left}")
            time.sleep(processes.POLL_S)

    # --- launching ----------------------------------------------------------------------------------------------------

    def _make_room(self, request: LaunchRequest) -> None:
        """The folder for a machine that may be started here and now. NoCapacity, CapacityInUse, LaunchRejected."""
        gpu_ids = self._admission.admit(request.placement)
        if not self._agent.is_file():
            raise LaunchRejected(f"the agent {self._agent} is missing; `make agent` builds it")
        try:
            self._folders.make(request, self._agent, self._clock.now(), gpu_ids)
        except (OSError, TypeError, ValueError) as error:
            raise LaunchRejected(f"the folder of {request.name} cannot be made: {error}") from error

    def _may_start(self, folder: Folder) -> bool:
        """Nothing of this machine has ever come so far as to say its name, and nothing is on its way."""
        if folder.agent() is not None or self._agents.lives(folder):
            return False
        return not Sight(self._clock).members(folder, None)

    def _start(self, folder: Folder, request: LaunchRequest, cut_off: Job | None) -> None:
        """`cut_off`: of the same launch, which did not come so far. LaunchRejected, NoCapacity,
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
        """The machine once its agent has said its name, or STARTING after a while."""
        deadline = time.monotonic() + START_WAIT_S
        while True:
            machine = self._look_for_agent(folder, deadline)
            if machine is not None:
                return machine
            # Nobody was seen, and then somebody: a process between its fork and its new name. Look again.
            if time.monotonic() >= deadline:
                raise ProviderUnavailable(f"{folder.name} is being started once more")

    def _look_for_agent(self, folder: Folder, deadline: float) -> Machine | None:
        """None when an agent appeared between two looks. Raises LaunchRejected when there will be none."""
        while folder.agent() is None and time.monotonic() < deadline and not self._may_start(folder):
            time.sleep(START_POLL_S)
        self._agents.reap()
        machine = self._lookout.one(folder)
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
            last_words = clause(folder.console(300).decode(errors="replace").strip()) or "it said nothing"
            self._archive(folder)
        raise LaunchRejected(f"the agent of {folder.name} ended before it began: {last_words}")

    def _put_away(self, over: Sequence[Folder]) -> None:
        """Archive machines that ended long ago and that nobody released."""
        for folder in over:
            job = folder.job()
            since = folder.gone_at() or (job.created_at if job is not None else None)
            if since is None or self._clock.now() - since < self._dead_kept_s:
                continue
            with self._folders.locked():
                if self._lookout.one(folder) is None and folder.path.exists():
                    self._archive(folder)

    def _archive(self, folder: Folder) -> None:
        """Under the folders' lock. A machine goes also where nothing of it can be kept."""
        remove(folder.path / "work")  # its room first
        try:
            self._admission.keep(folder)
        except (OSError, Unreadable) as error:
            extra = {telemetry.ACTION: "gpu_set_aside", telemetry.MACHINE: folder.name}
            LOG.warning("Machine %s has seen a bad GPU, and that is not kept: %s.", folder.name, error, extra=extra)
        self._folders.archive(folder)

    def _folder(self, ref: MachineRef) -> Folder:
        # Without the folder of folders nothing is known, least of all that one machine is gone.
        os.stat(self._folders.machines)
        return self._folders.folder(ref.name)

    def _is_there(self, folder: Folder, ref: MachineRef) -> bool:
        """The folder is of the very machine that is meant, alive or not. Unreadable when that cannot be told."""
        job, agent = folder.job(), folder.agent()
        if job is None and agent is not None:
            raise Unreadable(f"{folder.path} has an agent but no job.json")
        if not folder.path.exists() or (job is not None and job.name != folder.name):
            return False
        return not ref.machine_id or (agent is not None and agent.machine_id == ref.machine_id)

    def _demand(self, ref: MachineRef) -> Folder:
        folder = self._folder(ref)
        machine = self._lookout.one(folder)
        if machine is None or machine.state is MachineState.ENDED or not _is(ref, machine.machine_id):
            raise MachineMissing(f"there is no machine {ref.name} {ref.machine_id or ''}".rstrip())
        return folder


def _is(ref: MachineRef, machine_id: str) -> bool:
    """A machine is what its id says; a name alone will do only where the asker, or the machine, has no id yet."""
    return not ref.machine_id or not machine_id or ref.machine_id == machine_id
