"""The agent's store behind the door, with the agent's errors: all bytes through the supervisor, and past it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.store.door.store import DoorStore
from supervisor.agent.store.gcs import GcsStore
from supervisor.agent.store.googleapi import RetryPolicy
from supervisor.contract.stores import promise
from supervisor.contract.stores.folder import FolderStore
from tests.cloud.storage import StorageFake
from tests.contracts.objectstore_suite import AgentStoreSuite
from tests.fakes.door import DoorFake, Past

ONCE = RetryPolicy(retry_for_s=0.0)


def store_at(door: DoorFake, folder: Path, policy: RetryPolicy = ONCE) -> DoorStore:
    (folder / "pass.json").write_text(json.dumps(door.new_pass()))
    return DoorStore.at(door.store_url, str(folder / "pass.json"), policy=policy)


class TestAgentDoorStore(AgentStoreSuite):
    words = promise
    rounds = 5

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[DoorStore]:
        self.door = DoorFake(FolderStore.create(tmp_path / "objects"), everything=True)
        store = store_at(self.door, tmp_path)
        yield store
        store.close()
        self.door.close()

    def make_unreadable(self, store: Any, prefix: str) -> None:
        self.door.denied = prefix


class TestAgentDoorStoreBeforeABucket(AgentStoreSuite):
    words = promise
    rounds = 5

    @pytest.fixture
    def store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DoorStore]:
        monkeypatch.delenv("GCE_METADATA_HOST", raising=False)
        self.cloud = StorageFake()
        self.cloud.make_bucket("spot-test")
        inner = GcsStore.at("gs://spot-test/some/where", self.cloud.url, policy=ONCE)
        door = DoorFake(inner, past=Past(self.cloud.url, "spot-test", "some/where/"), everything=True)
        store = store_at(door, tmp_path)
        yield store
        store.close()
        inner.close()
        door.close()
        assert not [each for each in self.cloud.requests if "pass-" in each.headers.get("authorization", "")]
        self.cloud.close()

    def make_unreadable(self, store: Any, prefix: str) -> None:
        self.cloud.deny("*", "spot-test/some/where/" + prefix)
