"""What the doctor of Google Cloud checks: a project and a bucket in order, until a test breaks something."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from supervisor.domain.findings import Finding
from supervisor.objectstores.gcs.store import GcsStore
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.retry import Retry
from supervisor.providers.gce.config import GceConfig, parse_shape
from supervisor.providers.gce.doctor.checks import Doctor
from supervisor.providers.gce.prices.pricing import Pricing
from supervisor.services.doctor.checkup import answers
from tests.cloud.compute_rig import FixedToken, Rig
from tests.cloud.discovery import Oracle
from tests.cloud.iamfake import IamFake
from tests.cloud.resourcemanager import ResourceManagerFake
from tests.cloud.storage import StorageFake
from tests.cloud.web import Watch
from tests.objectstores.gcs_bed import BUCKET, URL, cloud_storage

ACCOUNT = "spot@p.iam.gserviceaccount.com"
WORKER = "worker@p.iam.gserviceaccount.com"


class Named(FixedToken):
    """Credentials that name their account."""

    service_account_email = ACCOUNT


class Scene:
    def __init__(self, rig: Rig, storage: StorageFake, projects: ResourceManagerFake, iam: IamFake) -> None:
        self.rig, self.storage, self.projects, self.iam = rig, storage, projects, iam
        self.catalog = rig.fake.catalog
        self.credentials: Any = Named
        self.deadline_s = 10.0
        self.config = GceConfig(
            project=self.catalog.project,
            zones=("us-east1-c", "us-east1-b"),
            shapes={"t4": parse_shape("n1-standard-8+1xnvidia-tesla-t4"), "l4": parse_shape("g2-standard-8")},
            service_account=WORKER,
            prices={"t4": (0.15, 0.5), "l4": (0.25, 0.8)},
            endpoint=rig.fake.url,
            resource_manager_endpoint=projects.url,
            iam_endpoint=iam.url,
        )

    def look(self, image: dict[str, Any] | None = None, **changes: Any) -> dict[str, Finding]:
        config = replace(self.config, **changes)
        retry = Retry(deadline_s=1.0, per_try_s=5.0, sleep=lambda _: None)
        store = GcsStore(URL)
        try:
            compute = Compute(config, retry, self.credentials)
            pricing = Pricing(config, compute, time.time)
            doctor = Doctor(config, compute, store, prices=pricing.finding, **(image or {}))
            found = answers(doctor.checks(), self.deadline_s)
        finally:
            store.close()
        assert all(one.group == "google" for one in found)
        assert all(one.cause or one.fix for one in found if one.result != "ok"), found
        return {one.name: one for one in found}


@contextmanager
def a_project() -> Iterator[Scene]:
    """Every exchange is compared with Google's documents."""
    rig, wrong = Rig(), list[str]()

    def watch(service: str) -> Watch:
        oracle = Oracle(service)
        return lambda request, response: wrong.extend(oracle.check(request, response))

    projects = ResourceManagerFake(rig.fake.catalog.project, watch("cloudresourcemanager"))
    iam = IamFake(watch("iam"))
    iam.accounts = {WORKER, "123456789012-compute@developer.gserviceaccount.com"}
    with cloud_storage(CLOUDSDK_CONFIG="no-such-folder") as storage:
        storage.describe(BUCKET, location="US-EAST1")
        yield Scene(rig, storage, projects, iam)
    rig.http.close()
    for server in (rig.fake, projects, iam):
        server.close()
    assert rig.violations + wrong == []
