"""Which zone comes first among those that offer the same shape: the one that loses the least time per hour of training.

Each new machine costs a changeover, and before it the time until a request is granted. Both are paid once in the life
of a machine. So the time that a zone costs is (changeover + expected wait) divided by the expected life of its
machines. The life comes from our own machines there, by Kaplan-Meier; the wait from the chance that the zone has
capacity now. That chance follows from when we last saw the zone up or down, and from how often it comes back.

Zones of one price are compared. At other prices the order of the ladder counts, as people or the platform's advice have
set it; there, and where two zones cost about the same, zones whose machines were lost lately come later. Nothing is
requested only to measure it, and no machine that works is ever moved for what a zone promises.

Runs of one group would fall together if they shared a zone. So each has a lane, by its key, and lanes take turns among
zones that cost about the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from supervisor.domain.machines import Offer, Outlook, Placement, ZoneRecord, offer_key
from supervisor.domain.observation import World
from supervisor.domain.run import Run
from supervisor.lifecycle.offers.lessons import lost_lately
from supervisor.lifecycle.rungs.survival import NOTHING_KNOWN

CHANGEOVER_S = 1200.0  # boot, pull, restore and repeated steps; only its proportion to the wait matters
REFUSED_S = 200.0  # what a refused request costs: the wait for its answer, and the zones that are left are worse
STEP = 0.2  # costs that differ by about a fifth are equal, and the order of the ladder counts
ALIKE = 1.5  # zones whose costs differ by no more than this factor are in one class, in which a group is spread
LANES = 12  # runs of a group that get an answer of their own; 2, 3, 4 or 6 zones share them evenly
LEAST_CHANCE = 0.001
Rank = tuple[int, bool, int, int, int, int, int]


def ranking(run: Run, offers: Sequence[Offer], world: World, now: float) -> Callable[[Offer], Rank]:
    """Smaller is better; equal offers keep the order of the ladder."""
    places = [offer.placement for offer in offers]
    providers = {name: index for index, name in enumerate(dict.fromkeys(place.provider for place in places))}
    kinds = {kind: index for index, kind in enumerate(dict.fromkeys(map(_kind, places)))}
    prices = {price: index for index, price in enumerate(dict.fromkeys(map(_price, offers)))}
    losses: dict[tuple[object, ...], int] = {}  # of the zone that lost the fewest, for each price of a kind
    for offer in offers:
        key = (*_kind(offer.placement), _price(offer))
        count = len(lost_lately(world.zones.get(offer_key(offer.placement)), now))
        losses[key] = min(losses.get(key, count), count)
    last, lane = run.attempt, lane_of(run)
    zones = {zone: index for index, zone in enumerate(dict.fromkeys((place.provider, place.zone) for place in places))}

    def among_equals(place: Placement, log_cost: float) -> tuple[int, int]:
        """Its cost; in a group its class of cost, and the zone's turn in it."""
        if lane is None:
            return round(log_cost / STEP), 0
        return math.floor(log_cost / math.log(ALIKE)), _turn(lane, zones[place.provider, place.zone], len(zones))

    def rank(offer: Offer) -> Rank:
        place = offer.placement
        own = last is None or last.placement.provider == place.provider
        is_avoided = own and place.zone == run.avoid_zone
        kind, price = _kind(place), _price(offer)
        return (
            providers[place.provider],
            is_avoided,
            kinds[kind],
            losses[(*kind, price)],
            prices[price],
            *among_equals(place, math.log(cost_of(offer, world, now))),
        )

    return rank


def _kind(place: Placement) -> tuple[str, str, str]:
    return place.provider, place.market, place.shape


def _price(offer: Offer) -> tuple[str, float | None]:
    return offer.placement.provider, offer.price_usd_per_h


def cost_of(offer: Offer, world: World, now: float) -> float:
    """Seconds lost for each second of a machine's life there. The same for all runs, so it is computed once a tick."""
    outlook = outlook_of(offer, world)
    cached = "cost", world.zones.get(offer_key(offer.placement)), outlook, offer.chance, now
    if cached not in world.judged:
        chance = max(LEAST_CHANCE, chance_at(offer, world, now))
        world.judged[cached] = (CHANGEOVER_S + REFUSED_S * (1.0 - chance) / chance) / outlook.life_s
    cost: float = world.judged[cached]
    return cost


def outlook_of(offer: Offer, world: World) -> Outlook:
    return world.outlooks.get(offer_key(offer.placement), NOTHING_KNOWN)


def chance_at(offer: Offer, world: World, now: float) -> float:
    """That a request for it is granted now."""
    return chance_of(world.zones.get(offer_key(offer.placement)), outlook_of(offer, world), offer.chance, now)


def down_at_of(record: ZoneRecord | None, now: float) -> float:
    """When it was last known to be down; 0 = never."""
    lost = lost_lately(record, now)
    return max(record.stocked_out_at if record is not None else 0.0, lost[-1] if lost else 0.0)


def chance_of(record: ZoneRecord | None, outlook: Outlook, advised: float | None, now: float) -> float:
    """That a request there is granted now. A zone goes up and down at two rates, and we know when we saw it last: with
    time, what we saw counts less, and the share of the time that it is up counts more. In place of this share counts
    the platform's own advice, where there is any."""
    down_at, up_at = down_at_of(record, now), outlook.up_at
    leaves, returns = 1.0 / max(1.0, outlook.life_s), outlook.return_per_s
    usual = returns / (returns + leaves) if advised is None else advised
    seen_at = max(up_at, down_at)
    if not 0.0 < seen_at <= now:
        return usual
    seen = 1.0 if up_at > down_at else 0.0
    return usual + (seen - usual) * math.exp(-(returns + leaves) * (now - seen_at))


# --- groups -----------------------------------------------------------------------------------------------------------


def lane_of(run: Run) -> int | None:
    """None: it is in no group, or alone in it at each time."""
    is_alone = not run.policy.group or run.policy.max_parallel == 1
    return None if is_alone else run.key % LANES


def _turn(lane: int, index: int, count: int) -> int:
    """The place of the zone with this index in the order of the lane. Lanes that begin at the same zone go on in two
    directions, so the runs of a zone that falls part again."""
    rounds, begin = divmod(lane, count)
    return (index - begin) % count if rounds % 2 == 0 else (begin - index) % count
