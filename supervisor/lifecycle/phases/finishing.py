"""The command's end is not the end of the run: before anything is torn down, the results must be verified in durable
storage.

`done` in the baton names the files; they are compared with the store; only then is the run completed (or partial,
where something promised is missing). What cannot be verified is kept with its machine, and a person is asked.

The last gate: the results are verified, and the machine goes only when nobody needs it any more.

Two things may keep it: a person who wants to agree (`on_success: ask`, or a provider whose machines cannot be had
back), and results that nobody has pulled yet (`require_pull`). Where both are asked for, both must come. Neither
lasts for ever: after `ask_limit_s` the machine is released, because the results lie verified in the store.
"""

from __future__ import annotations

import fnmatch
from dataclasses import replace

from supervisor.contract.baton import Done
from supervisor.domain.actions import VerifyResults
from supervisor.domain.causes import Cause
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import MachineState
from supervisor.domain.observation import BATON, NOT_READ, STOP, Absent, Observation, Seen, Unknown, Verification, World
from supervisor.domain.run import Outcome, Run, needing, training_s, unneeded
from supervisor.domain.status import Status
from supervisor.lifecycle.decision import Decision, moved, tell, unchanged
from supervisor.lifecycle.ending import machines
from supervisor.lifecycle.ending.ending import End, close_attempt, end_attempt, ended_event, keep_machine
from supervisor.lifecycle.living.liveness import beat_of, heard, watched_since
from supervisor.lifecycle.living.overriding import GONE, ask_to_mend, done_of, heed_marker, is_torn, mended
from supervisor.lifecycle.phases.stopping import begin_stopping
from supervisor.wording.figures import money_text, plural, size_text


def hold_or_complete(run: Run, verified: Event, world: World, now: float) -> Decision:
    """`run` has its outcome and no live attempt: completed (or partial) at once, where nothing keeps its machine."""
    if not run.retiring or not (_must_ask(run, world) or run.awaits_pull):
        return _complete(run, (verified,), now)
    note = "awaiting a pull of the results" if run.awaits_pull else "awaiting approval"
    held = tuple(replace(item, until=now + world.knobs.ask_limit_s, note=note) for item in run.retiring)
    return Decision(moved(replace(run, retiring=held), Status.AWAITING_TEARDOWN, now), (verified,), again=True)


