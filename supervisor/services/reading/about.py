"""What this supervisor is: its version, its bounds, its provider, and what a run gets that names no zone or shape.

Clients ask before they fill in a spec, and before they rely on a feature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata

from typing_extensions import TypedDict

from supervisor.services.parts import Parts

API = "v1"
# A word never changes its meaning and never disappears in v1.
FEATURES = (
    "code_bundles", "etags", "event_streams", "idempotency_keys", "imports", "many_runs", "merge_patch", "metrics",
    "plans", "series", "sort", "tokens", "webhooks", "zones",
)  # fmt: skip


class Meta(TypedDict):
    """`features`: words that keep their meaning; clients must accept words that they do not know. `config_hash`: equal
    for supervisors with equal settings, secrets left out. `limits`: by name, null where there is none. `database`: its
    kind, such as sqlite.

    `provider`: of a run that names none, with its zones and shapes in the order of preference. `default_image`: of such
    a run, null where each run must name its own or none is used. `project`: the account of the machines, null where
    they are processes of this computer; its number, null until it is known; and where a person sees the same
    machines."""

    version: str
    api: str
    features: list[str]
    config_hash: str | None
    limits: dict[str, float | None]
    database: str | None
    provider: str
    zones: list[str]
    shapes: list[str]
    default_image: str | None
    project: str | None
    project_number: str | None
    console_url: str | None


@dataclass(frozen=True, slots=True)
class About:
    """`config_hash`: of the settings, "" = there are none. `limits`: name -> bound, None = no limit. `database`: its
    kind, "" = not known."""

    config_hash: str = ""
    limits: Mapping[str, float | None] = field(default_factory=dict)
    database: str = ""


def meta(parts: Parts, about: About) -> Meta:
    """From memory alone."""
    account = parts.platform.account_so_far()
    places = [offer.placement for offer in parts.providers[parts.own_provider].offers()]
    return {
        "version": version(),
        "api": API,
        "features": list(FEATURES),
        "config_hash": about.config_hash or None,
        "limits": dict(about.limits),
        "database": about.database or None,
        "provider": parts.own_provider,
        "zones": list(dict.fromkeys(place.zone for place in places)),
        "shapes": list(dict.fromkeys(place.shape for place in places)),
        "default_image": parts.defaults.image or None,
        "project": account.name if account.console_url else None,
        "project_number": (account.number or None) if account.console_url else None,
        "console_url": account.console_url or None,
    }


@cache
def version() -> str:
    try:
        return metadata.version("spot-supervisor")
    except metadata.PackageNotFoundError:
        return "unknown"  # a checkout that is not installed
