"""The stage of a scenario: the real loop, decisions, use cases and database, on a faked world in virtual time.

The clock jumps from one due time to the next: an agent's next step, the next tick, the end of a wait. No thread sleeps.
A restart of the supervisor creates all its objects again on the same database, as after `kill -9` and a start.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from supervisor.domain import ledger
from supervisor.domain.machines import How, Machine, MachineState
from supervisor.domain.policies import Knobs
from supervisor.domain.run import Run, run_cost_usd
from supervisor.domain.status import Status
from supervisor.ports.provider import LaunchRequest
from supervisor.ports.store import Lease, RunFilter, StoreDown
from supervisor.reconciler.acting.act import Actor
from supervisor.reconciler.acting.launches import Paces
from supervisor.reconciler.acting.sweeping import Sweeper
from supervisor.reconciler.delivering.announcer import deliver
from supervisor.reconciler.observing.observe import Observer
from supervisor.reconciler.observing.readers import Readers
from supervisor.reconciler.observing.resting import Resting
from supervisor.reconciler.observing.sampling import Sampler
from supervisor.reconciler.observing.worldview import Worldview
from supervisor.reconciler.outcomes import Outcomes
from supervisor.reconciler.rotation import Publishing, Rotation
from supervisor.reconciler.system_clock import SteadyClock
from supervisor.reconciler.tick import Tick
from supervisor.services.parts import Parts
from supervisor.services.runs.heartbeat import BeatInbox, granted
from supervisor.storage.store import open_store
from tests.fakes.clock import FakeClock
from tests.fakes.meters import meters_of
from tests.fakes.notifier import FakeNotifier
from tests.fakes.objectstore import MemoryStore
from tests.fakes.platform import FakePlatform
from tests.fakes.wake import FakeWake
from tests.scenarios.fault_points import (
    AtOnce,
    DatabaseAccess,
    Later,
    StagedProvider,
    StoreAccess,
    SupervisorDied,
    TrueClock,
)
from tests.scenarios.script import ScenarioError
from tests.scenarios.sim_agent import SimAgent
from tests.scenarios.sim_plan import NEVER, NotReached, Plan, Reach
from tests.services.fresh import open_fresh

CELL = "cell"
WAKE_S = 0.05  # from a wake to the tick that it requests
FOREVER_S = 1e9
MOST_TICKS_A_MINUTE = 200
OVERLAP_S = 300.0  # how long a run may have two machines (invariant 3)


@dataclass
class Settings:
    """What a scenario's `settings` line may change. Times in seconds."""

    zones: tuple[str, ...] = ("a", "b", "c")
    poll: float = 30.0
    backoff: float = 10.0
    boot: float = 20.0  # of machines, until they are up
    release: float = 0.0  # between an accepted release and the machine's end
    irreplaceable: bool = False
    races: bool = False
    flex: bool = False  # each zone has flex-start too
    meter: str = ""  # who stops the bill of each zone: command, webhook or ask; "" = the release of a machine ends it
    overlap: float = OVERLAP_S
    most: int = 0  # runs with a machine at once; 0 = no limit
    per_owner: int = 0
    priced: bool = False  # requests to the object store cost money, so stored beats may rest


@dataclass
class Supervisor:
    """One process of the supervisor, from its start to its end."""

    tick: Tick
    inbox: BeatInbox
    later: Later
    lease: Lease


