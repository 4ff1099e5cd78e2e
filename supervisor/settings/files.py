"""A setting that is a credential may name a file instead, `file:/PATH`: what counts is the file's first line.

So a password stands in no environment, no unit and no compose file; containers and service managers hand out files.
"""

from __future__ import annotations

from pathlib import Path

from supervisor.domain.errors import SettingsRefused

FILE = "file:"


def check(name: str, setting: str) -> None:
    """Raises SettingsRefused for a relative path: services start in other folders than people."""
    if setting.startswith(FILE) and not setting.removeprefix(FILE).startswith("/"):
        text = f"{name}: file: needs the whole path of the file, such as file:/etc/spot/{name.replace('_', '-')}"
        raise SettingsRefused(text, {"name": name})


def secret_of(name: str, setting: str) -> str:
    """The value itself. Raises SettingsRefused, naming the file and nothing of what is in it."""
    if not setting.startswith(FILE):
        return setting
    check(name, setting)
    path = Path(setting.removeprefix(FILE))
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingsRefused(f"{name}: {path} cannot be read: {reason}", {"path": str(path)}) from None
    if not text:
        raise SettingsRefused(f"{name}: {path} is empty", {"path": str(path)})
    return text.splitlines()[0].strip()
