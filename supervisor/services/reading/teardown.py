"""How the machine of a run is given back: the verbs that may be approved, and what was approved. Sends no request.

The verbs are those of the profile. Of a host whose bill is stopped by a command that does not get the verb, only the
usual one is offered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.domain.machines import RELEASE, How, Meter
from supervisor.domain.profile import By, Profile, Verb
from supervisor.domain.run import Run
from supervisor.services.parts import Parts
from supervisor.services.reading.profiles import VerbShown, verb_json
from supervisor.services.views import formats
from supervisor.services.views.formats import usd

HOW = "who stops the bill: command, webhook, ask (a person), or release (by the provider's release)"


class VerbOffered(VerbShown):
    """A verb that may be approved. `usual`: an approval that names no verb has this one."""

    usual: bool


class ApprovedEnd(TypedDict):
    actor: str
    at: formats.Time
    verb: str
    meter_stopped: bool


class TeardownShown(TypedDict):
    """How the machine of a run is given back. `host`: of a machine that is billed until somebody stops it; null: the
    release of the machine ends its bill. `confirms`: a later read can say that the bill has ended; else a person says
    so. `left_at`: the run's own processes have ended. `done_at`: the verb was carried out. `problem`: of the last try
    or read. Null: not yet, or there is none."""

    run_id: str
    status: str
    machine_id: str | None
    host: str | None
    results_manifest_sha256: str | None
    usd_per_h: float | None
    how: Annotated[str, Field(description=HOW)]
    confirms: bool
    verbs: list[VerbOffered]
    approved: ApprovedEnd | None
    left_at: formats.Time | None
    done_at: formats.Time | None
    problem: str | None


def host_meter(parts: Parts, run: Run) -> Meter | None:
    """Of the host of this run's machine; None = the release of the machine is all that there is."""
    provider = None if run.attempt is None else parts.providers.get(run.attempt.placement.provider)
    if provider is None or provider.meters is None or run.attempt is None:
        return None
    return provider.meters.by_zone.get(run.attempt.placement.zone)


def offered_verbs(parts: Parts, run: Run) -> Sequence[str]:
    """The usual one first. A host that left the settings keeps the usual verb that it had."""
    meter = host_meter(parts, run)
    if meter is not None:
        return meter.verbs
    if run.billed is not None and run.billed.bill is not None:
        return (run.billed.bill.verb,)
    usual = _profile(parts, run).meter_stop.value
    return tuple(dict.fromkeys((usual or RELEASE, RELEASE)))


def _profile(parts: Parts, run: Run) -> Profile:
    place = None if run.attempt is None else run.attempt.placement
    provider = None if place is None else parts.providers.get(place.provider)
    return Profile("", "") if provider is None or place is None else provider.profile(place.zone)


def teardown_json(parts: Parts, run: Run) -> TeardownShown:
    meter, profile, attempt = host_meter(parts, run), _profile(parts, run), run.attempt
    verbs = {verb.verb: verb for verb in profile.verbs}
    offered, approval, item = offered_verbs(parts, run), run.approved_end, run.billed
    bill = None if item is None else item.bill
    how = bill.how if bill is not None else meter.how if meter is not None else How.RELEASE
    return {
        "run_id": run.run_id,
        "status": run.status,
        "machine_id": None if attempt is None else attempt.machine_id,
        "host": None if how is How.RELEASE or attempt is None else attempt.placement.zone,
        "results_manifest_sha256": None if run.files.outcome is None else run.files.outcome.results_sha256,
        "usd_per_h": None if attempt is None else usd(attempt.price_usd_per_h),
        "how": how,
        "confirms": bill.confirms if bill is not None else meter is not None and meter.confirms,
        "verbs": [
            {**verb_json(profile, verbs.get(name) or Verb(name, by=By.SUPERVISOR)), "usual": name == offered[0]}
            for name in offered
        ],
        "approved": None
        if approval is None
        else {
            "actor": approval.actor,
            "at": formats.time_text(approval.at),
            "verb": approval.verb or RELEASE,
            "meter_stopped": approval.meter_stopped,
        },
        "left_at": formats.maybe_time(None if bill is None else bill.left_at),
        "done_at": formats.maybe_time(None if bill is None else bill.done_at),
        "problem": (bill.problem or None) if bill is not None else None,
    }