def await_teardown(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """Results are verified; only the release waits. A stop changes nothing here."""
    events: tuple[Event, ...] = ()
    if run.stop is not None:
        run = replace(run, stop=None)
        events = (tell(EventKind.STOP_IGNORED, "Stop changes nothing: the work is done and only the release waits."),)
    if not run.retiring:
        return _complete(run, (*events, tell(EventKind.MACHINE_RELEASED, "The machine ended by itself.")), now)
    pull_is_enough = run.policy.require_pull and not _must_ask(run, world)
    agreed = run.approval is not None or pull_is_enough
    if (agreed and not run.awaits_pull) or now >= run.status_since + world.knobs.ask_limit_s:
        return _complete(_freed(run, now), events, now)
    ended = (
        isinstance(obs.retiring[0], Seen) and obs.retiring[0].value.state == MachineState.ENDED
        if obs.retiring
        else False
    )
    if ended:
        return _complete(run, events, now)
    return Decision(run, events, check_after=run.status_since + world.knobs.ask_limit_s)


def _freed(run: Run, now: float) -> Run:
    """A machine that is kept for a person all the same (`on_success: keep`) stays for the rest of its time."""
    until = max(now, run.kept_until or now)
    note = "approved" if run.approval is not None else "not needed any more"
    return replace(run, retiring=tuple(replace(item, until=until, note=note) for item in run.retiring))


def _complete(run: Run, events: tuple[Event, ...], now: float) -> Decision:
    partial = run.files.outcome is not None and bool(run.files.outcome.missing)
    status, kind = (Status.PARTIAL, EventKind.PARTIAL) if partial else (Status.COMPLETED, EventKind.COMPLETED)
    text = f"Partial: {run.detail}." if partial else "Completed; results verified."
    return Decision(moved(run, status, now), (*events, tell(kind, text)), again=True)


def _must_ask(run: Run, world: World) -> bool:
    return run.policy.on_success == "ask" or run.provider in world.irreplaceable


NOT_VERIFIED = "results are not verified: "
SHORT_SHARE = 0.5  # a finish in under half of expect_runtime_s is worth a question


def finish(run: Run, obs: Observation, world: World, now: float) -> Decision:
    run = heard(run, obs, world, now)
    unread = frozenset(name for name, part in ((BATON, obs.baton), (STOP, obs.stop)) if part is NOT_READ)
    if unread:
        return unchanged(run, wants=unread)
    run = mended(run, obs)
    done = done_of(run, obs)
    if done is not None:
        return _verify(run, done, obs, world, now)
    run = heed_marker(run, obs, now)
    if run.stop is not None:
        return _give_way(run, "", now)
    accepted = _loss_accepted(run, now)
    if accepted is None and is_torn(obs.baton):
        return ask_to_mend(run, now)
    if accepted is not None or isinstance(obs.baton, Unknown):
        return accepted or unchanged(run)  # `done` may stand in a baton that cannot be read
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
    left = beat is not None and (beat.value.left is not None or beat.value.phase == "finished")
    if run.person.why:
        return _ask(run, run.person.why, world, now)
    if isinstance(obs.baton, Absent):
        return _ask(run, GONE, world, now)
    if left:
        said = beat.value.message if beat is not None and beat.value.message else "the upload failed"
        return _ask(run, f"{NOT_VERIFIED}{said}", world, now)
    if now - since >= limit_s:
        why = f"results are not verified after {now - since:.0f} s (limit {limit_s:.0f} s)"
        why += f"; last word: {run.pulse.message}" if run.pulse is not None and run.pulse.message else ""
        return _ask(run, why, world, now)
    return unchanged(run, check_after=since + limit_s)


def _ask(run: Run, why: str, world: World, now: float) -> Decision:
    """A person is asked once for each reason, and has one time for all of them to answer."""
    limit_s = world.knobs.unverified_limit_s
    asked_at = run.person.since if run.person.since is not None else now
    if now - asked_at >= limit_s:
        return _give_up(run, f"nobody answered within {limit_s / 3600:.0f} h", now)
    if run.person.why == why:
        return unchanged(run, check_after=asked_at + limit_s)
    price = run.live_attempt.price_usd_per_h if run.live_attempt is not None else None
    bills = f" and bills {money_text(price)}/h" if price else ""
    give_up = f"`spot approve {run.run_id} --accept-loss REASON` gives the results up"
    text = f"Needs a person: {why}. The machine is kept{bills}; {give_up}."
    return Decision(
        needing(run, why, asked_at),
        (tell(EventKind.NEEDS_PERSON, text, usd_per_h=price),),
        check_after=asked_at + limit_s,
    )


def _give_way(run: Run, why: str, now: float) -> Decision:
    """Stop wins over work that is not verified; what that costs is said at the end."""
    lost = why or run.person.why or "they were still being saved"
    return begin_stopping(replace(run, cause=Cause.RESULTS_UNVERIFIED, detail=f"results not verified: {lost}"), now)


def _loss_accepted(run: Run, now: float) -> Decision | None:
    if run.approval is None or not run.approval.accept_loss:
        return None
    return _give_up(run, f"loss accepted by {run.approval.actor}: {run.approval.accept_loss}", now)


def _give_up(run: Run, why: str, now: float) -> Decision:
    if run.live_attempt is not None:
        run = close_attempt(run, End(Cause.RESULTS_UNVERIFIED, why, (why,)), now)
    detail = f"{run.person.why.removeprefix(NOT_VERIFIED)}; {why}"
    run = replace(unneeded(run), cause=Cause.RESULTS_UNVERIFIED, detail=detail)
    text = f"Failed: the results could not be verified ({why})."
    return Decision(moved(run, Status.FAILED, now), (tell(EventKind.FAILED, text, cause=run.cause),), again=True)


def _verify(run: Run, done: Done, obs: Observation, world: World, now: float) -> Decision:
    seen = obs.verification
    if not isinstance(seen, Seen) or seen.value.launch_id != done.launch_id:
        return Decision(run, actions=(VerifyResults(done),))
    check = seen.value
    if check.problems:
        count = len(check.problems)
        shown = f"{plural(count, 'file')} not as written: {check.problems[0]}" if count > 1 else check.problems[0]
        stopped = heed_marker(run, obs, now)
        if stopped.stop is not None:
            whole = len(check.files) - len(check.problems)
            return _give_way(unneeded(stopped), f"{shown}; {whole} of {plural(len(check.files), 'file')} intact", now)
        return _loss_accepted(run, now) or _ask(run, f"results differ from their manifest: {shown}", world, now)
    return _verified(run, done, check, world, now)


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
    superseded: tuple[Event, ...] = ()
    if run.live_attempt is not None:
        end = _end_of_work(run, done, outcome)
        run = close_attempt(run, end, now)
        superseded = (ended_event(run, end, now, last=True),) if end.cause == Cause.SUPERSEDED else ()
        run = keep_machine(run, run.policy.on_success, now)
    files, missing = replace(run.files, outcome=outcome), "; ".join(outcome.missing)
    run = replace(unneeded(run), files=files, detail=missing, cause=Cause.FINISHED)
    verified = tell(
        EventKind.RESULTS_VERIFIED,
        f"Results verified: {plural(outcome.files, 'file')}, {size_text(outcome.size_bytes)}.",
    )
    decision = hold_or_complete(run, verified, world, now)
    return replace(decision, events=(*superseded, *decision.events))


def _end_of_work(run: Run, done: Done, outcome: Outcome) -> End:
    """The attempt that wrote `done` finished; one that was started after it has nothing left to do."""
    assert run.live_attempt is not None
    files = plural(outcome.files, "file")
    readings = (f"baton: done by launch {done.launch_id}", f"store: {files} as written")
    if run.live_attempt.launch_id == done.launch_id:
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
