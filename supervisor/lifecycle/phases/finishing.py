"""From the end of the command to the release of its machine, which goes only when its results are verified.

`done` in the baton names the result files. They are compared with the store, and only then is the run completed, or
partial where something promised is missing. If they cannot be verified, the machine is kept, and a person decides.

A machine whose results are verified may still be kept (phases/teardown).
"""

from __future__ import annotations

import fnmatch
from dataclasses import replace
from math import inf

from supervisor.contract.baton import Done
from supervisor.contract.heartbeat import FINISHED
from supervisor.domain.actions import VerifyResults
from supervisor.domain.attempt import training_s
from supervisor.domain.causes import Cause
from supervisor.domain.events import EventKind
from supervisor.domain.machines import MachineState
from supervisor.domain.observation import BATON, STOP, Absent, Observation, Seen, Unknown, Verification, World
from supervisor.domain.run import Outcome, Run, needing, unneeded
from supervisor.lifecycle.decision import Decision, after_events, failed, new_event, unchanged, unread
from supervisor.lifecycle.ending import machines
from supervisor.lifecycle.ending.ending import End, close_attempt, end_attempt, ended_event, keep_machine
from supervisor.lifecycle.living.beats import beat_of, with_beat
from supervisor.lifecycle.living.limits import watched_since
from supervisor.lifecycle.living.overriding import (
    GONE,
    after_baton_fix,
    ask_for_baton_fix,
    done_of,
    is_torn,
    with_marker,
)
from supervisor.lifecycle.phases.stopping import begin_stopping
from supervisor.lifecycle.phases.teardown import hold_or_complete, is_precious
from supervisor.wording.figures import money_text, plural, size_text

NOT_VERIFIED = "results are not verified: "  # rows hold it: a later version recognizes it there
SHORT_SHARE = 0.5  # a finish in under half of expect_runtime_s is partial


