"""The agent's store before the real door: the supervisor's API on a socket, and the objects of one run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from supervisor.agent.store.door.store import DoorStore
from supervisor.api.wire.deps import Transfers
from supervisor.contract import runfiles
from supervisor.contract.stores import promise
from tests.api.listening import serving
from tests.contracts.objectstore_objects import ODD_KEYS
from tests.contracts.objectstore_suite import AgentStoreSuite
from tests.contracts.test_agent_door_store import ONCE
from tests.fakes.objectstore import MemoryStore
from tests.services.bed import make_bed
from tests.services.door_bed import RUN_ID, make_door
from tests.services.fresh import open_fresh

LONGEST = 512 - len(runfiles.folder(RUN_ID) + "x1000/")


class OwnFolder:
    """A folder of the run as if it were a whole store: a pass opens nothing else."""

    def __init__(self, store: DoorStore, number: int) -> None:
        self._store, self.url, self.folder = store, store.url, f"{runfiles.folder(RUN_ID)}x{number}/"

    def put(self, key: str, *values: Any, **named: Any) -> promise.ObjectInfo:
        return self._cut(self._store.put(self._key(key), *values, **named))

    def put_file(self, key: str, *values: Any, **named: Any) -> promise.ObjectInfo:
        return self._cut(self._store.put_file(self._key(key), *values, **named))

    def get(self, key: str) -> tuple[bytes, promise.ObjectInfo]:
        data, info = self._store.get(self._key(key))
        return data, self._cut(info)

    def read(self, key: str, *values: Any) -> Iterator[bytes]:
        return self._store.read(self._key(key), *values)

    def stat(self, key: str) -> promise.ObjectInfo:
        return self._cut(self._store.stat(self._key(key)))

    def delete(self, key: str, *values: Any, **named: Any) -> bool:
        return self._store.delete(self._key(key), *values, **named)

    def pages(self, prefix: str, *values: Any, **named: Any) -> Iterator[promise.Page]:
        promise.check_prefix(prefix)
        for page in self._store.pages(self.folder + prefix, *values, **named):
            yield promise.Page(tuple(map(self._cut, page.objects)), page.server_time)

    def _key(self, key: str) -> str:
        promise.check_key(key)
        return self.folder + key

    def _cut(self, info: promise.ObjectInfo) -> promise.ObjectInfo:
        return info._replace(key=info.key[len(self.folder) :])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DoorStore, MemoryStore]]:
    """One server for all: each test has a folder of its own."""
    folder = tmp_path_factory.mktemp("served")
    with closing(open_fresh(folder / "supervisor.db")) as database:
        bed = make_bed(database, folder)
        door = make_door(bed, folder)
        door.launching()
        with serving(replace(door.services, transfers=Transfers(64, 64))) as serving_now:
            path = folder / "pass.json"
            path.write_text(json.dumps({"text": door.pass_of(), "renew_at_boottime_s": 1e12}))
            url = f"door:http://127.0.0.1:{serving_now.port}/v1/door/{RUN_ID}"
            own = DoorStore.at(url, str(path), policy=ONCE)
            yield own, bed.objects
            own.close()


class TestAgentDoorStoreServed(AgentStoreSuite):
    words = promise
    rounds = 3
    numbers = itertools.count(1)

    @pytest.fixture
    def store(self, served: tuple[DoorStore, MemoryStore]) -> OwnFolder:
        own, self.objects = served
        return OwnFolder(own, next(self.numbers))

    def make_unreadable(self, store: Any, prefix: str) -> None:
        self.objects.fail_prefixes.add(store.folder + prefix)

    @pytest.mark.parametrize("key", [key for key in ODD_KEYS if len(key.encode()) <= LONGEST], ids=ascii)
    def test_an_odd_key_is_a_key(self, store: Any, key: str) -> None:
        super().test_an_odd_key_is_a_key(store, key)

    def test_metadata_has_a_limit_that_every_store_keeps(self, store: Any) -> None:
        """Here as JSON in a header, and all headers have 16 KiB: more than any beat needs, which is ASCII."""
        metadata = {"beat": json.dumps({"text": "x" * 7000, "metrics": {f"m{n}": n for n in range(90)}})[:8188]}
        info = store.put("beats/a", b"", metadata=metadata)
        assert dict(store.stat("beats/a").metadata) == dict(info.metadata) == metadata
        with pytest.raises(ValueError, match="8192"):
            store.put("beats/a", b"more", metadata={"beat": "x" * 8189})
        with pytest.raises(self.words.StoreUnavailable):
            store.put("beats/a", b"more", metadata={"é": "日" * 2730})
        assert store.stat("beats/a") == info
