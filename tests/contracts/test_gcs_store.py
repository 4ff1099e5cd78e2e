"""Cloud Storage as the supervisor sees it: Google's client against the store on loopback."""

from collections.abc import Iterator

import pytest

from supervisor.objectstores.gcs import GcsStore
from tests.cloud.storage import StorageFake
from tests.contracts.objectstore_suite import ObjectStoreSuite


class TestGcsStore(ObjectStoreSuite):
    @pytest.fixture
    def fake(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[StorageFake]:
        fake = StorageFake()
        fake.make_bucket("spot-runs")
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake.url)
        yield fake
        fake.close()

    @pytest.fixture
    def store(self, fake: StorageFake) -> Iterator[GcsStore]:
        self._fake = fake
        store = GcsStore("gs://spot-runs/team/a")
        yield store
        store.close()

    def make_unreadable(self, store: GcsStore, prefix: str) -> None:
        self._fake.deny("*", f"spot-runs/team/a/{prefix}")
