"""Actions on a live run: stop it, retry its launch now, drill its training, approve its teardown, record that its
results were pulled.

An action is written to the row at once; the loop does the rest, including the .stop marker (RULES section 5).

Retry: a waiting run requests its machine in the next tick, whatever backoff is left. The cool-downs of its zones end,
and places whose GPUs failed are allowed again, because a person may have raised a quota or fixed a driver. If the
cloud refuses again, the backoff starts again. A run that waits for the answer of a person goes on.

Write-off: a person says that a machine which cannot be read is lost. The run goes on with what is here.

Approve: the request names the machine, the results that the person has seen, and the verb that ends its bill. A view of
long ago must not approve what is there today. That the bill has ended is confirmed by an approval too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from supervisor.domain.attempt import Attempt, Try
from supervisor.domain.callers import Caller
from supervisor.domain.errors import (
    ApprovalMismatch,
    NothingKept,
    NothingToApprove,
    NothingToDrill,
    NothingToRetry,
    PullMismatch,
    PullRequired,
    VerbNotOffered,
)
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import RELEASE, How, offer_key
from supervisor.domain.observation import World
from supervisor.domain.run import Approval, Run, StopRequest, Waiting, WriteOff
from supervisor.domain.status import PLACING, Status
from supervisor.lifecycle.decision import moved
from supervisor.lifecycle.ending.keeping import give_up
from supervisor.lifecycle.living.drilling import ordered
from supervisor.lifecycle.offers.choosing import is_cooling
from supervisor.lifecycle.offers.ladder import ladder
from supervisor.ports.provider import ProviderUnavailable, Responded
from supervisor.services.parts import Parts
from supervisor.services.runs.changing import Action, change, find_run
from supervisor.wording.figures import plural


def stop(caller: Caller) -> Action:
    """Changes nothing if the run is terminal, is being stopped, or has verified results and awaits its teardown."""

    def update(run: Run, now: float) -> tuple[Run, Event] | None:
        if run.terminal or run.stop is not None:
            return None
        if run.status == Status.AWAITING_TEARDOWN:
            text = f"Stop by {caller.actor} ignored: the work is finished and verified; approve the teardown instead."
            return run, caller.event(EventKind.STOP_IGNORED, text)
        text, values = f"Stop requested by {caller.actor}.", ({"stop": False}, {"stop": True})
        event = caller.changed(EventKind.STOP_REQUESTED, text, *values, {"status": run.status})
        return replace(run, stop=StopRequest(caller.actor, now)), event

    return Action(update, "the stop was not recorded")


def retry(parts: Parts, caller: Caller) -> Action:
    """Changes nothing if the machine is being requested already. Raises NothingToRetry."""

    def update(run: Run, now: float) -> tuple[Run, Event] | None:
        if run.status == Status.LAUNCHING:
            return None
        if run.status not in PLACING or run.stop is not None:
            raise _nothing_to_retry(run)
        _end_cooldowns(parts, run, now)
        if run.asks:
            text = f"{caller.actor} lets the run go on after its attempt ended as {run.cause}."
            goes_on = replace(run, waiting=Waiting())  # the wait for the answer was none for capacity
            return moved(goes_on, Status.RECOVERING, now), caller.event(EventKind.RETRY_REQUESTED, text)
        event = caller.event(EventKind.RETRY_REQUESTED, f"{caller.actor} requested a retry now.")
        # Only a waiting run forgets which GPUs failed: a recovering run has another place to go to.
        kept = tuple(item for item in run.refusals if item.of_memory or run.status != Status.WAITING)
        return replace(run, next_at=None, refusals=kept), event

    return Action(update, "no retry was scheduled")


def delete_kept(caller: Caller) -> Action:
    """The kept machine of the run is deleted; a live run goes on from its checkpoint on a new one. Changes nothing
    where it is being deleted already. Raises NothingKept."""

    def update(run: Run, now: float) -> tuple[Run, Event] | None:
        if run.kept is None:
            where = "its machine is in use" if run.has_machine else "it has no machine"
            raise NothingKept(f"{run.run_id} keeps no machine that is off: {where}. Nothing was deleted.", {})
        item, kept = run.kept
        if kept.given_up:
            return None
        after, _ = give_up(run, f"on request of {caller.actor}", now)
        values = {"machine": item.ref.name}, {"machine": None}
        text = f"{caller.actor} requested to delete the kept machine {item.ref.name}."
        return replace(after, next_at=None), caller.changed(EventKind.MACHINE_KEPT, text, *values)

    return Action(update, "nothing was deleted")


def drill(caller: Caller) -> Action:
    """Changes nothing while a drill of this attempt goes on. Raises NothingToDrill."""

    def update(run: Run, now: float) -> tuple[Run, Event] | None:
        attempt = run.live_attempt
        if run.status != Status.RUNNING or run.stop is not None or attempt is None or attempt.training_at is None:
            why = "it is being stopped" if run.stop is not None and not run.terminal else "no training of it runs now"
            text = f"{run.run_id} is {run.status}: {why}. Nothing was drilled."
            raise NothingToDrill(text, {"run_id": run.run_id, "status": run.status})
        if run.drills.launch_id == attempt.launch_id:
            return None
        after = ordered(run, caller.actor, now)
        data = {"number": after.drills.number}
        return after, caller.event(EventKind.DRILL_ORDERED, f"{caller.actor} ordered a drill.", data)

    return Action(update, "no drill was ordered")


def _end_cooldowns(parts: Parts, run: Run, now: float) -> None:
    """For the offers that this run may use. Written before the row: a cool-down that ends too early costs one
    request."""
    offers = {name: provider.offers() for name, provider in parts.providers.items()}
    world = World(parts.knobs, offers, parts.store.zones(run.cell))
    for offer in ladder(run, world, now):
        key = offer_key(offer.placement)
        record = world.zones.get(key)
        if record is not None and is_cooling(record, world, now):
            parts.store.put_zone(run.cell, key, replace(record, cool_until=now))


def _nothing_to_retry(run: Run) -> NothingToRetry:
    why = "it does not wait for a next try"
    if run.terminal:
        why = f"it has ended; `spot resume {run.run_id}` starts it again"
    elif run.stop is not None:
        why = "it is being stopped"
    elif run.person.why:
        why = f"its machine retries by itself; `spot approve {run.run_id} --accept-loss REASON` gives up the results"
    return NothingToRetry(f"{run.run_id} is {run.status}: {why}.", {"run_id": run.run_id, "status": run.status})


@dataclass(frozen=True, slots=True)
class ApproveRequest:
    """`results_sha256` "" and `accept_loss` "" = not given. `verb` "" = what usually stops the bill, or what this
    machine is approved for already. `meter_stopped`: the person has seen that it is billed no more."""

    machine_id: str
    results_sha256: str = ""
    accept_loss: str = ""
    verb: str = ""
    meter_stopped: bool = False


@dataclass(frozen=True, slots=True)
class WriteOffRequest:
    """`machine_id` "": the run has none."""

    machine_id: str
    reason: str


def write_off(parts: Parts, run_id: str, request: WriteOffRequest, caller: Caller) -> Run:
    """The machine of the run counts as lost, and so do the files that are on its host only: once its attempt has ended
    for that, the loop forgets the home (ForgetHome). Safe to repeat. Raises NotFound, NothingToApprove (its host
    responds, or it never had a machine), ApprovalMismatch."""
    run = find_run(parts, run_id)
    _check_unreadable(parts, _check_write_off(run, request))

    def update(run: Run, now: float) -> tuple[Run, Event] | None:
        owner, before = _check_write_off(run, request), run.written_off
        if before is not None and (before.launch_id, before.reason) == (owner.launch_id, request.reason):
            return None
        text = f"{caller.actor} wrote off the machine on {owner.placement.zone}: {request.reason}"
        values = {"written_off": before and before.launch_id}, {"written_off": owner.launch_id}
        data = {"machine_id": request.machine_id, "zone": owner.placement.zone, "reason": request.reason}
        after = replace(run, written_off=WriteOff(caller.actor, now, owner.launch_id, request.reason), next_at=None)
        return after, caller.changed(EventKind.WRITTEN_OFF, text, *values, data)

    return change(parts, run_id, Action(update, "nothing was written off"))


def _check_write_off(run: Run, request: WriteOffRequest) -> Attempt | Try:
    """The launch whose machine is meant."""
    owner = run.live_attempt or run.open_try or run.attempt
    facts: dict[str, object] = {"run_id": run.run_id, "status": run.status}
    if owner is None:
        raise NothingToApprove(f"{run.run_id} never had a machine: nothing to write off.", facts)
    machine_id = run.attempt.machine_id if run.attempt is not None else ""
    if request.machine_id != machine_id and (request.machine_id or run.live_attempt is not None):
        raise ApprovalMismatch(
            f"{run.run_id} has another machine than the request names: {machine_id or 'none'}. Look at the run again.",
            {**facts, "machine_id": machine_id},
        )
    return owner


def _check_unreadable(parts: Parts, owner: Attempt | Try) -> None:
    provider = parts.providers.get(owner.placement.provider)
    try:
        if provider is not None:
            provider.find(owner.ref)
    except Responded:
        pass
    except ProviderUnavailable:
        return
    if provider is not None:
        text = f"{owner.placement.zone} responds, so its machine is not lost: use `spot stop`, or wait."
        raise NothingToApprove(text, {"zone": owner.placement.zone})


Verbs = Callable[[Run], Sequence[str]]  # by which this machine may be given back, the usual one first


def approve(request: ApproveRequest, caller: Caller, verbs: Verbs = lambda run: (RELEASE,)) -> Action:
    """Raises NothingToApprove, PullRequired, ApprovalMismatch, VerbNotOffered."""

    def update(run: Run, now: float) -> tuple[Run, Event] | None:
        earlier = run.approval
        named = replace(request, verb=_verb(run, request, verbs))
        if earlier is not None and _request_of(earlier) == named:
            return None
        _check_approval(run, named)
        approval = Approval(
            caller.actor,
            now,
            named.machine_id,
            named.results_sha256,
            named.accept_loss,
            named.verb,
            named.meter_stopped,
        )
        return replace(run, approval=approval), _approval_event(run, approval, caller)

    return Action(update, "nothing was approved")


def _verb(run: Run, request: ApproveRequest, verbs: Verbs) -> str:
    """ "" where the release of the machine is all that there is. Raises VerbNotOffered."""
    offered = verbs(run)
    if request.verb and request.verb not in offered:
        raise VerbNotOffered(
            f"The machine of {run.run_id} is not given back by {request.verb!r}: expected {' or '.join(offered)}.",
            {"run_id": run.run_id, "verbs": list(offered)},
        )
    if run.billed is None:
        return ""
    earlier = run.approved_end if request.meter_stopped else None
    return request.verb or (earlier.verb if earlier is not None else offered[0])


def _request_of(approval: Approval) -> ApproveRequest:
    return ApproveRequest(
        approval.machine_id, approval.results_sha256, approval.accept_loss, approval.verb, approval.meter_stopped
    )


def _check_approval(run: Run, request: ApproveRequest) -> None:
    facts: dict[str, object] = {"run_id": run.run_id, "status": run.status}
    unverified = run.status == Status.FINISHING and bool(run.person.why)
    if run.status != Status.AWAITING_TEARDOWN and not unverified:
        raise NothingToApprove(f"{run.run_id} is {run.status}; nothing awaits an approval.", facts)
    if unverified and not request.accept_loss:
        raise NothingToApprove(
            f"The results of {run.run_id} are not verified: {run.person.why} "
            "You can only give them up: send accept_loss with a reason.",
            facts,
        )
    if request.meter_stopped and (run.billed is None or run.billed.bill is None or run.billed.bill.how is How.RELEASE):
        text = f"The machine of {run.run_id} has no bill that a person confirms; approve its release."
        raise NothingToApprove(text, facts)
    if run.awaits_pull:
        text = f"The results of {run.run_id} must be pulled before its machine is released: spot pull {run.run_id}"
        raise PullRequired(text, {"run_id": run.run_id})
    machine_id = run.attempt.machine_id if run.attempt is not None else ""
    if request.machine_id != machine_id:
        raise ApprovalMismatch(
            f"{run.run_id} has another machine than the request names: {machine_id or 'none'}. Look at the run again.",
            {"run_id": run.run_id, "machine_id": machine_id},
        )
    results_sha256 = run.files.outcome.results_sha256 if run.files.outcome is not None else ""
    if request.results_sha256 != results_sha256 and not request.accept_loss:
        raise ApprovalMismatch(
            f"{run.run_id} has other results than the request names. Look at the run again.",
            {"run_id": run.run_id, "results_manifest_sha256": results_sha256},
        )


def _approval_event(run: Run, approval: Approval, caller: Caller) -> Event:
    earlier, host = run.approval, run.billed.ref.zone if run.billed is not None else ""
    values = {"approved": None if earlier is None else earlier.machine_id}, {"approved": approval.machine_id}
    data: dict[str, object] = {"machine_id": approval.machine_id, "results_sha256": approval.results_sha256}
    if approval.accept_loss:
        text = f"{approval.actor} gave up the results: {approval.accept_loss}"
        return caller.changed(EventKind.LOSS_ACCEPTED, text, *values, {**data, "reason": approval.accept_loss})
    text = f"{approval.actor} approved the release of {approval.machine_id}."
    if approval.verb:
        data |= {"verb": approval.verb, "meter_stopped": approval.meter_stopped}
        text = f"{approval.actor} approved `{approval.verb}` of {host}."
    if approval.meter_stopped:
        text = f"{approval.actor} confirmed that {host} is billed no more (`{approval.verb}`)."
    return caller.changed(EventKind.APPROVED, text, *values, data)


def note_pull(results_sha256: str, files: int, caller: Caller) -> Action:
    """Record that the results were pulled; a second time changes nothing. Raises PullMismatch."""

    def update(run: Run, now: float) -> tuple[Run, Event] | None:
        _check_pull(run, results_sha256, files)
        if run.files.pulled_sha256 == results_sha256:
            return None
        text = f"{caller.actor} pulled the results: {plural(files, 'file')}, sizes and checksums compared."
        data = {"results_sha256": results_sha256, "files": files}
        values = {"pulled": run.files.pulled_sha256 or None}, {"pulled": results_sha256}
        after = replace(run, files=replace(run.files, pulled_sha256=results_sha256))
        return after, caller.changed(EventKind.RESULTS_PULLED, text, *values, data)

    return Action(update, "the pull was not recorded")


def _check_pull(run: Run, results_sha256: str, files: int) -> None:
    outcome = run.files.outcome
    if outcome is None:
        raise PullMismatch(
            f"{run.run_id} is {run.status} and has no verified results yet. The pull was not recorded.",
            {"run_id": run.run_id, "status": run.status},
        )
    if (results_sha256, files) != (outcome.results_sha256, outcome.files):
        raise PullMismatch(
            f"{run.run_id} has other results than the pulled ones: {plural(outcome.files, 'file')}. Pull again.",
            {"run_id": run.run_id, "files": outcome.files, "results_manifest_sha256": outcome.results_sha256},
        )
