"""Remote object stores by the scheme of their address, and stores of others, opened for reading.

`REMOTE` is the one list of remote stores. The client of a store is imported when a store of its scheme is opened.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Protocol

from supervisor.objectstores.filesystem import PlainFolder
from supervisor.ports.objectstore import ObjectReader, ObjectStore

PATIENCE_S = 15.0


class RemoteStore(ObjectStore, Protocol):
    """A store behind a network."""

    def warm(self) -> None:
        """Load the client and find the credentials now, not at the first request. StoreUnavailable."""
        ...

    def close(self) -> None: ...


def _cloud_storage(url: str, patience_s: float) -> RemoteStore:
    from supervisor.objectstores.gcs.store import GcsStore

    return GcsStore.at(url, patience_s)


REMOTE: dict[str, Callable[[str, float], RemoteStore]] = {"gs": _cloud_storage}


def open_remote(url: str, patience_s: float = PATIENCE_S) -> RemoteStore:
    """Our own store at this address; sends no request. `patience_s`: how long a transient error is retried, for each
    request. ValueError for an address that is not of a remote store; ImportError where its client is not installed."""
    scheme = url.partition("://")[0]
    if scheme not in REMOTE:
        raise ValueError(f"there is no remote object store for addresses like {scheme}://")
    return REMOTE[scheme](url, patience_s)


@contextlib.contextmanager
def open_objects(url: str) -> Iterator[ObjectReader]:
    """A store of others, read with our account. ValueError for a store that cannot be read from here."""
    if url.startswith("file:"):
        yield PlainFolder(url)
        return
    try:
        opened = _cloud_storage(url, PATIENCE_S)
    except ImportError as error:
        raise ValueError(str(error)) from None
    with contextlib.closing(opened):
        yield opened
