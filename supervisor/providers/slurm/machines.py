"""A machine is the first start of a job: its id is the job's id and the number of that start, `12.0`. Pure.

Slurm may start a job again: after a preemption, after the failure of a node, or by hand. The agent of a later start
finds the baton held under another machine id and ends, so the machine is over where a later start exists or is queued.
A job that was put back before its first start has written a line is the machine itself, under its new number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from supervisor.domain.causes import Cause
from supervisor.domain.machines import LAUNCH_LABEL, RUN_LABEL, SUPERVISOR_LABEL, Machine, MachineRecord, MachineState
from supervisor.providers.slurm.jobs import Ends, Job, JobEnd, JobName, bytes_of
from supervisor.providers.slurm.states import STATES, meaning, wait

AGAIN = "Slurm has put the job back into the queue, and does not say why"


@dataclass(frozen=True, slots=True)
class Sighting:
    """`job`: in the queue, None = not any more. `first_start`: the line that the job's first start has written, "" =
    none yet. `job_id`: of the submit, "" = it was never answered. `record`, `gone`: the end that was settled before."""

    name: JobName
    job: Job | None
    first_start: str = ""
    job_id: str = ""
    record: MachineRecord | None = None
    gone: bool = False

    @property
    def machine_id(self) -> str:
        if self.first_start:
            return self.first_start
        if self.job is not None:
            return self.job.machine_id
        return f"{self.job_id}.0" if self.job_id else ""

    @property
    def settled(self) -> bool:
        return self.gone or self.record is not None

    @property
    def started_again(self) -> bool:
        return self.job is not None and bool(self.first_start) and self.first_start != self.job.machine_id

    @property
    def needs_history(self) -> bool:
        """Its end is neither settled nor in the queue."""
        return not self.settled and bool(self.machine_id) and (self.job is None or self.started_again)

    def has_id(self, machine_id: str | None) -> bool:
        """This machine, or the same job under another number of its start."""
        if not machine_id or machine_id == self.machine_id:
            return True
        if self.job is None:
            return False
        return machine_id in {f"{self.job.job_id}.{start}" for start in range(self.job.restarts + 1)}


def is_over(job: Job) -> bool:
    """An unknown word does not say so."""
    word = STATES.get(job.state)
    return word is not None and word.state is MachineState.ENDED


def end_of(ends: Ends, machine_id: str) -> JobEnd | None:
    """The end of this start of a job. None = the history does not have it (any more, or yet)."""
    job_id, _, start = machine_id.partition(".")
    each = ends.get(job_id, ())
    end = each[int(start)] if start.isdigit() and int(start) < len(each) else None
    return None if end is None or not end.state or meaning(end.state).state is not MachineState.ENDED else end


def record_of(end: JobEnd, name: str) -> MachineRecord | None:
    """None: it ended by its own exit. `name`: of the job, for people. Raises UnknownState."""
    word = meaning(end.state)
    if word.cause is None:
        return None
    exit_text = f", exit {end.exit_code}" if end.exit_code and end.exit_code != "0:0" else ""
    return MachineRecord(word.cause, f"{word.text} ({name} is {end.state}{exit_text})", end.ended_at)


_PEAK = "; MaxRSS was "


def with_peak(machine: Machine, used_bytes: float) -> Machine:
    """The machine whose record has the most memory that it used, in its words too: these are kept."""
    assert machine.record is not None
    detail = f"{machine.record.detail}{_PEAK}{used_bytes / 2**20:.0f}M"
    return replace(machine, record=replace(machine.record, detail=detail, memory_bytes=used_bytes), detail=detail)


def peak_in(detail: str) -> float | None:
    """What `with_peak` has added."""
    return bytes_of(detail.rpartition(_PEAK)[2]) if _PEAK in detail else None


class NotOver(Exception):
    """The queue does not have the job any more, and the history says that it has not ended."""


def machine_of(sighting: Sighting, ends: Ends) -> Machine | None:
    """None: the machine is gone without a record of why. `ends`: of the history, where it was needed. Raises
    UnknownState, NotOver."""
    job, machine_id = sighting.job, sighting.machine_id
    if sighting.settled:
        return None if sighting.record is None else _machine(sighting, MachineState.ENDED, sighting.record)
    if sighting.needs_history:
        record = _past_record(sighting, ends)
        return None if record is None else _machine(sighting, MachineState.ENDED, record)
    if job is None:
        return None
    word = meaning(job.state)
    if word.state is MachineState.ENDED:
        record = record_of(JobEnd(job.state, job.ended_at), machine_id)
        return None if record is None else _machine(sighting, MachineState.ENDED, record)
    detail = wait(job.state, job.reason).text if word.state is MachineState.ASKED else word.text
    machine = _machine(sighting, word.state, None, detail)
    return replace(machine, queued=True) if word.state is MachineState.ASKED else machine


def _past_record(sighting: Sighting, ends: Ends) -> MachineRecord | None:
    """Raises UnknownState, NotOver."""
    machine_id = sighting.machine_id
    end = end_of(ends, machine_id)
    if end is not None:
        return record_of(end, machine_id)
    job_id, _, start = machine_id.partition(".")
    rows = len(ends.get(job_id, ()))
    if sighting.job is not None or rows > int(start) + 1:
        return MachineRecord(Cause.PREEMPTED, f"{AGAIN} ({machine_id})")
    if rows == int(start) + 1:
        raise NotOver(f"the queue has no job {job_id}, and the history says that it has not ended")
    return None


def _machine(sighting: Sighting, state: MachineState, record: MachineRecord | None, detail: str = "") -> Machine:
    name, job = sighting.name, sighting.job
    return Machine(
        machine_id=sighting.machine_id,
        name=name.machine,
        zone=name.zone,
        state=state,
        supervisor_id=name.supervisor_id,
        run_id=name.run_id,
        launch_id=name.launch_id,
        created_at=None if job is None or sighting.started_again else job.submitted_at,
        record=record,
        detail=detail if record is None else record.detail,
        labels={SUPERVISOR_LABEL: name.supervisor_id, RUN_LABEL: name.run_id, LAUNCH_LABEL: name.launch_id},
        node="" if job is None or sighting.started_again else job.node,
    )


def one_each(jobs: Iterable[Job]) -> dict[str, tuple[Job, ...]]:
    """Machine name -> its jobs: the one that counts first. An answer of `sbatch` that came too late makes a second
    one; the older job counts, and one that has ended counts only alone."""
    each: dict[str, list[Job]] = {}
    for job in jobs:
        each.setdefault(job.name.machine, []).append(job)
    return {name: tuple(sorted(same, key=_order)) for name, same in each.items()}


def _order(job: Job) -> tuple[bool, int]:
    return is_over(job), int(job.job_id)
