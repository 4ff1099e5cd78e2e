"""Quantities of Kubernetes: `500m`, `16Gi`, `1e3`; sums of what pods request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

GPU = "nvidia.com/gpu"
_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?\d+)?")
_BINARY = {name: Decimal(1024) ** power for power, name in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_DECIMAL = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "k": Decimal("1e3"), "M": Decimal("1e6"),
    "G": Decimal("1e9"), "T": Decimal("1e12"), "P": Decimal("1e15"), "E": Decimal("1e18"),
}  # fmt: skip


def quantity(text: object) -> Decimal:
    """ValueError for any other text."""
    match = _FORM.fullmatch(str(text))
    if match is None:
        raise ValueError(f"quantities must match the regular expression: {text!r}")
    number, unit = Decimal(match[1]), match[2] or ""
    if unit[:1] in ("e", "E") and len(unit) > 1:
        return number.scaleb(int(unit[1:]))
    return number * (_BINARY | _DECIMAL).get(unit, Decimal(1))


def shown(value: Decimal) -> str:
    """A whole number as it is, else in thousandths."""
    return str(int(value)) if value == int(value) else f"{int(value * 1000)}m"


def extended(name: str) -> bool:
    """A resource such as nvidia.com/gpu, which is not overcommitted."""
    return "/" in name and not name.startswith("kubernetes.io/")


def requests(pod_spec: Mapping[str, Any], part: str = "requests") -> dict[str, Decimal]:
    """Of the whole pod: the sum of its containers, at least what each init container needs."""
    total: dict[str, Decimal] = {}
    for container in pod_spec["containers"]:
        for name, value in _of(container, part).items():
            total[name] = total.get(name, Decimal(0)) + value
    for container in pod_spec.get("initContainers", ()):
        for name, value in _of(container, part).items():
            total[name] = max(total.get(name, Decimal(0)), value)
    return total


def _of(container: Mapping[str, Any], part: str) -> dict[str, Decimal]:
    given = container.get("resources", {}).get(part) or {}
    return {name: quantity(value) for name, value in given.items()}
