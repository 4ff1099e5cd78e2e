"""What this supervisor is: its version, its provider, and what that offers. Clients ask before they fill in a spec."""

from __future__ import annotations

from functools import cache
from importlib import metadata

from supervisor.services.parts import Parts
from supervisor.services.run_view import Json


def meta(parts: Parts) -> Json:
    """Touches no database and no network."""
    account = parts.platform.account_so_far()
    places = [offer.placement for offer in parts.providers[parts.own_provider].offers()]
    return {
        "version": version(),
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
