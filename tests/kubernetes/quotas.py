"""ResourceQuotas: what a namespace may have, counted at each create."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from tests.kubernetes.errors import forbidden
from tests.kubernetes.kinds import CONFIG_MAP, JOB, POD, QUOTA, SECRET, Kind
from tests.kubernetes.objects import OVER, Objects
from tests.kubernetes.quantities import extended, quantity, requests, shown

COUNTED = (JOB, POD, SECRET, CONFIG_MAP)


def check(kind: Kind, resource: Mapping[str, Any], present: Iterable[Any], quotas: Iterable[Mapping[str, Any]]) -> None:
    """Raises ApiError. `present`: objects of this kind in the namespace."""
    wanted = usage(kind, resource)
    used = sum_of(usage(kind, other) for other in present)
    for quota in quotas:
        hard = {name: quantity(value) for name, value in quota["spec"]["hard"].items() if name in wanted}
        over = sorted(name for name, most in hard.items() if used.get(name, Decimal(0)) + wanted[name] > most)
        if over:
            parts = (("requested", wanted), ("used", used), ("limited", hard))
            texts = (f"{word}: {_words(values, over)}" for word, values in parts)
            why = f"exceeded quota: {quota['metadata']['name']}, {', '.join(texts)}"
            raise forbidden(kind, resource["metadata"]["name"], why)


def usage(kind: Kind, resource: Mapping[str, Any]) -> dict[str, Decimal]:
    counted = {f"count/{kind.qualified}": Decimal(1)}
    if kind is JOB:
        return counted
    if kind is not POD:
        return {**counted, kind.plural: Decimal(1)}
    if resource.get("status", {}).get("phase") in OVER:
        return counted
    counted["pods"] = Decimal(1)
    for name, value in requests(resource["spec"]).items():
        counted[f"requests.{name}"] = value
        if not extended(name):
            counted[name] = value
    for name, value in requests(resource["spec"], "limits").items():
        if not extended(name):
            counted[f"limits.{name}"] = value
    return counted


def sum_of(usages: Iterable[Mapping[str, Decimal]]) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for values in usages:
        for name, value in values.items():
            total[name] = total.get(name, Decimal(0)) + value
    return total


def _words(values: Mapping[str, Decimal], names: list[str]) -> str:
    return ",".join(f"{name}={shown(values.get(name, Decimal(0)))}" for name in names)


def refresh(objects: Objects) -> None:
    """The status of each quota, as its controller keeps it."""
    for quota in objects.of(QUOTA):
        namespace, hard = quota["metadata"]["namespace"], quota["spec"]["hard"]
        present = [usage(kind, each) for kind in COUNTED for each in objects.of(kind, namespace)]
        total = sum_of(present)
        used = {name: shown(total.get(name, Decimal(0))) for name in hard}
        if quota["status"].get("used") != used:
            quota["status"] = {"hard": dict(hard), "used": used}
            objects.touch(quota)
