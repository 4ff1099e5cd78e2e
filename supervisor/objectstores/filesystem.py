"""The folder store in the supervisor's words.

The supervisor and the agents of one machine write the same folder, so its locking protocol is written once, in the
agent (which cannot import the ports), and this file only carries values and errors across.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from supervisor.contract.stores import errors as agent
from supervisor.contract.stores.folder import FolderStore
from supervisor.ports.objectstore import (
    MAX_PAGE,
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    Page,
    PreconditionFailed,
    StoreFull,
    StoreUnavailable,
)


class FilesystemStore(ObjectStore):
    """The objects in the folder `root`, which `create` made once; until then every answer is StoreUnavailable."""

    def __init__(self, root: Path) -> None:
        self._folder = FolderStore(root)
        self.root = Path(self._folder.root)
        self.url = self._folder.url

    @classmethod
    def create(cls, root: Path) -> FilesystemStore:
        """The store at `root`, made if it is not one yet. StoreUnavailable when the folder holds other things."""
        with _carried():
            FolderStore.create(root)
        return cls(root)

    @classmethod
    def at(cls, url: str) -> FilesystemStore:
        """The store that a `file:///...` URL names. ValueError for any other URL."""
        return cls(Path(FolderStore.at(url).root))

    def put(
        self,
        key: str,
        data: bytes,
        if_generation: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        with _carried():
            return _info(self._folder.put(key, data, if_generation, metadata))

    def put_file(self, key: str, path: Path, if_generation: str | None = None) -> ObjectInfo:
        with _carried():
            return _info(self._folder.put_file(key, path, if_generation))

    def get(self, key: str) -> tuple[bytes, ObjectInfo]:
        with _carried():
            data, found = self._folder.get(key)
            return data, _info(found)

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        with _carried():
            yield from self._folder.read(key, offset, length)

    def stat(self, key: str) -> ObjectInfo:
        with _carried():
            return _info(self._folder.stat(key))

    def pages(self, prefix: str, page_size: int = MAX_PAGE) -> Iterator[Page]:
        with _carried():
            for page in self._folder.pages(prefix, page_size):
                yield Page(tuple(map(_info, page.objects)), page.server_time)

    def delete(self, key: str, if_generation: str | None = None) -> bool:
        with _carried():
            return self._folder.delete(key, if_generation)


@contextmanager
def _carried() -> Iterator[None]:
    """Raise the agent's errors as the port's, with their texts and causes."""
    try:
        yield
    except agent.ObjectMissing as error:
        raise ObjectMissing(*error.args) from None
    except agent.PreconditionFailed as error:
        raise PreconditionFailed(*error.args) from None
    except agent.StoreFull as error:
        raise StoreFull(*error.args) from error.__cause__
    except agent.StoreUnavailable as error:
        raise StoreUnavailable(*error.args) from error.__cause__


def _info(found: agent.ObjectInfo) -> ObjectInfo:
    return ObjectInfo(found.key, found.size, found.generation, found.updated, found.metadata)
