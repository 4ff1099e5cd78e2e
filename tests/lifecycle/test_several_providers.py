"""A world with several providers: each is judged by its own listing, and a run whose provider is gone waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.domain.causes import Cause
from supervisor.domain.machines import Offer, Placement
from supervisor.domain.observation import (
    BEATS,
    MACHINES,
    Absent,
    Observation,
    Seen,
    Unknown,
    World,
    machines_in,
    sources_of,
)
from supervisor.domain.policies import Knobs, Policy
from supervisor.domain.run import Run, StopRequest
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.living.limits import machines_since
from supervisor.lifecycle.offers.choosing import LACKING_RETRY_S, NoOffer, choose
from tests.lifecycle.sample_runs import NOW, attempt, beat_of, machine_of, open_try, pulse, run_in

SOURCES = sources_of(["gce", "other"])
ZONE = attempt().placement.zone
OTHERS = Placement("other", "us-east1", ZONE, "g2-standard-8", True)  # a zone of the same name, elsewhere
GONE = Observation(machine=Absent(source="listing"), beat=Absent(source="listing"), lookup=Absent(source="lookup"))
LACKING = "its provider gce is not in the settings: put it back, or stop the run"


def world(**fields: object) -> World:
    return replace(World(Knobs("s"), fresh=frozenset({BEATS}), sources=SOURCES), **fields)  # type: ignore[arg-type]


def running() -> Run:
    return run_in(Status.RUNNING, attempt=attempt(running_at=NOW - 7000), try_=open_try(attempt_number=4))


def test_a_lone_provider_is_called_as_ever() -> None:
    assert sources_of(["gce"]) == {"gce": MACHINES}
    assert SOURCES == {"gce": "machines of gce", "other": "machines of other"}


@pytest.mark.parametrize(("opened", "lives"), [("machines of gce", True), ("machines of other", False)])
def test_the_breaker_of_its_own_provider_keeps_a_run(opened: str, lives: bool) -> None:
    decision = decide(running(), replace(GONE, baton=Absent()), world(breakers_open=frozenset({opened})), NOW)
    assert (decision.run.live_attempt is not None) == lives
    assert decision.inferred == ("" if lives else "machines of gce")


def test_a_limit_counts_since_its_own_provider_was_read() -> None:
    since = {machines_in(ZONE, "machines of other"): NOW - 9.0, "machines of other": NOW - 8.0, MACHINES: NOW}
    seen = world(observing_since=since)
    assert machines_since(seen, OTHERS, NOW - 100.0, NOW) == NOW - 9.0
    assert machines_since(seen, replace(OTHERS, zone="b"), NOW - 100.0, NOW) == NOW - 8.0
    assert machines_since(seen, attempt().placement, NOW - 100.0, NOW) == NOW - 100.0


def test_a_zone_that_one_provider_cannot_read_is_not_that_of_another() -> None:
    run = run_in(Status.PENDING, policy=Policy())
    offer = Offer(attempt().placement, 0.1, 0.3)
    seen = world(offers={"gce": (offer,)})
    assert choose(run, replace(seen, unread=frozenset({f"{ZONE} of other"})), NOW) == offer
    blind = choose(run, replace(seen, unread=frozenset({f"{ZONE} of gce"})), NOW)
    assert isinstance(blind, NoOffer)
    assert blind.detail == f"{ZONE} of gce cannot be read now, so no machine is requested there"


# --- a machine that only an old listing shows ----------------------------------------------------------------------

AT_4 = attempt(running_at=NOW - 7000)
SILENT = run_in(Status.RUNNING, attempt=AT_4, try_=open_try(attempt_number=4), pulse=pulse(beat_at=NOW - 3000))
STALLED = replace(SILENT, pulse=pulse(beat_at=NOW - 1, first_progress_at=NOW - 5000, step=9, stall_polls=99))
BOOTING = replace(SILENT, status=Status.LAUNCHING, attempt=replace(AT_4, up_at=NOW - 7000, running_at=None), pulse=None)
ENDS = [(SILENT, Cause.AGENT_LOST), (STALLED, Cause.STALLED), (BOOTING, Cause.BOOT_TIMEOUT)]


@pytest.mark.parametrize(("run", "cause"), ENDS)
@pytest.mark.parametrize(("age_s", "ends"), [(0.0, True), (60.0, True), (61.0, False), (3600.0, False)])
def test_nothing_ends_on_an_old_observation_of_a_machine(run: Run, cause: Cause, age_s: float, ends: bool) -> None:
    """It may have been preempted since: its silence proves nothing about the agent, its boot or progress."""
    beat = Seen(beat_of(attempt(), 9, step=9), 1.0) if run is STALLED else Absent(source="listing")
    obs = Observation(machine=Seen(machine_of(attempt()), age_s, "listing"), beat=beat, baton=Absent())
    after = decide(run, obs, world(), NOW).run
    assert (after.live_attempt is None) == ends
    assert (after.attempt is not None and after.attempt.cause == cause) == ends


# --- a run whose provider is not in the settings ------------------------------------------------------------------


def lacking(run: Run, **seen: object) -> Run:
    return decide(run, replace(Observation(), **seen), world(sources=sources_of(["other"])), NOW).run  # type: ignore[arg-type]


@pytest.mark.parametrize("status", [Status.PENDING, Status.WAITING])
def test_it_waits_with_a_reason_and_a_time_and_no_limit_counts(status: Status) -> None:
    run = run_in(status)
    after = lacking(run)
    assert (after.status, after.hold, after.next_at) == (status, LACKING, NOW + LACKING_RETRY_S)
    assert after.waiting.since == run.waiting.since
    assert lacking(replace(after, next_at=NOW - 1.0)).hold == LACKING


def test_its_wait_for_capacity_stands_still_until_its_provider_is_back() -> None:
    run = run_in(Status.WAITING, cause=Cause.NO_CAPACITY)
    limit_s = run.policy.limits.wait_for_capacity_s
    run = replace(run, waiting=replace(run.waiting, since=NOW - limit_s / 2))
    gone = world(sources=sources_of(["other"]))
    for at in (NOW, NOW + 2 * limit_s, NOW + 9 * limit_s):
        run = decide(replace(run, next_at=None), Observation(), gone, at).run
        assert (run.status, run.hold) == (Status.WAITING, LACKING)
    back = decide(replace(run, next_at=None), Observation(), world(), NOW + 9 * limit_s + 60.0).run
    assert back.status == Status.WAITING
    assert back.waiting.since == NOW + 9 * limit_s - limit_s / 2


def test_a_recovering_run_first_checks_whether_its_last_attempt_did_the_work() -> None:
    run = run_in(Status.RECOVERING)
    decision = decide(run, Observation(), world(sources=sources_of(["other"])), NOW)
    assert decision.wants
    assert lacking(run, baton=Absent(), stop=Absent()).hold == LACKING


def test_a_training_run_continues_and_says_so() -> None:
    unread = Unknown("provider gce is not in the settings")
    after = lacking(running(), machine=unread)
    assert (after.status, after.hold) == (Status.RUNNING, LACKING)
    assert lacking(after, machine=unread) is after, "one event"


def test_it_can_be_stopped() -> None:
    run = run_in(Status.WAITING, hold=LACKING, stop=StopRequest("ops", NOW))
    after = lacking(run)
    assert (after.status, after.cause, after.hold) == (Status.STOPPED, Cause.STOP_REQUESTED, "")


def test_without_a_list_of_providers_none_is_missing() -> None:
    assert decide(run_in(Status.PENDING), Observation(), World(Knobs("s")), NOW).run.hold == ""
