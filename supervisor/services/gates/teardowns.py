"""The facts of G6: was the teardown approved and carried out, and has the bill ended?

The bill of a host that is billed until somebody stops it counts as running until a later read or a person confirms its
end, however long that takes. A run that failed or was stopped gives no such host back, and neither does one whose host
others used when it ended: nobody was asked, and nothing is open.
"""

from __future__ import annotations

from supervisor.domain.attempt import Attempt
from supervisor.domain.machines import RELEASE, Meter
from supervisor.domain.profile import Profile, Stops
from supervisor.lifecycle.gates.rules import Known, Skip
from supervisor.lifecycle.gates.teardown import NOT_YET, Approved, Teardown
from supervisor.services.gates.watched import HERE, Watched, skip_if
from supervisor.wording.profile import leaves

CONFIRM_S = 600.0  # a machine of ours that serves no run is gone within this, where the platform responds
AGAIN = Skip("such a machine can be had again")


def teardown_facts(watched: Watched) -> Teardown:
    """A release that is not confirmed yet is unread; after CONFIRM_S it counts as not done. The bill of a host counts
    as running until its end is confirmed, however long that takes."""
    run, attempt, outcome = watched.run, watched.attempt, watched.run.files.outcome
    if attempt is None:
        return Teardown()
    if watched.meter is not None:
        return _bill(watched, watched.meter, attempt)
    gone = attempt.gone_at is not None and not run.retiring
    ended_at = run.status_since if attempt.ended_at is None else attempt.ended_at
    overdue = run.terminal and watched.now - ended_at > CONFIRM_S
    return Teardown(
        verb=RELEASE,
        machine=attempt.machine_id,
        approved=_approved(watched),
        results="" if outcome is None else outcome.results_sha256,
        done=gone if gone or overdue else None,
        released_at=skip_if(watched.here, Skip(watched.traits.meter), ended_at),
        gone_at=max(attempt.gone_at or 0.0, ended_at) if gone else 0.0 if overdue else None,
        left_bytes=skip_if(watched.given, Skip("the machine's disk goes with it")),
    )


def _approved(watched: Watched) -> Known[Approved]:
    run, approval = watched.run, watched.run.approval
    if run.policy.on_success != "ask" and not watched.traits.irreplaceable:
        return HERE if watched.here else AGAIN
    if approval is not None:
        sha256, accepts = approval.results_sha256, approval.accept_loss != ""
        return Approved(approval.actor, RELEASE, approval.machine_id, sha256, accepts)
    if run.terminal and run.files.outcome is None:
        return Skip(f"the run ended as {run.status}, without results to look at")
    return NOT_YET


def _bill(watched: Watched, meter: Meter, attempt: Attempt) -> Teardown:
    run, approval, outcome, host = watched.run, watched.run.approved_end, watched.run.files.outcome, attempt.placement
    verb = meter.verb if approval is None else approval.verb
    if run.terminal and approval is None:  # it failed, was stopped, or others used its host when it ended
        why = Skip(f"the run ended as {run.status}, and nobody was asked about {host.zone}")
        skipped = dict.fromkeys(("approved", "done", "released_at", "left_bytes"), why)
        return Teardown(verb=verb, machine=host.zone, results="", **skipped)
    bill = None if run.billed is None else run.billed.bill
    ended = run.terminal and bill is None
    approved = NOT_YET
    if approval is not None:
        sha256, accepts = approval.results_sha256, approval.accept_loss != ""
        approved = Approved(approval.actor, approval.verb, approval.machine_id, sha256, accepts)
    return Teardown(
        verb=verb,
        machine=attempt.machine_id,
        approved=approved,
        results="" if outcome is None else outcome.results_sha256,
        done=ended or (bill is not None and bill.done_at is not None and bill.done_verb == verb),
        released_at=0.0 if approval is None else approval.at,
        gone_at=max(attempt.gone_at or 0.0, run.status_since) if ended else 0.0,
        left_bytes=skip_if(_leaves_nothing(watched.profile, verb), Skip(f"{verb} leaves nothing that is billed")),
    )


def _leaves_nothing(profile: Profile, name: str) -> bool:
    """By its profile."""
    verb = next((verb for verb in profile.verbs if verb.verb == name), None)
    free = verb is not None and verb.left_usd_per_gb_month.value == 0
    return free or (verb is not None and verb.stops_meter.value is Stops.YES and not leaves(profile, verb))
