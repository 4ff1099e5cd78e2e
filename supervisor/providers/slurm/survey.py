"""All machines at one instant: one read of the queue, the folders, and one read of the history where an end is not in
the queue any more.

The queue is read before the folders. An active job needs no file of its folder, so a listing of a thousand jobs costs
one command and one directory. What is ended is settled once: its record, or that it is gone, is written into its
folder. A folder that cannot be read, or a word that this version does not know, makes one partition Unknown.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from supervisor.domain.causes import Cause
from supervisor.domain.machines import Machine, MachineListing, MachineRecord, MachineState
from supervisor.host.files import Unreadable, read_json, write_json
from supervisor.host.folders import NAME, Folder, Folders, Record
from supervisor.machinefolder.observer import as_unavailable
from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.slurm import jobs
from supervisor.providers.slurm.cluster import ClusterReader, CommandFailed, Commands
from supervisor.providers.slurm.jobs import Ends, Job, JobName, Unclear
from supervisor.providers.slurm.machines import NotOver, Sighting, is_over, machine_of, one_each
from supervisor.providers.slurm.states import UnknownState
from supervisor.providers.slurm.submitting import SECRETS, STARTS
from supervisor.telemetry import logs as telemetry

LOG = logging.getLogger(__name__)
OWN = "slurm"  # the folder of the provider's own files
SUBMITTED, RELEASED = "submitted.json", "released.json"
YOUNG_S = 5.0  # a job that was submitted so short before a read of the queue may be missing in it
DEAD_KEPT_S = 3600.0  # as in supervisor/host: an ended machine that was not released


class Queue:
    """Our jobs, by `squeue --json` where it works, else by its text form."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._json = True

    def jobs(self) -> tuple[Job, ...]:
        """Also those that have ended, for MinJobAge. Raises ProviderUnavailable."""
        try:
            if self._json:
                try:
                    return jobs.from_json(self._commands.run(*jobs.QUEUE_JSON))
                except (CommandFailed, Unclear):
                    answer = jobs.from_text(self._commands.run(*jobs.QUEUE_TEXT))
                    self._json = False  # no JSON here: the text form works, and the cluster answers
                    return answer
            return jobs.from_text(self._commands.run(*jobs.QUEUE_TEXT))
        except Unclear as error:
            raise ProviderUnavailable(str(error)) from None


@dataclass
class Survey:
    """`unread`: machine name -> (zone, reason); zone "" = not known. `sightings`: also of machines that are gone, while
    their folder is there."""

    jobs: Mapping[str, Sequence[Job]]
    machines: dict[str, Machine] = field(default_factory=dict)
    sightings: dict[str, Sighting] = field(default_factory=dict)
    unread: dict[str, tuple[str, str]] = field(default_factory=dict)

    def listing(self, zones: Sequence[str]) -> MachineListing:
        reasons: dict[str, str] = {}
        for zone, reason in self.unread.values():
            reasons.update(dict.fromkeys([zone] if zone else zones, reason))
        return MachineListing(tuple(self.machines.values()), frozenset(reasons), reasons=reasons)


