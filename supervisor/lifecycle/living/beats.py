"""What a beat of the live attempt changes in its run: the pulse, times of the attempt, and the agent's own clock.

A beat proves that the agent lives; only a change of (step, checkpoint) is progress. A stall poll is a poll in which a
newer beat arrived without progress. It is keyed by the beat's sequence: deciding twice on one beat counts once.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.contract import heartbeat, signs
from supervisor.contract.heartbeat import BEATS_OF_A_START, Beat
from supervisor.domain.attempt import Attempt, Pulse
from supervisor.domain.events import STOPS, Event, EventKind
from supervisor.domain.observation import Observation, Part, Seen, World
from supervisor.domain.policies import STALLING_POLLS, STOP
from supervisor.domain.run import Run, with_pulse
from supervisor.wording.figures import step_text
from supervisor.wording.stalls import HANG_LOOKS, hang_in, hang_text, odd_text

# Two ticks closer together than this share of the poll interval count as one poll: an early wake-up is not a poll.
SAME_POLL = 0.8
# Several processes write rows, and stores report ages in whole seconds or worse: less than this is no wrong clock.
TOLERANCE_S = 60.0
_TRAINS = (heartbeat.TRAINING, heartbeat.CHECKPOINT, heartbeat.EVALUATION)
UNOPENED = "checkpoint.opened"  # the note of a command that started over; its figure is 0


def beat_of(part: Part[Beat], launch_id: str) -> Seen[Beat] | None:
    """The beat, if it belongs to this launch. Beats of other launches say nothing about it."""
    if isinstance(part, Seen) and part.value.launch_id == launch_id:
        return part
    return None


def with_beat(run: Run, obs: Observation, world: World, now: float) -> Run:
    """The run after the newest beat of its live attempt; the same object when there is no news."""
    attempt = run.live_attempt
    if attempt is None:
        return run
    beat, pulse, timed = beat_of(obs.beat, attempt.launch_id), run.pulse, identified(attempt, obs)
    if beat is not None:
        pulse = follow(run.pulse, beat, now, world.knobs.poll_interval_s, world.knobs.beat_store_s)
        timed = _with_times(timed, beat.value, now)
        timed = with_agent_clock(timed, run.pulse, pulse, run.policy.stall.boot_timeout_s)
    return run if pulse is run.pulse and timed is attempt else with_pulse(run, pulse, timed)


def follow(
    pulse: Pulse | None, seen: Seen[Beat], now: float, poll_interval_s: float, beat_store_s: float = 60.0
) -> Pulse:
    """The pulse after this beat; the same object when the beat is not newer than the pulse. `beat_store_s`: an agent
    that runs makes a beat in that time at the latest."""
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
    hang_at, hang_looks = _looked_at_hang(pulse, beat, now, poll_interval_s)
    frozen_s = _frozen_s(pulse, beat, now - seen.age_s, beat_store_s)
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
        save_s=beat.save_s if beat.save_s is not None else pulse.save_s,
        signs=beat.signs,
        guess=beat.guess,
        hang_at=hang_at,
        hang_looks=hang_looks,
        drill=beat.drill,
        frozen_s=pulse.frozen_s + frozen_s,
        frozen_at=now if frozen_s else pulse.frozen_at,
        saving_s=_saving_s(pulse, beat, now),
    )


def _frozen_s(before: Pulse, beat: Beat, beat_at: float, beat_store_s: float) -> float:
    """How long the agent cannot have run since the beat before: so many beats stand for a shorter time. That the
    supervisor was away leaves no such gap: the agent made its beats. A step of a clock is none either. Before the first
    beat of a launch there is none, whatever that beat's phase is."""
    made = beat.sequence - before.sequence
    if not before.sequence or before.phase not in _TRAINS or made >= BEATS_OF_A_START:
        return 0.0
    gap_s = beat_at - before.beat_at
    if beat.up_s is not None and before.up_s is not None:
        gap_s = beat.up_s - before.up_s
    still_s = gap_s - made * beat_store_s
    return still_s if still_s > TOLERANCE_S else 0.0


