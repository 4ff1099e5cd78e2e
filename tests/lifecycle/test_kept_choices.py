"""Many runs that request the same get one answer in a round: it is the answer that each of them would get alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from supervisor.contract.cards import Card
from supervisor.domain.causes import Cause
from supervisor.domain.gates.verdicts import Waiver
from supervisor.domain.machines import HostFacts
from supervisor.domain.observation import World
from supervisor.domain.policies import Knobs, Needs, Policy
from supervisor.domain.profile import Profile
from supervisor.domain.run import Refusal, Run
from supervisor.domain.status import Status
from supervisor.lifecycle.offers import choosing
from supervisor.lifecycle.offers.choosing import NoOffer, choose
from supervisor.lifecycle.offers.queueing import place_of, with_queue
from tests.lifecycle.sample_runs import attempt, run_in
from tests.lifecycle.worlds import NOW, ZONES, offers, placement

GB = 10**9
FREE_GB = dict(zip(ZONES, (10, 40, 80), strict=True))
PROFILES = {
    ("local", zone): Profile(
        "lab",
        "The lab",
        host=HostFacts(
            at=NOW, host=zone, free_bytes=free * GB, cards=(Card(0, "u", "T4"),), cards_of={"small": 1, "big": 0}
        ),
    )
    for zone, free in FREE_GB.items()
}
WORLD = World(Knobs("s"), offers={"local": offers(("small", "big"))}, profiles=PROFILES, store_url="gs://b")
PLAIN = replace(run_in(Status.WAITING, policy=Policy(allow_on_demand=True)), provider="local", attempt=None, try_=None)


def of(**fields: Any) -> Run:
    return replace(PLAIN, policy=replace(PLAIN.policy, **fields))


LOST = replace(PLAIN, attempt=replace(attempt(), placement=placement("zone-a"), ended_at=NOW - 60.0))
RUNS = (
    PLAIN,
    of(zones=("zone-b",)),
    of(shapes=("big",)),
    of(spot=False),
    of(needs=Needs(gpu="H100")),
    of(needs=Needs(disk_gb=30)),
    of(expect_checkpoint_gb=20),
    of(expect_checkpoint_gb=99),
    replace(of(expect_checkpoint_gb=99), waivers=(Waiver("disk_bytes", "cleared tonight", "ann", NOW),)),
    replace(PLAIN, files=replace(PLAIN.files, checkpoint_bytes=20 * GB)),
    replace(PLAIN, refusals=(Refusal("zone-a", "small", True, NOW - 9.0, Cause.GPU_FAULT, "803", "local"),)),
    LOST,
    replace(LOST, avoid_zone="zone-a"),
    replace(of(escalate_after=1, escalate_to="on_demand", escalate_window_s=3600.0), key=98),
    replace(of(escalate_after=1, escalate_to="on_demand", escalate_window_s=3600.0), key=99,
            counters=replace(PLAIN.counters, preempted_at=(NOW - 60.0,))),
)  # fmt: skip


def check() -> None:
    alone = [choose(run, replace(WORLD, judged={}), NOW) for run in RUNS]
    for order in (range(len(RUNS)), reversed(range(len(RUNS)))):
        world = replace(WORLD, judged={}, choices={})
        assert all(choose(RUNS[n], world, NOW) == alone[n] for n in order for _ in range(2))


def test_a_kept_answer_is_the_run_s_own() -> None:
    check()
    assert len({choose(run, WORLD, NOW) for run in RUNS}) > 6, "they differ"


def no_request(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(choosing, "request_key", lambda run: ())


def no_expectation(patch: pytest.MonkeyPatch) -> None:
    real = choosing.choice_key
    patch.setattr(choosing, "choice_key", lambda run, world: real(run, world)[: -len(choosing._expected(run, world))])


def no_last_zone(patch: pytest.MonkeyPatch) -> None:
    real = choosing.choice_key
    patch.setattr(choosing, "choice_key", lambda run, world: real(replace(run, avoid_zone=""), world))


@pytest.mark.parametrize("broken", [no_request, no_expectation, no_last_zone])
def test_a_key_that_lacks_a_part_is_caught(
    monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None]
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        check()


class Roomy:
    """A computer that is never full."""

    def why_full(self, zone: str, shape: str) -> str:
        return ""


def test_many_runs_that_a_gate_stops_cost_one_choice_in_the_queue_and_one_in_their_decisions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And a host is judged once, for spot and on-demand machines."""
    chosen, judged = [], []
    choose_one, judge_one = choosing._choose, choosing.stopping
    monkeypatch.setattr(choosing, "_choose", lambda *how: chosen.append(how) or choose_one(*how))  # type: ignore[func-returns-value]
    monkeypatch.setattr(choosing, "stopping", lambda *how: judged.append(how) or judge_one(*how))  # type: ignore[func-returns-value]
    runs = [replace(of(expect_checkpoint_gb=99), key=key) for key in range(100)]
    capacities: Any = {"local": Roomy()}
    world = replace(with_queue(replace(WORLD, judged={}), runs, capacities, lambda call: False, NOW), choices={})
    for run in runs:
        choice = place_of(run, world, NOW)
        assert isinstance(choice, NoOffer)
        assert choice.stopped == "DISK_TOO_SMALL"
    assert (len(chosen), len(judged)) == (2, len(ZONES))
