"""Cloud Storage as the supervisor sees it: Google's client against the store on loopback, over HTTP."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from supervisor.objectstores.gcs import store as gcs
from supervisor.objectstores.gcs import transfer
from supervisor.objectstores.gcs.store import GcsStore
from supervisor.ports.objectstore import ObjectMissing
from tests.cloud.storage import StorageFake
from tests.cloud.storage_objects import Conditions
from tests.contracts.objectstore_suite import ObjectStoreSuite
from tests.objectstores.gcs_bed import BUCKET, URL, cloud_storage


@pytest.fixture
def fake() -> Iterator[StorageFake]:
    with cloud_storage() as fake:
        yield fake


@pytest.fixture
def store(fake: StorageFake) -> Iterator[GcsStore]:
    store = GcsStore(URL)
    yield store
    store.close()


class TestGcsStore(ObjectStoreSuite):
    rounds = 10

    @pytest.fixture
    def store(self, fake: StorageFake, store: GcsStore) -> GcsStore:
        self._fake = fake
        return store

    def make_unreadable(self, store: GcsStore, prefix: str) -> None:
        self._fake.deny("*", f"{BUCKET}/team/{prefix}")


# --- what the suite catches here --------------------------------------------------------------------------------------

SUITE = ObjectStoreSuite


def ends_after_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gcs, "pages", lambda *args, **options: itertools.islice(transfer.pages(*args, **options), 1))


def forgets_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gcs, "condition_of", lambda _: None)


def takes_unreadable_for_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gcs, "unavailable", lambda _, __, key, ___: ObjectMissing(key))


def the_bucket_compares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Conditions, "check", lambda *_: None)


@pytest.mark.parametrize(
    ("breaks", "caught_by"),
    [
        (ends_after_a_page, SUITE.test_keys_come_in_byte_order_whatever_the_page),
        (forgets_conditions, SUITE.test_if_absent),
        (forgets_conditions, SUITE.test_delete),
        (takes_unreadable_for_missing, SUITE.test_could_not_read_is_not_absent),
        (the_bucket_compares_nothing, SUITE.test_if_generation),
        (the_bucket_compares_nothing, SUITE.test_of_16_that_create_one_object_one_wins),
    ],
    ids=lambda what: what.__name__,
)
def test_a_broken_promise_is_caught(
    store: GcsStore,
    fake: StorageFake,
    monkeypatch: pytest.MonkeyPatch,
    breaks: Callable[[pytest.MonkeyPatch], None],
    caught_by: Callable[..., None],
) -> None:
    suite = TestGcsStore()
    suite._fake = fake
    breaks(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception, ObjectMissing)):
        caught_by(suite, store)
