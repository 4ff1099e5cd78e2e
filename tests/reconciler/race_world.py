"""Races of two zones, thousands of them: the real rules and the real baton against a platform that does its worst.

One run, one thread, virtual time. Create calls are refused, lost, or bring their machine late; zones cannot be read for
a while; machines are preempted; the supervisor is killed between its commit and each of its calls, and is away for
minutes. Agents boot, read the baton, and write with what they have read some time ago. `violations` counts what must
never happen: a write of a machine after another one has taken over (`double`), and a machine that no row names
(`orphans`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton, BatonRefused, Pointer
from supervisor.contract.heartbeat import Beat
from supervisor.domain.actions import Action, CloseBaton, Launch, MarkHolderGone, RaiseNext, Release
from supervisor.domain.attempt import Retiring, Try
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Machine, MachineRecord, MachineState, Offer, Placement, ZoneRecord, offer_key
from supervisor.domain.observation import (
    BEATS,
    MACHINES,
    NOT_READ,
    Absent,
    CreateFailed,
    Observation,
    Part,
    Seen,
    Unknown,
    World,
)
from supervisor.domain.policies import Knobs, Policy
from supervisor.domain.run import Run, StopRequest
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.sweeping import expected_names
from supervisor.ports.objectstore import ObjectMissing, PreconditionFailed
from supervisor.reconciler.acting import batonwork
from tests.fakes.objectstore import MemoryStore

ZONES = ("a", "b", "c")
POLL_S, STEP_S, CALL_S = 30.0, 5.0, 60.0
T0 = 1_000_000.0
QUIET_AT, END_AT = T0 + 600.0, T0 + 2400.0  # from QUIET_AT on nothing fails any more
OURS = "ours"
Write = Callable[["SimMachine", MemoryStore], bool]


@dataclass
class SimMachine:
    call: Try
    there_at: float
    agent_at: float
    gone_at: float | None = None
    preempted: bool = False
    out: bool = False  # its agent has stopped
    read: tuple[Baton, str] | None = None  # what its agent has read last
    waits_since: float | None = None
    step: int = 0


def write_as_holder(machine: SimMachine, store: MemoryStore) -> bool:
    """One write of an agent with the baton that it has read: True = it stands."""
    assert machine.read is not None
    baton, generation = machine.read
    step = 1 + (baton.checkpoint.step if baton.checkpoint is not None else 0)
    try:
        after = batons.move_checkpoint(
            baton, machine.call.launch_id, machine.call.machine_name, Pointer(step, "x/", ())
        )
        store.put(runfiles.baton("digits"), batons.encode(after), if_generation=generation)
    except (BatonRefused, PreconditionFailed):
        return False
    return True


@dataclass
class Race:
    seed: int
    write: Write = write_as_holder
    fenced: bool = True  # its agents do what the baton says
    writers: list[str] = field(default_factory=list)
    orphans: set[str] = field(default_factory=set)
    raced: bool = False
    calls: int = 0

    def __post_init__(self) -> None:
        self.chance, self.now = Random(self.seed), T0
        self.store = MemoryStore(now=lambda: self.now)
        policy = Policy(zones=ZONES, shapes=("s",), race=2)
        self.run = Run(
            key=1, run_id="digits", owner="o", cell="c", provider="gce", generation=1, status=Status.PENDING,
            policy=policy, created_at=T0, generation_at=T0, status_since=T0,
        )  # fmt: skip
        self.zones = {
            offer_key(Placement("gce", "r", zone, "s", True)): ZoneRecord(1, T0 - 1.0, "no_capacity", "none")
            for zone in ZONES
        }
        self.machines: dict[str, SimMachine] = {}
        self.failed: dict[str, CreateFailed] = {}  # in the memory of this process
        self.answers: dict[str, tuple[str, float]] = {}  # launch id -> what becomes of its call, and when
        self.away_until = T0
        self.unread: dict[str, float] = {}
        self.next_tick = T0

    @property
    def double(self) -> bool:
        """One machine wrote after another one had taken over from it."""
        seen: list[str] = []
        for writer in self.writers:
            if seen and seen[-1] == writer:
                continue
            if writer in seen:
                return True
            seen.append(writer)
        return False

    def play(self) -> Race:
        stop_at = self.chance.choice([None, None, None, T0 + self.chance.uniform(0, 300)])
        while self.now < END_AT:
            if stop_at is not None and self.now >= stop_at and not self.run.terminal and self.run.stop is None:
                self.run = replace(self.run, stop=StopRequest("ops", self.now))
            self._weather()
            for machine in list(self.machines.values()):
                self._agent(machine)
            if self.now >= self.next_tick and self.now >= self.away_until:
                self._tick()
                self.next_tick = self.now + self.chance.choice([STEP_S, POLL_S, POLL_S])
            self.now += STEP_S
        return self

    # --- the world ----------------------------------------------------------------------------------------------------

    def _weather(self) -> None:
        if self.now >= QUIET_AT:
            self.unread.clear()
            return
        if self.chance.random() < 0.03:
            self.unread[self.chance.choice(ZONES)] = self.now + self.chance.uniform(10, 300)
        self.unread = {zone: until for zone, until in self.unread.items() if until > self.now}
        if self.chance.random() < 0.02:
            self._killed()
        for machine in self._there():
            if self.chance.random() < 0.004:
                machine.gone_at, machine.preempted = self.now + 30.0, True

    def _killed(self) -> None:
        self.failed.clear()
        self.away_until = self.now + self.chance.choice([0.0, 60.0, 240.0])

    def _there(self) -> list[SimMachine]:
        return [
            m for m in self.machines.values() if m.there_at <= self.now and (m.gone_at is None or m.gone_at > self.now)
        ]

    def _create(self, call: Try) -> None:
        """The same answer for each repeat of a request, as a request id gives it."""
        if call.launch_id not in self.answers:
            self.calls += 1
            fate = self.chance.choice(["up", "up", "up", "late", "refused", "nothing"]) if self.now < QUIET_AT else "up"
            self.answers[call.launch_id] = fate, self.now
        fate, _ = self.answers[call.launch_id]
        if fate == "refused":
            self.failed[call.launch_id] = CreateFailed(call.launch_id, Cause.NO_CAPACITY, "none")
        elif fate in ("up", "late") and call.machine_name not in self.machines:
            there_at = self.now + (self.chance.uniform(0, CALL_S) if fate == "late" else 0.0)
            self.machines[call.machine_name] = SimMachine(call, there_at, there_at + self.chance.uniform(5, 90))

    def _agent(self, machine: SimMachine) -> None:
        """One step: read the baton, or act on what was read in an earlier step."""
        if machine not in self._there() or machine.out or self.now < machine.agent_at or self.chance.random() < 0.3:
            return
        if machine.read is None or self.chance.random() < 0.5:
            raw, info = self.store.get(runfiles.baton("digits"))
            machine.read = batons.decode(raw), info.generation
            return
        call, (baton, generation) = machine.call, machine.read
        waited_s = 0.0 if machine.waits_since is None else self.now - machine.waits_since
        verdict = batons.standing(baton, call.launch_id, call.machine_name, waited_s) if self.fenced else batons.MINE
        if verdict == batons.MINE:
            superseded = baton.next is not None and baton.next.launch_id != call.launch_id
            if self.write(machine, self.store):
                machine.step += 1
                self.writers.append(call.launch_id)
            machine.out = superseded and self.fenced
        elif verdict == batons.CLAIM:
            claimed = batons.claim(baton, call.launch_id, call.machine_name, waited_s)
            self._put(claimed, generation)
        elif verdict == batons.WAIT:
            machine.waits_since = self.now if machine.waits_since is None else machine.waits_since
        else:
            machine.out = True
        machine.read = None
        if machine.out and machine.gone_at is None:  # an agent that stops switches its machine off
            machine.gone_at = self.now + 10.0

    def _put(self, baton: Baton, generation: str) -> None:
        try:
            self.store.put(runfiles.baton("digits"), batons.encode(baton), if_generation=generation)
        except PreconditionFailed:
            return

    # --- the supervisor -----------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        there = {m.call.machine_name: m for m in self._there()}
        for name, machine in there.items():
            if name not in expected_names([self.run]) and machine.gone_at is None:
                self.orphans.add(name)
        world = World(
            Knobs(OURS), offers={"gce": OFFERS}, zones=self.zones, fresh=frozenset({BEATS, MACHINES}),
            observing_since={BEATS: self.away_until, MACHINES: self.away_until}, unread=frozenset(self.unread),
            races=frozenset({"gce"}),
        )  # fmt: skip
        for _ in range(8):
            obs = self._observed(there)
            decision = decide(self.run, obs, world, self.now)
            if decision.wants:
                decision = decide(
                    self.run, replace(obs, baton=self._baton(), lookup=self._lookup(there)), world, self.now
                )
            self.run = decision.run  # committed
            self.raced = self.raced or self.run.rival is not None
            for action in decision.actions:
                if self.now < QUIET_AT and self.chance.random() < 0.05:
                    self._killed()
                    return
                self._act(action)
            if not decision.again:
                return

    def _observed(self, there: dict[str, SimMachine]) -> Observation:
        run = self.run

        def part(of: Try | Retiring | None) -> Part[Machine]:
            if of is None:
                return NOT_READ
            ref = of.ref
            if ref.zone in self.unread:
                return Unknown("the zone cannot be read")
            machine = there.get(ref.name)
            return Absent() if machine is None else Seen(_listed(machine), 0.0, "listing")

        def end(of: Try | None) -> Part[CreateFailed]:
            failed = None if of is None else self.failed.get(of.launch_id)
            return NOT_READ if failed is None else Seen(failed)

        return Observation(
            machine=part(run.open_try), rival=part(run.open_rival), create=end(run.open_try),
            rival_create=end(run.open_rival), stop=Absent(), baton=NOT_READ, beat=self._beat(there),
            retiring=tuple(part(item) for item in run.retiring), finalised=Seen(True),
        )  # fmt: skip

    def _beat(self, there: dict[str, SimMachine]) -> Part[Beat]:
        run = self.run
        machine = there.get(run.try_.machine_name) if run.try_ is not None else None
        if machine is None or run.try_ is None or not machine.step:
            return Absent()
        launch_id, name = run.try_.launch_id, machine.call.machine_name
        return Seen(Beat("digits", run.try_.attempt, launch_id, name, "boot", machine.step, "training"), 0.0, "push")

    def _baton(self) -> Part[Baton]:
        try:
            return Seen(batons.decode(self.store.get(runfiles.baton("digits"))[0]))
        except ObjectMissing:
            return Absent()

    def _lookup(self, there: dict[str, SimMachine]) -> Part[Machine]:
        owner = self.run.live_attempt or self.run.open_try
        if owner is None or owner.placement.zone in self.unread:
            return NOT_READ
        machine = there.get(owner.machine_name)
        return Absent() if machine is None else Seen(_listed(machine))

    def _act(self, action: Action) -> None:
        """As reconciler/acting/launches and endings do, without threads."""
        try:
            if isinstance(action, Launch):
                self._launch(action)
            elif isinstance(action, RaiseNext):
                call = action.try_
                batonwork.raise_next(self.store, self.run, call.launch_id, action.holder_gone, OURS, beside=call.beside)
            elif isinstance(action, MarkHolderGone):
                batonwork.mark_holder_gone(self.store, "digits", action.launch_id)
            elif isinstance(action, CloseBaton):
                batonwork.close(self.store, self.run, action.reason, OURS)
            elif isinstance(action, Release):
                machine = self.machines.get(action.ref.name)
                if machine is not None and machine.gone_at is None:
                    machine.gone_at = self.now + self.chance.choice([0.0, 20.0, 60.0])
        except BatonRefused:
            return

    def _launch(self, action: Launch) -> None:
        call, run = action.try_, self.run
        rival = run.open_rival
        first = run.open_try if rival is not None and rival.launch_id == call.launch_id else call
        if first is None or run.status != Status.LAUNCHING:
            return
        batonwork.raise_next(self.store, run, first.launch_id, action.holder_gone, OURS, beside=first.beside)
        self._create(call)


OFFERS = tuple(Offer(Placement("gce", "r", zone, "s", True), 1.0, 3.0) for zone in ZONES)


def _listed(machine: SimMachine) -> Machine:
    call, record = machine.call, None
    state = MachineState.UP
    if machine.preempted:
        state, record = MachineState.ENDING, MachineRecord(Cause.PREEMPTED, "preempted")
    return Machine(
        call.machine_name, call.machine_name, call.placement.zone, state, OURS, "digits", call.launch_id, record=record
    )
