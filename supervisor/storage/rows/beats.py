"""Pulses, the series made of them, and pushed beats on their way to the leader.

Each run has its newest pulse, and about one sample a minute: phase, steps, rate, metrics, five numbers of the machine,
about 180 bytes. The first sample in ten minutes is coarse: it stays when the others of its day are deleted. Lines of
steps are read by seeks in the samples' key: the time between a run's first and newest sample is cut into equal parts,
and each part contributes its last sample. The cost does not depend on the length of the run, and all runs of a page are
one statement.

A beat that one replica received and the leader of the run's cell needs is one row per run. Replicas write these rows
about once a second; the leader takes them in each tick. Both lock the rows in the order of their keys, and the leader
skips locked rows, so there is no deadlock. Ages follow the database's clock: clocks of two replicas are not compared.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Column, Double, bindparam, case, cast, func, literal_column, tuple_

from supervisor.contract import heartbeat
from supervisor.contract.heartbeat import BeatRejected
from supervisor.contract.identifiers import parse_launch_id
from supervisor.domain.attempt import Pulse
from supervisor.domain.beat_decoding import parse_beat
from supervisor.domain.figures import NOTHING, MachineFigures, figures_of
from supervisor.ports.store import LINE_PARTS, Change, Lease, PushedBeat, Sample, Step
from supervisor.storage.engine.codec import dumps
from supervisor.storage.engine.statements import Session, Statement, in_chunks, incoming, incoming_texts, insert
from supervisor.storage.engine.tables import pulses, pushed_beats, runs, samples
from supervisor.storage.rows import cells, rows

COARSE_MS = 600_000
MIB = 2**20
LINES_PAGE = 200  # runs in one statement
# A stored sample is a list: these fields of its pulse, then a list of the machine's five numbers, if it has any.
_SAMPLED = ("launch_id", "phase", "step", "total", "checkpoint_step", "steps_per_s", "stall_polls", "metrics")
_STEP_AT = _SAMPLED.index("step")
_sampled = attrgetter(*_SAMPLED)
_RANK = ("generation", "attempt", "try_number", "sequence")
_UNSETTLED = runs.c.settled == literal_column("0")


def _upsert_pulses(dialect: str) -> Any:
    new = incoming_texts(dialect)
    # Without a WHERE in the SELECT, SQLite reads ON CONFLICT as the ON of a join.
    source = sa.select(new.c.key, new.c.value).where(literal_column("1") == literal_column("1"))
    statement = insert(pulses, dialect).from_select(["run", "doc"], source)
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


def _lines(dialect: str) -> Any:
    """One text: `run:at_ms:attempt:step,…`; the step may be empty."""
    wanted = incoming(dialect, samples.c.run)
    first, last = _edge(func.min, wanted.c.run), _edge(func.max, wanted.c.run)
    # Without DISTINCT, SQLite searches both edges again for each part.
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
        step: sa.ColumnElement[Any] = func.json_extract(samples.c.doc, literal_column(f"'$[{_STEP_AT}]'"))
    else:
        step = samples.c.doc.op("::")(literal_column("jsonb")).op("->>")(literal_column(str(_STEP_AT)))
    text: sa.ColumnElement[str] = cast(samples.c.run, sa.Text)
    for value in (samples.c.at_ms, samples.c.attempt, func.coalesce(cast(step, sa.Text), "")):
        text = text.concat(":").concat(cast(value, sa.Text))
    points = samples.join(taken, sa.and_(samples.c.run == taken.c.run, samples.c.at_ms == taken.c.at_ms))
    return sa.select(func.aggregate_strings(text, ",")).select_from(points)


def _edge(which: Any, run: sa.ColumnElement[int], *more: sa.ColumnElement[bool]) -> Any:
    return sa.select(which(samples.c.at_ms)).where(samples.c.run == run, *more).scalar_subquery()


def _pushed(dialect: str) -> sa.Subquery:
    rank = [pushed_beats.c[name] for name in _RANK]
    return incoming(dialect, runs.c.run_id, *rank, Column("age_s", Double), pushed_beats.c.doc)


def _upsert_pushed(dialect: str) -> Any:
    new = _pushed(dialect)
    received_at = cells.database_now(dialect) - new.c.age_s
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
    # Also the rows of runs that were settled meanwhile: nothing else deletes them.
    mine = (
        sa.select(pushed_beats.c.run)
        .join(runs, runs.c.key == pushed_beats.c.run)
        .where(runs.c.cell == bindparam("cell"))
        .order_by(pushed_beats.c.run)
        .with_for_update(of=pushed_beats, skip_locked=True)
    )
    age_s = cells.database_now(dialect) - pushed_beats.c.received_at
    return (
        sa.delete(pushed_beats).where(pushed_beats.c.run.in_(mine)).returning(age_s.label("age_s"), pushed_beats.c.doc)
    )


UPSERT_PULSES, DELETE_PULSES = Statement(_upsert_pulses), Statement(_delete_pulses)
INSERT_SAMPLES = Statement(_insert_samples)
SAMPLES = Statement(
    sa.select(samples.c.at_ms, samples.c.attempt, samples.c.doc)
    .where(samples.c.run == bindparam("run"), samples.c.at_ms >= bindparam("since_ms"))
    .order_by(samples.c.at_ms)
    .limit(bindparam("limit_"))
)
LINES = Statement(_lines)
UPSERT_PUSHED, PUSHED_STATUSES, TAKE_PUSHED = Statement(_upsert_pushed), Statement(_statuses), Statement(_take)


class PulseRows:
    """The pulses that some changes write, or delete where the run no longer has one."""

    def __init__(self, changes: Iterable[Change]) -> None:
        self._docs: dict[str, str] = {}  # by the run's key, as text: an object of JSON
        self._gone: list[int] = []
        for change in changes:
            key, pulse = change.before.key, change.after.pulse
            if pulse is None and change.before.pulse is not None:
                self._gone.append(key)
            elif pulse is not None and pulse != change.before.pulse:
                self._docs[str(key)] = rows.pulse_doc(pulse)

    def write(self, session: Session, hit: Collection[int]) -> None:
        _put_pulses(session, {key: doc for key, doc in self._docs.items() if int(key) in hit})
        session.run(DELETE_PULSES, rows=[[key] for key in self._gone if key in hit])


def _put_pulses(session: Session, docs: Mapping[str, str]) -> None:
    if docs:
        session.run(UPSERT_PULSES, {"rows": dumps(docs)})


class SampleRows:
    """Samples, converted to rows before the write lock is taken."""

    def __init__(self, new: Sequence[Sample]) -> None:
        in_order = sorted(new, key=lambda sample: sample.at)
        newest = {sample.key: sample for sample in in_order if not sample.carried}
        self._pulses = {str(key): rows.pulse_doc(sample.pulse) for key, sample in newest.items()}
        self._samples: list[list[Any]] = []
        coarse_spans: set[tuple[int, int]] = set()
        for sample in in_order:
            at_ms = round(sample.at * 1000)
            span = (sample.key, at_ms // COARSE_MS)
            self._samples.append([sample.key, at_ms, int(span not in coarse_spans), sample.attempt, _doc(sample.pulse)])
            coarse_spans.add(span)

    def write(self, session: Session) -> None:
        _put_pulses(session, self._pulses)
        session.run(INSERT_SAMPLES, rows=self._samples)


def of_run(session: Session, key: int, since: float, limit: int) -> list[Sample]:
    """Oldest first."""
    params = {"run": key, "since_ms": round(since * 1000), "limit_": limit}
    return [
        _sample(key, at_ms / 1000, attempt, json.loads(doc)) for at_ms, attempt, doc in session.run(SAMPLES, params)
    ]


def _doc(pulse: Pulse) -> str:
    """Shares of the machine as whole percents, its memory in MiB."""
    figures, values = figures_of(pulse.telemetry), _sampled(pulse)
    if figures == NOTHING:
        return dumps(values)
    memory_mib = None if figures.memory_bytes is None else figures.memory_bytes / MIB
    numbers = (figures.gpu_pct, figures.gpu_memory_pct, memory_mib, figures.free_bytes_pct, figures.free_inodes_pct)
    return dumps((*values, [None if number is None else round(number) for number in numbers]))


def _sample(key: int, at: float, attempt: int, doc: list[Any]) -> Sample:
    pulse = Pulse(**dict(zip(_SAMPLED, doc, strict=False)))
    if len(doc) <= len(_SAMPLED):
        return Sample(key, at, attempt, pulse)
    gpu, gpu_memory, memory_mib, free, free_inodes = doc[len(_SAMPLED)]
    memory = None if memory_mib is None else memory_mib * MIB
    return Sample(key, at, attempt, pulse, MachineFigures(gpu, gpu_memory, memory, free, free_inodes))


def of_runs(session: Session, keys: Sequence[int]) -> dict[int, list[Step]]:
    lines: dict[int, list[Step]] = {}
    for chunk in in_chunks(keys, LINES_PAGE):
        params = {"rows": json.dumps([[key] for key in chunk]), "parts": LINE_PARTS}
        text = session.run(LINES, params).scalar() or ""
        for point in text.split(",") if text else ():
            key, at_ms, attempt, step = point.split(":")
            lines.setdefault(int(key), []).append(Step(int(at_ms) / 1000, int(attempt), int(step) if step else None))
    for line in lines.values():
        line.sort(key=lambda point: point.at)
    return lines


class BeatRows:
    """The newest beat of each run, converted to rows before the transaction begins."""

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
        """run_id -> status of the runs that are not settled."""
        session.run(UPSERT_PUSHED, rows=self._rows)
        return dict(session.run(PUSHED_STATUSES, {"rows": dumps(self._rows)}))


def take_pushed(session: Session, lease: Lease) -> list[PushedBeat]:
    if not cells.hold_lease(session, lease):
        return []
    beats = []
    for age_s, doc in session.run(TAKE_PUSHED, {"cell": lease.name}):
        try:
            beat = parse_beat(doc.encode())
        except BeatRejected:
            continue  # from a replica of another version; the agent's next beat in the object store replaces it
        beats.append(PushedBeat(beat, max(0.0, age_s)))
    return beats
