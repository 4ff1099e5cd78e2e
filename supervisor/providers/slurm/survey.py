"""All machines at one instant: one read of the queue, the folders, and one read of the history where an end is not in
the queue any more.

The queue is read before the folders. An active job needs no file of its folder, so a listing of a thousand jobs costs
one command and one directory. What is ended is settled once: its record, or that it is gone, is written into its
folder. A folder that cannot be read, or a word that this version does not know, makes one partition Unknown.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from supervisor.domain.causes import Cause
from supervisor.domain.machines import Machine, MachineListing, MachineRecord, MachineState
from supervisor.host import folders
from supervisor.host.files import Unreadable
from supervisor.ports.provider import LaunchRejected, ProviderUnavailable
from supervisor.providers.slurm import jobs
from supervisor.providers.slurm.cluster import ClusterReader, CommandFailed, Commands
from supervisor.providers.slurm.jobs import Ends, Job, JobName, Keeper, Unclear
from supervisor.providers.slurm.machines import NotOver, Sighting, is_over, machine_of, one_each, peak_in, with_peak
from supervisor.providers.slurm.site import Site
from supervisor.providers.slurm.states import UnknownState
from supervisor.telemetry import logs as telemetry

LOG = logging.getLogger(__name__)
YOUNG_S = 5.0  # a job that was submitted so short before a read of the queue may be missing in it
SETTLED_AT_ONCE = 100  # ends that are written in one call, each with three syncs of the file system
DEAD_KEPT_S = 3600.0  # as in supervisor/host: an ended machine that was not released


@dataclass(frozen=True, slots=True)
class Kept:
    """What the folder of a machine holds (host/jobfolders.py). `job` None: there is none, or it is another machine's: a
    folder that is being removed, or a user's copy. `submitted_at` None: the submit was never answered."""

    job: folders.Job | None
    has_agent: bool
    has_started: bool
    first_start: str
    job_id: str
    submitted_at: float | None
    is_released: bool
    record: MachineRecord | None
    gone_at: float | None

    def sighting(self) -> Sighting | None:
        """What the folder alone says. None = no machine's."""
        job = self.job
        if job is None:
            return None
        name = JobName(job.name, job.supervisor_id, job.run_id, job.launch_id, job.zone)
        return Sighting(name, None, self.first_start, self.job_id)


