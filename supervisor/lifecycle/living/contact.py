"""Contact with the place where a machine of the run is: its loss and its return are told, and nothing else follows.

A host that is switched off and one behind a cut cable look the same from here, and a training may go on there. So no
rule ends or starts anything for it; a person may write the machine off (services/runs/actions).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import Away, Machine
from supervisor.domain.observation import WRITTEN_OFF, Absent, Observation, Part, Seen, Unknown
from supervisor.domain.run import Run
from supervisor.lifecycle.decision import new_event
from supervisor.wording.figures import age_text

LOST_AFTER_S = 120.0  # a reconnect or a slow listing is no news


def with_contact(run: Run, obs: Observation, now: float) -> tuple[Run, tuple[Event, ...]]:
    """(the run, the events) after what this tick knows of the places of its machines. The same run and no events where
    that is no news: the row is not written again for another reason, or for a listing that was only late."""
    before, parts = run.away, tuple(_parts(run, obs))
    lost = next((part.away for part in parts if isinstance(part, Unknown) and _is_lost(part.away, now)), None)
    if lost is not None:
        if before is not None and before.zone == lost.zone:
            return run, ()
        return replace(run, away=lost), (_lost_event(lost, now),)
    if before is None or any(isinstance(part, Unknown) for part in parts):
        return run, ()
    after = replace(run, away=None)
    return after, (_back_event(before, now),) if any(map(_is_read, parts)) else ()


def _is_read(part: Part[Machine]) -> bool:
    """A machine that a person wrote off was not read."""
    return isinstance(part, Seen) or (isinstance(part, Absent) and part.source != WRITTEN_OFF)


def _parts(run: Run, obs: Observation) -> Iterator[Part[Machine]]:
    if run.open_try is not None:
        yield obs.machine
    yield from obs.retiring


def _is_lost(away: Away | None, now: float) -> bool:
    return away is not None and now - away.since >= LOST_AFTER_S


def _lost_event(away: Away, now: float) -> Event:
    lasted = age_text(now - away.since)
    text = f"No contact with {away.zone} for {lasted}: {away.reason}. Nothing is ended or started for that."
    return new_event(EventKind.CONTACT_LOST, text, zone=away.zone, reason=away.reason, since=round(away.since, 3))


def _back_event(before: Away, now: float) -> Event:
    lasted_s = max(0.0, now - before.since)
    text = f"Contact with {before.zone} again, after {age_text(lasted_s)}."
    return new_event(EventKind.CONTACT_BACK, text, zone=before.zone, lasted_s=round(lasted_s, 3))
