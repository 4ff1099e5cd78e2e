"""What is unwise about machines for a run: too little memory or disk, an old CPU, data that lies far away.

Nothing here stops a run. A line is told only where there is something to do; what these tables do not know is not
judged, and what could not be read says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from supervisor.domain.findings import OK, WARN, Finding
from supervisor.ports.platform import PlanQuestion
from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.gce.advice.data_places import DataPlaces, registry_of
from supervisor.providers.gce.config import GceConfig, Shape
from supervisor.providers.gce.prices import locations
from supervisor.providers.gce.prices.locations import Location
from supervisor.providers.gce.prices.machine_facts import OLD_PLATFORMS, cpu_platforms, facts_of, roomier

RAM_PER_CARD_MEMORY = 2  # host memory for each GB on the cards: batches wait there, and checkpoints pass through it
SYSTEM_ROOM_GB = 30  # of the boot disk: the system, the driver, and an image that is unpacked
GB = 10**9
Price = Callable[[Location, str], float | None]


def advise(config: GceConfig, places: DataPlaces, question: PlanQuestion) -> tuple[Finding, ...]:
    """The promise of Platform.advise."""
    names = dict.fromkeys(offer.placement.shape for offer in question.offers)
    regions = tuple(dict.fromkeys(offer.placement.region for offer in question.offers))
    found: list[Finding] = []
    for name in names:
        shape = config.shapes[name]
        found += [*_memory(name, shape), *_platform(name, shape, config.min_cpu_platform)]
    found += _boot_disk(config, question)
    found += _bucket(places, regions, question.checkpoint_bytes)
    found += _registry(question.image, regions)
    found += _pinned_by_disk(config)
    return tuple(found)


def _memory(name: str, shape: Shape) -> list[Finding]:
    facts = facts_of(shape)
    if facts is None or facts.cards_gb is None:
        return []
    least = RAM_PER_CARD_MEMORY * facts.cards_gb
    if facts.ram_gb >= least:
        return []
    fact = f"{name} has {facts.ram_gb:g} GB of memory beside {facts.cards_gb} GB on its cards"
    times = RAM_PER_CARD_MEMORY
    cause = f"below {times} times the memory of the cards data loaders and checkpoints often run out of it"
    better = roomier(shape, least)
    return [_told("memory", fact, cause, f"use {better}, with the same cards" if better else "")]


def _platform(name: str, shape: Shape, least: str) -> list[Finding]:
    known = cpu_platforms(shape)
    if not known:
        return []
    if least and least not in known:
        fact = f"gce_min_cpu_platform is {least}, and {name} is never given that"
        return [
            _told(
                "cpu platform",
                fact,
                "Google refuses such a machine",
                f"set gce_min_cpu_platform to one of: {', '.join(known)}; or leave it out",
            )
        ]
    old = [platform for platform in known if platform in OLD_PLATFORMS]
    if least or not old:
        return []
    fact = f"{name} may be given an old CPU ({old[0]} to {old[-1]})"
    cause = "the CPU's part of a training is slower there: such CPUs are older and have no AVX-512"
    return [_told("cpu platform", fact, cause, f"set gce_min_cpu_platform = {known[-1]}")]


def _boot_disk(config: GceConfig, question: PlanQuestion) -> list[Finding]:
    if question.checkpoint_bytes is None:
        return []
    each, kept = question.checkpoint_bytes / GB, question.checkpoints_kept
    needed = math.ceil((kept + 1) * each + SYSTEM_ROOM_GB)
    if config.boot_disk_gb >= needed:
        return []
    fact = f"the boot disk has {config.boot_disk_gb} GB, and this run needs about {needed} GB"
    cause = (
        f"{kept} checkpoints are kept there and one is written, {each:.3g} GB each, beside {SYSTEM_ROOM_GB} GB "
        "for system and image"
    )
    return [_told("boot disk", fact, cause, f"set gce_boot_disk_gb = {needed}")]


def _bucket(places: DataPlaces, regions: Sequence[str], size_bytes: int | None) -> list[Finding]:
    places.learn()
    try:
        place = places.of_bucket()
    except ProviderUnavailable as error:
        fix = f"gcloud storage buckets describe {places.bucket}; roles/storage.bucketViewer lets it be read"
        return [_told("data places", "not read: where the bucket lies", str(error), fix)]
    what = f"the bucket {places.bucket}"
    fix = f"keep the bucket in {regions[0]}, or use zones of {place.name} only" if regions else ""
    return _far(
        "data places", what, place, regions=regions, price=locations.from_bucket, text=_restores(size_bytes), fix=fix
    )


def _restores(size_bytes: int | None) -> Callable[[float], str]:
    def text(per_gb: float) -> str:
        if size_bytes is None:
            return f"each restore costs ${per_gb:.2f} for each GB of its checkpoint"
        size_gb = size_bytes / GB
        return f"each restore costs ${per_gb * size_gb:.2f} ({size_gb:.3g} GB at ${per_gb:.2f})"

    return text


def _registry(image: str, regions: Sequence[str]) -> list[Finding]:
    found = registry_of(image)
    if found is None:
        return []
    host, place = found
    fix = f"push the image to {regions[0]}-docker.pkg.dev" if regions else ""

    def text(per_gb: float) -> str:
        return f"each pull costs ${per_gb:.2f} for each GB of the image, at every start of a machine"

    return _far(
        "image place", f"the registry {host}", place, regions=regions, price=locations.from_registry, text=text, fix=fix
    )


def _far(
    name: str,
    what: str,
    place: Location,
    *,
    regions: Sequence[str],
    price: Price,
    text: Callable[[float], str],
    fix: str,
) -> list[Finding]:
    """One line for all regions in which data from there costs something, with the dearest price."""
    prices = {region: price(place, region) for region in regions}
    apart = [region for region, usd in prices.items() if usd != 0]
    if not apart:
        return []
    fact = f"{what} is in {place.name}, and machines start in {', '.join(apart)}"
    known = [usd for usd in (prices[region] for region in apart) if usd is not None]
    lacking = [region for region in apart if prices[region] is None]
    cause = text(max(known)) if known else ""
    if lacking:
        cause += ("; " if cause else "") + f"the price of data for {', '.join(lacking)} is not known here"
    return [_told(name, fact, cause, fix)]


def _pinned_by_disk(config: GceConfig) -> list[Finding]:
    disk = config.data_disk
    others = [zone for zone in config.zones if disk is not None and zone != disk.zone]
    if disk is None or not others:
        return []
    fact = f"the data disk {disk.name} is in {disk.zone}, so machines start in that zone only"
    cause = f"{', '.join(others)} of gce_zones are never tried, and one stock-out there stops every run"
    return [_told("data disk", fact, cause, "keep the data in the bucket, or name that zone alone in gce_zones")]


def _told(name: str, fact: str, cause: str, fix: str) -> Finding:
    return Finding(name, WARN if cause else OK, fact, cause, fix, group="google")
