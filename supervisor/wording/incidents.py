"""Sentences about an incident: what several runs have in common, and what a person does about it."""

from __future__ import annotations

from collections.abc import Mapping

from supervisor.domain.incidents import Common, Incident, Signature
from supervisor.wording.figures import age_text, clip, plural, short_digests

RUNS_SHOWN = 5
VALUE_SHOWN = 160
CODE_SHOWN = 12  # characters of a hash
# What the ends have in common, first and as one more thing.
_LEADS: Mapping[Common, str] = {
    Common.ERROR: "{runs} ended as {cause} with the same error: {value}",
    Common.CODE: "{runs} with the same code ({value}) ended as {cause}",
    Common.IMAGE: "{runs} with the same image ({value}) ended as {cause}",
    Common.MACHINE: "{runs} on the machine {value} ended as {cause}",
    Common.ZONE: "{runs} in zone {value} ended as {cause}",
}
_NOUNS: Mapping[Common, str] = {
    Common.ERROR: "the error",
    Common.CODE: "the code",
    Common.IMAGE: "the image",
    Common.MACHINE: "the machine",
    Common.ZONE: "the zone",
}


def headline(incident: Incident) -> str:
    """A clause, such as '3 runs ended as user_error with the same error: KeyError: 'loss''."""
    first = incident.common[0]
    runs = plural(len(incident.runs), "run")
    return _LEADS[first.kind].format(runs=runs, cause=incident.cause or "unknown", value=value_text(first))


def value_text(signature: Signature) -> str:
    if signature.kind == Common.CODE:
        return signature.value[:CODE_SHOWN]
    if signature.kind in (Common.MACHINE, Common.ZONE):
        return clip(signature.value.rpartition("/")[2], VALUE_SHOWN)
    return clip(short_digests(signature.value), VALUE_SHOWN)


def opened_text(incident: Incident) -> str:
    """The alert: count, cause, what is common, the runs, and what to do."""
    parts = [f"Incident {incident.id}: {headline(incident)}", *_others(incident)]
    if len(incident.members) > 1:
        since = min(member.at for member in incident.members)
        parts.append(f"All within {age_text(max(0.0, incident.last_at - since))}")
    runs = incident.runs
    more = f" and {len(runs) - RUNS_SHOWN} more" if len(runs) > RUNS_SHOWN else ""
    parts.append(f"Runs: {', '.join(runs[:RUNS_SHOWN])}{more}")
    return " ".join(f"{part.rstrip('.')}." for part in (*parts, what_to_do(incident)))


def _others(incident: Incident) -> list[str]:
    others = [f"{_NOUNS[each.kind]} {value_text(each)}" for each in incident.common[1:]]
    return [f"Also in common: {', '.join(others)}"] if others else []


def what_to_do(incident: Incident) -> str:
    """A sentence without a full stop."""
    close = f"spot incidents close {incident.id}"
    subject = incident.failing
    if incident.blocks and incident.has_faulty_machine():
        return f"No run uses this machine any more. When it works again: {close}"
    if incident.blocks and subject is not None:
        noun = _NOUNS[subject.kind].removeprefix("the ")
        waits = f"Runs that would start with this {noun} wait"
        return f"{waits}. Submit a corrected {noun}, or start them all the same: {close}"
    first = incident.common[0].kind
    if first in (Common.MACHINE, Common.ZONE):
        return f"Look at this {first}; the runs continue elsewhere where they may"
    return f"Read the end of one log: spot logs {incident.runs[0]}" if incident.runs else f"Nothing is stopped: {close}"


def closed_text(incident: Incident) -> str:
    """Of an incident that is closed."""
    by = f"closed by {incident.closed_by}" if incident.closed_by else "closed: no further run for a day"
    reason = f" ({clip(incident.reason, VALUE_SHOWN)})" if incident.reason else ""
    what = "; what it stopped may start again" if incident.blocks else ""
    return f"Incident {incident.id} is {by}{reason}{what}. {headline(incident).rstrip('.')}."
