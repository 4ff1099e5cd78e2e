"""Where alerts go: one address, and the secret that signs what is sent. Both are credentials, shown nowhere."""

from __future__ import annotations

from urllib.parse import urlsplit

from supervisor.domain.errors import SettingsRefused
from supervisor.settings import files as settings_files
from supervisor.settings.values import safe_address

SECRET = ("alert_url", "alert_secret")


def check(url: str, secret: str) -> None:
    """Raises SettingsRefused, without repeating the address."""
    if url and (safe_address(url) is None or not url.isprintable() or " " in url):
        raise SettingsRefused(
            "alert_url: expected https://HOST/PATH without a user name, or http:// with a loopback address",
            {"name": "alert_url"},
        )
    settings_files.check("alert_secret", secret)


def shown(name: str, value: str) -> str:
    """What may be shown: that it is set, and which host the address is of."""
    if not value:
        return ""
    if name == "alert_url":
        return f"{urlsplit(value).scheme}://{urlsplit(value).hostname}/***"
    return value if value.startswith(settings_files.FILE) else "***"
