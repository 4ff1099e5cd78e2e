"""What must hold in every weather: asked of the cloud itself, of the database and of the bucket, after every turn.

The numbers are those of the issue: no lost run, one writer, no forgotten machine, the row before the call, others'
machines, stop, steps, budgets, evidence, requests. A limit in time counts only while the cloud could be relied on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.identifiers import parse_launch_id
from supervisor.domain.attempt import Attempt
from supervisor.domain.causes import Cause, rule_for
from supervisor.domain.events import EventKind
from supervisor.domain.machines import RUN_LABEL, MachineRef
from supervisor.domain.run import Run
from tests.acceptance.weather import Weather
from tests.acceptance.weather_wire import Requests
from tests.cloud.cloud import BUCKET, ZONES
from tests.cloud.web import Request

IDLE_S = 600.0  # how long a machine may serve nobody
DOUBLED_S = 300.0
LOOK_S = 5.0
MOST_REQUESTS, MOST_FOR_A_RUN = 60, 60  # of one tick: repeats, waits for operations and evidence included
TAKEN = {"preempted": Cause.PREEMPTED, "host_error": Cause.HOST_ERROR, "person": Cause.MACHINE_DELETED}
LIVING = ("PROVISIONING", "STAGING", "RUNNING")


@dataclass
class Watch:
    weather: Weather
    problems: list[str] = field(default_factory=list)
    ends: dict[tuple[str, int], Cause] = field(default_factory=dict)
    _terminal: dict[tuple[str, int], str] = field(default_factory=dict)
    _pointers: dict[str, int] = field(default_factory=dict)
    _claimed: dict[str, int] = field(default_factory=dict)
    _restored: set[int] = field(default_factory=set)
    _idle: dict[str, float] = field(default_factory=dict)
    _doubled: dict[str, float] = field(default_factory=dict)
    _deletes: set[str] = field(default_factory=set)
    _retiring: dict[str, dict[str | None, MachineRef]] = field(default_factory=dict)
    _begun: set[tuple[str, str]] = field(default_factory=set)
    _ticks: int = 0
    _at: float = 0.0
    most_requests: int = 0

    def __post_init__(self) -> None:
        self.house = self.weather.house
        self.house.compute.requests = Requests(self._asked)
        self._put, self.house.storage.put = self.house.storage.put, self._stored  # type: ignore[method-assign]
        self._at = self.weather.now

    @property
    def database(self) -> Any:
        return self.house._database

    def _stored(self, bucket: str, name: str, data: bytes, metadata: Any = None) -> Any:
        self.written(name, data)
        return self._put(bucket, name, data, metadata)

    # --- before each call ---------------------------------------------------------------------------------------------

    def _asked(self, request: Request) -> None:
        try:
            if request.method == "POST" and request.path.endswith("/instances"):
                self._insert(request.path.split("/")[6], request.json())
            elif request.method == "DELETE" and "/instances/" in request.path:
                self._delete(request.path.split("/")[6], request.path.rsplit("/", 1)[-1])
        except Exception as error:  # noqa: BLE001 - in a thread of the fake's: told by the next look
            self.problems.append(f"the watch itself: {error!r}")

    def _insert(self, zone: str, body: dict[str, Any]) -> None:
        name, run_id = body["name"], body["labels"][RUN_LABEL]
        run = self.database.find(run_id)
        tries = {one.machine_name: one for one in self.database.tries(run.key)}
        own = tries.get(name)
        if own is None or own.placement.zone != zone:
            self._wrong(f"4: {name} was asked for in {zone} before its row was there")
            return
        if run.stop is not None or run.terminal or run_id in self.weather.stopped:
            self._wrong(f"6: {name} was asked for although {run_id} is to stop ({run.status})")
        for other in tries.values():
            later = parse_launch_id(other.launch_id) > parse_launch_id(own.launch_id)
            if other is not own and (later or (other.ended_at is None and other.attempt == own.attempt)):
                self._wrong(f"4: {name} was asked for while {other.machine_name} was open")
        self._living(run, own.machine_name)

    def _living(self, run: Run, name: str) -> None:
        """Another machine of this run that is there in truth must be one that is known to have ended, or to go."""
        ended = {one.machine_id for one in self.database.attempts(run.key) if one.ended_at is not None}
        for vm in self._of(run.run_id):
            if vm.name != name and vm.status in LIVING and vm.id not in ended:
                self._wrong(f"4: {name} was asked for while {vm.name} is {vm.status}")

    def _delete(self, zone: str, name: str) -> None:
        vm = self.house.compute.instances.get((zone, name))
        if vm is not None and vm not in self.weather.ours():
            self._wrong(f"5: {name} in {zone} is not ours, and was to be deleted")
        self._deletes.add(name)

    # --- after each turn ----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """AssertionError with what does not hold."""
        ticked, now = self.house.ticks != self._ticks, self.weather.now
        if not ticked and now - self._at < LOOK_S:
            return
        passed_s, self._at, self._ticks = now - self._at, now, self.house.ticks
        runs = [run for name in self.weather.runs if (run := self.database.find(name)) is not None]
        if ticked:
            self._requests(runs)
        for run in runs:
            self._terminal_stays(run)
            self._pointer(run.run_id)
            self._begins(run)
            self._gone(run)
            self._end(run)
        self._restores()
        self._machines(runs, passed_s)
        self._foreign()
        assert not self.problems, "; ".join(self.problems)

    def _wrong(self, text: str) -> None:
        self.problems.append(text)

    def _requests(self, runs: list[Run]) -> None:
        self.most_requests = max(self.most_requests, self.house.requests)
        if self.house.requests > MOST_REQUESTS + MOST_FOR_A_RUN * len(runs):
            self._wrong(f"10: {self.house.requests} requests in one tick")

    def _terminal_stays(self, run: Run) -> None:
        key = (run.run_id, run.generation)
        before = self._terminal.get(key)
        if before is not None and before != run.status:
            self._wrong(f"6: {run.run_id} was {before} and is {run.status}")
        if run.terminal:
            self._terminal[key] = run.status

    def written(self, name: str, data: bytes) -> None:
        """An agent writes an object: the baton's pointer is moved by its holder alone, and only forward."""
        if not name.endswith("/baton.json"):
            return
        run_id, new = name.split("/")[1], batons.decode(data)
        self._pointer(run_id)
        step, before = _step(new), self._pointers.get(run_id, -1)
        if step < before:
            self._wrong(f"2: the pointer of {run_id} went back from {before} to {step}")
        if step > before and new.checkpoint is not None and new.holder is not None:
            writer = int(new.checkpoint.prefix.rstrip("/").rpartition("-a")[2])
            if writer != new.holder.attempt:
                self._wrong(f"2: the pointer of {run_id} was moved by attempt {writer}, not the holder")
        if new.holder is not None:
            self._claimed.setdefault(new.holder.launch_id + run_id, step)
        self._pointers[run_id] = step

    def _pointer(self, run_id: str) -> None:
        """Nobody else has moved it."""
        stored = self.house.storage.find(BUCKET, runfiles.baton(run_id))
        step = -1 if stored is None else _step(batons.decode(stored.data))
        if step != self._pointers.get(run_id, -1):
            self._wrong(f"2: the pointer of {run_id} was moved to {step} by no agent")

    def _restores(self) -> None:
        for number, agent in enumerate(self.house.agents):
            if agent.restored and number not in self._restored:
                self._restored.add(number)
                if (agent.step_from or -1) < self._claimed[agent.launch_id + agent.run_id]:
                    self._wrong(f"7: {agent.run_id} began at {agent.step_from} below its checkpoint")

    # --- ends --------------------------------------------------------------------------------------------------------

    def _begins(self, run: Run) -> None:
        """An attempt has a machine: one that Google still looks for may never be."""
        attempt = run.live_attempt
        if attempt is None or (attempt.launch_id, run.run_id) in self._begun:
            return
        self._begun.add((attempt.launch_id, run.run_id))
        vm = self.house.compute.instances.get((attempt.placement.zone, attempt.machine_name))
        if vm is not None and vm.id == attempt.machine_id and vm.status == "PROVISIONING":
            self._wrong(f"4: attempt {attempt.number} of {run.run_id} has begun, and its machine is not there yet")

    def _end(self, run: Run) -> None:
        """Of the newest attempt: judged once, by what has really happened to its machine."""
        attempt = run.attempt
        if attempt is None or attempt.cause is None or (run.run_id, attempt.number) in self.ends:
            return
        self.ends[(run.run_id, attempt.number)] = attempt.cause
        if not attempt.evidence or not (attempt.readings or attempt.cause == Cause.FINISHED):
            self._wrong(f"9: no evidence or readings: {run.run_id} attempt {attempt.number}: {attempt.cause}")
        problem = self._judged(attempt)
        if problem:
            self._wrong(f"8: {run.run_id} attempt {attempt.number} ended {attempt.cause}: {problem}")

    def _judged(self, attempt: Attempt) -> str:
        struck = self.weather.struck.get(attempt.machine_id, [])
        vm = self.house.compute.instances.get((attempt.placement.zone, attempt.machine_name))
        runs_on = vm is not None and vm.id == attempt.machine_id and vm.status == "RUNNING"
        # An end may be found long after it: what counts is whether the machine was born in such weather.
        since, until = self.weather.newborn.get(attempt.placement.zone, (0.0, 0.0))
        newborn = attempt.requested_at <= until and attempt.started_at >= since
        for word, cause in TAKEN.items():
            known = word in struck or (word == "preempted" and (newborn or "taken" in struck))
            if attempt.cause == cause and not known:
                return f"nothing of the kind befell it: {struck}"
        if attempt.cause == Cause.ORPHANED and runs_on:
            return "its machine runs"
        if attempt.cause in (Cause.ORPHANED, Cause.UNKNOWN) and "off" not in struck and self._taken(attempt):
            return f"it was {struck[0]}, and Google has a record of it"
        if attempt.cause == Cause.AGENT_LOST and runs_on and "agent" not in struck:
            dark = self.weather.blind.get("agents", 0.0) >= self.weather.now
            return "" if dark else "its agent is well"
        return ""

    def _taken(self, attempt: Attempt) -> bool:
        """The first that befell it, unless it went by itself before it came to that."""
        operations = self.house.compute.operations.all()
        kinds = {one.operation_type for one in operations if str(one.target_id) == attempt.machine_id}
        recorded = {"compute.instances.preempted", "compute.instances.hostError"} & kinds
        first = self.weather.struck.get(attempt.machine_id, [""])[0]
        return bool(recorded) and first in ("preempted", "host_error")

    # --- machines ----------------------------------------------------------------------------------------------------

    def _of(self, run_id: str) -> list[Any]:
        return [vm for vm in self.weather.ours() if vm.labels.get(RUN_LABEL) == run_id]

    def _blind(self, *what: str) -> bool:
        until = max(self.weather.blind.get(one, 0.0) for one in ("", *what))
        return self.weather.now < until or self.house.supervisor is None or self.house.rows.down

    def _machines(self, runs: list[Run], passed_s: float) -> None:
        ours = self.weather.ours()
        served = {one.open_try.machine_name for one in runs if one.open_try is not None and not one.terminal}
        count: dict[str, int] = {}
        for vm in ours:
            run_id = vm.labels[RUN_LABEL]
            count[run_id] = count.get(run_id, 0) + (vm.status == "RUNNING")
            if vm.name in served:
                self._idle.pop(vm.id, None)
            elif not self._blind(vm.zone, vm.name):
                self._idle[vm.id] = self._idle.get(vm.id, 0.0) + passed_s
                if self._idle[vm.id] > IDLE_S:
                    self._wrong(f"3: {vm.name} ({vm.status}) serves nobody for {self._idle[vm.id]:.0f} s")
        for run_id, many in count.items():
            if many < 2:
                self._doubled.pop(run_id, None)
            elif not self._blind(*ZONES, *(vm.name for vm in ours)):
                self._doubled[run_id] = self._doubled.get(run_id, 0.0) + passed_s
                if self._doubled[run_id] > DOUBLED_S:
                    self._wrong(f"3: {run_id} has {many} running machines for {self._doubled[run_id]:.0f} s")

    def _foreign(self) -> None:
        gone = [vm.name for vm in self.weather.foreign if vm.status != "RUNNING"]
        if gone:
            self._wrong(f"5: machines of others are gone: {gone}")

    def _gone(self, run: Run) -> None:
        """A machine that the supervisor has done with is not there any more."""
        now = {item.ref.machine_id: item.ref for item in run.retiring}
        before = self._retiring.get(run.run_id, {})
        self._retiring[run.run_id] = now
        for machine_id, ref in before.items():
            vm = self.house.compute.instances.get((ref.zone, ref.name))
            if machine_id not in now and vm is not None and vm.id == machine_id:
                self._wrong(f"3: {ref.name} is taken for gone, and is {vm.status}")

    # --- at the end --------------------------------------------------------------------------------------------------

    def at_the_end(self) -> None:
        """AssertionError. Budgets, and a word in the history about every machine that was deleted."""
        told: set[object] = set()
        for one in self.database.events(None, 0, 100_000):
            if one.event.kind == EventKind.MACHINE_LEAKED:
                told.add(one.event.data["machine"])
        for name in self.weather.runs:
            run = self.database.find(name)
            tries, attempts = self.database.tries(run.key), self.database.attempts(run.key)
            told |= {one.machine_name for one in attempts if one.cause is not None and one.evidence}
            told |= {one.machine_name for one in tries if one.ended_at is not None}
            spent = sum(_counts(one) for one in attempts if one.generation == run.generation)
            if run.counters.counted > spent:
                self._wrong(f"8: {name} has spent {run.counters.counted} attempts, its ends {spent}")
        silent = self._deletes - told
        if silent:
            self._wrong(f"9: no word on why these were deleted: {sorted(silent)}")
        assert not self.problems, "; ".join(self.problems)


def _step(baton: batons.Baton) -> int:
    return -1 if baton.checkpoint is None else baton.checkpoint.step


def _counts(attempt: Attempt) -> bool:
    if attempt.cause is None:
        return False
    return any(rule_for(attempt.cause, newer).counts for newer in (False, True))
