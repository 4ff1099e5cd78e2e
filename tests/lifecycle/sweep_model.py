"""A sweep in memory: the runs of one group, the real rules of placing, and everything that can happen to a run between
two ticks. After each tick the model checks what a group promises."""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.causes import Cause
from supervisor.domain.machines import ZoneRecord, offer_key
from supervisor.domain.observation import Absent, Observation, World
from supervisor.domain.policies import Knobs, Policy
from supervisor.domain.run import Run, StopRequest
from supervisor.domain.status import PLACING, TERMINAL, Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.ending.ending import End, end_attempt
from supervisor.lifecycle.offers.groups import awaited, with_groups
from supervisor.lifecycle.offers.queueing import with_queue
from supervisor.lifecycle.phases.beginning import obtain
from supervisor.services.runs.resume import reopened
from tests.lifecycle.sample_runs import NOW, run_in
from tests.lifecycle.worlds import offers

READ = Observation(stop=Absent(), baton=Absent())
OFFERS = {"local": offers()}
COOL = {offer_key(o.placement): ZoneRecord(1, NOW + 1e6, "no_capacity", "none left") for o in OFFERS["local"]}
ROUNDS = 8


def member(key: int, limit: int | None = 2, after: tuple[str, ...] = (), **fields: object) -> Run:
    policy = Policy(group="sweep", max_parallel=limit, after=after)
    values = {"policy": policy, "generation_at": NOW - 1000 + key, "provider": "local", **fields}
    return run_in(Status.PENDING, key=key, run_id=f"cell-{key}", **values)


class Sweep:
    def __init__(self, runs: list[Run], limit: int) -> None:
        self.runs = {run.key: run for run in runs}
        self.limit = limit
        self.now = NOW
        self.cooling = False

    def world(self) -> World:
        base = World(Knobs("s", cooldown_max_s=1e7), offers=OFFERS, zones=COOL if self.cooling else {})
        members = [run for run in self.runs.values() if not run.settled]
        statuses = {run.run_id: run.status for run in self.runs.values()}
        base = replace(base, statuses={name: statuses[name] for name in awaited(members)})
        return with_queue(with_groups(base, members, {}, self.now), members, {}, lambda _: False, self.now)

    # --- what a tick does -----------------------------------------------------------------------------------------

    def tick(self, part: int = 0) -> None:
        """Decide all runs that are being placed, or (`part`) only some: a wake decides the runs that asked."""
        self.now += 30.0
        before, slots_before = self.with_machine(), self.slots()
        on_hold = {key for key, run in self.runs.items() if run.hold}
        todo = [key for key in self.runs if part == 0 or key % 2 == part % 2]
        for _ in range(ROUNDS):
            world, todo_next = self.world(), []
            for run in [self.runs[key] for key in todo]:
                if run.settled or run.open_try is not None or run.status not in {*PLACING, Status.LAUNCHING}:
                    continue
                decision = decide(run, READ, world, self.now)
                self.runs[run.key] = decision.run
                todo_next += [run.key] if decision.again else []
            todo = todo_next
        self.check(before, slots_before)
        if part == 0 and not self.cooling:
            self.check_order(self.with_machine() - slots_before, on_hold)

    def with_machine(self) -> set[int]:
        """Counted here on its own: a broken rule must not change what it is compared with."""
        rows = self.runs.items()
        return {key for key, run in rows if run.open_try is not None or run.live_attempt is not None or run.retiring}

    def slots(self) -> set[int]:
        """Runs with a machine, and runs that go on after the loss of one."""
        goes_on = {key for key, run in self.runs.items() if run.has_begun and not run.terminal and run.stop is None}
        return self.with_machine() | goes_on

    def check(self, before: set[int], slots_before: set[int]) -> None:
        after = self.with_machine()
        assert len(after) <= max(self.limit, len(before)), "more machines than the limit"
        assert len(self.slots()) <= max(self.limit, len(slots_before)), "a slot was given away"
        statuses = {run.run_id: run.status for run in self.runs.values()}
        for key in after - before:
            run = self.runs[key]
            completed = all(statuses[name] == Status.COMPLETED for name in run.policy.after)
            assert completed or run.has_begun, f"{run.run_id} started before its turn"

    def check_order(self, new: set[int], on_hold: set[int]) -> None:
        """After a tick of all runs, where every zone has capacity. `new`: the runs that took a slot."""
        held = [run for run in self.runs.values() if run.cause == Cause.GROUP_LIMIT and run.status == Status.WAITING]
        assert not held or len(self.slots()) >= self.limit, "a slot is free, and a run waits for it"
        for run in held:
            later = [key for key in new if key > run.key]
            assert run.key in on_hold or not later, f"{later} came before {run.key}"

    # --- what happens between two ticks ---------------------------------------------------------------------------

    def obtain(self, key: int) -> None:
        run = self.runs[key]
        if run.open_try is not None and run.live_attempt is None and run.stop is None:
            self.runs[key] = replace(obtain(run, run.open_try, "m", self.now).run, status=Status.RUNNING)

    def refuse(self, key: int) -> None:
        run = self.runs[key]
        if run.try_ is not None and run.open_try is not None and run.live_attempt is None:
            self.runs[key] = replace(run, try_=replace(run.try_, ended_at=self.now, outcome=Cause.NO_CAPACITY))

    def preempt(self, key: int) -> None:
        run = self.runs[key]
        if run.live_attempt is not None:
            self.runs[key] = end_attempt(run, End(Cause.PREEMPTED, "notice"), self.world(), self.now).run

    def complete(self, key: int) -> None:
        self._end(key, Status.COMPLETED)

    def fail(self, key: int) -> None:
        self._end(key, Status.FAILED)

    def _end(self, key: int, status: Status) -> None:
        run = self.runs[key]
        if run.live_attempt is not None:
            over = end_attempt(run, End(Cause.PREEMPTED, "over"), self.world(), self.now).run
            self.runs[key] = replace(over, status=status, status_since=self.now)

    def gone(self, key: int) -> None:
        """The machines of ended attempts are gone; an ended run is settled."""
        run = self.runs[key]
        self.runs[key] = replace(run, retiring=(), settled=run.terminal)

    def stop(self, key: int) -> None:
        run = self.runs[key]
        if run.status in PLACING and not run.retiring:
            self.runs[key] = replace(run, stop=StopRequest("a person", self.now))

    def resume(self, key: int) -> None:
        run = self.runs[key]
        if run.status in TERMINAL and run.status != Status.COMPLETED:
            self.runs[key] = reopened(run, run.policy, False, None, self.now)

    def weather(self, key: int) -> None:
        """Every zone is out of capacity, or has some again."""
        self.cooling = not self.cooling
