"""Papers and folders of machines: written so that no crash leaves half of one, read whole or known to be unreadable.

A paper is a JSON object in a file, written by rename. What could not be read is no answer, least of all "there is
none". Removing reaches folders that a training closed to everybody, and never goes through a link; what will not go is
logged and left, so that it never keeps a machine from being over.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from supervisor.contract.stores.durable import sync_folder
from supervisor.ports.provider import ProviderUnavailable
from supervisor.telemetry import logs as telemetry

LOG = logging.getLogger(__name__)


class Unreadable(Exception):
    """A paper or folder is there, or may be, and cannot be read. Says nothing about the machine."""


@contextmanager
def clear_answers(what: str) -> Iterator[None]:
    """`what` was asked for. Raises ProviderUnavailable."""
    try:
        yield
    except (OSError, Unreadable) as error:
        raise ProviderUnavailable(f"{what}: {error}") from error


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in `path`, None when there is no such file; Unreadable for everything else."""
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
    """Write by rename, for this user's eyes only: a reader sees the old paper or the new one."""
    descriptor, half_made = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        Path(half_made).replace(path)
    except BaseException:
        Path(half_made).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def private(path: str, flags: int) -> int:
    """An opener for files of ours: for this user's eyes only, and through no link that somebody laid in its place."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def remove(path: Path) -> None:
    """A file, or a folder with all that is in it. A path that is not there is no matter. Raises nothing."""
    try:
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
            return
        shutil.rmtree(path, ignore_errors=True)
        if path.exists():
            _open_folders(path)
            shutil.rmtree(path)
    except OSError as error:
        LOG.warning(
            "%s could not be removed: %s. It may hold what a training has written: remove it by hand.",
            path,
            error,
            extra={telemetry.ACTION: "leftover_not_removed"},
        )


def _open_folders(path: Path) -> None:
    """Give us back the right to look into each folder and to take things out of it."""
    with suppress(OSError):
        path.chmod(0o700)
    for folder, below, _ in os.walk(path):
        for name in below:
            if not os.path.islink(os.path.join(folder, name)):
                with suppress(OSError):
                    os.chmod(os.path.join(folder, name), 0o700)