def kept_of(name: str, values: Mapping[str, Any]) -> Kept:
    """Raises Unreadable."""
    if "problem" in values:
        raise Unreadable(values["problem"])
    job, record = values["job"], values["record"]
    fields = {key: value for key, value in values.items() if key not in ("job", "record")}
    try:
        cause = None if record is None else Cause(record["cause"])
    except ValueError as error:  # a later version wrote it
        raise Unreadable(f"its record has a cause that this version does not know: {error}") from None
    ended = None
    if cause is not None:
        detail = record["detail"]
        ended = MachineRecord(cause, detail, record["at"] or None, memory_bytes=peak_in(detail))
    return Kept(job=folders.Job(**job) if job is not None and job["name"] == name else None, record=ended, **fields)


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

    def jobs_then(self, then: Mapping[str, Any]) -> tuple[tuple[Job, ...], Mapping[str, Any]] | None:
        """The jobs, and the answer of what follows in the same call. None = not in one call. Raises
        ProviderUnavailable, LaunchRejected."""
        if not self._json:
            return None
        try:
            done = self._commands.run_then(then, *jobs.QUEUE_JSON)
            return jobs.from_json(done.output), done.then
        except (CommandFailed, Unclear):
            return None


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
    """`site`: where the folders of machines are. `now`: epoch seconds. `note_beats`: called by each listing with the
    answer that has the `beats` of runs whose files are relayed; None = none are."""

    def __init__(self, commands: Commands, cluster: ClusterReader, site: Site, now: Callable[[], float]) -> None:
        self.queue, self._commands, self._cluster, self._site, self._now = Queue(commands), commands, cluster, site, now
        self._lock, self._holds = threading.RLock(), False
        self._zones: dict[str, str] = {}  # machine name -> zone, as it was last read
        self.note_beats: Callable[[Mapping[str, Any]], None] | None = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One launch or cleanup at a time, across threads and processes. The same thread may take it again. Raises
        ProviderUnavailable, OSError."""
        with self._lock:
            if self._holds:
                yield
                return
            with self._site.locked():
                self._holds = True
                try:
                    yield
                finally:
                    self._holds = False

    def survey(self, only: str | None = None) -> Survey:
        """`only`: the name of one machine. Raises ProviderUnavailable."""
        began_at = self._now()
        note_beats = self.note_beats if only is None else None
        ours, answer = self._queue_and_entries(with_beats=note_beats is not None)
        survey = Survey(one_each(ours))
        if note_beats is not None:  # they were read after the queue, so an end there has its last beat here
            note_beats(answer)
        entries: Mapping[str, bool] = answer["entries"]
        names = {*survey.jobs, *entries}
        if only is None:
            zones = self._zones.copy()  # launches and releases add to it meanwhile
            self._zones = {name: zone for name, zone in zones.items() if name in names}
        wanted = sorted(names) if only is None else [only]
        read = self._read(name for name in wanted if entries.get(name) and _needs_folder(survey.jobs.get(name, ())))
        for name in wanted:
            try:
                sighting = self._sighting(name, survey.jobs.get(name, ()), entries, read, began_at)
            except (Unreadable, OSError, ProviderUnavailable) as error:
                jobs_here = survey.jobs.get(name)
                zone = jobs_here[0].name.zone if jobs_here else self._zones.get(name, "")
                survey.unread[name] = (zone, f"the folder of {name} cannot be read: {error}")
            else:
                if sighting is not None:
                    survey.sightings[name] = sighting
                    self._zones[name] = sighting.name.zone
        self._judge(survey, entries)
        return survey

    def _queue_and_entries(self, **values: object) -> tuple[Sequence[Job], Mapping[str, Any]]:
        """The folders are read after the queue. On a login node in one call, because each tick makes it."""
        joined = self.queue.jobs_then({"method": "entries", **values}) if self._site.is_far else None
        return joined or (self.queue.jobs(), self._site.folders("entries", **values))

    def kept(self, name: str) -> Kept:
        """Of this machine's folder, or of none. Raises ProviderUnavailable, Unreadable, LaunchRejected."""
        return kept_of(name, self._read([name])[name])

    def _read(self, names: Iterable[str]) -> Mapping[str, Mapping[str, Any]]:
        """Of many folders in one call."""
        wanted = list(names)
        answer: Mapping[str, Any] = self._site.folders("read", names=wanted) if wanted else {"folders": {}}
        values: Mapping[str, Mapping[str, Any]] = answer["folders"]
        return values

    def _sighting(
        self,
        name: str,
        same: Sequence[Job],
        entries: Mapping[str, bool],
        read: Mapping[str, Mapping[str, Any]],
        began_at: float,
    ) -> Sighting | None:
        """None = there is no machine, or it is over and released. Raises Unreadable, ProviderUnavailable."""
        if not entries.get(name, True):
            raise Unreadable(f"machines/{name} is not a folder")
        job = same[0] if same else None
        over = job is None or is_over(job)
        if name not in read:
            return None if over or job is None else Sighting(job.name, job)
        kept = kept_of(name, read[name])
        if over and self._is_left(name, kept):
            return None
        sighting = kept.sighting()
        is_young = (kept.submitted_at or 0.0) > began_at - YOUNG_S
        if job is None and (sighting is None or not sighting.machine_id or is_young):
            return None  # the queue was read before the job was submitted
        if job is not None:
            sighting = Sighting(job.name, job, "" if sighting is None else sighting.first_start)
        if sighting is None or not over:
            return sighting
        return replace(sighting, record=kept.record, gone=kept.gone_at is not None)

    def _is_left(self, name: str, kept: Kept) -> bool:
        """Released, or gone or never submitted for long: its folder is archived. Raises ProviderUnavailable."""
        gone_at = kept.gone_at
        if gone_at is None and kept.job is not None and kept.submitted_at is None:
            gone_at = None if kept.has_started else kept.job.created_at
        if not kept.is_released and (gone_at is None or self._now() - gone_at < DEAD_KEPT_S):
            return False
        self.archive(name)
        return True

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _judge(self, survey: Survey, entries: Mapping[str, bool]) -> None:
        """Fill in the machines."""
        over: dict[str, Machine | None] = {}
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
                over[name] = machine
        self._measure(survey, over)
        names = list(over)
        for start in range(0, len(names), SETTLED_AT_ONCE):
            self._settle({name: over[name] for name in names[start : start + SETTLED_AT_ONCE]})

    def _measure(self, survey: Survey, over: dict[str, Machine | None]) -> None:
        """Add the memory that jobs used which needed too much, where the cluster keeps it. It is not waited for."""
        killed = {
            survey.sightings[name].machine_id.partition(".")[0]: machine
            for name, machine in over.items()
            if machine is not None and machine.record is not None and machine.record.cause is Cause.HOST_OOM
        }
        if not killed:
            return
        with suppress(ProviderUnavailable):
            if self._cluster.read().keeper is Keeper.ACCOUNTING:
                for job_id, used_bytes in jobs.peaks(self._commands.run(*jobs.peaks_command(killed))).items():
                    if job_id in killed:
                        measured = with_peak(killed[job_id], used_bytes)
                        survey.machines[measured.name] = over[measured.name] = measured

    def _history(self, job_ids: Sequence[str]) -> tuple[Ends, str]:
        """(what it says, "") or (nothing, why it cannot be read)."""
        if not job_ids:
            return {}, ""
        try:
            keeper = self._cluster.read().keeper
            return jobs.history(keeper, self._commands.run(*jobs.history_command(keeper, job_ids))), ""
        except (ProviderUnavailable, Unclear) as error:
            return {}, f"the ends of jobs cannot be read: {error}"

    def _settle(self, over: Mapping[str, Machine | None]) -> None:
        """Machine name -> how it ended, so that later ticks need no history. In one call, because a preemption may end
        hundreds at once. A failure is repeated by the next tick."""
        at, ends = self._now(), {name: None if each is None else each.record for name, each in over.items()}
        values = {
            name: None if end is None else {"cause": end.cause.value, "detail": end.detail, "at": end.at or at}
            for name, end in ends.items()
        }
        problems: Mapping[str, object]
        try:
            problems = self._site.folders("settle", ends=values, at=at)["problems"]
        except (ProviderUnavailable, LaunchRejected) as error:
            problems = dict.fromkeys(over, error)
        for name, problem in list(problems.items())[:1]:
            extra = {telemetry.ACTION: "machine_end_unwritten", telemetry.MACHINE: name}
            text = "The ends of %d machines could not be written down, such as that of %s: %s."
            LOG.warning(text, len(problems), name, problem, extra=extra)

    # --- folders ------------------------------------------------------------------------------------------------------

    def make(self, launch: Mapping[str, object], secrets: Mapping[str, str], script: str) -> None:
        """Raises LaunchRejected, ProviderUnavailable."""
        values = {"launch": dict(launch), "secrets": dict(secrets), "script": script}
        self._site.folders("make", **values, at=self._now())

    def mark_submitted(self, name: str, job_id: str) -> None:
        self._site.folders("submitted", name=name, job_id=job_id, at=self._now())

    def mark_released(self, name: str) -> bool:
        """Whether the machine has a folder."""
        return bool(self._site.folders("released", name=name, at=self._now())["there"])

    def discard(self, name: str) -> None:
        self._site.folders("discard", name=name)

    def archive(self, name: str) -> None:
        """Of a machine without a job."""
        with self.locked():
            self._site.folders("archive", name=name)

    def console(self, name: str, start: int | None, max_bytes: int) -> tuple[bytes, int]:
        answer = self._site.folders("console", name=name, start=start, max_bytes=max_bytes)
        return str(answer["content"]).encode("utf-8", "surrogateescape"), int(answer["start"])


def _needs_folder(same: Sequence[Job]) -> bool:
    """A job that has not ended, and was not started again, says everything by itself."""
    return not same or is_over(same[0]) or same[0].restarts > 0
