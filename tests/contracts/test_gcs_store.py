"""Cloud Storage as the supervisor sees it: Google's client against the store on loopback, over HTTP."""

from collections.abc import Iterator

import pytest

from supervisor.objectstores.gcs import GcsStore
from tests.cloud.storage import StorageFake
from tests.contracts.objectstore_suite import ObjectStoreSuite
from tests.objectstores.gcs_bed import BUCKET, URL, cloud_storage


@pytest.fixture
def fake() -> Iterator[StorageFake]:
    with cloud_storage() as fake:
        yield fake


class TestGcsStore(ObjectStoreSuite):
    rounds = 10

    @pytest.fixture
    def store(self, fake: StorageFake) -> Iterator[GcsStore]:
        self._fake = fake
        store = GcsStore(URL)
        yield store
        store.close()

    def make_unreadable(self, store: GcsStore, prefix: str) -> None:
        self._fake.deny("*", f"{BUCKET}/team/{prefix}")
