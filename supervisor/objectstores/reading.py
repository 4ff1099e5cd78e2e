"""Remote object stores by the scheme of their address, and stores that are not ours, opened to be read.

`REMOTE` is the one list of remote stores. Each one's client is imported when a store of its scheme is opened.
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
    """Our own store at this address; asks nobody. `patience_s`: how long a passing trouble is waited for, at each
    request. ValueError for an address that is none of a remote store; ImportError where its client is not installed."""
    scheme = url.partition("://")[0]
    if scheme not in REMOTE:
        raise ValueError(f"no remote object store has an address such as {scheme}://")
    return REMOTE[scheme](url, patience_s)


@contextlib.contextmanager
def open_objects(url: str) -> Iterator[ObjectReader]:
    """A store that is not ours, to be read with our account. ValueError for one that cannot be read from here."""
    if url.startswith("file:"):
        yield PlainFolder(url)
        return
    try:
        opened = _cloud_storage(url, PATIENCE_S)
    except ImportError as error:
        raise ValueError(str(error)) from None
    with contextlib.closing(opened):
        yield opened
