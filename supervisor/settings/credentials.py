"""Settings that are credentials: the admin token, the alert address, the secret that signs alerts, and the address of
the database.

Such a setting may name a file instead, `file:/PATH`; its value is the first line of that file. So no environment, unit
or compose file has to contain a password: containers and service managers provide files. The first
three are never shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from supervisor.domain.errors import SettingsRefused
from supervisor.settings.values import safe_address

FILE = "file:"
SECRET = ("admin_token", "alert_url", "alert_secret")  # shown by `shown` only


@dataclass(frozen=True, kw_only=True)
class AlertSettings:
    """`alert_url`: where announcements are sent, "" = to the log only. `alert_secret`: the secret that signs them, or
    file:/PATH. `webhook_allow_hosts`: receivers that may be private and need no https. `patrol_every_s`: how often a
    summary is announced, 0 = never."""

    alert_url: str = field(default="", repr=False)
    alert_secret: str = field(default="", repr=False)
    webhook_allow_hosts: tuple[str, ...] = ()
    patrol_every_s: float = 86400.0


def check_alerts(s: AlertSettings) -> None:
    """Raises SettingsRefused, which does not contain the address."""
    if s.alert_url and (safe_address(s.alert_url) is None or not s.alert_url.isprintable() or " " in s.alert_url):
        raise SettingsRefused(
            "alert_url: expected https://HOST/PATH without a user name, or http:// with a loopback address",
            {"name": "alert_url"},
        )
    check_file("alert_secret", s.alert_secret)


def shown(name: str, value: str) -> str:
    """What may be shown of a setting in SECRET: that it is set, and the host of the address."""
    if not value:
        return ""
    if name == "alert_url":
        return f"{urlsplit(value).scheme}://{urlsplit(value).hostname}/***"
    return value if value.startswith(FILE) else "***"


def check_file(name: str, setting: str) -> None:
    """Raises SettingsRefused for a relative path, because services start in other folders than people."""
    if setting.startswith(FILE) and not setting.removeprefix(FILE).startswith("/"):
        text = f"{name}: file: needs the whole path of the file, such as file:/etc/spot/{name.replace('_', '-')}"
        raise SettingsRefused(text, {"name": name})


def secret_of(name: str, setting: str) -> str:
    """The value itself. Raises SettingsRefused, which names the file and none of its content."""
    if not setting.startswith(FILE):
        return setting
    check_file(name, setting)
    path = Path(setting.removeprefix(FILE))
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingsRefused(f"{name}: {path} cannot be read: {reason}", {"path": str(path)}) from None
    if not text:
        raise SettingsRefused(f"{name}: {path} is empty", {"path": str(path)})
    return text.splitlines()[0].strip()
