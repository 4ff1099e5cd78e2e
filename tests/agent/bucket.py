"""A bucket on loopback and the agent's client of it, with a clock that advances at once when the client waits."""

from supervisor.agent.store.gcs import SMALL_BYTES, GcsStore
from supervisor.agent.store.googleapi import RetryPolicy
from tests.agent.bench import ManualClock
from tests.cloud.storage import StorageFake

BUCKET, PREFIX = "spot-test", "team/a"
RETRY_FOR_S = 30.0
LARGE = SMALL_BYTES + 3_000_001  # bytes of a file that is sent in a session
INSERT, READ, LIST, DELETE = (f"storage.objects.{what}" for what in ("insert", "get", "list", "delete"))


def store_at(cloud: StorageFake, clock: ManualClock, bucket: str = BUCKET) -> GcsStore:
    return GcsStore.at(f"gs://{bucket}/{PREFIX}", cloud.url, policy=RetryPolicy(RETRY_FOR_S, clock.sleep, clock))
