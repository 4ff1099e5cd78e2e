"""Files and folders of machines: no crash leaves half of a file, and an unreadable file never counts as missing.

Each file is a JSON object, written by rename. Removal works for folders whose permissions a training has removed, and
never follows a link. What cannot be removed is logged and left, so that it does not prevent the end of a machine.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

from supervisor.contract.stores.durable import sync_folder


class Unreadable(Exception):
    """A file or folder exists, or may exist, and cannot be read. It says nothing about the machine."""


def read_json(path: Path) -> Optional[Dict[str, Any]]:
    """The JSON object in `path`; None: there is no such file. Unreadable for everything else."""
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Unreadable(f"{path} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise Unreadable(f"{path} does not hold a JSON object")
    return data


def write_json(path: Path, data: Mapping[str, object]) -> None:
    write_text(path, json.dumps(data, indent=1))


def write_text(path: Path, text: str) -> None:
    """Write by rename, readable by this user only: a reader sees the old file or the new file. OSError."""
    import tempfile  # late, as in operations.py

    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def private_opener(path: str, flags: int) -> int:
    """An opener for our own files: readable by this user only, and never through a link in its place."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def remove(path: Path) -> None:
    """Remove a file, or a folder with its content. A missing path is success. Raises nothing."""
    try:
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
            return
        shutil.rmtree(path, ignore_errors=True)
        if path.exists():
            _open_folders(path)
            shutil.rmtree(path)
    except OSError as error:
        text = "%s could not be removed: %s. It may contain output of a training: remove it by hand."
        warn("leftover_not_removed", text, path, error)


def _open_folders(path: Path) -> None:
    """Restore our permission to list each folder and to remove its content."""
    with suppress(OSError):
        path.chmod(0o700)
    for folder, below, _ in os.walk(path):
        for name in below:
            if not os.path.islink(os.path.join(folder, name)):
                with suppress(OSError):
                    os.chmod(os.path.join(folder, name), 0o700)


def clause(words: object) -> str:
    """A foreign text as a part of our sentence: without the full stop at its end."""
    return str(words).rstrip(". \r\n\t")


def warn(action: str, text: str, *values: object, machine: Optional[str] = None) -> None:
    """A line of the log. `action`: what happened, in one word; `machine`: the name of the one it is about."""
    import logging  # late, as in operations.py

    extra = {"action": action} if machine is None else {"action": action, "machine": machine}
    logging.getLogger(__name__).warning(text, *values, extra=extra)