def finish(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """Wait for `done`, then verify the results that it names."""
    run = with_beat(run, obs, world, now)
    wants = unread(obs, BATON, STOP)
    if wants:
        return unchanged(run, wants=wants)
    run = after_baton_fix(run, obs)
    done = done_of(run, obs)
    if done is not None:
        return _verify(run, done, obs, world, now)
    run = with_marker(run, obs, now)
    if run.stop is not None:
        return _stop_unverified(run, run.person.why or "they were still being saved", now)
    accepted = _loss_accepted(run, now)
    if accepted is not None:
        return accepted
    # `done` may be in a baton that cannot be read, unless a person has given it up.
    if isinstance(obs.baton, Unknown) and not machines.is_written_off(obs):
        return ask_for_baton_fix(run, now) if is_torn(obs.baton) else unchanged(run)
    if run.live_attempt is None:
        return _ask(run, "the work was reported done, but its record is gone", world, now)
    # A machine that is ending may still save: only one that has ended cannot write `done` any more.
    ending = isinstance(obs.machine, Seen) and obs.machine.value.state == MachineState.ENDING
    lost = None if ending else machines.lost(run, obs, world, now)
    if isinstance(lost, End):
        return end_attempt(unneeded(run), lost, world, now)
    return lost or _unfinished(run, obs, world, now)


def _unfinished(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """No `done` yet: uploads go on, or failed, or take longer than their limit of watched time."""
    limit_s = run.policy.stall.finishing_s
    since = watched_since(world, run.status_since, now)
    beat = beat_of(obs.beat, run.live_attempt.launch_id) if run.live_attempt is not None else None
    if run.person.why:
        return _ask(run, run.person.why, world, now)
    if isinstance(obs.baton, Absent):
        return _ask(run, GONE, world, now)
    if beat is not None and (beat.value.left is not None or beat.value.phase == FINISHED):
        return _ask(run, f"{NOT_VERIFIED}{beat.value.message or 'the upload failed'}", world, now)
    if now - since >= limit_s:
        why = f"results are not verified after {now - since:.0f} s (limit {limit_s:.0f} s)"
        why += f"; last message: {run.pulse.message}" if run.pulse is not None and run.pulse.message else ""
        return _ask(run, why, world, now)
    return unchanged(run, check_after=since + limit_s)


def _ask(run: Run, why: str, world: World, now: float) -> Decision:
    """One message for each reason, and one time limit for all of them. A machine that cannot be had back is not given
    up by a clock."""
    limit_s = inf if is_precious(run, world) else world.knobs.unverified_limit_s
    asked_at = run.person.since if run.person.since is not None else now
    limit_at = None if limit_s == inf else asked_at + limit_s
    if now - asked_at >= limit_s:
        return _give_up(run, f"no decision within {limit_s / 3600:.0f} h", now)
    if run.person.why == why:
        return unchanged(run, check_after=limit_at)
    price = run.live_attempt.price_usd_per_h if run.live_attempt is not None else None
    bills = f" and bills {money_text(price)}/h" if price else ""
    give_up = f"`spot approve {run.run_id} --accept-loss REASON` gives the results up"
    text = f"Needs a person: {why}. The machine is kept{bills}; {give_up}."
    event = new_event(EventKind.NEEDS_PERSON, text, usd_per_h=price)
    return Decision(needing(run, why, asked_at), (event,), check_after=limit_at)


def _stop_unverified(run: Run, lost: str, now: float) -> Decision:
    """A stop wins over work that is not verified. The end of the run says what is lost."""
    return begin_stopping(replace(run, cause=Cause.RESULTS_UNVERIFIED, detail=f"results not verified: {lost}"), now)


def _loss_accepted(run: Run, now: float) -> Decision | None:
    if run.approval is None or not run.approval.accept_loss:
        return None
    return _give_up(run, f"loss accepted by {run.approval.actor}: {run.approval.accept_loss}", now)


def _give_up(run: Run, why: str, now: float) -> Decision:
    if run.live_attempt is not None:
        run = close_attempt(run, End(Cause.RESULTS_UNVERIFIED, why, (why,)), now)
    detail = f"{run.person.why.removeprefix(NOT_VERIFIED)}; {why}"
    text = f"Failed: the results could not be verified ({why})."
    return failed(run, Cause.RESULTS_UNVERIFIED, detail, now, text)


# --- verification -----------------------------------------------------------------------------------------------------


def _verify(run: Run, done: Done, obs: Observation, world: World, now: float) -> Decision:
    seen = obs.verification
    if not isinstance(seen, Seen) or seen.value.launch_id != done.launch_id:
        return Decision(run, actions=(VerifyResults(done),))
    check = seen.value
    if not check.problems:
        return _verified(run, done, check, world, now)
    count, files = len(check.problems), len(check.files)
    problem = f"{plural(count, 'file')} not as written: {check.problems[0]}" if count > 1 else check.problems[0]
    stopped = with_marker(run, obs, now)
    if stopped.stop is not None:
        return _stop_unverified(stopped, f"{problem}; {files - count} of {plural(files, 'file')} intact", now)
    return _loss_accepted(run, now) or _ask(run, f"results differ from their manifest: {problem}", world, now)


def _verified(run: Run, done: Done, check: Verification, world: World, now: float) -> Decision:
    trained_s = run.training_s + training_s(run.live_attempt, now)
    outcome = Outcome(
        results_sha256=check.results_sha256,
        files=len(check.files),
        size_bytes=sum(entry.size for entry in check.files),
        verified_at=now,
        step=done.step,
        missing=_missing(run, done, trained_s),
    )
    count = plural(outcome.files, "file")
    events = [new_event(EventKind.RESULTS_VERIFIED, f"Results verified: {count}, {size_text(outcome.size_bytes)}.")]
    if run.live_attempt is not None:
        end = _end_of_work(run.live_attempt.launch_id, done, count)
        run = close_attempt(run, end, now)
        if end.cause == Cause.SUPERSEDED:
            events.insert(0, ended_event(run, end, now, last=True))
        run = keep_machine(run, run.policy.on_success, now)
    files, missing = replace(run.files, outcome=outcome), "; ".join(outcome.missing)
    run = replace(unneeded(run), files=files, detail=missing, cause=Cause.FINISHED)
    return after_events(tuple(events), hold_or_complete(run, world, now))


def _end_of_work(launch_id: str, done: Done, files: str) -> End:
    """The attempt that wrote `done` finished; one that was started after it has nothing left to do."""
    readings = (f"baton: done by launch {done.launch_id}", f"store: {files} as written")
    if launch_id == done.launch_id:
        return End(Cause.FINISHED, f"results verified, {files}", readings)
    return End(Cause.SUPERSEDED, f"launch {done.launch_id} had finished the work", readings)


def _missing(run: Run, done: Done, trained_s: float) -> tuple[str, ...]:
    """What was promised and is not there, each as a phrase with its figures."""
    missing = []
    for rule in run.policy.results:
        count = sum(fnmatch.fnmatch(entry.name, rule.path) for entry in done.results)
        if count < rule.min_count:
            missing.append(f"results {rule.path}: {count} of {plural(rule.min_count, 'file')}")
    missing += done.lost
    if done.step is not None and done.total is not None and done.step < done.total - done.from_zero:
        missing.append(f"last step {done.step:,} of {done.total:,}")
    if done.error:
        missing.append(f"the command failed after its last step ({done.error})")
    expected_s = run.policy.expect_runtime_s
    if expected_s is not None and trained_s < SHORT_SHARE * expected_s:
        missing.append(f"trained for {trained_s:.0f} s where {expected_s:.0f} s were expected")
    return tuple(missing)
