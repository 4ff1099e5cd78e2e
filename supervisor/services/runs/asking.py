"""What people ask of a live run: stop it, try again now, approve its end, note that its results were pulled.

A wish is written to the row at once; the loop does the rest, the .stop marker included (RULES section 5).

Try now: a run that waits asks for its machine at the next look, whatever pause is left. The pauses of its zones end,
and places whose GPUs did not work may serve again: a person who has raised a quota or mended a driver need not wait for
them. A refusal that comes again begins its pause again.

An approval names exactly what the person has seen: this machine, these results. What was looked at long ago must not be
approved today.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from supervisor.domain.callers import Caller
from supervisor.domain.errors import ApprovalMismatch, NothingToApprove, NothingToRetry, PullMismatch, PullRequired
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import offer_key
from supervisor.domain.observation import World
from supervisor.domain.run import Approval, Run, StopRequest
from supervisor.domain.status import PLACING, Status
from supervisor.lifecycle.offers.choosing import is_cooling, ladder
from supervisor.services.parts import Parts
from supervisor.services.runs.changing import Judge, change
from supervisor.services.runs.keys import Once, Reply, change_once
from supervisor.services.views.run_view import Json, dumps
from supervisor.wording.figures import plural

NOT_STOPPED = "the stop was not recorded"
View = Callable[[Run, Mapping[str, str]], Json]


def stop(parts: Parts, run_id: str, caller: Caller) -> Run:
    """The run with the stop on record. A terminal run, one that is being stopped already, and one whose verified work
    awaits its teardown are given back as they are. Raises NotFound, Unavailable, StoreDown."""
    return change(parts, run_id, _judge_stop(caller), NOT_STOPPED)


def stop_once(parts: Parts, run_id: str, caller: Caller, idempotency: Once, view: View) -> Reply:
    """The same for a request with a key. 202; 200 where the run is over. Raises KeyReused, KeyInFlight too."""

    def shape(run: Run, labels: Mapping[str, str]) -> Reply:
        return Reply(200 if run.terminal else 202, dumps(view(run, labels)), "")

    return change_once(parts, run_id, _judge_stop(caller), undone=NOT_STOPPED, idempotency=idempotency, shape=shape)


def _judge_stop(caller: Caller) -> Judge:
    def judge(run: Run, now: float) -> tuple[Run, Event] | None:
        if run.terminal or run.stop is not None:
            return None
        if run.status == Status.AWAITING_TEARDOWN:
            text = f"Stop by {caller.actor} ignored: the work is finished and verified; approve the teardown instead."
            return run, caller.event(EventKind.STOP_IGNORED, text)
        stopping = replace(run, stop=StopRequest(caller.actor, now))
        text = f"Stop asked for by {caller.actor}."
        return stopping, caller.changed(
            EventKind.STOP_REQUESTED, text, {"stop": False}, {"stop": True}, {"status": run.status}
        )

    return judge


NOT_SOONER = "nothing is tried sooner"


def retry(parts: Parts, run_id: str, caller: Caller) -> Run:
    """The run, due now; one whose machine is being asked for already as it is. Raises NotFound, NothingToRetry,
    Unavailable, StoreDown."""
    return change(parts, run_id, _judge_retry(parts, caller), NOT_SOONER)


def retry_once(parts: Parts, run_id: str, caller: Caller, idempotency: Once, view: View) -> Reply:
    """The same for a request with a key. Raises KeyReused, KeyInFlight too."""

    def shape(run: Run, labels: Mapping[str, str]) -> Reply:
        return Reply(202, dumps(view(run, labels)), "")

    return change_once(
        parts, run_id, _judge_retry(parts, caller), undone=NOT_SOONER, idempotency=idempotency, shape=shape
    )


def _judge_retry(parts: Parts, caller: Caller) -> Judge:
    def judge(run: Run, now: float) -> tuple[Run, Event] | None:
        if run.status == Status.LAUNCHING:
            return None
        if run.status not in PLACING or run.stop is not None:
            raise _refused_retry(run)
        _end_pauses(parts, run, now)
        text = f"{caller.actor} asked to try again now."
        event = caller.event(EventKind.RETRY_REQUESTED, text)
        # Only a wait forgets which GPUs did not work: a run that recovers has another place to go to.
        refusals = () if run.status == Status.WAITING else run.refusals
        return replace(run, next_at=None, refusals=refusals), event

    return judge


def _end_pauses(parts: Parts, run: Run, now: float) -> None:
    """Of the offers that this run may use. Written before the row: a pause that ended too soon costs one request."""
    offers = {name: provider.offers() for name, provider in parts.providers.items()}
    world = World(parts.knobs, offers, parts.store.zones(run.cell))
    for offer in ladder(run, world, now):
        key = offer_key(offer.placement)
        record = world.zones.get(key)
        if record is not None and is_cooling(record, world, now):
            parts.store.put_zone(run.cell, key, replace(record, cool_until=now))


def _refused_retry(run: Run) -> NothingToRetry:
    what = "nothing of it waits for a next try"
    if run.terminal:
        what = f"it is over; `spot resume {run.run_id}` starts it again"
    elif run.stop is not None:
        what = "it is being stopped"
    elif run.person.why:
        what = f"its machine goes on trying by itself; `spot approve {run.run_id} --accept-loss REASON` gives up"
    return NothingToRetry(f"{run.run_id} is {run.status}: {what}.", {"run_id": run.run_id, "status": run.status})


@dataclass(frozen=True, slots=True)
class ApproveRequest:
    """`results_sha256` "" and `accept_loss` "" = not given."""

    machine_id: str
    results_sha256: str = ""
    accept_loss: str = ""


NOT_APPROVED = "nothing was approved"


def approve(parts: Parts, run_id: str, request: ApproveRequest, caller: Caller) -> Run:
    """The run with the approval on record. Raises NotFound, NothingToApprove, PullRequired, ApprovalMismatch,
    Unavailable."""
    return change(parts, run_id, _judge_approval(request, caller), NOT_APPROVED)


def approve_once(
    parts: Parts, run_id: str, request: ApproveRequest, *, caller: Caller, idempotency: Once, view: View
) -> Reply:
    """The same for a request with a key. Raises KeyReused, KeyInFlight too."""

    def shape(run: Run, labels: Mapping[str, str]) -> Reply:
        return Reply(202, dumps(view(run, labels)), "")

    return change_once(
        parts, run_id, _judge_approval(request, caller), undone=NOT_APPROVED, idempotency=idempotency, shape=shape
    )


def _judge_approval(request: ApproveRequest, caller: Caller) -> Judge:
    def judge(run: Run, now: float) -> tuple[Run, Event] | None:
        if _same(run.approval, request):
            return None
        _check_approval(run, request)
        approval = Approval(caller.actor, now, request.machine_id, request.results_sha256, request.accept_loss)
        return replace(run, approval=approval), _event_of_approval(run, approval, caller)

    return judge


def _same(approval: Approval | None, request: ApproveRequest) -> bool:
    return approval is not None and request == ApproveRequest(
        approval.machine_id, approval.results_sha256, approval.accept_loss
    )


def _check_approval(run: Run, request: ApproveRequest) -> None:
    unverified = run.status == Status.FINISHING and bool(run.person.why)
    if run.status != Status.AWAITING_TEARDOWN and not unverified:
        raise NothingToApprove(
            f"{run.run_id} is {run.status}; nothing awaits an approval.", {"run_id": run.run_id, "status": run.status}
        )
    if unverified and not request.accept_loss:
        raise NothingToApprove(
            f"The results of {run.run_id} are not verified: {run.person.why} "
            "They can only be given up, by accept_loss with a reason.",
            {"run_id": run.run_id, "status": run.status},
        )
    if run.awaits_pull:
        raise PullRequired(
            f"{run.run_id} wants its results pulled before its machine goes: spot pull {run.run_id}",
            {"run_id": run.run_id},
        )
    machine_id = run.attempt.machine_id if run.attempt is not None else ""
    if request.machine_id != machine_id:
        raise ApprovalMismatch(
            f"{run.run_id} holds another machine than the one named. Look again: it holds {machine_id or 'none'}.",
            {"run_id": run.run_id, "machine_id": machine_id},
        )
    seen = run.files.outcome.results_sha256 if run.files.outcome is not None else ""
    if request.results_sha256 != seen and not request.accept_loss:
        raise ApprovalMismatch(
            f"The results of {run.run_id} are not the ones that were approved. Look at them again.",
            {"run_id": run.run_id, "results_manifest_sha256": seen},
        )


def _event_of_approval(run: Run, approval: Approval, caller: Caller) -> Event:
    earlier = None if run.approval is None else run.approval.machine_id
    values = {"approved": earlier}, {"approved": approval.machine_id}
    data = {"machine_id": approval.machine_id, "results_sha256": approval.results_sha256}
    if approval.accept_loss:
        text = f"{approval.actor} gave up the results: {approval.accept_loss}"
        return caller.changed(EventKind.LOSS_ACCEPTED, text, *values, {**data, "reason": approval.accept_loss})
    text = f"{approval.actor} approved the release of {approval.machine_id}."
    return caller.changed(EventKind.APPROVED, text, *values, data)


def note_pull(parts: Parts, run_id: str, results_sha256: str, files: int, caller: Caller) -> Run:
    """The run with the pull on record; twice is once. Raises NotFound, PullMismatch, Unavailable."""

    def judge(run: Run, now: float) -> tuple[Run, Event] | None:
        _check(run, results_sha256, files)
        if run.files.pulled_sha256 == results_sha256:
            return None
        text = f"{caller.actor} pulled the results: {plural(files, 'file')}, sizes and checksums compared."
        data = {"results_sha256": results_sha256, "files": files}
        values = {"pulled": run.files.pulled_sha256 or None}, {"pulled": results_sha256}
        after = replace(run, files=replace(run.files, pulled_sha256=results_sha256))
        return after, caller.changed(EventKind.RESULTS_PULLED, text, *values, data)

    return change(parts, run_id, judge, "the pull was not noted")


def _check(run: Run, results_sha256: str, files: int) -> None:
    outcome = run.files.outcome
    if outcome is None:
        raise PullMismatch(
            f"{run.run_id} is {run.status}; it has no verified results yet, so nothing was noted as pulled.",
            {"run_id": run.run_id, "status": run.status},
        )
    if (results_sha256, files) != (outcome.results_sha256, outcome.files):
        raise PullMismatch(
            f"What was pulled of {run.run_id} is not what it has now: {plural(outcome.files, 'file')}. Pull again.",
            {"run_id": run.run_id, "files": outcome.files, "results_manifest_sha256": outcome.results_sha256},
        )