def _saving_s(before: Pulse, beat: Beat, now: float) -> float | None:
    """With the save that is over, if one is."""
    if before.phase != heartbeat.CHECKPOINT or beat.phase == heartbeat.CHECKPOINT:
        return before.saving_s
    return (before.saving_s or 0.0) + max(0.0, now - before.phase_since)


def _looked_at_hang(pulse: Pulse, beat: Beat, now: float, poll_interval_s: float) -> tuple[float | None, int]:
    """Since when a hang is reported without a gap, and by how many beats that are a poll apart."""
    if hang_in(beat) is None:
        return None, 0
    if pulse.hang_at is None:
        return now, 1
    is_later = not 0 <= now - pulse.hang_at < SAME_POLL * poll_interval_s * pulse.hang_looks
    return pulse.hang_at, min(pulse.hang_looks + is_later, HANG_LOOKS)


def hanging(before: Pulse | None, after: Pulse | None) -> tuple[Event, ...]:
    """The event of a hang that a beat reports for the first time."""
    if after is None or (before is not None and before.launch_id == after.launch_id and before.hang_looks):
        return ()
    hang = hang_in(after)
    if hang is None:
        return ()
    text = f"{hang_text(hang)}. It is ended if the next look finds the same."
    return (Event(EventKind.HANGING, text, data={"place": hang.place, "step": hang.step, "still_s": hang.still_s}),)


def with_alerts(run: Run) -> tuple[Run, tuple[Event, ...]]:
    """The run after the odd metrics of its newest beat, with one event for each that its spec watches: once an
    attempt, also after a restart of its agent. A training that nobody watches has none."""
    attempt, pulse = run.live_attempt, run.pulse
    if attempt is None or pulse is None or pulse.launch_id != attempt.launch_id or '"metrics"' not in pulse.signs:
        return run, ()
    wanted = {f"{rule.metric} {word}" for rule in run.policy.watch for word in ("nan", "spike") if getattr(rule, word)}
    odds = {f"{odd.name} {_RULE[odd.kind]}": odd for odd in signs.decode(pulse.signs).metrics if odd.kind in _RULE}
    new = [about for about in odds if about in wanted and about not in attempt.alerted]
    if not new:
        return run, ()
    stops = {f"{rule.metric} nan" for rule in run.policy.watch if rule.nan == STOP}
    events = tuple(_finding(odds[about], stops=about in stops) for about in new)
    return with_pulse(run, pulse, replace(attempt, alerted=(*attempt.alerted, *new))), events


_RULE = {signs.NAN: "nan", signs.INF: "nan", signs.SPIKE: "spike"}  # which word of the spec is about it


def _finding(odd: signs.OddMetric, stops: bool) -> Event:
    facts = {"metric": odd.name, "found": odd.kind, "step": odd.step, "before": odd.before, "value": odd.value}
    text = f"{odd_text(odd)}. The training goes on"
    if stops and odd.back_step is None:
        text += "; its checkpoints are held back until the metric is finite again, and the run ends if it stays so"
    return Event(EventKind.FINDING, f"{text}.", data=facts)


def with_ignored_resume(run: Run) -> tuple[Run, tuple[Event, ...]]:
    """The run after its agent has said that the command started over, with the event of it: once an attempt."""
    attempt, pulse = run.live_attempt, run.pulse
    if attempt is None or pulse is None or pulse.launch_id != attempt.launch_id or UNOPENED not in pulse.signs:
        return run, ()
    notes = dict(signs.decode(pulse.signs).notes)
    if notes.get(UNOPENED) != 0 or UNOPENED in attempt.alerted:
        return run, ()
    restored, first_step = int(notes.get("step.from", 0)), int(notes.get("step.first_after_restore", 0))
    stops = run.policy.on_resume_ignored == STOP
    follows = "it is ended before it can replace it" if stops else "it goes on, because `on_resume_ignored` is `warn`"
    began = f"The command began again at {step_text(first_step)}, and opened no file of the checkpoint of "
    facts = {"step_from": restored, "first_step": first_step, STOPS: stops}
    event = Event(
        EventKind.RESUME_IGNORED, f"{began}{step_text(restored)} that was restored for it: {follows}.", data=facts
    )
    return with_pulse(run, pulse, replace(attempt, alerted=(*attempt.alerted, UNOPENED))), (event,)


