"""A house of several owners in memory: the real rules of placing, limits of the settings, and everything that can
happen to a run between two ticks. After each tick the model checks what the queue promises."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from supervisor.domain.causes import Cause
from supervisor.domain.observation import Absent, Observation, World
from supervisor.domain.policies import Knobs, Policy
from supervisor.domain.run import Run
from supervisor.domain.status import PLACING, Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.ending.ending import End, end_attempt
from supervisor.lifecycle.offers.groups import with_groups
from supervisor.lifecycle.offers.queueing import with_queue
from supervisor.lifecycle.offers.turns import with_limits
from supervisor.lifecycle.phases.beginning import obtain
from tests.lifecycle.sample_runs import NOW, run_in
from tests.lifecycle.worlds import offers

READ = Observation(stop=Absent(), baton=Absent())
OFFERS = {"local": offers()}
ROUNDS = 8


def wanting(key: int, owner: str = "ann", priority: int = 0, **fields: object) -> Run:
    values = {"policy": Policy(priority=priority), "generation_at": NOW - 1000 + key, "provider": "local", **fields}
    return run_in(Status.PENDING, key=key, run_id=f"run-{key}", owner=owner, **values)


class House:
    """`most`, `of_owner`: the limits; 0 = none."""

    def __init__(self, runs: list[Run], most: int = 0, of_owner: int = 0) -> None:
        self.runs = {run.key: run for run in runs}
        self.most, self.of_owner = most, of_owner
        self.now = NOW

    def world(self) -> World:
        knobs = Knobs("s", max_parallel_runs=self.most, max_parallel_per_owner=self.of_owner)
        live = [run for run in self.runs.values() if not run.settled]
        used_at: dict[str, float] = {}
        for run in self.runs.values():
            at = 0.0 if run.try_ is None else run.try_.requested_at
            used_at[run.owner] = max(at, used_at.get(run.owner, 0.0))
        base = World(knobs, offers=OFFERS, used_at=used_at)
        base = with_limits(with_groups(base, live, {}, self.now), live, {}, self.now)
        return with_queue(base, live, {}, lambda _: False, self.now)

    def with_machine(self) -> Counter[str]:
        """By owner; counted here on its own. A run between two requests keeps its place, also under a lower limit."""
        rows = self.runs.values()
        machines = (run for run in rows if run.open_try or run.live_attempt is not None or run.retiring)
        between = (run for run in rows if run.status == Status.LAUNCHING)
        return Counter(run.owner for run in {run.key: run for run in (*machines, *between)}.values())

    def tick(self) -> list[int]:
        """The keys of the runs that requested a machine."""
        self.now += 30.0
        before, rows = self.with_machine(), dict(self.runs)
        todo = list(self.runs)
        for _ in range(ROUNDS):
            world, again = self.world(), []
            for run in [self.runs[key] for key in todo]:
                if run.settled or run.open_try is not None or run.status not in {*PLACING, Status.LAUNCHING}:
                    continue
                decision = decide(run, READ, world, self.now)
                self.runs[run.key] = decision.run
                again += [run.key] if decision.again else []
            todo = again
        began = [key for key, run in self.runs.items() if run.open_try is not None and rows[key].open_try is None]
        self.check(before, rows, began)
        return sorted(began)

    # --- what the queue promises ----------------------------------------------------------------------------------

    def check(self, before: Counter[str], rows: dict[int, Run], began: list[int]) -> None:
        after = self.with_machine()
        if self.most:
            assert after.total() <= max(self.most, before.total()), "more machines than the limit of all"
        for owner, count in after.items():
            assert not self.of_owner or count <= max(self.of_owner, before[owner]), f"too many machines of {owner}"
        for run in self.runs.values():
            if run.status == Status.WAITING and run.cause == Cause.MACHINE_LIMIT and not run.hold:
                self.check_wait(run, before, after, [rows[key] for key in began])

    def check_wait(self, run: Run, before: Counter[str], after: Counter[str], began: list[Run]) -> None:
        own_full = bool(self.of_owner) and after[run.owner] >= self.of_owner
        if not run.retiring:
            assert own_full or (self.most and after.total() >= self.most), f"{run.run_id} waits, and a place is free"
        for other in began:
            if own_full and other.owner != run.owner:
                continue  # that place is not open to it
            assert other.policy.priority >= run.policy.priority, f"{run.run_id} waits behind {other.run_id}"
            if other.policy.priority > run.policy.priority or other.retiring:
                continue  # it went on in its own place
            if other.owner == run.owner:
                assert other.key < run.key or run.retiring, f"{other.run_id} overtook {run.run_id}"
            else:
                assert after[other.owner] - 1 <= after[run.owner], f"{other.owner} got more than its share"

    # --- what happens between two ticks ---------------------------------------------------------------------------

    def submit(self, owner: str, priority: int) -> None:
        key = max(self.runs, default=0) + 1
        self.runs[key] = wanting(key, owner, priority)

    def obtain(self, key: int) -> None:
        run = self.runs[key]
        if run.open_try is not None and run.live_attempt is None:
            self.runs[key] = replace(obtain(run, run.open_try, "m", self.now).run, status=Status.RUNNING)

    def refuse(self, key: int) -> None:
        run = self.runs[key]
        if run.try_ is not None and run.open_try is not None and run.live_attempt is None:
            self.runs[key] = replace(run, try_=replace(run.try_, ended_at=self.now, outcome=Cause.NO_CAPACITY))

    def preempt(self, key: int, cause: Cause = Cause.PREEMPTED) -> None:
        run = self.runs[key]
        if run.live_attempt is not None:
            self.runs[key] = end_attempt(run, End(cause, "notice"), self.world(), self.now).run

    def complete(self, key: int) -> None:
        run = self.runs[key]
        if run.live_attempt is not None:
            over = end_attempt(run, End(Cause.PREEMPTED, "over"), self.world(), self.now).run
            self.runs[key] = replace(over, status=Status.COMPLETED, status_since=self.now)

    def gone(self, key: int) -> None:
        """The machines of ended attempts are gone; an ended run is settled."""
        run = self.runs[key]
        self.runs[key] = replace(run, retiring=(), settled=run.terminal)
