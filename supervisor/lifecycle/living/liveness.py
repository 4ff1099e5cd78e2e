"""Is the training alive? Judged by progress where progress is due, by beats elsewhere, by nothing while we are blind.

A beat is a pulse; only a change of (step, checkpoint) is progress. A stall poll is a poll in which a newer beat came
without progress, keyed by the beat's sequence: deciding twice on the same beat counts once. Limits that end an
attempt begin at the latest of their own start and the moment since which the beats have been read without a gap.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.contract import heartbeat
from supervisor.contract.heartbeat import Beat
from supervisor.domain.attempt import Attempt, Pulse
from supervisor.domain.machines import Placement
from supervisor.domain.observation import BEATS, Observation, Part, Seen, World, machines_in
from supervisor.domain.policies import STALLING_POLLS, StallLimits
from supervisor.domain.run import Run

# Two looks closer together than this share of the poll interval count as one poll: an early wake-up is not a poll.
SAME_POLL = 0.8
# Several processes write rows, and stores tell ages in whole seconds or worse: less than this is no wrong clock.
TOLERANCE_S = 60.0


def beat_of(part: Part[Beat], launch_id: str) -> Seen[Beat] | None:
    """The beat, if it is one of this launch; beats of other launches say nothing about it."""
    if isinstance(part, Seen) and part.value.launch_id == launch_id:
        return part
    return None


def follow(pulse: Pulse | None, seen: Seen[Beat], now: float, poll_interval_s: float) -> Pulse:
    """The pulse after this beat; the same object when the beat is not newer than what is known."""
    beat = seen.value
    if pulse is None or pulse.launch_id != beat.launch_id:
        pulse = Pulse(launch_id=beat.launch_id, phase=beat.phase, phase_since=now)
    if beat.sequence <= pulse.sequence:
        return pulse
    progress = beat.step is not None and (beat.step, beat.checkpoint_step) != (pulse.step, pulse.checkpoint_step)
    first_at = pulse.first_progress_at if pulse.first_progress_at is not None else (now if progress else None)
    polls, counted_at = pulse.stall_polls, pulse.stall_counted_at
    newer = beat.checkpoint_step is not None and beat.checkpoint_step != pulse.checkpoint_step
    over = progress and polls >= STALLING_POLLS and pulse.progress_at is not None
    stalled_s = max(0.0, now - pulse.progress_at) if over and pulse.progress_at is not None else 0.0
    if progress or beat.phase != heartbeat.TRAINING:
        polls = 0 if progress else polls
    elif first_at is not None and not 0 <= now - counted_at < SAME_POLL * poll_interval_s:
        polls, counted_at = polls + 1, now
    return Pulse(
        launch_id=beat.launch_id,
        sequence=beat.sequence,
        phase=beat.phase,
        phase_since=pulse.phase_since if beat.phase == pulse.phase else now,
        beat_at=now - seen.age_s,
        step=beat.step if beat.step is not None else pulse.step,
        total=beat.total if beat.total is not None else pulse.total,
        checkpoint_step=beat.checkpoint_step if beat.checkpoint_step is not None else pulse.checkpoint_step,
        first_progress_at=first_at,
        progress_at=now if progress else pulse.progress_at,
        stall_polls=polls,
        stall_counted_at=now if progress else counted_at,
        steps_per_s=beat.steps_per_s,
        message=beat.message,
        metrics=beat.metrics,
        checkpoint_at=now if newer else pulse.checkpoint_at,
        stalled_s=pulse.stalled_s + stalled_s,
        from_zero=beat.from_zero if beat.from_zero is not None else pulse.from_zero,
        up_s=beat.up_s if beat.up_s is not None else pulse.up_s,
        telemetry=beat.telemetry or pulse.telemetry,
        recent=beat.recent,
    )


def heard(run: Run, obs: Observation, world: World, now: float) -> Run:
    """The run with what a beat of its live attempt tells; the same object when there is no news."""
    attempt = run.live_attempt
    beat = beat_of(obs.beat, attempt.launch_id) if attempt is not None else None
    if attempt is None:
        return run
    if beat is None:
        named = identified(attempt, obs)
        return run if named is attempt else replace(run, attempt=named)
    pulse = follow(run.pulse, beat, now, world.knobs.poll_interval_s)
    timed = identified(with_times(attempt, beat.value, now), obs)
    timed = reckoned(timed, run.pulse, pulse, run.policy.stall.boot_timeout_s)
    return run if pulse is run.pulse and timed is attempt else replace(run, pulse=pulse, attempt=timed)


def identified(attempt: Attempt, obs: Observation) -> Attempt:
    """The attempt with its machine's id, once the listing or a beat tells it: a machine that has only just begun to
    start has none yet. The same object when there is no news."""
    if attempt.machine_id:
        return attempt
    beat = beat_of(obs.beat, attempt.launch_id)
    listed = obs.machine.value.machine_id if isinstance(obs.machine, Seen) else ""
    known = listed or (beat.value.machine_id if beat is not None else "")
    return replace(attempt, machine_id=known) if known else attempt


def reckoned(attempt: Attempt, before: Pulse | None, after: Pulse, boot_limit_s: float) -> Attempt:
    """The attempt by the count of its agent in a newer beat; the same object while nothing has drifted. How long a
    machine worked is the agent's own count: a step of our clock shows as a drift between the two, and is neither
    trained nor billed."""
    if after is before or after.up_s is None:
        return attempt
    agent_at = after.beat_at - after.up_s
    if attempt.agent_at is None:
        boot_s = agent_at - attempt.started_at
        # No boot is allowed more than its limit: what seems longer holds a step of the clock.
        stepped_s = boot_s - boot_limit_s if boot_s > boot_limit_s + TOLERANCE_S else 0.0
        return replace(attempt, agent_at=agent_at - stepped_s, drift_s=stepped_s)
    known_s = before.up_s if before is not None and before.launch_id == after.launch_id else None
    if known_s is not None and after.up_s < known_s:  # an agent that began anew counts from there
        return replace(attempt, agent_at=agent_at - attempt.drift_s)
    drift_s = agent_at - attempt.agent_at
    return attempt if abs(drift_s - attempt.drift_s) <= TOLERANCE_S else replace(attempt, drift_s=drift_s)


def watched_since(world: World, since: float, now: float, source: str = BEATS) -> float:
    """Where a limit that ends something begins: its own start, or the moment since which we can see. A start in the
    future was written before the wall clock was set back: it says nothing, only what we have seen since counts."""
    if since > now:
        return world.observing_since.get(source, now)
    return max(since, world.observing_since.get(source, since))


def machines_since(world: World, place: Placement, since: float, now: float) -> float:
    """The same for the machines of one zone, which a partial listing may have reached or not."""
    source = world.machines_of(place.provider)
    own = machines_in(place.zone, source)
    return watched_since(world, since, now, own if own in world.observing_since else source)


def silent_s(pulse: Pulse | None, attempt: Attempt, world: World, now: float) -> float:
    """How long we have listened in vain; 0 while beats come."""
    last = pulse.beat_at if pulse is not None and pulse.launch_id == attempt.launch_id else attempt.started_at
    return now - watched_since(world, last, now)


def stall_reason(run: Run, pulse: Pulse, world: World, now: float) -> str | None:
    """Why this attempt is stalled, with the figures; None while it is not."""
    limits = run.policy.stall
    in_phase_s = now - watched_since(world, pulse.phase_since, now)
    if pulse.phase != heartbeat.TRAINING:
        limit_s = _phase_limit_s(limits, pulse.phase)
        if limit_s is not None and in_phase_s > limit_s:
            return f"{in_phase_s:.0f} s in phase {pulse.phase}, limit {limit_s:.0f} s"
        return None
    if pulse.first_progress_at is not None:
        if pulse.stall_polls >= limits.polls:
            return f"{pulse.stall_polls} polls without progress at step {pulse.step}"
        return None
    # Only a run that has reported before owes us a first step; others are never judged by steps.
    if run.reported and in_phase_s > limits.first_progress_s:
        return f"no first step after {in_phase_s:.0f} s of training, limit {limits.first_progress_s:.0f} s"
    return None


def _phase_limit_s(limits: StallLimits, phase: str) -> float | None:
    return {
        heartbeat.RESTORE: limits.restore_s,
        heartbeat.CHECKPOINT: limits.checkpoint_s,
        heartbeat.EVALUATION: limits.evaluation_s,
    }.get(phase)


def with_times(attempt: Attempt, beat: Beat, now: float) -> Attempt:
    """The attempt with what only this beat's phase can tell for the first time; the same object otherwise."""
    attempt = with_pull(attempt, beat, now)
    if attempt.running_at is None and beat.phase not in heartbeat.BEFORE_CLAIM:
        attempt = replace(attempt, running_at=now)
    trains = beat.phase not in (*heartbeat.BEFORE_CLAIM, heartbeat.RESTORE)
    if attempt.training_at is None and trains:
        attempt = replace(attempt, training_at=now, step_from=beat.resumed_from)
    return attempt


def with_pull(attempt: Attempt, beat: Beat, now: float) -> Attempt:
    """The attempt with when its image began and ended to be pulled; the same object when there is no news. A pull
    between two looks leaves no trace: it counts as boot."""
    if beat.phase == heartbeat.IMAGE:
        return attempt if attempt.pull_at is not None else replace(attempt, pull_at=now)
    pulling = attempt.pull_at is not None and attempt.pulled_at is None
    return replace(attempt, pulled_at=now) if pulling else attempt