def lasting_metric(run: Run) -> signs.OddMetric | None:
    """The metric that ends the run: its agent says that it stays NaN or infinite, and holds checkpoints back since
    then. An older agent does neither, so nothing ends."""
    attempt, pulse = run.live_attempt, run.pulse
    stops = {rule.metric for rule in run.policy.watch if rule.nan == STOP}
    if not stops or attempt is None or pulse is None or pulse.launch_id != attempt.launch_id:
        return None
    odds = signs.decode(pulse.signs).metrics
    return next((odd for odd in odds if odd.kind in signs.STAYS and odd.name in stops), None)


def restart(before: Pulse | None, after: Pulse | Beat | None) -> tuple[Event, ...]:
    """The event of an agent that was started again on its machine, by the count of its beats."""
    if before is None or after is None or before.launch_id != after.launch_id:
        return ()
    if after.sequence // BEATS_OF_A_START <= before.sequence // BEATS_OF_A_START:
        return ()
    text = "The machine was rebooted, and has started its agent again: the training goes on from its last checkpoint."
    return (Event(EventKind.AGENT_RESTARTED, text),)


def identified(attempt: Attempt, obs: Observation) -> Attempt:
    """The attempt with its machine's id and node, once the listing or a beat shows them: a machine that has only just
    begun to start has none yet. The same object when there is no news."""
    if isinstance(obs.machine, Seen) and obs.machine.value.node and not attempt.node:
        attempt = replace(attempt, node=obs.machine.value.node)
    if attempt.machine_id:
        return attempt
    beat = beat_of(obs.beat, attempt.launch_id)
    listed_id = obs.machine.value.machine_id if isinstance(obs.machine, Seen) else ""
    machine_id = listed_id or (beat.value.machine_id if beat is not None else "")
    return replace(attempt, machine_id=machine_id) if machine_id else attempt


def _with_times(attempt: Attempt, beat: Beat, now: float) -> Attempt:
    """The attempt with the times that this beat's phase shows for the first time; the same object otherwise. A pull
    of the image between two ticks leaves no trace: it counts as boot."""
    if beat.phase == heartbeat.IMAGE:
        return attempt if attempt.pull_at is not None else replace(attempt, pull_at=now)
    if attempt.pull_at is not None and attempt.pulled_at is None:
        attempt = replace(attempt, pulled_at=now)
    if beat.phase in heartbeat.BEFORE_CLAIM:
        return attempt
    if attempt.running_at is None:
        attempt = replace(attempt, running_at=now)
    if attempt.training_at is None and beat.phase not in (heartbeat.SETUP, heartbeat.RESTORE):
        attempt = replace(attempt, training_at=now, step_from=beat.resumed_from)
    if attempt.finishing_at is None and beat.phase in (heartbeat.FINISHING, heartbeat.FINISHED):
        attempt = replace(attempt, finishing_at=now)
    return attempt


def with_agent_clock(attempt: Attempt, before: Pulse | None, after: Pulse, boot_limit_s: float) -> Attempt:
    """The attempt by its agent's own count of time; the same object while nothing has drifted.

    How long a machine worked is the agent's count. A step of our clock shows as a drift between the two, and is
    neither trained nor billed."""
    if after is before or after.up_s is None:
        return attempt
    agent_at = after.beat_at - after.up_s
    if attempt.agent_at is None:
        boot_s = agent_at - attempt.started_at
        # No boot may last longer than its limit: what seems longer contains a step of the clock.
        stepped_s = boot_s - boot_limit_s if boot_s > boot_limit_s + TOLERANCE_S else 0.0
        return replace(attempt, agent_at=agent_at - stepped_s, drift_s=stepped_s)
    up_before_s = before.up_s if before is not None and before.launch_id == after.launch_id else None
    if up_before_s is not None and after.up_s < up_before_s:  # a restarted agent counts from its own start
        return replace(attempt, agent_at=agent_at - attempt.drift_s)
    drift_s = agent_at - attempt.agent_at
    return attempt if abs(drift_s - attempt.drift_s) <= TOLERANCE_S else replace(attempt, drift_s=drift_s)