class Surveyor:
    """`root`: slurm_folder. `now`: epoch seconds."""

    def __init__(self, commands: Commands, cluster: ClusterReader, root: Path, now: Callable[[], float]) -> None:
        self.queue, self._commands, self._cluster, self._root, self._now = Queue(commands), commands, cluster, root, now
        self._lock, self._holds = threading.RLock(), False
        self._zones: dict[str, str] = {}  # machine name -> zone, as it was last read

    @cached_property
    def folders(self) -> Folders:
        """Made with the first use. OSError."""
        return Folders(self._root, OWN)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One launch or cleanup at a time, across threads and processes. The same thread may take it again. OSError."""
        with self._lock:
            if self._holds:
                yield
                return
            with self.folders.locked():
                self._holds = True
                try:
                    yield
                finally:
                    self._holds = False

    def survey(self, only: str | None = None) -> Survey:
        """`only`: the name of one machine. Raises ProviderUnavailable."""
        began_at = self._now()
        survey = Survey(one_each(self.queue.jobs()))
        with as_unavailable(f"the folder of machines {self._root}"):
            entries = self._entries()
        names = {*survey.jobs, *entries}
        if only is None:
            self._zones = {name: zone for name, zone in self._zones.items() if name in names}
        for name in sorted(names) if only is None else [only]:
            try:
                sighting = self._sighting(name, survey.jobs.get(name, ()), entries, began_at)
            except (Unreadable, OSError) as error:
                jobs_here = survey.jobs.get(name)
                zone = jobs_here[0].name.zone if jobs_here else self._zones.get(name, "")
                survey.unread[name] = (zone, f"the folder of {name} cannot be read: {error}")
            else:
                if sighting is not None:
                    survey.sightings[name] = sighting
                    self._zones[name] = sighting.name.zone
        self._judge(survey, entries)
        return survey

    def _entries(self) -> dict[str, bool]:
        """Name -> whether it is a folder. OSError."""
        with os.scandir(self.folders.machines) as entries:
            return {entry.name: entry.is_dir() for entry in entries if NAME.match(entry.name)}

    def _sighting(
        self, name: str, same: Sequence[Job], entries: Mapping[str, bool], began_at: float
    ) -> Sighting | None:
        """None = there is no machine, or it is over and released. Raises Unreadable, OSError."""
        if not entries.get(name, True):
            raise Unreadable(f"{self._root}/machines/{name} is not a folder")
        job = same[0] if same else None
        over = job is None or is_over(job)
        if job is not None and not over and not job.restarts:
            return Sighting(job.name, job)
        if name not in entries:
            return None if over or job is None else Sighting(job.name, job)
        folder = self.folders.folder(name)
        if over and self._is_left(folder):
            return None
        sighting = self.seen(folder)
        if job is None and (sighting is None or not sighting.machine_id or _submitted_at(folder) > began_at - YOUNG_S):
            return None  # the queue was read before the job was submitted
        if job is not None:
            first_start = "" if sighting is None else sighting.first_start
            sighting = Sighting(job.name, job, first_start)
        if sighting is None or not over:
            return sighting
        record = folder.record()
        return replace(
            sighting,
            record=None if record is None else MachineRecord(Cause(record.cause), record.detail, record.at or None),
            gone=folder.gone_at() is not None,
        )

    def seen(self, folder: Folder) -> Sighting | None:
        """What the folder alone says. None = no machine's. Raises Unreadable, OSError."""
        job = folder.job()
        if job is None or job.name != folder.name:
            return None  # being removed, or a user's copy of a machine's folder
        name = JobName(job.name, job.supervisor_id, job.run_id, job.launch_id, job.zone)
        submitted = read_json(folder.path / SUBMITTED) or {}
        return Sighting(name, None, self._first_start(folder), str(submitted.get("job_id") or ""))

    def _is_left(self, folder: Folder) -> bool:
        """Released, or gone or never submitted for long: its folder is archived. Raises Unreadable, OSError."""
        gone_at, job = folder.gone_at(), folder.job()
        if gone_at is None and job is not None and not (folder.path / SUBMITTED).exists():
            gone_at = None if (folder.path / STARTS).exists() else job.created_at
        if not (folder.path / RELEASED).exists() and (gone_at is None or self._now() - gone_at < DEAD_KEPT_S):
            return False
        self.archive(folder)
        return True

    def _first_start(self, folder: Folder) -> str:
        """Raises OSError."""
        try:
            return (folder.path / STARTS).read_text(encoding="utf-8").partition("\n")[0].strip()
        except FileNotFoundError:
            return ""

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _judge(self, survey: Survey, entries: Mapping[str, bool]) -> None:
        """Fill in the machines."""
        past = [sighting for sighting in survey.sightings.values() if sighting.needs_history]
        ends, problem = self._history([sighting.machine_id.partition(".")[0] for sighting in past])
        for name, sighting in survey.sightings.items():
            try:
                if problem and sighting.needs_history:
                    raise NotOver(problem)
                machine = machine_of(sighting, ends)
            except (UnknownState, NotOver) as error:
                survey.unread[name] = (sighting.name.zone, f"{name}: {error}")
                continue
            if machine is not None:
                survey.machines[name] = machine
            if name in entries and not sighting.settled and (machine is None or machine.state is MachineState.ENDED):
                self._settle(name, machine)

    def _history(self, job_ids: Sequence[str]) -> tuple[Ends, str]:
        """(what it says, "") or (nothing, why it cannot be read)."""
        if not job_ids:
            return {}, ""
        try:
            keeper = self._cluster.read().keeper
            return jobs.history(keeper, self._commands.run(*jobs.history_command(keeper, job_ids))), ""
        except (ProviderUnavailable, Unclear) as error:
            return {}, f"the ends of jobs cannot be read: {error}"

    def _settle(self, name: str, machine: Machine | None) -> None:
        """So that later ticks need no history. A later start of the job is no machine, so the secrets go too. A failure
        is repeated by the next tick."""
        folder = self.folders.folder(name)
        try:
            if machine is not None and machine.record is not None:
                record = machine.record
                folder.write_record(Record(record.cause.value, record.detail, record.at or self._now()))
            else:
                folder.write_gone(self._now())
            (folder.path / SECRETS).unlink(missing_ok=True)
        except OSError as error:
            extra = {telemetry.ACTION: "machine_end_unwritten", telemetry.MACHINE: name}
            LOG.warning("The end of machine %s could not be written down: %s.", name, error, extra=extra)

    # --- folders ------------------------------------------------------------------------------------------------------

    def mark_submitted(self, folder: Folder, job_id: str) -> None:
        write_json(folder.path / SUBMITTED, {"job_id": job_id, "at": self._now()})

    def mark_released(self, folder: Folder) -> None:
        write_json(folder.path / RELEASED, {"at": self._now()})

    def archive(self, folder: Folder) -> None:
        """Of a machine without a job. OSError."""
        with self.locked():
            if folder.path.is_dir():
                self.folders.archive(folder)


def _submitted_at(folder: Folder) -> float:
    """Epoch seconds; 0 = the submit was never answered. Raises Unreadable."""
    return float((read_json(folder.path / SUBMITTED) or {}).get("at") or 0.0)
