"""The bucket of the tests' cloud as simulated agents use it: without HTTP.

Their way to the store is tested elsewhere (tests/contracts, tests/agent); here they only have to leave the right
objects in it, and a story has hundreds of their requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from supervisor.ports.objectstore import ABSENT, ObjectInfo, ObjectMissing, Page, PreconditionFailed
from tests.cloud.storage import StorageFake
from tests.cloud.storage_objects import Stored


class Bucket:
    """The promises of ports/objectstore.py that the agents of the scenarios need. One thread at a time."""

    def __init__(self, storage: StorageFake, name: str) -> None:
        self._storage, self._name = storage, name
        self.url = f"gs://{name}"

    def put(
        self, key: str, data: bytes, if_generation: str | None = None, metadata: Mapping[str, str] | None = None
    ) -> ObjectInfo:
        self._check(key, if_generation)
        return _info(self._storage.put(self._name, key, data, dict(metadata or {})))

    def get(self, key: str) -> tuple[bytes, ObjectInfo]:
        found = self._find(key)
        return found.data, _info(found)

    def stat(self, key: str) -> ObjectInfo:
        return _info(self._find(key))

    def pages(self, prefix: str) -> Iterator[Page]:
        names = self._storage.names(self._name, prefix)
        yield Page(tuple(self.stat(name) for name in names), self._storage.clock())

    def delete(self, key: str, if_generation: str | None = None) -> bool:
        there = self._storage.find(self._name, key) is not None
        self._check(key, if_generation)
        if there:
            self._storage.remove(self._name, key)
        return there

    def _find(self, key: str) -> Stored:
        found = self._storage.find(self._name, key)
        if found is None:
            raise ObjectMissing(key)
        return found

    def _check(self, key: str, if_generation: str | None) -> None:
        found = self._storage.find(self._name, key)
        if if_generation is not None and if_generation != (ABSENT if found is None else str(found.generation)):
            raise PreconditionFailed(key)


def _info(stored: Stored) -> ObjectInfo:
    return ObjectInfo(stored.name, len(stored.data), str(stored.generation), stored.updated, stored.metadata)
