"""Where alerts go: one address, and the secret that signs what is sent. Both are credentials, shown nowhere."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from supervisor.domain.errors import SettingsRefused
from supervisor.settings_values import safe_address

SECRET = ("alert_url", "alert_secret")
FILE = "file:"


def check(url: str, secret: str) -> None:
    """Raises SettingsRefused, without repeating the address."""
    if url and (safe_address(url) is None or not url.isprintable() or " " in url):
        raise SettingsRefused(
            "alert_url: expected https://HOST/PATH without a user name, or http:// with a loopback address",
            {"name": "alert_url"},
        )
    if secret.startswith(FILE) and not secret.removeprefix(FILE).startswith("/"):
        raise SettingsRefused(
            "alert_secret: file: needs the whole path of the file, such as file:/etc/spot/alert-secret",
            {"name": "alert_secret"},
        )


def secret_of(setting: str) -> str:
    """The secret itself, where the setting names a file: its first line. Raises SettingsRefused."""
    if not setting.startswith(FILE):
        return setting
    path = Path(setting.removeprefix(FILE))
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingsRefused(f"alert_secret: {path} cannot be read: {reason}", {"path": str(path)}) from None
    if not text:
        raise SettingsRefused(f"alert_secret: {path} is empty", {"path": str(path)})
    return text.splitlines()[0].strip()


def shown(name: str, value: str) -> str:
    """What may be shown: that it is set, and which host the address is of."""
    if not value:
        return ""
    if name == "alert_url":
        return f"{urlsplit(value).scheme}://{urlsplit(value).hostname}/***"
    return value if value.startswith(FILE) else "***"
