"""What the doctor of Google Cloud looks at: a project and a bucket in order, until a test spoils something."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from supervisor.domain.findings import Finding
from supervisor.objectstores.gcs import GcsStore
from supervisor.providers.gce.clients import Compute
from supervisor.providers.gce.config import GceConfig, parse_shape
from supervisor.providers.gce.doctor import Doctor
from supervisor.providers.gce.retry import Retry
from tests.cloud.compute_rig import FixedToken, Rig
from tests.cloud.storage import StorageFake
from tests.objectstores.gcs_bed import URL, cloud_storage


class Scene:
    def __init__(self, rig: Rig, storage: StorageFake) -> None:
        self.rig, self.storage = rig, storage
        self.catalog = rig.fake.catalog
        self.credentials: Any = FixedToken
        self.config = GceConfig(
            project=self.catalog.project,
            zones=("us-east1-c", "us-east1-b"),
            shapes={"t4": parse_shape("n1-standard-8+1xnvidia-tesla-t4"), "l4": parse_shape("g2-standard-8")},
            service_account="worker@p.iam.gserviceaccount.com",
            prices={"t4": (0.15, 0.5), "l4": (0.25, 0.8)},
            endpoint=rig.fake.url,
        )

    def look(self, image: tuple[Any, ...] = (), **changes: Any) -> dict[str, Finding]:
        config = replace(self.config, **changes)
        retry = Retry(deadline_s=1.0, per_try_s=5.0, sleep=lambda _: None)
        store = GcsStore(URL)
        try:
            found = Doctor(config, Compute(config, retry, self.credentials), store, *image).examine()
        finally:
            store.close()
        assert all(one.group == "google" for one in found)
        assert all(one.cause or one.fix for one in found if one.result != "ok"), found
        return {one.name: one for one in found}


@contextmanager
def a_project() -> Iterator[Scene]:
    """Every exchange is compared with Google's documents."""
    rig = Rig()
    with cloud_storage() as storage:
        yield Scene(rig, storage)
    rig.http.close()
    rig.fake.close()
    assert rig.violations == []
