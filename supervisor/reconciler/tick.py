"""One tick: observe the world, decide each run, commit, act. Most decisions are "no change".

Cloud first, database second. A decision that needs more than the bulk reads says so, and is made again with them. A run
whose guarded row was not hit drops its events and actions, and is decided again in the next tick, from its new row.

With ten thousand runs a tick takes most of a second, and the API needs the processor between two of them. So a wake is
served by `run_asked`, which decides only the runs that asked for it: a preemption notice waits for no other run. It
rests on less than a tick does, never on more, and leaves to the next tick what needs all runs or a fresh reading.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from supervisor.domain.events import Event
from supervisor.domain.observation import BEATS, NOT_READ, STOP, Observation, Unknown, World
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.decision import Decision, only_pulse_moved
from supervisor.lifecycle.offers.groups import awaited, with_groups
from supervisor.lifecycle.offers.lessons import merged
from supervisor.lifecycle.offers.making_room import with_room
from supervisor.lifecycle.offers.queueing import with_queue
from supervisor.lifecycle.offers.turns import with_limits
from supervisor.lifecycle.phases.placing import paced
from supervisor.lifecycle.phases.teardown import is_on, with_host_users
from supervisor.ports.clock import Clock
from supervisor.ports.store import Change, Lease, RowUnreadable, Store
from supervisor.reconciler.acting.act import Actor
from supervisor.reconciler.acting.sweeping import Sweeper
from supervisor.reconciler.incidents import IncidentWatch
from supervisor.reconciler.observing.beats import RejectedBeats
from supervisor.reconciler.observing.observations import Nonces, Observations
from supervisor.reconciler.observing.observe import Observer, Pushed, Snapshot
from supervisor.reconciler.observing.readers import Readers, Wanted
from supervisor.reconciler.observing.sampling import Sampler
from supervisor.reconciler.observing.worldview import Outlooks, Worldview
from supervisor.reconciler.outcomes import Outcomes
from supervisor.reconciler.rotation import Publishing, Rotation
from supervisor.reconciler.tally import Tally
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

ROUNDS = 8  # decisions with `again` in one tick
READS = 3  # rounds of reading more for one decision
PAGE = 500
OWNERS_KEPT = 10_000  # whose last requests are remembered; one that is forgotten has used nothing for the longest time


@dataclass
class Tick:
    """Holds the unsettled runs of one cell between two ticks. For one thread at a time."""

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
    publishing: Publishing | None = None  # None: no platform looks at it
    runs: dict[int, Run] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    incidents: IncidentWatch = field(init=False)
    outlooks: Outlooks = field(init=False)
    _linked: set[int] = field(default_factory=set)  # keys of runs with a group, or after others
    _metered: set[int] = field(default_factory=set)  # keys of runs on hosts with a meter
    _used_at: dict[str, float] = field(default_factory=dict)  # owner -> the last request of a run of theirs
    _nonces: Nonces = field(init=False)
    _rejected: RejectedBeats = field(init=False)
    _restart: bool = False

    def __post_init__(self) -> None:
        self.worldview.runs = self.runs
        if self.observer.resting is not None:
            self.observer.resting.runs = self.runs
            self.observer.resting.doubts = lambda: self.worldview.breakers[BEATS].open
        self.incidents = IncidentWatch(self.store, self.cell, self.worldview)
        self.outlooks = Outlooks(self.store, self.cell)
        self.actor.bad_nodes = self.incidents.bad_nodes
        self._nonces, self._rejected = Nonces(self.store), RejectedBeats(self.store)

    def run(self, lease: Lease) -> float | None:
        """One tick. When the next one is due before the poll interval is over, else None. Raises StoreDown."""
        snapshot = self.observer.observe()
        self.load()
        now = self.clock.now()
        observations = Observations(snapshot, self.outcomes, self._nonces, self.store.supervisor_id, now)
        world = self._world(observations)
        self.outcomes.take_new()
        self._record(self.worldview.prove(snapshot), now)
        self._rejected.record(snapshot.stored.rejected, self.runs, now)
        markers = self.rotation.next_keys(self.runs, snapshot.at_rest)
        due = self._settle(list(self.runs), observations, world, lease, markers)
        self._rejected.record(observations.rejected, self.runs, now)
        self._finish(snapshot, lease, now)
        return due

    def run_asked(self, lease: Lease) -> float | None:
        """Decide the runs whose beat, row or action reports more than a step. Returns and raises the same as `run`."""
        snapshot = self.observer.observe_pushed()
        if snapshot is None or self._restart:
            return None
        keys = self.load() | self.outcomes.take_new()
        asking = [key for key, run in self.runs.items() if key in keys or _is_urgent(run, snapshot.pushed)]
        if not asking:
            return None
        observations = Observations(snapshot, self.outcomes, self._nonces, self.store.supervisor_id, self.clock.now())
        return self._settle(asking, observations, self._world(observations), lease)

    def _world(self, observations: Observations) -> World:
        zones, now = self.store.zones(self.cell), observations.now
        self.incidents.refresh(now)
        self.outlooks.refresh(now)
        world = self.worldview.world(observations.snapshot, zones, self.clock.wall() - now)
        return replace(world, blocked=self.incidents.blocked, outlooks=self.outlooks.by_offer)

    def _settle(
        self,
        todo: Sequence[int],
        observations: Observations,
        world: World,
        lease: Lease,
        markers: frozenset[int] = frozenset(),
    ) -> float | None:
        """Decide, commit and act until none of these runs (their keys) wants to be decided again. When the next tick is
        due."""
        snapshot, now = observations.snapshot, observations.now
        times: list[float] = []
        world = replace(world, statuses=self._awaited_statuses(), used_at=self._used_at)
        for _ in range(ROUNDS):
            on_meters = [self.runs[key] for key in sorted(self._metered)]
            world = with_host_users(world, on_meters, snapshot.machines(world.meters), self._holds)
            members = [self.runs[key] for key in self._linked]
            world = with_groups(world, members, snapshot.capacities(), now)
            world = with_room(world, self.runs.values(), snapshot.capacities(), now)
            world = with_limits(world, self.runs.values(), snapshot.capacities(), now)
            world = with_queue(world, self.runs.values(), snapshot.capacities(), snapshot.lists, now)
            decisions = self._decide(todo, observations, replace(world, choices={}), markers, times)
            kept = self._commit(self._admit(decisions, snapshot, world, now), lease, now)
            for decision in kept:
                for action in decision.actions:
                    self.actor.submit(decision.run, action, lease)
            times += [decision.check_after for decision in kept if decision.check_after is not None]
            todo = [key for decision in kept if decision.again and (key := decision.run.key) in self.runs]
            if not todo:
                break
            markers = frozenset()
            world = replace(world, zones=self.store.zones(self.cell))
        return min((at for at in times if at > now), default=None)

    def _awaited_statuses(self) -> dict[str, Status]:
        """Of the runs that others wait for: from memory, and the ones that are not active here in one query."""
        names = awaited(self.runs[key] for key in self._linked)
        if not names:
            return {}
        held = {run.run_id: run.status for run in self.runs.values() if run.run_id in names}
        return held | self.store.statuses(names - held.keys()) if names - held.keys() else held

    def restart(self) -> None:
        """A new leadership: nothing that was remembered of the sources or the rows can be trusted."""
        self.observer.restart()
        self._restart = True

    def load(self) -> set[int]:
        """Read the rows that changed since the last tick (submits, stops, resumes), and drop runs that left the
        cell. The keys of changed rows, without those of new runs."""
        moved = set()
        if self._restart:
            self._restart = False
            self.tally.restart()
            self.incidents.restart()
            self.outlooks.restart()
            for key in list(self.runs):
                self._drop(key)
        changed, keys = self.store.active(self.cell, {key: run.version for key, run in self.runs.items()})
        for key in [key for key in self.runs if key not in keys]:
            self._drop(key)
        for run in changed:
            held = self.runs.get(run.key)
            if held is not None:
                moved.add(run.key)
                if held.status != run.status:
                    self.outcomes.moved(run.key)
            self._keep(_with_newer_pulse(run, held))
            if run.policy.group or run.policy.after:
                self._linked.add(run.key)
            else:
                self._linked.discard(run.key)
        return moved

    def _keep(self, run: Run) -> None:
        self.runs[run.key] = run
        if run.try_ is not None and run.try_.requested_at > self._used_at.get(run.owner, 0.0):
            self._used_at[run.owner] = run.try_.requested_at
            if len(self._used_at) > OWNERS_KEPT:
                del self._used_at[min(self._used_at, key=self._used_at.__getitem__)]
        if self.worldview.meters and is_on(run, self.worldview.meters):
            self._metered.add(run.key)
        else:
            self._metered.discard(run.key)

    def _holds(self, run_id: str) -> bool:
        return any(run.run_id == run_id for run in self.runs.values())

    def _drop(self, key: int) -> None:
        del self.runs[key]
        self._linked.discard(key)
        self._metered.discard(key)
        self.outcomes.forget(key)
        self.sampler.forget(key)
        self.tally.forget(key)
        self._nonces.forget(key)

    # --- decide -------------------------------------------------------------------------------------------------------

    def _decide(
        self, keys: Sequence[int], observations: Observations, world: World, markers: frozenset[int], times: list[float]
    ) -> list[Decision]:
        """The decisions that something follows from. One that only moved the pulse stands at once, before the next run
        is observed: ten thousand of them never lie beside ten thousand runs as they were. `markers`: keys of the runs
        whose stop marker is read in this tick. `times`: gets when the runs of these decisions need the next tick."""
        decisions: list[Decision] = []
        waiting: Wanted = []
        ready: Iterable[tuple[Run, Observation]] = (
            (run, observations.of(run)) for run in map(self.runs.__getitem__, keys)
        )
        for reads_left in range(READS, -1, -1):
            for run, obs in ready:
                if run.key in markers and obs.stop is NOT_READ:
                    waiting.append((run, obs, frozenset({STOP})))
                    continue
                try:
                    decision = decide(run, obs, world, observations.now)
                except Exception:  # a rule's bug must not stop the other runs; this run stays as it is, visibly
                    log.exception("no decision", extra={telemetry.ACTION: "decide", telemetry.RUN_ID: run.run_id})
                    continue
                if decision.wants:
                    waiting.append((run, obs, decision.wants))
                elif _is_step(run, decision):
                    self.runs[run.key] = decision.run
                    if decision.check_after is not None:
                        times.append(decision.check_after)
                else:
                    decisions.append(decision)
            if not waiting or not reads_left:
                break
            markers = frozenset()
            reads = self.readers.read(waiting)
            if self.observer.resting is not None and any(isinstance(read.get(STOP), Unknown) for read in reads):
                self.observer.resting.doubt()
            parts = zip(waiting, reads, strict=True)
            ready = [(run, replace(obs, **read)) for (run, obs, _), read in parts]  # type: ignore[arg-type]
            waiting = []
        return decisions

    def _admit(self, decisions: Sequence[Decision], snapshot: Snapshot, world: World, now: float) -> list[Decision]:
        """Without ends that a breaker does not admit, and without requests for offers that enough runs try already."""
        admitted, events = self.worldview.admit(decisions, snapshot.monotonic)
        self._record(events, now)
        return paced(admitted, self.runs, world.zones, now)

    # --- commit -------------------------------------------------------------------------------------------------------

    def _commit(self, decisions: Sequence[Decision], lease: Lease, now: float) -> list[Decision]:
        """The decisions that stand: nothing to write, or written. Their runs carry the new row version."""
        standing, to_write = [], []
        for decision in decisions:
            before = self.runs[decision.run.key]
            if _writes_nothing(before, decision):
                self.runs[before.key] = decision.run
                standing.append(decision)
            else:
                to_write.append(decision)
        if to_write:
            self.sampler.supersede({decision.run.key for decision in to_write})
        for page in (to_write[start : start + PAGE] for start in range(0, len(to_write), PAGE)):
            changes = [Change(self.runs[d.run.key], d.run, d.events, d.parted) for d in page]
            hit = self.store.apply_all(changes, now, lease)
            standing += [self._committed(d, hit[d.run.key]) for d in page if d.run.key in hit]
            for key, record in merged(d.lessons for d in page if d.run.key in hit).items():
                self.store.put_zone(self.cell, key, record)
        return standing

    def _committed(self, decision: Decision, stored: Run) -> Decision:
        before = self.runs[stored.key]
        if before.status != stored.status:
            self.outcomes.moved(stored.key)
            self.sampler.due(stored.key)
        self._keep(stored)
        self.tally.committed(before, stored, decision.events, self.clock.now())
        self.incidents.noted(stored, decision.events)
        if stored.settled:
            self._drop(stored.key)
        return replace(decision, run=stored)

    # --- after the decisions ------------------------------------------------------------------------------------------

    def _finish(self, snapshot: Snapshot, lease: Lease, now: float) -> None:
        self.sampler.write(self.runs.values(), now, lease)
        runs, elsewhere = self.runs.values(), self._led_elsewhere
        self._record(self.sweeper.sweep(snapshot, runs, self.actor, lease=lease, now=now, led_elsewhere=elsewhere), now)
        for run, turn in () if self.publishing is None else self.publishing.turns(runs, now):
            self.actor.submit(run, turn, lease)
        if self.observer.resting is not None:
            self.observer.resting.grant(runs, snapshot.pushed, snapshot.monotonic)
        self.incidents.settle(runs, lease, now)
        self.tally.ticked(runs, self.clock.monotonic())

    def _led_elsewhere(self, run_id: str) -> bool:
        try:
            run = self.store.find(run_id)
        except RowUnreadable:
            return True  # could not read is not absent: its machine may serve it
        return run is not None and not run.settled and run.cell != self.cell

    def _record(self, events: Sequence[Event], now: float) -> None:
        if events:
            self.store.add_events(None, events, now)


def _is_step(run: Run, decision: Decision) -> bool:
    """Nothing follows from the decision but a newer pulse in memory, and no breaker counts it."""
    return not (decision.actions or decision.inferred or decision.again) and _writes_nothing(run, decision)


def _writes_nothing(run: Run, decision: Decision) -> bool:
    """The row stays as it is: a pulse moves in memory."""
    return not decision.events and (decision.run is run or only_pulse_moved(run, decision.run))


def _is_urgent(run: Run, pushed: Pushed) -> bool:
    """The newest pushed beat is news to this run, and reports more than a step of its training."""
    entry, pulse = pushed.get(run.run_id), run.pulse
    if entry is None:
        return False
    beat = entry[0]
    if pulse is not None and pulse.launch_id == beat.launch_id:
        if beat.sequence <= pulse.sequence:
            return False
        if beat.phase == pulse.phase and beat.exit is None and beat.notice_s is None and beat.left is None:
            return False
    return run.try_ is not None and run.try_.launch_id == beat.launch_id


def _with_newer_pulse(run: Run, held: Run | None) -> Run:
    """Pulses are written about once a minute: the one in memory may be newer than the row's."""
    pulse = held.pulse if held is not None else None
    if pulse is None or (run.pulse is not None and run.pulse.launch_id != pulse.launch_id):
        return run
    current = run.try_.launch_id if run.try_ is not None else None
    return replace(run, pulse=pulse) if pulse.launch_id == current else run
