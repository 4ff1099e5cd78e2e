"""Approve: a person who has seen the results lets the machine go, or gives up results that cannot be verified.

The person names what was seen: the machine and the hash of the results manifest. If either is not what is there now,
nothing is approved. `accept_loss` with a reason is the only way round the verification, and is an event of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from supervisor.domain.access.callers import Caller
from supervisor.domain.errors import ApprovalMismatch, NothingToApprove, PullRequired
from supervisor.domain.events import Event, EventKind
from supervisor.domain.run import Approval, Run
from supervisor.domain.status import Status
from supervisor.services.parts import Parts
from supervisor.services.runs.changing import Judge, change
from supervisor.services.runs.keys import Once, Reply, change_once
from supervisor.services.views.run_view import Json, dumps


@dataclass(frozen=True, slots=True)
class ApproveRequest:
    """`results_sha256` "" and `accept_loss` "" = not given."""

    machine_id: str
    results_sha256: str = ""
    accept_loss: str = ""


UNDONE = "nothing was approved"
View = Callable[[Run, Mapping[str, str]], Json]


def approve(parts: Parts, run_id: str, request: ApproveRequest, caller: Caller) -> Run:
    """The run with the approval on record. Raises NotFound, NothingToApprove, PullRequired, ApprovalMismatch,
    Unavailable."""
    return change(parts, run_id, _judge(request, caller), UNDONE)


def approve_once(
    parts: Parts, run_id: str, request: ApproveRequest, *, caller: Caller, asked: Once, view: View
) -> Reply:
    """The same for a request with a key. Raises KeyReused, KeyInFlight too."""

    def shape(run: Run, labels: Mapping[str, str]) -> Reply:
        return Reply(202, dumps(view(run, labels)), "")

    return change_once(parts, run_id, _judge(request, caller), undone=UNDONE, asked=asked, shape=shape)


def _judge(request: ApproveRequest, caller: Caller) -> Judge:
    def judge(run: Run, now: float) -> tuple[Run, Event] | None:
        if _same(run.approval, request):
            return None
        _check(run, request)
        approval = Approval(
            caller.actor, now, request.machine_id, request.results_sha256, request.accept_loss
        )
        return replace(run, approval=approval), _event(run, approval, caller)

    return judge


def _same(approval: Approval | None, request: ApproveRequest) -> bool:
    return approval is not None and request == ApproveRequest(
        approval.machine_id, approval.results_sha256, approval.accept_loss
    )


def _check(run: Run, request: ApproveRequest) -> None:
    unverified = run.status == Status.FINISHING and bool(run.needs_person)
    if run.status != Status.AWAITING_TEARDOWN and not unverified:
        raise NothingToApprove(
            f"{run.run_id} is {run.status}; nothing awaits an approval.",
            {"run_id": run.run_id, "status": run.status},
        )
    if unverified and not request.accept_loss:
        raise NothingToApprove(
            f"The results of {run.run_id} are not verified: {run.needs_person} "
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
    seen = run.outcome.results_sha256 if run.outcome is not None else ""
    if request.results_sha256 != seen and not request.accept_loss:
        raise ApprovalMismatch(
            f"The results of {run.run_id} are not the ones that were approved. Look at them again.",
            {"run_id": run.run_id, "results_manifest_sha256": seen},
        )


def _event(run: Run, approval: Approval, caller: Caller) -> Event:
    earlier = None if run.approval is None else run.approval.machine_id
    values = {"approved": earlier}, {"approved": approval.machine_id}
    data = {"machine_id": approval.machine_id, "results_sha256": approval.results_sha256}
    if approval.accept_loss:
        text = f"{approval.actor} gave up the results: {approval.accept_loss}"
        return caller.changed(
            EventKind.LOSS_ACCEPTED, text, *values, {**data, "reason": approval.accept_loss}
        )
    text = f"{approval.actor} approved the release of {approval.machine_id}."
    return caller.changed(EventKind.APPROVED, text, *values, data)
