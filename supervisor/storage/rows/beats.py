"""Pulses, their series, and beats on their way: the newest pulse of each run, and about one point a minute.

A point keeps what is drawn later (phase, steps, rate, metrics, the machine in five numbers) and its time in
milliseconds: about 180 bytes. The first point in each ten minutes is coarse: it stays when the others of its day are
thinned out. The lines of steps of many runs are found by seeks in the samples' key: the time between a run's first and
newest point is cut into equal parts, and of each part's end the newest point before it is taken. A run of a month costs
as many seeks as one of an hour, and all runs of a page are one statement.

A pushed beat was received by one replica and is needed by another one, the leader of the run's cell. It is a row per
run, written about once a second by each replica that does not lead and taken by the leader in each tick. Both go
through the rows in order of their keys, and the leader leaves out what is just being written, so that nobody waits in a
circle. Ages travel by the database's clock: the clocks of two replicas are never compared.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Column, Double, bindparam, case, cast, func, literal_column, tuple_

from supervisor.contract import heartbeat
from supervisor.contract.heartbeat import BeatRejected
from supervisor.contract.identifiers import parse_launch_id
from supervisor.domain.attempt import Pulse
from supervisor.domain.figures import NOTHING, MachineFigures, figures_of
from supervisor.ports.store import LINE_PARTS, Change, Lease, PushedBeat, Sample, Step
from supervisor.storage.engine.codec import dumps
from supervisor.storage.engine.statements import Session, Statement, in_chunks, incoming, insert, insert_incoming
from supervisor.storage.engine.tables import pulses, pushed_beats, runs, samples
from supervisor.storage.rows import cells as leases
from supervisor.storage.rows import rows

COARSE_MS = 600_000
MIB = 2**20
STEP_AT = 2  # in a point
FIGURES_AT = 8  # of a point, where it has any


def _upsert_pulses(dialect: str) -> Any:
    statement = insert_incoming(pulses, dialect, tuple(pulses.c))
    return statement.on_conflict_do_update(index_elements=["run"], set_={"doc": statement.excluded.doc})


def _delete_pulses(dialect: str) -> sa.Delete:
    return sa.delete(pulses).where(pulses.c.run.in_(sa.select(incoming(dialect, pulses.c.run).c.run)))


def _insert_samples(dialect: str) -> Any:
    new = incoming(dialect, samples.c.run, samples.c.at_ms, samples.c.coarse, samples.c.attempt, samples.c.doc)
    earlier = samples.alias("earlier")
    begun = sa.exists().where(
        earlier.c.run == new.c.run,
        earlier.c.at_ms >= new.c.at_ms - new.c.at_ms % COARSE_MS,
        earlier.c.at_ms < new.c.at_ms,
    )
    coarse = case((begun, 0), else_=new.c.coarse)
    source = sa.select(new.c.run, new.c.at_ms, coarse, new.c.attempt, new.c.doc).where(new.c.run > 0)
    statement = insert(samples, dialect).from_select(["run", "at_ms", "coarse", "attempt", "doc"], source)
    return statement.on_conflict_do_nothing()


UPSERT_PULSES = Statement(_upsert_pulses)
DELETE_PULSES = Statement(_delete_pulses)
INSERT_SAMPLES = Statement(_insert_samples)
SAMPLES = Statement(
    lambda _: (
        sa.select(samples.c.at_ms, samples.c.attempt, samples.c.doc)
        .where(samples.c.run == bindparam("run"), samples.c.at_ms >= bindparam("since_ms"))
        .order_by(samples.c.at_ms)
        .limit(bindparam("limit_"))
    )
)


class PulseRows:
    """The pulses that some changes write or, where the run has none any more, delete."""

    def __init__(self, changes: Iterable[Change]) -> None:
        self._rows: dict[int, list[Any] | None] = {}
        for change in changes:
            key, pulse = change.before.key, change.after.pulse
            if pulse != change.before.pulse:
                self._rows[key] = None if pulse is None else [key, rows.pulse_doc(pulse)]

    def write(self, session: Session, hit: Collection[int]) -> None:
        mine = {key: row for key, row in self._rows.items() if key in hit}
        session.run(UPSERT_PULSES, rows=[row for row in mine.values() if row is not None])
        session.run(DELETE_PULSES, rows=[[key] for key, row in mine.items() if row is None])


class SampleRows:
    """Samples, taken apart before the write lock is asked for."""

    def __init__(self, taken: Sequence[Sample]) -> None:
        in_order = sorted(taken, key=lambda sample: sample.at)
        newest = {sample.key: sample for sample in in_order if not sample.carried}
        begun: set[tuple[int, int]] = set()
        self._pulses = [[key, rows.pulse_doc(sample.pulse)] for key, sample in newest.items()]
        self._samples: list[list[Any]] = []
        for sample in in_order:
            at_ms = round(sample.at * 1000)
            span = (sample.key, at_ms // COARSE_MS)
            self._samples.append([sample.key, at_ms, int(span not in begun), sample.attempt, _point(sample.pulse)])
            begun.add(span)

    def write(self, session: Session) -> None:
        session.run(UPSERT_PULSES, rows=self._pulses)
        session.run(INSERT_SAMPLES, rows=self._samples)


def _point(pulse: Pulse) -> str:
    return dumps(
        [
            pulse.launch_id, pulse.phase, pulse.step, pulse.total, pulse.checkpoint_step, pulse.steps_per_s,
            pulse.stall_polls, pulse.metrics, *_figures(pulse),
        ]
    )  # fmt: skip


def _figures(pulse: Pulse) -> list[list[int | None]]:
    """Shares as whole percents, memory in MiB; nothing where no beat has told any."""
    figures = figures_of(pulse.telemetry)
    if figures == NOTHING:
        return []
    memory_mib = None if figures.memory_bytes is None else figures.memory_bytes / MIB
    shares = (figures.gpu_pct, figures.gpu_memory_pct, memory_mib, figures.free_bytes_pct, figures.free_inodes_pct)
    return [[None if figure is None else round(figure) for figure in shares]]


def of_run(session: Session, key: int, since: float, limit: int) -> list[Sample]:
    """Oldest first."""
    params = {"run": key, "since_ms": round(since * 1000), "limit_": limit}
    return [
        _sample(key, at_ms / 1000, attempt, json.loads(doc)) for at_ms, attempt, doc in session.run(SAMPLES, params)
    ]


def _sample(key: int, at: float, attempt: int, point: list[Any]) -> Sample:
    if len(point) <= FIGURES_AT:
        return Sample(key, at, attempt, _pulse(point))
    gpu, gpu_memory, memory_mib, free, free_inodes = point[FIGURES_AT]
    memory = None if memory_mib is None else memory_mib * MIB
    figures = MachineFigures(gpu, gpu_memory, memory, free, free_inodes)
    return Sample(key, at, attempt, _pulse(point), figures)


def _pulse(point: list[Any]) -> Pulse:
    launch_id, phase, step, total, checkpoint_step, steps_per_s, stall_polls, metrics = point[:FIGURES_AT]
    return Pulse(
        launch_id=launch_id,
        phase=phase,
        step=step,
        total=total,
        checkpoint_step=checkpoint_step,
        steps_per_s=steps_per_s,
        stall_polls=stall_polls,
        metrics=metrics,
    )


RUNS = 200  # in one statement


def _lines(dialect: str) -> Any:
    """One text: `run:at_ms:attempt:step`, separated by commas; no step is an empty one."""
    wanted = incoming(dialect, samples.c.run)
    first, last = _edge(func.min, wanted.c.run), _edge(func.max, wanted.c.run)
    # Distinct, or SQLite would look for both edges again at every part.
    ends = sa.select(wanted.c.run, first.label("first"), last.label("last")).distinct().cte("ends")
    part = sa.select(literal_column("0").label("n")).cte("part", recursive=True)
    part = part.union_all(sa.select(part.c.n + literal_column("1")).where(part.c.n < bindparam("parts")))
    moment = ends.c.first + (ends.c.last - ends.c.first) * part.c.n // bindparam("parts")
    taken = (
        sa.select(ends.c.run, _edge(func.max, ends.c.run, samples.c.at_ms <= moment).label("at_ms"))
        .select_from(ends.join(part, literal_column("1") == literal_column("1")))
        .distinct()
        .subquery("taken")
    )
    if dialect == "sqlite":
        step: sa.ColumnElement[Any] = func.json_extract(samples.c.doc, literal_column(f"'$[{STEP_AT}]'"))
    else:
        step = samples.c.doc.op("::")(literal_column("jsonb")).op("->>")(literal_column(str(STEP_AT)))
    cells = (samples.c.run, samples.c.at_ms, samples.c.attempt, func.coalesce(cast(step, sa.Text), ""))
    text: sa.ColumnElement[str] = cast(cells[0], sa.Text)
    for cell in cells[1:]:
        text = text.concat(":").concat(cast(cell, sa.Text))
    points = samples.join(taken, sa.and_(samples.c.run == taken.c.run, samples.c.at_ms == taken.c.at_ms))
    return sa.select(func.aggregate_strings(text, ",")).select_from(points)


def _edge(which: Any, run: sa.ColumnElement[int], *more: sa.ColumnElement[bool]) -> Any:
    return sa.select(which(samples.c.at_ms)).where(samples.c.run == run, *more).scalar_subquery()


LINES = Statement(_lines)


def of_runs(session: Session, keys: Sequence[int]) -> dict[int, list[Step]]:
    lines: dict[int, list[Step]] = {}
    for chunk in in_chunks(keys, RUNS):
        rows = json.dumps([[key] for key in chunk])
        text = session.run(LINES, {"rows": rows, "parts": LINE_PARTS}).scalar() or ""
        for point in text.split(",") if text else ():
            key, at_ms, attempt, step = point.split(":")
            taken = Step(int(at_ms) / 1000, int(attempt), int(step) if step else None)
            lines.setdefault(int(key), []).append(taken)
    for line in lines.values():
        line.sort(key=lambda point: point.at)
    return lines


_RANK = ("generation", "attempt", "try_number", "sequence")
_UNSETTLED = runs.c.settled == literal_column("0")


def _pushed(dialect: str) -> sa.Subquery:
    rank = [pushed_beats.c[name] for name in _RANK]
    return incoming(dialect, runs.c.run_id, *rank, Column("age_s", Double), pushed_beats.c.doc)


def _upsert_pushed(dialect: str) -> Any:
    new = _pushed(dialect)
    received_at = leases.database_now(dialect) - new.c.age_s
    source = (
        sa.select(runs.c.key, *(new.c[name] for name in _RANK), received_at, new.c.doc)
        .join(runs, runs.c.run_id == new.c.run_id)
        .where(_UNSETTLED)
        .order_by(runs.c.key)
    )
    names = ["run", *_RANK, "received_at", "doc"]
    statement = insert(pushed_beats, dialect).from_select(names, source)
    newer = tuple_(*(statement.excluded[name] for name in _RANK)) > tuple_(*(pushed_beats.c[name] for name in _RANK))
    return statement.on_conflict_do_update(
        index_elements=["run"], set_={name: statement.excluded[name] for name in names[1:]}, where=newer
    )


def _statuses(dialect: str) -> Any:
    new = _pushed(dialect)
    return sa.select(runs.c.run_id, runs.c.status).join(new, runs.c.run_id == new.c.run_id).where(_UNSETTLED)


def _take(dialect: str) -> Any:
    # Also what is left of runs that were settled meanwhile: nobody else would ever delete it.
    mine = (
        sa.select(pushed_beats.c.run)
        .join(runs, runs.c.key == pushed_beats.c.run)
        .where(runs.c.cell == bindparam("cell"))
        .order_by(pushed_beats.c.run)
        .with_for_update(of=pushed_beats, skip_locked=True)
    )
    age_s = leases.database_now(dialect) - pushed_beats.c.received_at
    return (
        sa.delete(pushed_beats).where(pushed_beats.c.run.in_(mine)).returning(age_s.label("age_s"), pushed_beats.c.doc)
    )


UPSERT_PUSHED, PUSHED_STATUSES, TAKE_PUSHED = (Statement(_upsert_pushed), Statement(_statuses), Statement(_take))


class BeatRows:
    """Beats, taken apart before a transaction is begun; of each run the newest."""

    def __init__(self, beats: Sequence[PushedBeat]) -> None:
        newest: dict[str, tuple[tuple[int, ...], PushedBeat]] = {}
        for pushed in beats:
            rank = (*parse_launch_id(pushed.beat.launch_id), pushed.beat.sequence)
            newer = newest.get(pushed.beat.run_id)
            if newer is None or rank > newer[0]:
                newest[pushed.beat.run_id] = (rank, pushed)
        self._rows = [
            [run_id, *rank, pushed.age_s, heartbeat.encode(pushed.beat).decode()]
            for run_id, (rank, pushed) in newest.items()
        ]

    def write(self, session: Session) -> dict[str, str]:
        """run_id -> status of those that are not settled."""
        session.run(UPSERT_PUSHED, rows=self._rows)
        return dict(session.run(PUSHED_STATUSES, {"rows": dumps(self._rows)}))


def take_pushed(session: Session, lease: Lease) -> list[PushedBeat]:
    if not leases.hold_lease(session, lease):
        return []
    taken = []
    for age_s, doc in session.run(TAKE_PUSHED, {"cell": lease.name}):
        try:
            beat = heartbeat.parse(doc.encode())
        except BeatRejected:
            continue  # written by a replica of another version: the agent's next beat in the store tells the same
        taken.append(PushedBeat(beat, max(0.0, age_s)))
    return taken
