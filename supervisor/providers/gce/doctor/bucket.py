"""The doctor's lines on the bucket: does it exist, may it be used, and do its settings cost more than necessary?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from supervisor.domain.findings import FAIL, OK, WARN, Finding
from supervisor.ports.objectstore import StoreMissing, StoreUnavailable
from supervisor.providers.gce.config import GceConfig
from supervisor.providers.gce.doctor.access import member
from supervisor.providers.gce.doctor.permissions import BUCKET
from supervisor.providers.gce.traits import google_finding

DAY_S = 86_400
OBJECTS = tuple(name for name in BUCKET if name.startswith("storage.objects."))


class Bucket(Protocol):
    """What the doctor needs of the object store; StoreUnavailable where it does not respond."""

    url: str

    def bucket(self) -> Mapping[str, Any]: ...

    def permissions(self, names: Sequence[str]) -> frozenset[str]: ...


def bucket_line(config: GceConfig, objects: Bucket, account: str) -> Finding:
    url = bucket_url(objects.url)
    try:
        return settings(config, url, objects.bucket())
    except StoreMissing as error:
        fix = (
            f"gcloud storage buckets create {url} --project={config.project} --location={config.regions[0]} "
            "--uniform-bucket-level-access --soft-delete-duration=0; or set store_url to an existing bucket"
        )
        return google_finding("bucket", FAIL, f"{url}: not there", str(error), fix)
    except StoreUnavailable as error:
        fix = (
            f"gcloud storage buckets add-iam-policy-binding {url} --member={member(account)} "
            "--role=roles/storage.bucketViewer"
        )
        return google_finding("bucket", WARN, f"the settings of {url} cannot be read", str(error), fix)


def access_line(objects: Bucket, account: str) -> Finding:
    name, url = "bucket access", bucket_url(objects.url)
    fix = (
        f"gcloud storage buckets add-iam-policy-binding {url} --member={member(account)} "
        "--role=roles/storage.objectUser"
    )
    try:
        held = objects.permissions(OBJECTS)
    except StoreUnavailable as error:
        return google_finding(name, WARN, f"permissions on {url} cannot be checked", str(error), fix)
    missing = [permission for permission in OBJECTS if permission not in held]
    if missing:
        cause = "; ".join(BUCKET[permission] for permission in missing)
        return google_finding(name, FAIL, f"missing on {url}: {', '.join(missing)}", cause, fix)
    return google_finding(name, OK, f"objects of {url} may be listed, read, written and deleted")


def settings(config: GceConfig, url: str, facts: Mapping[str, Any]) -> Finding:
    """Where it is, and whether it keeps deleted objects: checkpoints are replaced all the time."""
    place, kind = str(facts.get("location", "")).lower(), facts.get("storageClass", "")
    number = facts.get("projectNumber")
    fact = f"{url} in {place}, {kind}" + (f", of project number {number}" if number else "")
    kept_s = int((facts.get("softDeletePolicy") or {}).get("retentionDurationSeconds") or 0)
    if kept_s:
        cause = f"each deleted or replaced object is kept and billed for another {kept_s / DAY_S:g} days"
        fix = f"gcloud storage buckets update {url} --clear-soft-delete"
        return google_finding("bucket", WARN, f"{fact}, with soft delete", cause, fix)
    if (facts.get("versioning") or {}).get("enabled"):
        cause = "each replaced beat and deleted checkpoint is kept and billed as an old version"
        fix = f"gcloud storage buckets update {url} --no-versioning"
        return google_finding("bucket", WARN, f"{fact}, with versions", cause, fix)
    if facts.get("locationType") == "region" and place not in config.regions:
        cause = f"machines are in {', '.join(config.regions)}: checkpoints cross regions, which is slow and billed"
        fix = (
            f"gcloud storage buckets create gs://NEW-NAME --project={config.project} "
            f"--location={config.regions[0]} --uniform-bucket-level-access --soft-delete-duration=0; then set "
            "store_url to it for new runs: keep the bucket in a region of gce_zones"
        )
        return google_finding("bucket", WARN, fact, cause, fix)
    return google_finding("bucket", OK, fact)


def bucket_url(url: str) -> str:
    """gs://bucket/prefix -> gs://bucket."""
    return "/".join(url.split("/", 3)[:3])
