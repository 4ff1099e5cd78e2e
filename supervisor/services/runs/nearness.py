"""`same_region: require`: a run whose data lies in another region than a machine it may get is refused.

Asked before anything is stored, from what is known already: no submit waits for the cloud. What is not known is no
"yes": the submit is turned away with the reason, and may be repeated. A multi-region that holds the machine's region
counts as near; that reading from it is billed all the same is the plan's advice to tell.
"""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.domain.errors import DataElsewhere, Unavailable
from supervisor.domain.machines.placement import Offer
from supervisor.ports.platform import Platform
from supervisor.ports.provider import ProviderUnavailable

REQUIRE = "require"
_AT = "#/spec/same_region"


def refuse_far(platform: Platform, offers: Sequence[Offer], image: str) -> None:
    """`offers`: every one that the run may use. Raises DataElsewhere, Unavailable."""
    zones: dict[str, list[str]] = {}
    for place in (offer.placement for offer in offers):
        if place.zone not in zones.setdefault(place.region, []):
            zones[place.region].append(place.zone)
    try:
        found = platform.data_places(tuple(zones), image)
    except ProviderUnavailable as error:
        raise Unavailable(
            f"same_region: require cannot be promised now: {error}. Nothing was stored. Try again in a few seconds; "
            "`spot doctor` tells what the supervisor may read.",
            {"part": "data places"},
        ) from error
    for data in found:
        apart = [zone for region, names in zones.items() if region not in data.regions for zone in names]
        if apart:
            raise DataElsewhere(
                f"same_region: require: {data.what} lies in {data.location}, and the run may start in "
                f"{', '.join(apart)}. Name zones of {data.location} only, or move the data. Nothing was stored.",
                {"location": data.location, "zones": apart},
                [(_AT, f"{data.what} lies in another region")],
            )
