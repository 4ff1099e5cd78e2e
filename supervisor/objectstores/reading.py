"""Stores that are not ours, opened by their address to be read: somebody's bucket, or a copy of it in a folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from supervisor.objectstores.plainfolder import PlainFolder
from supervisor.ports.objectstore import ObjectReader


@contextlib.contextmanager
def open_objects(url: str) -> Iterator[ObjectReader]:
    """A store that is not ours, to be read with our account. ValueError for one that cannot be read from here."""
    if url.startswith("file:"):
        yield PlainFolder(url)
        return
    from supervisor.objectstores.gcs.store import GcsStore

    try:
        opened = GcsStore.at(url)
    except ImportError as error:
        raise ValueError(str(error)) from None
    with contextlib.closing(opened):
        yield opened
