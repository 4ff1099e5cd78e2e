"""Properties of rented machines: they hold for every run, observation and world, and fail for broken rules.

A requested machine is not obtained yet; nothing starts in a zone that cannot be read; no machine before its image.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.actions import Launch
from supervisor.domain.machines import MachineState
from supervisor.domain.observation import Observation, Seen, World
from supervisor.domain.run import Run
from supervisor.domain.status import PLACING, Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.decision import Decision
from supervisor.lifecycle.offers.pinning import _purpose
from tests.lifecycle.strategies import NOW, Situation
from tests.lifecycle.test_decide_properties import Decide, check, fails, settle, where_a_machine_is_due


def new_launches(run: Run, decision: Decision) -> list[Launch]:
    """Launches of a try that was not recorded before."""
    launch_id = run.try_.launch_id if run.try_ is not None else ""
    launches = [action for action in decision.actions if isinstance(action, Launch)]
    return [launch for launch in launches if launch.try_.launch_id != launch_id]


# --- a request is not a machine ---------------------------------------------------------------------------------------


def pending_is_not_obtained(rules: Decide, situation: Situation) -> None:
    run, obs, world = situation
    if run.live_attempt is not None or not isinstance(obs.machine, Seen):
        return
    pending = replace(obs.machine.value, state=MachineState.ASKED, record=None)
    obs = replace(obs, machine=Seen(pending, obs.machine.age_s, "listing"))
    decision = rules(run, obs, world, NOW)
    if decision.run.live_attempt is not None:
        assert isinstance(obs.beat, Seen), "an attempt started on a machine that does not exist"
    if run.status == Status.LAUNCHING and run.open_try is not None and not isinstance(obs.create, Seen):
        assert not new_launches(run, decision), "a request to the next zone before the first has refused"


def pending_is_up(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """Broken: every listed machine is up."""
    if isinstance(obs.machine, Seen):
        up = replace(obs.machine.value, state=MachineState.UP)
        obs = replace(obs, machine=Seen(up, obs.machine.age_s, "listing"))
    return decide(run, obs, world, now)


def test_a_machine_that_is_only_requested_starts_no_attempt() -> None:
    check(pending_is_not_obtained, decide, Status.LAUNCHING, Status.STOPPING)
    fails(pending_is_not_obtained, pending_is_up, Status.LAUNCHING)


# --- nothing is started in a zone that cannot be read ----------------------------------------------------------------


def nothing_starts_unseen(rules: Decide, situation: Situation) -> None:
    run, obs, world = situation
    for launch in new_launches(run, settle(rules, run, obs, world)):
        assert launch.try_.placement.zone not in world.unread


def unread_zones_are_empty(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """Broken: a zone that cannot be read counts as empty."""
    return decide(run, obs, replace(world, unread=frozenset()), now)


def test_nothing_is_started_in_a_zone_that_cannot_be_read() -> None:
    check(nothing_starts_unseen, decide, *PLACING)
    fails(nothing_starts_unseen, unread_zones_are_empty, Status.PENDING, where=where_a_machine_is_due)


# --- the image is known before a machine is rented -------------------------------------------------------------------


def image_comes_first(rules: Decide, situation: Situation) -> None:
    run, obs, world = situation
    decision = settle(rules, run, obs, world)
    if run.policy.image and new_launches(run, decision):
        assert decision.run.image.pinned_for == _purpose(run), "a machine before its image was looked up"


def images_are_not_pinned(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """Broken: images are never looked up."""
    after = decide(replace(run, policy=replace(run.policy, image="")), obs, world, now)
    return replace(after, run=replace(after.run, policy=run.policy))


def test_no_machine_is_rented_before_its_image_is_known() -> None:
    check(image_comes_first, decide, *PLACING)
    fails(image_comes_first, images_are_not_pinned, Status.PENDING, where=where_a_machine_is_due)
