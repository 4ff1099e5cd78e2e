"""One training over several zones of October 2025, without paid probes: a zone is asked for a machine, and a refusal
costs nothing.

The cheapest zone that grants a machine gets the training. Where that is a dearer one, the production rule is asked
once more, with the dearer zone in the place of on-demand: while the slack is large, waiting for the cheapest zones is
cheaper. The model is that of the record (SkyNomad, NSDI 2027): six windows of 51.83 h, a changeover of 12 minutes, and
a dollar for the 50 GB of a checkpoint that go to another region. The last tick is paid as far as it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from supervisor.lifecycle.rungs.rule import Rung, Situation, choose, life_s, waits_for_cheaper
from tools.policy.replay import Outcome
from tools.policy.traces import TICK_S, H, Zone

WINDOW_TICKS = 311
WINDOWS = 6
CHANGEOVER_S = 0.2 * H
OTHER_REGION_USD = 1.0
# The record left rounds 696 to 745 out and six of a pause; it filled 60 ticks with what it had seen before them.
GAP_FIRST, GAP_LAST, GAP_TICKS = 696, 746, 60
SIX = ("us-central1-a", "us-west1-a", "europe-west1-c", "europe-west3-c", "asia-southeast1-b", "asia-south2-b")


def as_recorded(zone: Zone) -> Zone:
    before, after = zone.up[:GAP_FIRST], zone.up[GAP_LAST:]
    return zone._replace(up=(*before, *(before[-1:] * GAP_TICKS), *after))


def mean_outcome(zones: Sequence[Zone], ratio: float) -> tuple[float, int]:
    """Dollars, and how many of the six windows missed the deadline. `ratio`: the time until the deadline, by the work
    that is to be done in it."""
    outcomes = [replay(zones, window * WINDOW_TICKS, ratio) for window in range(WINDOWS)]
    return sum(each.usd for each in outcomes) / WINDOWS, sum(each.missed for each in outcomes)


@dataclass(slots=True)
class _Training:
    zones: Sequence[Zone]
    deadline: float
    left_s: float
    now: float = 0.0
    held: Rung | None = None
    at: Zone | None = None  # the last machine's zone: the newest checkpoint is there
    starts_s: float = 0.0
    usd: float = 0.0
    seen_s: float = 0.0
    losses: int = 0
    cheapest: Zone = field(init=False)
    fallback: Zone = field(init=False)

    def __post_init__(self) -> None:
        self.cheapest = min(self.zones, key=lambda zone: zone.spot_usd)
        self.fallback = min(self.zones, key=lambda zone: zone.on_demand_usd)

    def rung(self, offer: Zone | None) -> Rung:
        situation = Situation(
            now=self.now,
            left_s=self.left_s,
            deadline=self.deadline,
            changeover_s=CHANGEOVER_S,
            tick_s=TICK_S,
            held=self.held,
            spot_is_up=offer is not None,
            spot_usd_per_h=None if offer is None else offer.spot_usd,
            on_demand_usd_per_h=self.fallback.on_demand_usd,
            spot_life_s=life_s(self.seen_s, self.losses),
        )
        rung = choose(situation).rung
        if rung is Rung.SPOT and self.held is None and waits_for_cheaper(situation, self.cheapest.spot_usd):
            return Rung.WAIT
        return rung

    def take(self, rung: Rung, zone: Zone) -> None:
        if self.at is not None and self.at.region != zone.region:
            self.usd += OTHER_REGION_USD
        self.held, self.at, self.starts_s = rung, zone, CHANGEOVER_S

    def train(self) -> bool:
        """Whether it is done in this tick."""
        if self.held is None or self.at is None:
            return False
        is_spot = self.held is Rung.SPOT
        pays_s = min(TICK_S, self.starts_s + self.left_s)
        self.usd += (self.at.spot_usd if is_spot else self.at.on_demand_usd) * pays_s / H
        self.seen_s += TICK_S if is_spot else 0.0
        trains_s = max(0.0, pays_s - self.starts_s)
        self.starts_s -= pays_s - trains_s
        self.left_s -= trains_s
        return self.left_s <= 1e-6


def replay(zones: Sequence[Zone], start: int, ratio: float) -> Outcome:
    training = _Training(zones, WINDOW_TICKS * TICK_S, WINDOW_TICKS * TICK_S / ratio)
    for tick in range(start, start + WINDOW_TICKS):
        if training.held is Rung.SPOT and training.at is not None and not training.at.up[tick]:
            training.held = None
            training.losses += 1
        granting = min((zone for zone in zones if zone.up[tick]), key=lambda zone: zone.spot_usd, default=None)
        offer = training.at if training.held is Rung.SPOT else granting
        rung = training.rung(offer)
        if rung is Rung.WAIT:
            training.held = None
        elif rung is not training.held:
            zone = training.fallback if rung is Rung.ON_DEMAND or offer is None else offer
            training.take(rung, zone)
        if training.train():
            return Outcome(training.usd, missed=False)
        training.now += TICK_S
    return Outcome(training.usd, missed=True)
