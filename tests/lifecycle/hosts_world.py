"""A run on a host that is billed until somebody stops it: its row, its world, and decisions as a tick makes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from supervisor.contract.baton import Baton, Done, FileEntry, Holder
from supervisor.domain.actions import Action
from supervisor.domain.attempt import Attempt, Try
from supervisor.domain.events import Event
from supervisor.domain.machines import How, Machine, MachineState, Meter, Placement
from supervisor.domain.observation import (
    BEATS,
    MACHINES,
    NOT_READ,
    Absent,
    MeterReport,
    Observation,
    Part,
    Seen,
    Verification,
    World,
)
from supervisor.domain.policies import Knobs, Policy
from supervisor.domain.run import Approval, Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.phases.teardown import with_host_users

NOW, H = 1_000_000.0, 3600.0
LAUNCH, NAME, SHA = "1.1.1", "m-1", "ab"
PLACE = Placement("lab", "ssh", "gpu1", "host", True)
HOST = (PLACE.provider, PLACE.zone)
DONE = Done(LAUNCH, "runs/digits/results/g1/", (FileEntry("weights", 3, "x"),), 300, 300)
GOOD = Verification(LAUNCH, SHA, DONE.results, ())
BAD = replace(GOOD, problems=("weights is missing",))
MACHINE = Machine("id-1", NAME, "gpu1", MachineState.UP, "supervisor-1", "digits", LAUNCH, NOW - 50)
STORE = Absent(0.0, "store")


def metered(how: How = How.COMMAND, confirms: bool = True) -> World:
    meter = Meter(how, "terminate", ("terminate", "stop"), confirms)
    return World(Knobs("supervisor-1"), fresh=frozenset({BEATS, MACHINES}), meters={HOST: meter})


def saving(key: int = 1, run_id: str = "digits", **policy: object) -> Run:
    """Its command has ended, and its results are being saved."""
    attempt = Attempt(
        1, 1, LAUNCH, NAME, "id-1", PLACE, NOW - 60, NOW - 50, 1.2, 1.2,
        up_at=NOW - 40, running_at=NOW - 30, training_at=NOW - 20,
    )  # fmt: skip
    first = Try(1, 1, LAUNCH, NAME, PLACE, NOW - 60, 1.2, 1.2)
    return Run(
        key, run_id, "local", "c", "lab", 1, Status.FINISHING, Policy(**policy), NOW - 100, NOW - 100, NOW - 10,
        try_=first, attempt=attempt, reported=True,
    )  # fmt: skip


def seen(
    run: Run,
    machine: Part[Machine],
    *,
    done: bool = True,
    check: Part[Verification] = NOT_READ,
    verb: Part[MeterReport] = NOT_READ,
    meter: Part[MeterReport] = NOT_READ,
) -> Observation:
    baton = Baton("supervisor-1", 1, holder=Holder(1, LAUNCH, "id-1"), done=DONE if done else None)
    retiring = tuple(machine for _ in run.retiring)
    return Observation(
        machine, Absent(0.0, "listing"), Seen(baton, 0.0, "store"), STORE, machine,
        verification=check, verb=verb, meter=meter, finalised=Seen(True), retiring=retiring,
    )  # fmt: skip


def report(at: float, good: bool = True, verb: str = "terminate", text: str = "exit code 0") -> Part[MeterReport]:
    return Seen(MeterReport(NAME, verb, good, text, at))


def approval(at: float, verb: str = "terminate", **fields: object) -> Approval:
    return replace(Approval("ann", at, "id-1", SHA, verb=verb), **fields)


class Rounds:
    """The decisions of one tick for one run, until none wants another one."""

    def __init__(
        self,
        run: Run,
        machine: Part[Machine],
        world: World,
        now: float,
        others: Iterable[Run] = (),
        machines: Iterable[Machine] = (),
        **parts: object,
    ) -> None:
        self.events: list[Event] = []
        self.actions: list[Action] = []
        others, machines = tuple(others), [("lab", each) for each in machines]
        for _ in range(8):
            around = with_host_users(world, (run, *others), machines, lambda run_id: False)
            decision = decide(run, seen(run, machine, **parts), around, now)  # type: ignore[arg-type]
            assert not decision.wants
            run = decision.run
            self.events += decision.events
            self.actions += decision.actions
            if not decision.again:
                break
        self.run = run

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def did(self, kind: type) -> list[Action]:
        return [action for action in self.actions if isinstance(action, kind)]


def verified(world: World, now: float = NOW, **policy: object) -> Run:
    """Its results are verified, and the question is asked."""
    run = Rounds(saving(**policy), Seen(MACHINE), world, now, check=Seen(GOOD)).run
    assert run.status == Status.AWAITING_TEARDOWN
    return run
