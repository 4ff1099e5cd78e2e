"""The one entrance to every rule: decide(run, observation, world, now) -> Decision. Pure: no clock, no I/O, no chance.

Less knowledge means fewer actions: replacing any part of the observation by Unknown never adds an action. Deciding
again on the same observation changes no counter. Terminal is terminal: only the command `resume` leads out of it.

`decide` adds to the rule of the run's status what holds in every status: times that a wrong clock wrote, removed
checkpoints, the baton's pointer, machines whose attempt is over, evidence, and events that follow from the new row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from supervisor.domain.actions import CloseBaton, Finalise, ForgetHome, KeepEvidence
from supervisor.domain.attempt import Attempt
from supervisor.domain.events import EventKind
from supervisor.domain.observation import BATON, Observation, Seen, Unknown, World
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decision import Decision, after_events, new_event, soonest, unchanged, unread
from supervisor.lifecycle.ending.retiring import next_due, retire
from supervisor.lifecycle.events.warnings import with_warnings
from supervisor.lifecycle.living.checkpoints import with_pointer, with_removals
from supervisor.lifecycle.living.clock_steps import righted
from supervisor.lifecycle.living.contact import with_contact
from supervisor.lifecycle.living.drilling import without_order
from supervisor.lifecycle.living.overriding import is_torn
from supervisor.lifecycle.offers.choosing import lacking, lacks
from supervisor.lifecycle.phases.finishing import finish
from supervisor.lifecycle.phases.launching import launch
from supervisor.lifecycle.phases.placing import place, recover
from supervisor.lifecycle.phases.racing import without_rival
from supervisor.lifecycle.phases.running import run_on
from supervisor.lifecycle.phases.short_way import trains_on
from supervisor.lifecycle.phases.stopping import stop
from supervisor.lifecycle.phases.teardown import await_teardown

Rule = Callable[[Run, Observation, World, float], Decision]

RULES: dict[Status, Rule] = {
    Status.PENDING: place,
    Status.WAITING: recover,  # a run that waits after a lost attempt still receives that attempt's late beats
    Status.RECOVERING: recover,
    Status.LAUNCHING: launch,
    Status.RUNNING: run_on,
    Status.FINISHING: finish,
    Status.STOPPING: stop,
    Status.AWAITING_TEARDOWN: await_teardown,
}


def decide(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """The run as it should be at `now`, given everything observed, and what to do about it."""
    if run.settled:
        return unchanged(run)
    run = righted(run, world, now)
    return trains_on(run, obs, world, now) or _by_rules(run, obs, world, now)


def _by_rules(run: Run, obs: Observation, world: World, now: float) -> Decision:
    current, removals = with_removals(run, obs, now)
    current, contact = with_contact(current, obs, now)
    news = (*removals, *contact)
    decision = with_evidence(run, _decide(current, obs, world, now))
    if news and decision.wants:
        return unchanged(run, wants=decision.wants)  # recorded once it is decided
    decision = _with_lost_home(after_events(news, decision))
    return with_warnings(run, _without_order(decision, now), now)


def _without_order(decision: Decision, now: float) -> Decision:
    """No later attempt closes the order of a drill where the run has ended."""
    if decision.wants or not decision.run.terminal or not decision.run.drills.launch_id:
        return decision
    closed = without_order(decision.run, now)
    return replace(decision, run=closed.run, events=(*decision.events, *closed.events))


def _with_lost_home(decision: Decision) -> Decision:
    """Whatever was read: the action itself finds out whether there is such a home, and whether it can be read."""
    lost = "" if decision.wants or decision.run.settled else decision.run.given_up
    return replace(decision, actions=(*decision.actions, ForgetHome(lost))) if lost else decision


def with_evidence(before: Run, decision: Decision) -> Decision:
    """The decision with a KeepEvidence for each attempt that it ends, and for each whose machine it observes gone.

    Both are needed: an agent with a preemption notice goes on for a while and writes its own part last."""
    due = [KeepEvidence(launch_id) for launch_id in _evidence_due(before, decision.run)]
    return replace(decision, actions=(*due, *decision.actions)) if due else decision


def _evidence_due(before: Run, after: Run) -> list[str]:
    """Launch ids."""
    if before is after:
        return []
    live = before.live_attempt
    goes_on = live is not None and after.live_attempt is not None and after.live_attempt.number == live.number
    ended = [] if live is None or goes_on else [live.launch_id]
    retiring = {item.launch_id for item in after.retiring}
    gone = (item for item in before.retiring if item.launch_id not in retiring and item.lost_until is None)
    return [*ended, *(item.launch_id for item in gone)]


def _decide(run: Run, obs: Observation, world: World, now: float) -> Decision:
    if run.terminal:
        return _settle(run, obs, now)
    pointed = with_pointer(run, obs, now)
    retired = retire(pointed, obs, now) if pointed.retiring else None
    if retired is not None:
        obs = _without_gone(obs, pointed, retired.run)
    decision = RULES[run.status](pointed if retired is None else retired.run, obs, world, now)
    decision = without_rival(decision, obs, now)
    if retired is not None:
        decision = _with_retired(decision, pointed, retired, now)
    after = decision.run
    if not after.terminal and not after.hold and lacks(after, world):
        decision = replace(decision, run=replace(after, hold=lacking(after)))
    if run.live_attempt is not None and decision.run.live_attempt is None and unread(obs, BATON):
        return unchanged(run, wants=frozenset({BATON}))  # the attempt ends: the baton has its last checkpoint
    return decision


def _without_gone(obs: Observation, before: Run, after: Run) -> Observation:
    """The observation whose machines are those of the row again, after some of them were dropped from it."""
    if len(before.retiring) == len(after.retiring):
        return obs
    left = {item.ref for item in after.retiring}
    parts = zip(before.retiring, obs.retiring, strict=False)
    return replace(obs, retiring=tuple(part for item, part in parts if item.ref in left))


def _with_retired(decision: Decision, run: Run, retired: Decision, now: float) -> Decision:
    return replace(
        after_events(retired.events, decision),
        actions=(*retired.actions, *decision.actions),
        check_after=soonest(decision.check_after, next_due(run, now)),
        parted=_earlier(retired, decision.run),
    )


def _earlier(retired: Decision, run: Run) -> tuple[Attempt, ...]:
    """Attempts other than the current one of `run`. The next attempt may start in the same decision that observed the
    old machine gone."""
    return tuple(attempt for attempt in retired.parted if run.attempt is None or attempt.number != run.attempt.number)


def _settle(run: Run, obs: Observation, now: float) -> Decision:
    """Terminal: close the baton, then release what may go, then write the manifest and delete the beat."""
    if run.stop is not None and run.stop.at > run.status_since:
        text = "Stop changes nothing: the run is over."
        return Decision(replace(run, stop=None), (new_event(EventKind.STOP_IGNORED, text),), again=True)
    if run.retiring and unread(obs, BATON):
        return unchanged(run, wants=frozenset({BATON}))
    if run.retiring and isinstance(obs.baton, Unknown) and not is_torn(obs.baton):
        return unchanged(run)
    if run.retiring and isinstance(obs.baton, Seen) and obs.baton.value.closed is None:
        return Decision(run, actions=(CloseBaton(run.status),))
    decision = retire(run, obs, now)
    after = decision.run
    decision = replace(decision, parted=_earlier(decision, after))
    if any(item.until <= now for item in after.retiring):
        return decision
    if not (isinstance(obs.finalised, Seen) and obs.finalised.value):
        decision = replace(decision, actions=(*decision.actions, Finalise(after.status)))
        return replace(decision, check_after=next_due(after, now))
    if after.retiring:
        return replace(decision, check_after=next_due(after, now))
    return replace(decision, run=replace(after, settled=True))
