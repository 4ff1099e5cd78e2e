"""Situations of a run that trains, by chance: most of them ordinary, or with a few things that are not as before."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from supervisor.contract import drill, signs
from supervisor.contract.baton import Baton, Holder, Pointer
from supervisor.contract.beat_telemetry import Disk, Telemetry, encode
from supervisor.contract.heartbeat import BEATS_OF_A_START, LEFT, PHASES, Beat, Exit, Pruned
from supervisor.domain.attempt import Attempt, Drills, Moving, Pulse, Retiring, Try, Yielding
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Away, Machine, MachineRecord, MachineState
from supervisor.domain.observation import BEATS, MACHINES, NOT_READ, Absent, Observation, Seen, Unknown, World, Yield
from supervisor.domain.policies import DrillPolicy, Knobs, Limits, Policy
from supervisor.domain.run import Files, Person, Run, StopRequest, Waiting
from supervisor.domain.status import ACTIVE, Status
from tests.lifecycle.worlds import NOW, placement

LAUNCH = "1.2.1"
Situation = tuple[Run, Observation, World]
Change = Callable[[random.Random, Situation], Situation]
MOMENTS = (NOW - 90_000, NOW - 5000, NOW - 200, NOW - 10, NOW, NOW + 30, NOW + 90, NOW + 5000)
STEPS = (None, 0, 100, 200, 300)
AMPLE, TIGHT, UNREADABLE = (
    encode(Telemetry(checkpoints_disk=Disk(free, 1000.0, 500.0, 1000.0))) for free in (500.0, 20.0, 70.0)
)
TELEMETRIES = ("", "{}", "{", AMPLE, TIGHT, UNREADABLE)
LIMITS: dict[str, tuple[float | None, ...]] = {
    "deadline": (None, NOW - 1, NOW + 1000),
    "budget_usd": (None, 0.0001, 0.01, 0.0131, 100.0),
    "max_runtime_s": (None, 10.0, 100_000.0),
}


def situations_by_chance(chance: random.Random, count: int) -> Iterator[Situation]:
    for _ in range(count):
        situation = _ordinary(chance)
        for _ in range(chance.choice((0, 0, 1, 1, 2))):
            situation = chance.choice(CHANGES)(chance, situation)
        yield situation


def _ordinary(chance: random.Random) -> Situation:
    """The next beat of a run that trains."""
    sequence, step = chance.randrange(1, 9), chance.choice((100, 200))
    first = Try(2, 1, LAUNCH, "m-2", placement(), NOW - 400, 0.1, 0.3)
    attempt = Attempt(
        2, 1, LAUNCH, "m-2", "id-2", placement(), NOW - 400, NOW - 390, 0.1, 0.3,
        up_at=NOW - 380, running_at=NOW - 350, training_at=NOW - 300, agent_at=chance.choice((None, NOW - 380)),
    )  # fmt: skip
    pulse = Pulse(
        LAUNCH, sequence, "training", NOW - 300, NOW - chance.choice((5, 35, 35, 200)), step, 5000, 100, NOW - 300,
        NOW - 35, chance.choice((0, 0, 0, 3, 9, 10)), chance.choice((0.0, NOW - 35, NOW - 2)),
        telemetry=chance.choice(TELEMETRIES), up_s=chance.choice((None, 345.0)),
    )  # fmt: skip
    limits = Limits(**{name: chance.choice((None, None, None, *values)) for name, values in LIMITS.items()})
    run = Run(
        1, "digits", "local", "local", "local", 1, Status.RUNNING, Policy(limits=limits), NOW - 1000, NOW - 1000,
        NOW - 300, try_=first, attempt=attempt, pulse=pulse, reported=True, disk_low=chance.random() < 0.2,
        files=Files(checkpoint_step=100, checkpoint_bytes=chance.choice((None, 100))),
    )  # fmt: skip
    beat = Beat(
        "digits", 2, LAUNCH, "id-2", "b", sequence + chance.choice((-1, 0, 1, 1, 1)), "training",
        step=step + chance.choice((0, 30, 30)), checkpoint_step=chance.choice((None, 100, 200)),
        telemetry=chance.choice((pulse.telemetry, pulse.telemetry, *TELEMETRIES)),
        up_s=chance.choice((None, 380.0, 9000.0)),
    )  # fmt: skip
    machine = Machine("id-2", "m-2", "zone-a", MachineState.UP, "supervisor-1", "digits", LAUNCH, NOW - 390)
    since = chance.choice((NOW - 100_000, NOW - 100))
    world = World(
        Knobs("supervisor-1"),
        observing_since={BEATS: since, MACHINES: since},
        fresh=frozenset({BEATS, MACHINES}),
        sources={"local": MACHINES},
    )
    age_s = chance.choice((0.0, 5.0, 60.0, 5.0, 200.0))
    return run, Observation(Seen(machine, 1.0, "listing"), Seen(beat, age_s, "push")), world


def _run(**choices: tuple[Any, ...]) -> Change:
    return lambda chance, it: (replace(it[0], **_chosen(chance, choices)), it[1], it[2])


def _attempt(**choices: tuple[Any, ...]) -> Change:
    def change(chance: random.Random, it: Situation) -> Situation:
        attempt = it[0].attempt
        changed = None if attempt is None else replace(attempt, **_chosen(chance, choices))
        return replace(it[0], attempt=changed), it[1], it[2]

    return change


def _pulse(**choices: tuple[Any, ...]) -> Change:
    def change(chance: random.Random, it: Situation) -> Situation:
        pulse = it[0].pulse
        changed = None if pulse is None else replace(pulse, **_chosen(chance, choices))
        return replace(it[0], pulse=changed), it[1], it[2]

    return change


def _beat(**choices: tuple[Any, ...]) -> Change:
    def change(chance: random.Random, it: Situation) -> Situation:
        seen = it[1].beat
        if not isinstance(seen, Seen):
            return it
        return it[0], replace(it[1], beat=replace(seen, value=seen.value._replace(**_chosen(chance, choices)))), it[2]

    return change


def _machine(**choices: tuple[Any, ...]) -> Change:
    def change(chance: random.Random, it: Situation) -> Situation:
        seen = it[1].machine
        if not isinstance(seen, Seen):
            return it
        return (
            it[0],
            replace(it[1], machine=replace(seen, value=replace(seen.value, **_chosen(chance, choices)))),
            it[2],
        )

    return change


def _observation(**choices: tuple[Any, ...]) -> Change:
    return lambda chance, it: (it[0], replace(it[1], **_chosen(chance, choices)), it[2])


def _world(**choices: tuple[Any, ...]) -> Change:
    return lambda chance, it: (it[0], it[1], replace(it[2], **_chosen(chance, choices)))


def _chosen(chance: random.Random, choices: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    return {name: chance.choice(values) for name, values in choices.items()}


def _try_is_over(chance: random.Random, it: Situation) -> Situation:
    over = None if it[0].try_ is None else replace(it[0].try_, ended_at=NOW - 50)
    return replace(it[0], try_=over), it[1], it[2]


def _retires(chance: random.Random, it: Situation) -> Situation:
    ref = Try(1, 1, "1.1.1", "old", placement(), NOW).ref
    old = Retiring(ref, "1.1.1", chance.choice((NOW - 100, NOW + 90)), chance.choice((NOW - 100, NOW + 100)))
    part = chance.choice((Absent(), Unknown("unread"), it[1].machine))
    return replace(it[0], retiring=(old,)), replace(it[1], retiring=(part,)), it[2]


def _hangs(chance: random.Random, it: Situation) -> Situation:
    """A second beat reports the hang of the first."""
    seen, pulse = it[1].beat, it[0].pulse
    if not isinstance(seen, Seen) or pulse is None:
        return it
    text = signs.encode(signs.Signs(hang=signs.Hang("lock", 75.0, pulse.step)))
    beat = seen.value._replace(step=pulse.step, sequence=pulse.sequence + 1, signs=text)
    before = replace(pulse, signs=text, hang_at=chance.choice((NOW - 35, NOW - 5)), hang_looks=chance.choice((1, 2)))
    return replace(it[0], pulse=before), replace(it[1], beat=replace(seen, value=beat)), it[2]


def _is_throttled(chance: random.Random, it: Situation) -> Situation:
    """Its beats say so as before, or not any more; with a plan to move, or without."""
    seen, pulse = it[1].beat, it[0].pulse
    if not isinstance(seen, Seen) or pulse is None:
        return it
    text = chance.choice((signs.encode(signs.Signs(slow=(signs.Slow(signs.THROTTLED, (64.0, 0.5, 88.0)),))), ""))
    run = replace(it[0], policy=replace(it[0].policy, on_slow="move"), pulse=replace(pulse, signs=text))
    run = replace(run, moving=Moving(after_step=chance.choice((None, -1, 100))))
    return run, replace(it[1], beat=replace(seen, value=seen.value._replace(signs=text))), it[2]


def _is_drilled(chance: random.Random, it: Situation) -> Situation:
    """An order is open, taken or not; its drill is over; or the spec wants one."""
    seen, pulse = it[1].beat, it[0].pulse
    if not isinstance(seen, Seen) or pulse is None:
        return it
    state = chance.choice((drill.RUNNING, drill.OVER))
    text = chance.choice(("", drill.encode(drill.Record(1, state, (drill.TRAINING,)))))
    drills = Drills(number=1, launch_id=chance.choice(("", LAUNCH, "1.1.1")), ordered_at=NOW - 60)
    wants = chance.choice((DrillPolicy(), DrillPolicy(at_start=True), DrillPolicy(every_s=60.0)))
    run = replace(it[0], drills=drills, policy=replace(it[0].policy, drill=wants))
    run = replace(run, pulse=replace(pulse, drill=chance.choice(("", text))))
    return run, replace(it[1], beat=replace(seen, value=seen.value._replace(drill=text))), it[2]


BATON = Baton(
    "supervisor-1", 1, None, Holder(2, LAUNCH, "id-2", False), Pointer(300, "p", ()), None, None
)  # fmt: skip
UNREAD = (NOT_READ, Unknown("could not be read"), Absent())
ENDS = tuple(MachineRecord(cause, "so says the platform") for cause in (Cause.PREEMPTED, Cause.HOST_ERROR))
ROOM = "run-9 has priority 5, and 1 of 1 machine is in use"
CHANGES: tuple[Change, ...] = (
    _run(stop=(StopRequest("ops", NOW - 5),)),
    _run(stop_consumed=("77", None)),
    _run(status=tuple(sorted(ACTIVE - {Status.AWAITING_TEARDOWN, Status.FINISHING}))),
    _run(hold=("its machine is in no listing",)),
    _run(away=(Away("zone-a", NOW - 300, "no route to host"),)),
    _run(status_since=MOMENTS, down_since=MOMENTS, next_at=MOMENTS, kept_until=MOMENTS),
    _run(waiting=(Waiting(NOW + 90), Waiting(NOW - 90)), person=(Person("why", NOW + 90, NOW + 90), Person("why"))),
    _run(pulse=(None,)),
    _run(provider=("gce",), try_=(None,)),
    _run(attempt=(None,), status=(Status.WAITING,)),
    _run(files=(Files(), Files(checkpoint_step=500), Files(checkpoint_step=100, checkpoint_bytes=10_000))),
    _try_is_over,
    _retires,
    _attempt(machine_id=("",)),
    _attempt(training_at=(None,), step_rejected=STEPS),
    _attempt(running_at=(None,), pull_at=(NOW - 370,), pulled_at=(None, NOW - 360)),
    _attempt(ended_at=(NOW - 50,)),
    _attempt(drift_s=(0.0, 500.0), agent_at=MOMENTS),
    _attempt(launch_id=("1.1.1",)),
    _attempt(started_at=MOMENTS, up_at=MOMENTS, running_at=MOMENTS),
    _attempt(pruned=(0, 2, 9), pruned_at=(None, NOW - 10, NOW + 10)),
    _pulse(launch_id=("1.1.1",)),
    _pulse(phase=PHASES, phase_since=MOMENTS),
    _pulse(beat_at=MOMENTS),
    _pulse(first_progress_at=(None, NOW - 300), step=STEPS),
    _pulse(first_progress_at=(None,), phase_since=(NOW - 5000,), checkpoint_step=(None, 100)),
    _pulse(stall_polls=(9, 10, 11), progress_at=(None, NOW - 300)),
    _hangs,
    _is_throttled,
    _is_drilled,
    _beat(launch_id=("1.1.1", "1.3.1")),
    _beat(phase=PHASES),
    _beat(sequence=(BEATS_OF_A_START + 3,)),
    _beat(left=LEFT),
    _beat(notice_s=(0.0, 30.0)),
    _beat(stop_generation=("77", "78")),
    _beat(exit=(Exit(0, None, False), Exit(1, None, False), Exit(1, None, True), Exit(None, 9, False))),
    _beat(pruned=(Pruned(0), Pruned(3, ((100, "old"),)), Pruned(9, ((100, "old"),)))),
    _beat(rejected_checkpoint=(0, 100, 300)),
    _beat(step=STEPS, checkpoint_step=STEPS, resumed_from=STEPS),
    _machine(state=tuple(MachineState)),
    _machine(state=(MachineState.ENDING, MachineState.ENDED), record=ENDS),
    _observation(machine=UNREAD),
    _observation(machine=UNREAD, lookup=UNREAD),
    _observation(beat=UNREAD),
    _observation(stop=(Seen("77"), *UNREAD)),
    _observation(baton=(Seen(BATON), Seen(BATON._replace(checkpoint=None)), *UNREAD)),
    _observation(finalised=(Seen(True), NOT_READ)),
    _world(fresh=(frozenset(), frozenset({BEATS}))),
    _world(breakers_open=(frozenset({BEATS}), frozenset({MACHINES}))),
    _world(sources=({}, {"gce": MACHINES}, {"local": MACHINES, "gce": "machines of gce"})),
    _world(wall_ahead_s=(0.0, 2000.0)),
    _world(observing_since=({}, {BEATS: NOW}, {BEATS: NOW - 1000})),
    _world(yields=({1: Yield(9, ROOM)}, {2: Yield(9, ROOM)})),
    _run(yielding=tuple(Yielding(launch, 9, NOW - 30, ROOM, placement()) for launch in (LAUNCH, "1.1.1"))),
)
