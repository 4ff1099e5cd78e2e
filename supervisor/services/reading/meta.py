"""What this supervisor is: its version, its provider, and what that offers. Clients ask before they fill in a spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata

from supervisor.services.parts import Parts
from supervisor.services.views.run_view import Json

API = "v1"
# What clients may ask for by name before they rely on it; a word never changes its meaning and never goes away in v1.
FEATURES = (
    "code_bundles", "etags", "event_streams", "idempotency_keys", "imports", "many_runs", "merge_patch", "metrics",
    "plans", "series", "sort", "tokens", "webhooks", "zones",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class About:
    """`config_hash`: of the settings, "" = there are none. `limits`: name -> bound, None = no limit. `database`: its
    kind, "" = not known."""

    config_hash: str = ""
    limits: Mapping[str, float | None] = field(default_factory=dict)
    database: str = ""


def meta(parts: Parts, about: About) -> Json:
    """Touches no database and no network."""
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
        return "unknown"  # run from a checkout that nobody installed
