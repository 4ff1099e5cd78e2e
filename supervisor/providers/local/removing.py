"""Removing what a training has made: also out of folders that it closed to everybody, never through a link.

What will not go is told and left; it never keeps a machine from being over.
"""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path

from supervisor.telemetry import logs as telemetry

LOG = logging.getLogger(__name__)


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
