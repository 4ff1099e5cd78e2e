"""One look at the world and what follows from it: observe, decide, commit, act. Most answers are "no change".

Cloud first, database second. A decision that needs more than the bulk reads says so and is decided again with them. A
run whose guarded row was not hit drops its events and actions and is decided again in the next tick, from its new row.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from supervisor.contract.heartbeat import Beat
from supervisor.contract.identifiers import nonce_hash
from supervisor.domain.attempt import Attempt, Try
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import Machine, MachineRef
from supervisor.domain.observation import NOT_READ, STOP, Observation, Part, Seen, World
from supervisor.domain.run import Run
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.decision import Decision
from supervisor.lifecycle.offers.choosing import gathered
from supervisor.lifecycle.offers.queueing import with_turns
from supervisor.lifecycle.phases.probing import paced
from supervisor.ports.clock import Clock
from supervisor.ports.store import Change, Lease, RowUnreadable, Store
from supervisor.reconciler.acting.act import Actor
from supervisor.reconciler.acting.outcomes import Outcomes
from supervisor.reconciler.acting.sweeping import Sweeper
from supervisor.reconciler.observing.observe import Observer, Snapshot
from supervisor.reconciler.observing.readers import Readers, Wanted
from supervisor.reconciler.observing.sampling import Rotation, Sampler
from supervisor.reconciler.observing.worldview import Worldview
from supervisor.reconciler.tally import Tally
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import metrics

log = logging.getLogger(__name__)

ROUNDS = 8  # decisions that ask for "once more at once" in one tick
READS = 3  # rounds of reading more for one decision
PAGE = 500
TOLD_S = 600.0  # a beat that was ignored is told of once per run in this time
TOLD_PER_TICK = 20


@dataclass
class Tick:
    """Holds the unsettled runs of one cell between two ticks; one thread at a time."""

    store: Store
    cell: str
    observer: Observer
    worldview: Worldview
    readers: Readers
    actor: Actor
    outcomes: Outcomes
    sampler: Sampler
    sweeper: Sweeper
    rotation: Rotation
    clock: Clock
    runs: dict[int, Run] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    _nonces: dict[int, tuple[str, str]] = field(default_factory=dict)  # run key -> (launch id, hash)
    _told: dict[str, float] = field(default_factory=dict)
    _anew: bool = False

    def __post_init__(self) -> None:
        self.worldview.runs = self.runs

    def run(self, lease: Lease) -> float | None:
        """One tick. When the next one is due before the poll interval is over, else None. Raises StoreDown."""
        snapshot = self.observer.look()
        self.load()
        now = self.clock.now()
        zones = self.store.zones(self.cell)
        seen = self.worldview.world(snapshot, zones, self.clock.wall() - now)
        world = self._with_turns(seen, snapshot, now)
        self._tell(self.worldview.prove(snapshot), now)
        self._rejected(snapshot.rejected, now)
        todo, soonest = list(self.runs.values()), []
        turn = self.rotation.turn(self.runs)
        for _ in range(ROUNDS):
            decisions = self._decide(todo, snapshot, world, turn, now)
            inferring = any(decision.inferred for decision in decisions)
            active = sum(run.live_attempt is not None for run in self.runs.values()) if inferring else 0
            admitted, events = self.worldview.admit(decisions, active, snapshot.monotonic)
            self._tell(events, now)
            kept = self._commit(paced(admitted, self.runs, zones, now), lease, now)
            for decision in kept:
                for action in decision.actions:
                    self.actor.submit(decision.run, action, lease)
            soonest += [decision.check_after for decision in kept if decision.check_after is not None]
            todo = [decision.run for decision in kept if decision.again and decision.run.key in self.runs]
            turn = frozenset()
            if not todo:
                break
            zones = self.store.zones(self.cell)
            world = self._with_turns(replace(world, zones=zones), snapshot, now)
        self.sampler.write(self.runs.values(), now, lease)
        swept = self.sweeper.sweep(
            snapshot, self.runs.values(), self.actor, lease=lease, now=now, led_elsewhere=self._led_elsewhere
        )
        self._tell(swept, now)
        self.tally.looked(self.runs.values(), self.clock.monotonic())
        return min((at for at in soonest if at > now), default=None)

    def _with_turns(self, world: World, snapshot: Snapshot, now: float) -> World:
        return with_turns(world, self.runs.values(), snapshot.capacities(), snapshot.lists, now)

    def begin_anew(self) -> None:
        """A new leadership: nothing that was remembered of the sources or the rows can be trusted."""
        self.observer.freshness.reset()
        self._anew = True

    def load(self) -> None:
        """Rows that changed under us (submits, stops, resumes), and those that are gone from the cell."""
        if self._anew:
            self._anew = False
            self.tally.begin_anew()
            for key in list(self.runs):
                self._drop(key)
        changed, keys = self.store.active(self.cell, {key: run.version for key, run in self.runs.items()})
        for key in self.runs.keys() - keys:
            self._drop(key)
        for run in changed:
            known = self.runs.get(run.key)
            if known is not None and known.status != run.status:
                self.outcomes.moved(run.key)
            self.runs[run.key] = _with_newer_pulse(run, known)

    def _drop(self, key: int) -> None:
        del self.runs[key]
        self.outcomes.forget(key)
        self.sampler.forget(key)
        self.tally.forget(key)
        self._nonces.pop(key, None)

    # --- decide ---------------------------------------------------------------------------------------------------

    def _decide(
        self, runs: Sequence[Run], snapshot: Snapshot, world: World, turn: frozenset[int], now: float
    ) -> list[Decision]:
        done: list[Decision] = []
        ready: list[tuple[Run, Observation]] = []
        waiting: Wanted = []
        for run in runs:
            obs = self.observation(run, snapshot, now)
            if run.key in turn and obs.stop is NOT_READ:
                waiting.append((run, obs, frozenset({STOP})))
            else:
                ready.append((run, obs))
        for reads_left in range(READS, -1, -1):
            for run, obs in ready:
                try:
                    decision = decide(run, obs, world, now)
                except Exception:  # a rule's bug must not stop the other runs; this run stays as it is, visibly
                    extra = {telemetry.ACTION: "decide", telemetry.RUN_ID: run.run_id}
                    log.exception("no decision", extra=extra)
                    continue
                if decision.wants:
                    waiting.append((run, obs, decision.wants))
                else:
                    done.append(decision)
            if not waiting or not reads_left:
                break
            found = zip(waiting, self.readers.read(waiting), strict=True)
            ready = [(run, replace(obs, **parts)) for (run, obs, _), parts in found]  # type: ignore[arg-type]
            waiting = []
        return done

    def observation(self, run: Run, snapshot: Snapshot, now: float) -> Observation:
        """Everything the bulk reads and finished actions tell of one run."""
        heard, try_ = self.outcomes.of(run.key), run.try_
        beat = snapshot.beat(run.run_id, partial(self._believed, run, now))
        machine: Part[Machine] = NOT_READ
        if try_ is not None and run.open_try is not None:
            there_at = _there_at(run.attempt, try_.launch_id) or _settled_at(try_, beat, now)
            machine = self._machine(snapshot, try_.ref, try_.launch_id, now=now, there_at=there_at)
        return Observation(
            machine=machine,
            beat=beat,
            stop=heard.stop,
            create=heard.create,
            pin=heard.pin,
            verification=heard.verification,
            finalised=heard.finalised,
            retiring=tuple(
                self._machine(
                    snapshot,
                    item.ref,
                    item.launch_id,
                    now=now,
                    there_at=_there_at(item.attempt or run.attempt, item.launch_id),
                )
                for item in run.retiring
            ),
        )

    def _machine(
        self, snapshot: Snapshot, ref: MachineRef, launch_id: str, *, now: float, there_at: float | None
    ) -> Part[Machine]:
        return snapshot.machine(
            provider=ref.provider,
            zone=ref.zone,
            name=ref.name,
            supervisor_id=self.store.supervisor_id,
            launch_id=launch_id,
            now=now,
            there_at=there_at,
        )

    def _believed(self, run: Run, now: float, part: Seen[Beat]) -> bool:
        """Stored beats carry the nonce of their try; one that does not is told of and counts as not there: a pushed
        one is heard instead."""
        beat = part.value
        ended = run.attempt is not None and beat.launch_id == run.attempt.launch_id
        if run.try_ is None or (beat.launch_id != run.try_.launch_id and not ended):
            return True  # neither of this launch nor a late one of the last attempt: no rule listens to it
        carries = self._nonce_hash(run, beat.launch_id) == nonce_hash(beat.nonce)
        if not carries:
            self._rejected(((run.run_id, "it does not carry the nonce of its try"),), now)
        return carries

    def _nonce_hash(self, run: Run, launch_id: str) -> str:
        if run.try_ is not None and run.try_.launch_id == launch_id and run.try_.nonce_hash:
            return run.try_.nonce_hash
        known = self._nonces.get(run.key)
        if known is None or known[0] != launch_id or not known[1]:
            known = self._nonces[run.key] = (launch_id, self.store.nonce_hash(run.run_id, launch_id) or "")
        return known[1]

    # --- commit ---------------------------------------------------------------------------------------------------

    def _commit(self, decisions: Sequence[Decision], lease: Lease, now: float) -> list[Decision]:
        """The decisions that stand: nothing to write, or written. Their runs carry the new row version."""
        standing, to_write = [], []
        for decision in decisions:
            before = self.runs[decision.run.key]
            if decision.run is before and not decision.events:
                standing.append(decision)
            elif decision.pulse_only and not decision.events:
                self.runs[before.key] = decision.run
                standing.append(decision)
            else:
                to_write.append(decision)
        for page in _pages(to_write, PAGE):
            changes = [Change(self.runs[d.run.key], d.run, d.events, d.parted) for d in page]
            hit = self.store.apply_all(changes, now, lease)
            standing += [self._committed(d, hit[d.run.key]) for d in page if d.run.key in hit]
            for key, record in gathered(d.lessons for d in page if d.run.key in hit).items():
                self.store.put_zone(self.cell, key, record)
        return standing

    def _committed(self, decision: Decision, stored: Run) -> Decision:
        before = self.runs[stored.key]
        if before.status != stored.status:
            self.outcomes.moved(stored.key)
            self.sampler.due(stored.key)
        self.runs[stored.key] = stored
        self.tally.committed(before, stored, decision.events, self.clock.now())
        if stored.settled:
            self._drop(stored.key)
        return replace(decision, run=stored)

    def _led_elsewhere(self, run_id: str) -> bool:
        try:
            run = self.store.find(run_id)
        except RowUnreadable:
            return True  # could not read is not absent: its machine may serve it
        return run is not None and not run.settled and run.cell != self.cell

    # --- telling --------------------------------------------------------------------------------------------------

    def _tell(self, events: Sequence[Event], now: float) -> None:
        if events:
            self.store.add_events(None, events, now)

    def _rejected(self, rejected: Iterable[tuple[str, str]], now: float) -> None:
        """At most one event per run in ten minutes, and few a tick: beats are untrusted, and so is their number."""
        rejected = list(rejected)
        metrics.BEATS_IGNORED.add(by=len(rejected))
        new = [(run_id, why) for run_id, why in rejected if not 0 <= now - self._told.get(run_id, 0.0) < TOLD_S]
        keys = {run.run_id: key for key, run in self.runs.items()} if new else {}
        for run_id, why in new[:TOLD_PER_TICK]:
            if len(self._told) > 10_000:
                self._told.clear()
            self._told[run_id] = now
            key = keys.get(run_id)
            event = Event(EventKind.BEAT_REJECTED, f"A stored beat was ignored: {why}.", data={"run_id": run_id})
            self.store.add_events(key, [event], now)


def _there_at(attempt: Attempt | None, launch_id: str) -> float | None:
    """Since when this machine is known to have been there; None = it may never have come."""
    return attempt.started_at if attempt is not None and attempt.launch_id == launch_id else None


def _settled_at(try_: Try, beat: Part[Beat], now: float) -> float:
    """A listing that was asked for later and leaves the machine out says that it was not there then: nothing had come
    of the request, or it had come, beaten and gone. Without this a try at a provider that always answers late would
    stay without an answer for ever."""
    if isinstance(beat, Seen) and beat.value.launch_id == try_.launch_id:
        return max(try_.requested_at, now - beat.age_s)
    return try_.requested_at


def _with_newer_pulse(run: Run, known: Run | None) -> Run:
    """Pulses are written about once a minute; what we hold in memory may be newer than the row's."""
    mine = known.pulse if known is not None else None
    if mine is None or (run.pulse is not None and run.pulse.launch_id != mine.launch_id):
        return run
    current = run.try_.launch_id if run.try_ is not None else None
    return replace(run, pulse=mine) if mine.launch_id == current else run


def _pages(items: Sequence[Decision], size: int) -> Iterable[Sequence[Decision]]:
    return (items[start : start + size] for start in range(0, len(items), size))
