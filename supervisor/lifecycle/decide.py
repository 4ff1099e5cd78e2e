"""The one entrance to every rule: decide(run, observation, world, now) -> Decision. Pure: no clock, no I/O, no chance.

Less knowledge means fewer deeds: replacing any part of the observation by Unknown never adds an action. Deciding
again on the same observation changes no counter. Terminal is terminal: from there only the command `resume` leads on.

When evidence is due: as soon as an attempt is over, and once more when its machine is gone, because an agent that
was told of a preemption goes on for a while and writes its own part last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from supervisor.domain.actions import CloseBaton, Finalise, KeepEvidence
from supervisor.domain.events import EventKind
from supervisor.domain.observation import BATON, NOT_READ, Observation, Seen, Unknown, World
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decision import Decision, tell, unchanged
from supervisor.lifecycle.ending.retiring import Retired, earlier, next_due, retire
from supervisor.lifecycle.events.telling import with_telling
from supervisor.lifecycle.living.checkpoints import heed_removals, with_pointer
from supervisor.lifecycle.living.limits import righted
from supervisor.lifecycle.living.overriding import is_torn
from supervisor.lifecycle.offers.choosing import lacking, lacks
from supervisor.lifecycle.phases.finishing import await_teardown, finish
from supervisor.lifecycle.phases.launching import launch
from supervisor.lifecycle.phases.placing import place, recover
from supervisor.lifecycle.phases.running import run_on
from supervisor.lifecycle.phases.stopping import stop


def with_evidence(before: Run, decision: Decision) -> Decision:
    """The decision with a KeepEvidence for each attempt that it ends and for each whose machine it sees gone."""
    due = [KeepEvidence(launch_id) for launch_id in _over(before, decision.run)]
    return replace(decision, actions=(*due, *decision.actions)) if due else decision


def _over(before: Run, after: Run) -> list[str]:
    if before is after:
        return []
    live = before.live_attempt
    goes_on = live is not None and after.live_attempt is not None and after.live_attempt.number == live.number
    ended = [] if live is None or goes_on else [live.launch_id]
    retiring = {item.launch_id for item in after.retiring}
    return [*ended, *(item.launch_id for item in before.retiring if item.launch_id not in retiring)]


Rule = Callable[[Run, Observation, World, float], Decision]

RULES: dict[Status, Rule] = {
    Status.PENDING: place,
    Status.WAITING: recover,  # a wait after a lost attempt hears its late words too
    Status.RECOVERING: recover,
    Status.LAUNCHING: launch,
    Status.RUNNING: run_on,
    Status.FINISHING: finish,
    Status.STOPPING: stop,
    Status.AWAITING_TEARDOWN: await_teardown,
}


def decide(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """What this run should be and what is to be done, given everything that is known of it at `now`."""
    if run.settled:
        return unchanged(run)
    run = righted(run, world, now)
    heard, removed = heed_removals(run, obs, now)
    decision = with_evidence(run, _decide(heard, obs, world, now))
    if removed and decision.wants:
        return unchanged(run, wants=decision.wants)  # told when it is decided
    if removed:
        decision = replace(decision, events=(*removed, *decision.events), pulse_only=False)
    return with_telling(run, decision, now)


def _decide(run: Run, obs: Observation, world: World, now: float) -> Decision:
    if run.terminal:
        return _settle(run, obs, now)
    pointed = with_pointer(run, obs)
    if pointed.retiring:
        retired = retire(pointed, obs, now)
        decision = RULES[pointed.status](retired.run, obs, world, now)
        decision = _with_retired(decision, pointed, retired, now)
    else:
        decision = RULES[pointed.status](pointed, obs, world, now)
    after = decision.run
    if not after.terminal and not after.hold and lacks(after, world):
        decision = replace(decision, run=replace(after, hold=lacking(after)), pulse_only=False)
    ends = run.live_attempt is not None and decision.run.live_attempt is None
    if ends and obs.baton is NOT_READ:
        return unchanged(run, wants=frozenset({BATON}))  # what it has kept at last stands there
    return decision


def _with_retired(decision: Decision, run: Run, retired: Retired, now: float) -> Decision:
    due = [at for at in (decision.check_after, next_due(run, now)) if at is not None]
    return replace(
        decision,
        events=(*retired.events, *decision.events),
        actions=(*retired.releases, *decision.actions),
        check_after=min(due, default=None),
        pulse_only=decision.pulse_only and retired.run is run,
        parted=earlier(retired, decision.run),
    )


def _settle(run: Run, obs: Observation, now: float) -> Decision:
    """Terminal: close the baton, then release what may go, then write the manifest and delete the beat."""
    if run.stop is not None and run.stop.at > run.status_since:
        text = "Stop changes nothing: the run is over."
        return Decision(replace(run, stop=None), (tell(EventKind.STOP_IGNORED, text),), again=True)
    if run.retiring and obs.baton is NOT_READ:
        return unchanged(run, wants=frozenset({BATON}))
    if run.retiring and isinstance(obs.baton, Unknown) and not is_torn(obs.baton):
        return unchanged(run)
    if run.retiring and isinstance(obs.baton, Seen) and obs.baton.value.closed is None:
        return Decision(run, actions=(CloseBaton(run.status),))
    retired = retire(run, obs, now)
    return replace(_settle_rest(retired, obs, now), parted=earlier(retired, retired.run))


def _settle_rest(retired: Retired, obs: Observation, now: float) -> Decision:
    after, events, releases = retired.run, retired.events, retired.releases
    if after.retiring and any(item.until <= now for item in after.retiring):
        return Decision(after, events, releases)
    finalised = isinstance(obs.finalised, Seen) and obs.finalised.value
    if not finalised:
        return Decision(after, events, (*releases, Finalise(after.status)), check_after=next_due(after, now))
    if after.retiring:
        return Decision(after, events, releases, check_after=next_due(after, now))
    return Decision(replace(after, settled=True), events)
