"""The use of each machine: by its labels alone, and never more are released than by the sweep."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.domain.machines import Machine, MachineListing, MachineState
from supervisor.lifecycle import sweeping
from supervisor.lifecycle.sweeping import Claim, Inventory, Use
from tests.lifecycle.strategies import NOW

CLAIMS = (
    Claim("a", "1.1.1", "m-a", "local", "z", Use.SERVES, 1, 0.1),
    Claim("b", "1.2.1", "m-b", "local", "z", Use.RETIRING, 2, None, True, NOW + 30),
    Claim("c", "1.1.1", "m-c", "local", "z", Use.KEPT, 1, 0.1, True, NOW + 600),
    Claim("d", "1.1.1", "m-d", "local", "z", Use.SERVES, 1, 0.1, False),
)
OLD = NOW - 3600


def machine(
    name: str = "m-x", run_id: str = "x", launch_id: str = "1.1.1", supervisor_id: str = "me",
    state: MachineState = MachineState.UP, created_at: float | None = OLD,
) -> Machine:  # fmt: skip
    return Machine("id-" + name, name, "z", state, supervisor_id, run_id, launch_id, created_at)


def judged(machine_: Machine, elsewhere: dict[str, str] | None = None) -> tuple[Use, str, bool]:
    verdict = Inventory("me", CLAIMS, elsewhere or {}).judge(machine_, NOW)
    return verdict.use, verdict.why, verdict.release


@pytest.mark.parametrize(
    ("machine_", "use", "why"),
    [
        (machine("m-a", "a"), Use.SERVES, "serves attempt 1 of a"),
        (machine("m-b", "b", "1.2.1"), Use.RETIRING, "attempt 2 of b is over; being released, in 30 s at the latest"),
        (machine("m-c", "c"), Use.KEPT, "kept for c for another 10 min"),
        (machine("m-d", "d"), Use.SERVES, "is requested by attempt 1 of d"),
        (machine(supervisor_id="you"), Use.FOREIGN, "not ours: another supervisor's"),
        (machine(supervisor_id=""), Use.FOREIGN, "not ours: it carries no supervisor's id"),
        # The name of one of ours proves nothing: the labels do.
        (machine("m-a", "a", supervisor_id="you"), Use.FOREIGN, "not ours: another supervisor's"),
        (
            machine("m-a", "a", "9.9.9"),
            Use.ORPHAN,
            "a live run has a machine of this name, and its labels name another launch",
        ),
        (machine(state=MachineState.ENDING), Use.ORPHAN, "serves no live run; it is being deleted already"),
        (machine(created_at=NOW - 29), Use.ORPHAN, "serves no live run, but is younger than 30 s"),
    ],
)  # fmt: skip
def test_machines_that_are_left_alone_and_why(machine_: Machine, use: Use, why: str) -> None:
    assert judged(machine_) == (use, why, False)


@pytest.mark.parametrize("created_at", [OLD, NOW - 30, None])
def test_a_machine_that_serves_no_run_may_be_released(created_at: float | None) -> None:
    assert judged(machine(created_at=created_at)) == (
        Use.ORPHAN, "carries our label and serves no live run", True,
    )  # fmt: skip
    assert judged(machine(state=MachineState.ENDED, created_at=created_at))[2]
    assert judged(machine(state=MachineState.ASKED, created_at=created_at))[2]


def test_a_machine_whose_run_another_leader_has_is_left_alone() -> None:
    use, why, release = judged(machine(), {"x": "gce p gs://other"})
    assert (use, release) == (Use.ELSEWHERE, False)
    assert "gs://other" in why


NAMES = st.sampled_from(["m-a", "m-b", "m-c", "m-d", "m-x", "m-y"])
MACHINES = st.builds(
    machine,
    name=NAMES,
    run_id=st.sampled_from(["a", "b", "c", "d", "x"]),
    launch_id=st.sampled_from(["1.1.1", "1.2.1", "2.1.1", ""]),
    supervisor_id=st.sampled_from(["me", "you", ""]),
    state=st.sampled_from(MachineState),
    created_at=st.sampled_from([None, OLD, NOW - 10]),
)


@given(st.lists(MACHINES, max_size=6))
def test_a_person_never_has_more_released_than_the_sweep_would_but_for_its_brake(machines: list[Machine]) -> None:
    expected = {claim.machine_name for claim in CLAIMS}
    plan = sweeping.plan(MachineListing(tuple(machines)), "me", expected, NOW)
    inventory = Inventory("me", CLAIMS, {})
    due = [machine_ for machine_ in machines if inventory.judge(machine_, NOW).release]
    allowed = plan.release or plan.refused
    assert all(machine_ in allowed for machine_ in due)
    going = [machine_ for machine_ in allowed if machine_.state is not MachineState.ENDING]
    claimed = {(claim.run_id, claim.launch_id) for claim in CLAIMS}
    assert [machine_ for machine_ in going if (machine_.run_id, machine_.launch_id) not in claimed] == due


def test_an_inventory_by_names_is_found() -> None:
    """Broken variant: matching labels, another name. It serves nevertheless."""
    renamed = replace(machine("m-a", "a"), name="m-renamed")
    assert judged(renamed)[0] is Use.SERVES