class Faults(logging.Handler):
    """Errors that the loop survives. A scenario that causes one must say so with `faults`."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(self.format(record))


@dataclass
class Stage:
    folder: Path
    settings: Settings = field(default_factory=Settings)
    agents: list[SimAgent] = field(default_factory=list)
    plans: dict[str, Plan] = field(default_factory=dict)
    groups: dict[str, tuple[str, int]] = field(default_factory=dict)  # run id -> its group, and the group's limit
    ticks: int = 0
    supervisor: Supervisor | None = None
    requests: int = 0  # calls to platform and object store in the last tick

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.objects = MemoryStore(now=TrueClock(self.clock).now)
        self.provider = StagedProvider(self.clock, self.settings.zones, self._new_machine)
        self.provider.boot_s, self.provider.release_delay_s = self.settings.boot, self.settings.release
        self.provider.traits = replace(
            self.provider.traits, irreplaceable=self.settings.irreplaceable, races=self.settings.races
        )
        if self.settings.flex:
            on_demand = [offer for offer in self.provider.offered if not offer.placement.spot]
            waiting = [replace(offer, placement=replace(offer.placement, flex=True)) for offer in on_demand]
            self.provider.offered = (*self.provider.offered, *waiting)
        if self.settings.meter:
            self.provider.meters = meters_of(*self.settings.zones, how=How(self.settings.meter))
        self._set_up()

    def _set_up(self) -> None:
        """Everything except clock, objects and provider."""
        self.own_access, self.agents_access = StoreAccess(self.objects), StoreAccess(self.objects)
        self.wake, self.notifier = FakeWake(self.clock), FakeNotifier()
        self.knobs_of = lambda supervisor_id: Knobs(
            supervisor_id,
            poll_interval_s=self.settings.poll,
            recovery_backoff_s=self.settings.backoff,
            max_parallel_runs=self.settings.most,
            max_parallel_per_owner=self.settings.per_owner,
        )
        self.faults = Faults()
        self.next_tick = 0.0
        self.two_machines_since: dict[str, float] = {}
        self._ticked_at: list[float] = []
        self._processes = itertools.count(1)
        self.boot_sequence = itertools.count(1)
        self._database = open_fresh(Path(self.folder, "scenario.db"), ("fake",))
        self.rows = DatabaseAccess(self._database)
        logging.getLogger("supervisor").addHandler(self.faults)
        self.start()

    def close(self) -> None:
        logging.getLogger("supervisor").removeHandler(self.faults)
        self._database.close()

    # --- processes of the supervisor ----------------------------------------------------------------------------------

    def start(self) -> None:
        """A new process on the same database: it has nothing but the rows."""
        self._database.close()
        self._database = open_store(f"sqlite:///{self.folder}/scenario.db", False, ("fake",))
        self.rows = DatabaseAccess(self._database)
        self._announced = True  # perhaps, before this process
        self._database.deliveries.on_announced(self._note_announcement)
        self.provider.dies = ""
        self.own_clock = SteadyClock(self.clock, self.settings.poll)
        providers, later, outcomes = self.providers(), Later(), Outcomes()
        knobs, poll_s = self.knobs_of(self.rows.supervisor_id), self.settings.poll
        inbox = BeatInbox(self.rows, self.own_clock, self.wake, knobs.beat_push_s)
        paces = Paces(self.objects.url, None, knobs.beat_push_s, knobs.beat_store_s, 300.0, 7200.0, 10.0, 8.0)
        cells, platform = dict.fromkeys(providers, CELL), FakePlatform()
        self.parts = Parts(self.rows, self.own_access, self.own_clock, self.wake, providers, cells, knobs, platform)
        acting = self.acting(later)
        tick = Tick(
            store=self.rows,
            cell=CELL,
            observer=Observer(
                providers, self.own_access, inbox.take, self.own_clock, self.rows.supervisor_id, poll_s,
                resting=Resting(knobs.beat_store_s, poll_s) if self.settings.priced else None,
            ),
            worldview=Worldview(knobs, providers, store_url=self.objects.url),
            readers=Readers(self.own_access, providers, executor=AtOnce()),
            actor=Actor(
                self.rows, self.own_access, providers, outcomes, self.own_clock, self.wake, paces, inbox.forget,
                **acting,
            ),
            outcomes=outcomes,
            sampler=Sampler(self.rows),
            sweeper=Sweeper(self.rows.supervisor_id),
            rotation=Rotation(poll_s, knobs.stop_poll_s),
            clock=self.own_clock,
            publishing=Publishing(acting.get("publishers", {}), poll_s),
        )  # fmt: skip
        lease = self.take_lease(f"supervisor-{next(self._processes)}")
        self.supervisor = Supervisor(tick, inbox, later, lease)
        self.next_tick = self.clock.monotonic()

    def providers(self) -> Mapping[str, Any]:
        return {self.provider.name: self.provider}

    def acting(self, later: Later) -> dict[str, Any]:
        """Where actions run."""
        return {"executor": later}

    def take_lease(self, owner: str) -> Lease:
        lease = self._database.take_lease(CELL, owner, FOREVER_S, self.clock.monotonic(), alone=True)
        if lease is None:
            raise AssertionError("the lease could not be taken")
        return lease

    def kill(self) -> None:
        """kill -9: queued actions are lost."""
        self.supervisor, self.next_tick = None, NEVER

    # --- time -----------------------------------------------------------------------------------------------------

    def run_for(self, seconds: float) -> None:
        self._run_due()
        self.go_on(seconds)

    def go_on(self, seconds: float) -> None:
        """The same, where everything that is due now has been run."""
        end = self.clock.monotonic() + seconds
        while (now := self.clock.monotonic()) < end:
            due = min([end, self.next_tick, now + self.settings.poll, *(agent.due for agent in self.agents)])
            self.clock.advance(max(0.0, due - now))
            self._run_due()

    @property
    def quiet_s(self) -> float:
        """For so long nothing happens; 0 = a machine may change by itself."""
        due = min([self.next_tick, *(agent.due for agent in self.agents)])
        still = isinstance(self.provider, StagedProvider) and self.provider.is_still
        return max(0.0, due - self.clock.monotonic()) if still else 0.0

    def _run_due(self) -> None:
        """Run everything that is due now."""
        now = self.clock.monotonic()
        for agent in self.agents:
            if agent.due <= now:
                agent.act()
        self._watch_machines()
        self._wake_up(now)
        if self.supervisor is not None and now >= self.next_tick:
            self._tick(self.supervisor)
            self._watch_machines()
            self._wake_up(now)

    def _wake_up(self, now: float) -> None:
        if self.wake.wait(0.0) and self.supervisor is not None:
            self.next_tick = min(self.next_tick, now + WAKE_S)

    def _tick(self, own: Supervisor) -> None:
        now = self.clock.monotonic()
        before = self._calls()
        due = None
        try:
            due = own.tick.run(own.lease)
            own.later.drain()
        except StoreDown:
            own.later.drop()
        except SupervisorDied:
            own.later.drop()
            self.kill()
            return
        self.requests = self._calls() - before
        self.ticks += 1
        if self._announced and not self.rows.down:
            self._announced = False
            deliver(self.rows, {self.notifier.name: self.notifier}, self.own_clock.now())
        own.inbox.active = len(own.tick.runs)
        own.inbox.set_stopping(
            {
                run.run_id: run.generation
                for run in own.tick.runs.values()
                if run.stop is not None or run.status == Status.STOPPING
            }
        )
        if own.tick.observer.resting is not None:
            own.inbox.grant(granted(*own.tick.observer.granted, self.knobs_of(self.rows.supervisor_id)))
        self._refuse_to_spin(now)
        soon_s = self.settings.poll if due is None else min(self.settings.poll, due - self.own_clock.now())
        self.next_tick = now + max(WAKE_S, soon_s)

    def _note_announcement(self) -> None:
        self._announced = True

    def _refuse_to_spin(self, now: float) -> None:
        """A wake that changes nothing must not cause the next one."""
        self._ticked_at = [at for at in self._ticked_at if at > now - 60.0] + [now]
        if len(self._ticked_at) > MOST_TICKS_A_MINUTE:
            raise AssertionError(f"the loop spins: {len(self._ticked_at)} ticks in a minute")

    def _calls(self) -> int:
        return sum(self.own_access.calls.values()) + sum(self.provider.calls.values())

    # --- the world ------------------------------------------------------------------------------------------------

    def _new_machine(self, request: LaunchRequest, machine: Machine, provider: StagedProvider | None = None) -> None:
        """A machine comes up, with an agent on it."""
        owner = provider or self.provider
        plan = self.plans.setdefault(request.run_id, Plan())
        name, machine_id = request.name, machine.machine_id
        reach = Reach(
            objects=self.agents_access,
            monotonic=self.clock.monotonic,
            push=self._push,
            machine=lambda: owner.inside(name) if owner.lives(name, machine_id) else None,
            leave_machine=lambda after: self._left(owner, name, after),
        )
        up_at = self.clock.monotonic() + owner.boot_s
        self.agents.append(SimAgent(request, machine_id, up_at, plan, reach))

    def _left(self, provider: StagedProvider, name: str, after: str) -> None:
        if after == "gone" and not provider.keeps(name):
            provider.lose(name)
        elif after in ("gone", "ended"):
            provider.end(name)

    def _push(self, run_id: str, raw: bytes) -> object:
        if self.supervisor is None or self.rows.down:
            raise NotReached
        try:
            return self.supervisor.inbox.receive(run_id, raw)
        except Exception as error:  # noqa: BLE001 - the agent cannot use any refusal
            raise NotReached(str(error)) from None

    def agent(self, run_id: str, attempt: int | None = None) -> SimAgent:
        """The newest agent of this run, or the one of this attempt."""
        agents = [agent for agent in self.agents if agent.run_id == run_id and attempt in (None, agent.attempt)]
        if not agents:
            raise ScenarioError(f"{run_id} has no machine yet")
        return agents[-1]

    def all_rows(self, where: RunFilter) -> tuple[Run, ...]:
        """As they are stored, also while the supervisor cannot read them."""
        return self._database.page(where, None, 1000).runs

    def machines(self, run_id: str | None = None) -> list[Machine]:
        """Our machines that cost money now, of one run or of all runs."""
        ours = (m for m in self.provider.machines_now() if m.supervisor_id == self.rows.supervisor_id)
        costs = (machine for machine in ours if machine.state is not MachineState.ASKED)
        return [machine for machine in costs if run_id in (None, machine.run_id)]

    def check_ledgers(self) -> None:
        """The ledger closes: the classes of each run's seconds, at their prices, are what the run has cost by the sums
        that the loop keeps, to 0.1 %."""
        now = self.own_clock.now()
        for run in self.all_rows(RunFilter()):
            entries = ledger.entries_of(run, self._database.attempts(run.key), now)
            sums = ledger.ledger_of(run, self._database.attempts(run.key), now)
            cost_usd = run_cost_usd(run, now)
            if abs(sums.billed_usd - cost_usd) > 0.001 * cost_usd + 1e-9:
                text = "\n".join(f"  {span}" for entry in entries for span in entry.spans)
                raise AssertionError(f"{run.run_id}: ${sums.billed_usd} in its ledger, ${cost_usd} on its bill\n{text}")

    def _watch_machines(self) -> None:
        """Invariant 3: no run has two running machines for longer than its overlap. No group exceeds its limit."""
        machines = self.machines()
        if len(machines) < 2:
            self.two_machines_since = {}
            return
        now = self.clock.monotonic()
        count = Counter(
            machine.run_id
            for machine in machines
            if machine.run_id in self.plans and machine.state is not MachineState.ENDED
        )
        self.two_machines_since = {
            name: self.two_machines_since.get(name, now) for name, many in count.items() if many > 1
        }
        in_groups = Counter(self.groups[name] for name in count if name in self.groups)
        for (group, limit), many in in_groups.items():
            if many > limit:
                raise AssertionError(f"{many} runs of group {group} have a machine, its limit is {limit}")
        for name, since in self.two_machines_since.items():
            if now - since > self.settings.overlap:
                raise AssertionError(f"{name} has had {count[name]} machines for {now - since:.0f} s")
