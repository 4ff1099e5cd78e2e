"""What must hold wherever machines are rented: for every run, observation and world, and not for broken rules.

Only asked for is not obtained; nothing starts where nothing can be seen; no machine comes before its image is known.
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
from tests.lifecycle.test_decide_properties import Decide, check, fails, settle


def new_launches(run: Run, decision: Decision) -> list[Launch]:
    """Those of a try that was not on record before."""
    known = run.try_.launch_id if run.try_ is not None else ""
    launches = [action for action in decision.actions if isinstance(action, Launch)]
    return [launch for launch in launches if launch.try_.launch_id != known]


# --- asked for is not obtained ---------------------------------------------------------------------------------------


def asked_is_not_obtained(rules: Decide, situation: Situation) -> None:
    run, obs, world = situation
    if run.live_attempt is not None or not isinstance(obs.machine, Seen):
        return
    asked = replace(obs.machine.value, state=MachineState.ASKED, record=None)
    obs = replace(obs, machine=Seen(asked, obs.machine.age_s, "listing"))
    decision = rules(run, obs, world, NOW)
    if decision.run.live_attempt is not None:
        assert isinstance(obs.beat, Seen), "an attempt began on a machine that nobody has"
    if run.status == Status.LAUNCHING and not isinstance(obs.create, Seen):
        assert not new_launches(run, decision), "the next zone before the first has said its no"


def asked_is_up(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """Broken: whatever is listed is there."""
    if isinstance(obs.machine, Seen):
        up = replace(obs.machine.value, state=MachineState.UP)
        obs = replace(obs, machine=Seen(up, obs.machine.age_s, "listing"))
    return decide(run, obs, world, now)


def test_a_machine_that_is_only_asked_for_begins_no_attempt() -> None:
    check(asked_is_not_obtained, decide, Status.LAUNCHING, Status.STOPPING)
    fails(asked_is_not_obtained, asked_is_up, Status.LAUNCHING)


# --- nothing is started in a zone that cannot be read ----------------------------------------------------------------


def nothing_starts_unseen(rules: Decide, situation: Situation) -> None:
    run, obs, world = situation
    for launch in new_launches(run, settle(rules, run, obs, world)):
        assert launch.try_.placement.zone not in world.unread


def zones_are_believed_in(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """Broken: a zone that cannot be read is taken for an empty one."""
    return decide(run, obs, replace(world, unread=frozenset()), now)


def test_nothing_is_started_where_nothing_can_be_seen() -> None:
    check(nothing_starts_unseen, decide, *PLACING)
    fails(nothing_starts_unseen, zones_are_believed_in, *PLACING)


# --- the image is known before a machine is rented -------------------------------------------------------------------


def image_comes_first(rules: Decide, situation: Situation) -> None:
    run, obs, world = situation
    decision = settle(rules, run, obs, world)
    if run.policy.image and new_launches(run, decision):
        assert decision.run.image.pinned_for == _purpose(run), "a machine before its image was asked about"


def images_are_believed_in(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """Broken: any tag will do."""
    after = decide(replace(run, policy=replace(run.policy, image="")), obs, world, now)
    return replace(after, run=replace(after.run, policy=run.policy))


def test_no_machine_is_rented_before_its_image_is_known() -> None:
    check(image_comes_first, decide, *PLACING)
    fails(image_comes_first, images_are_believed_in, *PLACING)
