"""The agent's own Cloud Storage client, with the agent's errors, against a bucket over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from supervisor.agent.store.gcs import GcsStore
from supervisor.agent.store.googleapi import RetryPolicy
from supervisor.contract.stores import promise
from tests.cloud.discovery import Oracle
from tests.cloud.storage import StorageFake
from tests.contracts.objectstore_suite import AgentStoreSuite


class TestAgentGcsStore(AgentStoreSuite):
    words = promise
    rounds = 10

    @pytest.fixture
    def bucket(self) -> Iterator[StorageFake]:
        oracle, wrong = Oracle("storage"), []
        fake = StorageFake(watch=lambda request, response: wrong.extend(oracle.check(request, response)))
        fake.make_bucket("spot-test")
        yield fake
        fake.close()
        assert not wrong, wrong

    @pytest.fixture
    def store(self, bucket: StorageFake, monkeypatch: pytest.MonkeyPatch) -> Iterator[GcsStore]:
        monkeypatch.delenv("GCE_METADATA_HOST", raising=False)
        self.cloud = bucket
        store = GcsStore.at("gs://spot-test/some/where", bucket.url, policy=RetryPolicy(retry_for_s=0.0))
        yield store
        store.close()

    def make_unreadable(self, store: Any, prefix: str) -> None:
        self.cloud.deny("*", "spot-test/some/where/" + prefix)
