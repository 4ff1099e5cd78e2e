"""Warnings about machines for a run: too little memory or disk, an old CPU, data in another region.

No warning stops a run. A line appears only where the user can do something. What these tables do not contain is not
judged, and what could not be read is a line that says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from supervisor.domain.findings import OK, WARN, Finding
from supervisor.ports.platform import PlanQuestion
from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.gce.advice.data_places import DataPlaces, registry_of
from supervisor.providers.gce.config import GceConfig, Shape
from supervisor.providers.gce.machines.instance import scopes
from supervisor.providers.gce.prices import locations
from supervisor.providers.gce.prices.machine_facts import OLD_PLATFORMS, cpu_platforms, facts_of, roomier
from supervisor.providers.gce.traits import google_finding

MOST_RAM_PER_CARD_MEMORY = 4  # more is paid for and seldom used
RAM_PER_CARD_MEMORY = 2  # GB of host memory for each GB on the cards, for waiting batches and for checkpoints
SYSTEM_GB = 30  # of the boot disk: the system, the driver, and an unpacked image
GB = 10**9


def advise(config: GceConfig, places: DataPlaces, question: PlanQuestion) -> tuple[Finding, ...]:
    """As Platform.advise."""
    regions = tuple(dict.fromkeys(offer.placement.region for offer in question.offers))
    findings: list[Finding | None] = []
    for name in dict.fromkeys(offer.placement.shape for offer in question.offers):
        shape = config.shapes[name]
        findings += [_memory(name, shape), _platform(name, shape, config.min_cpu_platform)]
    findings.append(_boot_disk(config, question))
    findings.append(_bucket(places, regions, question.checkpoint_bytes))
    findings.append(_registry(question.image, regions))
    findings.append(_pinned_by_disk(config))
    findings += [_access(config, question.has_secrets), _LEAVES_NOTHING]
    return tuple(finding for finding in findings if finding is not None)


def _memory(name: str, shape: Shape) -> Finding | None:
    facts = facts_of(shape)
    if facts is None or facts.cards_gb is None:
        return None
    least, most = RAM_PER_CARD_MEMORY * facts.cards_gb, MOST_RAM_PER_CARD_MEMORY * facts.cards_gb
    if facts.ram_gb > most and (less := roomier(shape, least, fewer=True)):
        fact = f"{name} has {facts.ram_gb:g} GB of memory for {facts.cards_gb} GB on its cards"
        cause = f"more than {MOST_RAM_PER_CARD_MEMORY} times the memory of the cards is paid for and seldom used"
        return google_finding("memory", WARN, fact, cause, f"{less} has enough, with the same cards")
    if facts.ram_gb >= least:
        return None
    fact = f"{name} has {facts.ram_gb:g} GB of memory and {facts.cards_gb} GB on its cards"
    cause = (
        f"with less than {RAM_PER_CARD_MEMORY} times the memory of the cards, data loaders and checkpoints often run "
        "out of memory"
    )
    better = roomier(shape, least)
    return google_finding("memory", WARN, fact, cause, f"use {better}, with the same cards" if better else "")


def _access(config: GceConfig, has_secrets: bool) -> Finding:
    """Old advice was to allow all Cloud APIs."""
    names = " and ".join(scope.rpartition("/")[2] for scope in scopes(config, has_secrets))
    reason = "every package that a training imports can use the token of its machine"
    if has_secrets:
        reason = "Secret Manager takes no narrower one; the roles of the machine's account are the limit"
    return google_finding("machine access", OK, f"the scope is {names}: {reason}")


_LEAVES_NOTHING = google_finding(
    "machine end", OK, "the machine is deleted with its run, and the sweep deletes what serves no run: the next "
    "experiment begins on a new disk"
)  # fmt: skip


def _platform(name: str, shape: Shape, least: str) -> Finding | None:
    platforms = cpu_platforms(shape)
    if not platforms:
        return None
    if least and least not in platforms:
        fact = f"gce_min_cpu_platform is {least}, and {name} never has that CPU"
        fix = f"set gce_min_cpu_platform to one of: {', '.join(platforms)}; or remove it"
        return google_finding("cpu platform", WARN, fact, "Google refuses such a machine", fix)
    old = [platform for platform in platforms if platform in OLD_PLATFORMS]
    if least or not old:
        return None
    fact = f"{name} may get an old CPU ({old[0]} to {old[-1]})"
    cause = "the CPU's part of a training is slower there: such CPUs are older and have no AVX-512"
    return google_finding("cpu platform", WARN, fact, cause, f"set gce_min_cpu_platform = {platforms[-1]}")


def _boot_disk(config: GceConfig, question: PlanQuestion) -> Finding | None:
    if question.checkpoint_bytes is None:
        return None
    each, kept = question.checkpoint_bytes / GB, question.checkpoints_kept
    needed = math.ceil((kept + 1) * each + SYSTEM_GB)
    if config.boot_disk_gb >= needed:
        return None
    fact = f"the boot disk has {config.boot_disk_gb} GB, and this run needs about {needed} GB"
    cause = (
        f"it holds {kept} checkpoints and the one that is being written, {each:.3g} GB each, and {SYSTEM_GB} GB "
        "for system and image"
    )
    return google_finding("boot disk", WARN, fact, cause, f"set gce_boot_disk_gb = {needed}")


def _bucket(places: DataPlaces, regions: Sequence[str], size_bytes: int | None) -> Finding | None:
    places.learn()
    try:
        location = places.of_bucket()
    except ProviderUnavailable as error:
        fix = f"gcloud storage buckets describe {places.bucket}; roles/storage.bucketViewer allows to read it"
        return google_finding("data places", WARN, "the location of the bucket was not read", str(error), fix)

    def cost(per_gb: float) -> str:
        if size_bytes is None:
            return f"each restore costs ${per_gb:.2f} for each GB of its checkpoint"
        size_gb = size_bytes / GB
        return f"each restore costs ${per_gb * size_gb:.2f} ({size_gb:.3g} GB at ${per_gb:.2f})"

    fix = f"keep the bucket in {regions[0]}, or use zones of {location.name} only" if regions else ""
    prices = {region: locations.from_bucket(location, region) for region in regions}
    return _far("data places", f"the bucket {places.bucket} is in {location.name}", prices, cost, fix)


def _registry(image: str, regions: Sequence[str]) -> Finding | None:
    registry = registry_of(image)
    if registry is None:
        return None
    host, location = registry

    def cost(per_gb: float) -> str:
        return f"each pull costs ${per_gb:.2f} for each GB of the image, at every start of a machine"

    fix = f"push the image to {regions[0]}-docker.pkg.dev" if regions else ""
    prices = {region: locations.from_registry(location, region) for region in regions}
    return _far("image place", f"the registry {host} is in {location.name}", prices, cost, fix)


def _far(
    name: str, where: str, prices: Mapping[str, float | None], cost: Callable[[float], str], fix: str
) -> Finding | None:
    """One line for all regions in which this data costs something, with the highest price. `prices`: region -> $ for
    each GB, None = unknown; `cost`: the price in words."""
    paid = {region: usd for region, usd in prices.items() if usd != 0}
    if not paid:
        return None
    usds = [usd for usd in paid.values() if usd is not None]
    unknown = [region for region, usd in paid.items() if usd is None]
    causes = [cost(max(usds))] if usds else []
    if unknown:
        causes.append(f"the price of data for {', '.join(unknown)} is unknown")
    return google_finding(name, WARN, f"{where}, and machines start in {', '.join(paid)}", "; ".join(causes), fix)


def _pinned_by_disk(config: GceConfig) -> Finding | None:
    disk = config.data_disk
    if disk is None:
        return None
    others = [zone for zone in config.zones if zone != disk.zone]
    if not others:
        return None
    fact = f"the data disk {disk.name} is in {disk.zone}, so machines start in that zone only"
    cause = f"{', '.join(others)} of gce_zones are never tried, and one stock-out there stops every run"
    return google_finding(
        "data disk", WARN, fact, cause, "keep the data in the bucket, or set gce_zones to that zone alone"
    )
