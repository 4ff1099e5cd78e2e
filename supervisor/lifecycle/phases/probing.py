"""When the cool-down of an offer ends, a few runs request it; the others wait for what these learn.

Without this, five hundred waiting runs would make five hundred create calls in the same second, each time a cool-down
ends, and all get the same failure. A run that obtains a machine clears the offer's record; then every run may request
it.
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

PROBES = 3  # create calls in flight, per offer that has failed
HELD_S = 15.0  # when the others are decided again; an answer usually comes sooner


def paced(
    decisions: Sequence[Decision], before: Mapping[int, Run], zones: Mapping[OfferKey, ZoneRecord], now: float
) -> list[Decision]:
    """The decisions; those that would request an offer with enough requests already wait instead. `before`: the runs
    as they were. Repeats of a create call that was on record are never held back."""
    in_flight: Counter[OfferKey] | None = None
    kept = []
    for decision in decisions:
        offer = _newly_requested(decision, before)
        if offer is None or offer not in zones or not zones[offer].failures:
            kept.append(decision)
            continue
        if in_flight is None:
            in_flight = Counter(_in_flight(before.values()))
        if in_flight[offer] < PROBES:
            in_flight[offer] += 1
            kept.append(decision)
        else:
            kept.append(_held(before[decision.run.key], zones[offer], now))
    return kept


def _newly_requested(decision: Decision, runs_before: Mapping[int, Run]) -> OfferKey | None:
    for action in decision.actions:
        if isinstance(action, Launch):
            before = runs_before[decision.run.key].try_
            if before is None or before.launch_id != action.try_.launch_id:
                return offer_key(action.try_.placement)
    return None


def _in_flight(runs: Iterable[Run]) -> Iterable[OfferKey]:
    """The offers of create calls that have no answer yet."""
    for run in runs:
        try_ = run.open_try
        if try_ is not None and (run.attempt is None or run.attempt.launch_id != try_.launch_id):
            yield offer_key(try_.placement)


def _held(run: Run, record: ZoneRecord, now: float) -> Decision:
    return wait(run, NoOffer(now + HELD_S, Cause(record.cause), record.detail), now)
