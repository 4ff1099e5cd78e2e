"""The object store that scenarios run on keeps the promises of a real one."""

import pytest

from tests.contracts.objectstore_suite import ObjectStoreSuite
from tests.fakes.objectstore import MemoryStore


class TestMemoryStore(ObjectStoreSuite):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()

    def make_unreadable(self, store: MemoryStore, prefix: str) -> None:
        store.fail_prefixes.add(prefix)
