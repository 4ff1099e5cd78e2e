"""A place that has refused is asked by a few runs when its cool-down is over; the others wait for what these learn.

Without this, five hundred waiting runs would make five hundred create calls in the same second, each time a zone's
cool-down ends, to be told the same. One that is given a machine clears the place's record, and everybody may ask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from supervisor.domain.actions import Launch
from supervisor.domain.causes import Cause
from supervisor.domain.machines import OfferKey, ZoneRecord, offer_key
from supervisor.domain.run import Run
from supervisor.lifecycle.decision import Decision
from supervisor.lifecycle.offers.choosing import NoOffer
from supervisor.lifecycle.phases.placing import wait

PROBES = 3  # create calls under way, per offer that has refused
HELD_S = 15.0  # when the others look again; an answer usually comes sooner


def paced(
    decisions: Sequence[Decision], before: Mapping[int, Run], zones: Mapping[OfferKey, ZoneRecord], now: float
) -> list[Decision]:
    """The decisions; those that would ask a place where enough ask already wait instead. `before`: the runs as they
    were before. Repeats of a create call that was on record are never held back."""
    asking: Counter[OfferKey] | None = None
    kept = []
    for decision in decisions:
        place = _newly_asked(decision, before)
        if place is None or place not in zones or not zones[place].failures:
            kept.append(decision)
            continue
        if asking is None:
            asking = Counter(_under_way(before.values()))
        if asking[place] < PROBES:
            asking[place] += 1
            kept.append(decision)
        else:
            kept.append(_held(before[decision.run.key], zones[place], now))
    return kept


def _newly_asked(decision: Decision, runs_before: Mapping[int, Run]) -> OfferKey | None:
    for action in decision.actions:
        if isinstance(action, Launch):
            before = runs_before[decision.run.key].try_
            if before is None or before.launch_id != action.try_.launch_id:
                return offer_key(action.try_.placement)
    return None


def _under_way(runs: Iterable[Run]) -> Iterable[OfferKey]:
    """The places of create calls that have not been answered."""
    for run in runs:
        try_ = run.open_try
        if try_ is not None and (run.attempt is None or run.attempt.launch_id != try_.launch_id):
            yield offer_key(try_.placement)


def _held(run: Run, record: ZoneRecord, now: float) -> Decision:
    return wait(run, NoOffer(now + HELD_S, Cause(record.cause), record.detail), now)
