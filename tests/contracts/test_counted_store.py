"""A store that counts keeps the promises of the one behind it, and says how each call ended."""

import pytest

from supervisor.objectstores.counted import CountedStore
from supervisor.ports.objectstore import ABSENT, ObjectMissing, PreconditionFailed, StoreUnavailable
from supervisor.telemetry import metrics
from tests.contracts.objectstore_suite import ObjectStoreSuite
from tests.fakes.objectstore import MemoryStore


class TestCountedStore(ObjectStoreSuite):
    @pytest.fixture
    def store(self) -> CountedStore:
        return CountedStore(MemoryStore())

    def make_unreadable(self, store: CountedStore, prefix: str) -> None:
        assert isinstance(store.inner, MemoryStore)
        store.inner.fail_prefixes.add(prefix)


def test_each_call_counts_by_its_method_and_how_it_ended() -> None:
    behind = MemoryStore()
    store, before = CountedStore(behind), metrics.STORE_CALLS.values()
    store.put("a/1", b"x")
    with pytest.raises(PreconditionFailed):
        store.put("a/1", b"y", if_generation=ABSENT)
    with pytest.raises(ObjectMissing):
        store.get("a/2")
    with pytest.raises(ObjectMissing):
        b"".join(store.read("a/2"))
    assert b"".join(store.read("a/1")) == b"x"
    assert len(list(store.pages("a/"))) == 1
    behind.fail_prefixes.add("a/")
    with pytest.raises(StoreUnavailable):
        list(store.pages("a/"))
    after = metrics.STORE_CALLS.values()
    grown = {labels: count - before.get(labels, 0) for labels, count in after.items() if count > before.get(labels, 0)}
    assert grown == {
        ("put", "ok"): 1, ("put", "answered"): 1, ("get", "answered"): 1, ("read", "answered"): 1, ("read", "ok"): 1,
        ("list", "ok"): 1, ("list", "unavailable"): 1,
    }  # fmt: skip
