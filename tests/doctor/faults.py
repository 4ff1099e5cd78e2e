"""The faults: how each is planted, the line that must name it, and the command in that line."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from supervisor.ports.store import StoreDown
from supervisor.reconciler.system_clock import SystemClock
from supervisor.services.doctor import state
from supervisor.storage.store import SqlStore
from tests.cloud import storage_requests
from tests.cloud.resourcemanager import switched_off
from tests.cloud.storage_objects import Conditions
from tests.cloud.web import Response
from tests.doctor.credentials import NONE, REVOKED, SESSION_OVER, credentials_that
from tests.doctor.setup import ACCOUNT, BUCKET, PROJECT, WORKER, Setup, gcloud_is_set_to

Plant = Callable[[Setup, pytest.MonkeyPatch], None]
MEMBER = f"serviceAccount:{ACCOUNT}"
BIND = f"gcloud projects add-iam-policy-binding {PROJECT} --member={MEMBER}"
ON_BUCKET = f"gcloud storage buckets add-iam-policy-binding gs://{BUCKET} --member={MEMBER}"


@dataclass(frozen=True)
class Fault:
    """`also`: further lines that are not ok for the same reason, and say so."""

    name: str
    line: str
    result: str
    fix: str  # is part of the line's fix
    plant: Plant
    also: tuple[str, ...] = ()


def _set(**values: str) -> Plant:
    return lambda setup, _: setup.environ.update({f"SPOT_{name.upper()}": text for name, text in values.items()})


def _bucket_says(**facts: Any) -> Plant:
    return lambda setup, _: setup.cloud.storage.describe(BUCKET, **facts)


def _without(permission: str) -> Plant:
    """Only the response to this request lacks it, so that only this line can find it."""

    def plant(setup: Setup, _: pytest.MonkeyPatch) -> None:
        for fake in (setup.cloud.projects, setup.cloud.iam, setup.cloud.storage):
            fake.holds = lambda asked: asked != permission

    return plant


def _refuse(path: str, status: int, reason: str) -> Plant:
    return lambda setup, _: setup.cloud.compute.fail_next(None, path, status, times=None, reason=reason)


def _quota(place: str, **limits: float) -> Plant:
    def plant(setup: Setup, _: pytest.MonkeyPatch) -> None:
        setup.cloud.compute.catalog.quotas[place] = {metric: (limit, 0.0) for metric, limit in limits.items()}

    return plant


def _clock_is_off(_: Setup, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SystemClock, "wall", lambda self: time.time() + 600)


def _disk_with(free: int) -> Plant:
    def plant(_: Setup, patch: pytest.MonkeyPatch) -> None:
        usage = namedtuple("usage", "total used free")
        patch.setattr(state.shutil, "disk_usage", lambda path: usage(10**12, 10**12 - free, free))
        assert shutil is state.shutil

    return plant


def _inodes_left(few: int) -> Plant:
    def plant(_: Setup, patch: pytest.MonkeyPatch) -> None:
        real = os.statvfs

        def left(path: Any) -> Any:
            found = list(real(path))
            found[7] = few  # f_favail
            return os.statvfs_result(found)

        patch.setattr(state.os, "statvfs", left)

    return plant


def _old_schema(setup: Setup, _: pytest.MonkeyPatch) -> None:
    with sqlite3.connect(setup.folder / "supervisor.db") as database:
        database.execute("UPDATE schema_version SET version_num = '0001'")
    database.close()


def _read_only(_: Setup, patch: pytest.MonkeyPatch) -> None:
    def check(self: SqlStore) -> None:
        raise StoreDown("attempt to write a readonly database")

    patch.setattr(SqlStore, "check", check)


def _no_conditions(_: Setup, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(storage_requests, "conditions", lambda request: Conditions())


def _no_agent(_: Setup, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("supervisor.wiring.adapters.agent_path", lambda folder: Path(folder) / "agent.pyz")


def _machine(owner: str) -> Plant:
    def plant(setup: Setup, _: pytest.MonkeyPatch) -> None:
        supervisor = owner or setup.supervisor_id
        labels = {"spot-supervisor-id": supervisor, "spot-run-id": "r", "spot-launch-id": "1-1-1"}
        setup.cloud.compute.fill([{"name": "spot-left-a1-t1", "zone": "us-east1-c", "labels": labels}])
        born = SystemClock().now
        # It has been there for an hour: a younger one may be on its way.
        _age(setup, born() - 3600)

    return plant


def _age(setup: Setup, born: float) -> None:
    from tests.cloud.compute_errors import rfc3339

    vm = setup.cloud.compute.instance("spot-left-a1-t1")
    vm.change(creationTimestamp=rfc3339(born))


def _alerts(status: int) -> Plant:
    def plant(setup: Setup, _: pytest.MonkeyPatch) -> None:
        setup.alert_answer = Response(status, {})

    return plant


def _absent(zone: str) -> Plant:
    return lambda setup, _: setup.cloud.compute.catalog.absent.add((zone, "n1-standard-8"))


def _no_prices(setup: Setup, _: pytest.MonkeyPatch) -> None:
    setup.environ["SPOT_GCE_SHAPES"] = "big=n1-highmem-8+1xnvidia-tesla-p4"
    setup.environ["SPOT_GCE_PRICES"] = ""


def _off(fake: str, api: str) -> Plant:
    def plant(setup: Setup, _: pytest.MonkeyPatch) -> None:
        getattr(setup.cloud, fake).trouble = switched_off(api, PROJECT)

    return plant


LOGIN = "gcloud auth application-default login"
FREE_PORT = "http://127.0.0.1:9"

FAULTS = [
    Fault("no credentials", "identity", "fail", LOGIN, credentials_that(NONE), ("image", "orphans")),
    Fault("credentials that were revoked", "identity", "fail", LOGIN, credentials_that(REVOKED), ("image", "orphans")),
    Fault(
        "credentials whose session is over", "identity", "fail", LOGIN, credentials_that(SESSION_OVER),
        ("image", "orphans"),
    ),
    Fault("credentials that are refused", "project", "fail", LOGIN, _refuse("/projects/p$", 401, "authError")),
    Fault("the wrong project", "project", "fail", "gcloud projects list", _refuse("/projects/p$", 404, "notFound")),
    Fault(
        "Compute Engine switched off", "project", "fail",
        f"gcloud services enable compute.googleapis.com --project={PROJECT}",
        _refuse("/projects/p$", 403, "accessNotConfigured"),
    ),
    Fault(
        "Resource Manager switched off", "project access", "warn",
        f"gcloud services enable cloudresourcemanager.googleapis.com --project={PROJECT}",
        _off("projects", "cloudresourcemanager.googleapis.com"),
    ),
    Fault(
        "IAM switched off", "account", "warn",
        f"gcloud services enable iam.googleapis.com --project={PROJECT}", _off("iam", "iam.googleapis.com"),
    ),
    Fault(
        "a permission of the project", "project access", "fail",
        f"{BIND} --role=roles/compute.instanceAdmin.v1", _without("compute.instances.create"),
    ),
    Fault(
        "no right to start machines as the worker", "account", "fail",
        f"gcloud iam service-accounts add-iam-policy-binding {WORKER} --project={PROJECT} --member={MEMBER} "
        "--role=roles/iam.serviceAccountUser", _without("iam.serviceAccounts.actAs"),
    ),
    Fault(
        "a worker account that is not there", "account", "fail",
        f"gcloud iam service-accounts create wrker --project={PROJECT}",
        _set(gce_service_account="wrker@p.iam.gserviceaccount.com"),
    ),
    Fault(
        "a quota of 0", "quotas", "fail", "NVIDIA_T4_GPUS, or add another region",
        _quota("us-east1", NVIDIA_T4_GPUS=0.0, PREEMPTIBLE_NVIDIA_T4_GPUS=0.0) ,
    ),
    Fault("no cards in any region", "quotas", "fail", "GPUS_ALL_REGIONS", _quota("", GPUS_ALL_REGIONS=0.0)),
    Fault(
        "a zone that is misspelt", "zones", "fail", f"gcloud compute zones list --project={PROJECT}",
        _set(gce_zones="us-east1-c,us-east1-q"), ("shapes",),
    ),
    Fault(
        "a shape that a zone does not have", "shapes", "warn",
        f"gcloud compute machine-types list --project={PROJECT} --zones=us-east1-c", _absent("us-east1-b"),
    ),
    Fault(
        "a bucket that is not there", "bucket", "fail", "gcloud storage buckets create gs://spot-gone --project=p",
        _set(store_url="gs://spot-gone"), ("objects", "clock"),
    ),
    Fault(
        "a bucket in another region", "bucket", "warn", "--location=us-east1",
        _bucket_says(location="EUROPE-WEST4"),
    ),
    Fault("a bucket without conditions", "objects", "fail", "use another store", _no_conditions),
    Fault(
        "a bucket with soft delete", "bucket", "warn", f"buckets update gs://{BUCKET} --clear-soft-delete",
        _bucket_says(softDeletePolicy={"retentionDurationSeconds": "604800"}),
    ),
    Fault(
        "a bucket with versions", "bucket", "warn", f"buckets update gs://{BUCKET} --no-versioning",
        _bucket_says(versioning={"enabled": True}),
    ),
    Fault(
        "a permission on the bucket", "bucket access", "fail", f"{ON_BUCKET} --role=roles/storage.objectUser",
        _without("storage.objects.list"), ("objects",),
    ),
    Fault(
        "an image that is not there", "image", "fail", "spot build-image",
        lambda setup, _: setup.environ.update(SPOT_DEFAULT_IMAGE=setup.cloud.image("train:9")),
    ),
    Fault(
        "a boot image that goes away", "boot image", "warn", "set gce_boot_image to a family",
        lambda setup, _: setup.cloud.compute.catalog.deprecated.add("cos-129-19506-505-8"),
    ),
    Fault("a clock that is 10 minutes off", "clock", "fail", "sudo timedatectl set-ntp true", _clock_is_off),
    Fault("a full disk", "disk", "fail", "du -sh", _disk_with(10**8)),
    Fault("a disk that is nearly full", "disk", "warn", "du -sh", _disk_with(2 * 10**9)),
    Fault("no inodes", "inodes", "fail", "df -i", _inodes_left(12)),
    Fault("few inodes", "inodes", "warn", "df -i", _inodes_left(20_000)),
    Fault("an old schema", "database", "fail", "spot migrate", _old_schema),
    Fault("a database that cannot be written", "database", "fail", "ls -l", _read_only),
    Fault("no agent", "agent", "fail", "make agent", _no_agent),
    Fault("alerts that nobody takes", "alerts", "fail", "start the receiver", _set(alert_url=f"{FREE_PORT}/x")),
    Fault("a webhook that was deleted", "alerts", "fail", "make a new webhook", _alerts(404)),
    Fault("a webhook that is gone", "alerts", "fail", "make a new webhook", _alerts(410)),
    Fault("a receiver that knows another secret", "alerts", "fail", "set alert_secret", _alerts(401)),
    Fault("a machine that serves nobody", "orphans", "warn", "spot gc", _machine("")),
    Fault(
        "a machine of another supervisor", "foreign", "warn",
        f"gcloud compute instances delete spot-left-a1-t1 --zone=us-east1-c --project={PROJECT}",
        _machine("0123456789abcdef"),
    ),
    Fault("a price that nobody knows", "prices", "warn", "spot prices refresh", _no_prices),
    Fault(
        "a public address that nobody answers", "public_url", "warn", "start the proxy",
        _set(public_url=FREE_PORT),
    ),
    Fault(
        "gcloud set to another project", "gcloud", "warn", f"gcloud compute instances list --project={PROJECT}",
        lambda setup, _: gcloud_is_set_to(setup, "another-project"),
    ),
    Fault(
        "a data disk that is not there", "data disk", "fail", "gcloud compute disks create rav --zone=us-east1-c",
        _set(gce_data_disk="rav", gce_data_disk_zone="us-east1-c"),
    ),
    Fault(
        "a subnet that is not there", "network", "fail", f"gcloud compute networks subnets list --project={PROJECT}",
        _set(gce_subnet="gone"),
    ),
    Fault(
        "advice that does not answer", "advice", "warn", "set gce_capacity_advice = false",
        _refuse("advice/capacity", 404, "notFound"),
    ),
    Fault("a setting that nobody knows", "settings", "warn", "spot config show --origin", _set(zzz_unheard_of="1")),
]  # fmt: skip

__all__ = ["FAULTS", "Fault"]
