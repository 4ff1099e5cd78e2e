"""A store in Google Cloud on loopback for one test, each exchange checked against Google's description of the API."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from supervisor.objectstores.gcs.store import GcsStore
from tests.cloud.discovery import Oracle
from tests.cloud.metadata import MetadataFake
from tests.cloud.storage import StorageFake
from tests.cloud.storage_signed import is_signed

BUCKET, URL = "spot-runs", "gs://spot-runs/team"


class Waiting:
    """Time that passes only where the store waits."""

    def __init__(self, now: float = 1_700_000_000.25) -> None:
        self.now = now
        self.pauses: list[float] = []

    def clock(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@contextmanager
def cloud_storage(clock: Callable[[], float] = time.time, **environment: str) -> Iterator[StorageFake]:
    """With the bucket in it and its address in the environment. Fails at the end for what the API does not know."""
    oracle, wrong = Oracle("storage"), []
    # A signed address is of the XML API, which has no such description.
    fake = StorageFake(
        clock, lambda request, response: wrong.extend([] if is_signed(request) else oracle.check(request, response))
    )
    fake.make_bucket(BUCKET)
    with patch.dict(os.environ, {"STORAGE_EMULATOR_HOST": fake.url, **environment}):
        yield fake
    fake.close()
    assert not wrong, wrong


@contextmanager
def store_over(waiting: Waiting, **settings: Any) -> Iterator[GcsStore]:
    store = GcsStore(URL, clock=waiting.clock, pause=waiting.pause, chance=lambda: 0.5, **settings)
    yield store
    store.close()


@contextmanager
def metadata_server(metadata: MetadataFake, folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which Google's libraries find their credentials there, and nowhere else."""
    # google-auth reads GCE_METADATA_HOST once, when it is imported.
    with patch("google.auth.compute_engine._metadata._GCE_METADATA_HOST", metadata.host):
        yield {
            "GCE_METADATA_HOST": metadata.host,
            "GCE_METADATA_IP": metadata.host,
            "CLOUDSDK_CONFIG": str(folder),  # a person's own credentials
        }
