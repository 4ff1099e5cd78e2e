"""The doctor's lines about the bucket: is it there, may it be used, and does it cost more than it must."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from supervisor.providers.gce.doctor import bucket as doctor_bucket
from tests.providers.doctor_scene import Scene, a_project


@pytest.fixture
def scene() -> Iterator[Scene]:
    with a_project() as scene:
        yield scene


def test_permissions_on_the_bucket(scene: Scene) -> None:
    scene.storage.deny("storage.objects.delete")
    found = scene.look()["bucket access"]
    assert (found.result, found.fact) == ("fail", "missing on gs://spot-runs: storage.objects.delete")
    assert found.fix.startswith("gcloud storage buckets add-iam-policy-binding gs://spot-runs --member=")
    assert found.fix.endswith("--role=roles/storage.objectUser")


def test_a_bucket_that_is_not_there(scene: Scene) -> None:
    scene.storage.drop_bucket("spot-runs")
    found = scene.look()
    assert (found["bucket"].result, found["bucket"].fact) == ("fail", "gs://spot-runs: not there")
    assert found["bucket"].fix.startswith("gcloud storage buckets create gs://spot-runs --project=")
    assert "bucket access" not in found, "nobody can be given a right to what is not there"


def test_a_bucket_whose_settings_may_not_be_read(scene: Scene) -> None:
    """An account that only keeps objects needs no more than that."""
    scene.storage.deny("storage.buckets.get")
    found = scene.look()
    assert (found["bucket"].result, found["bucket access"].result) == ("warn", "ok")
    cause = "gs://spot-runs/team: cannot look at the bucket: the account lacks storage.buckets.get on the bucket (403)"
    assert found["bucket"].cause.startswith(cause)
    assert found["bucket"].fix.startswith("gcloud storage buckets add-iam-policy-binding gs://spot-runs --member=")
    assert found["bucket"].fix.endswith("--role=roles/storage.bucketViewer")


@pytest.mark.parametrize(
    ("facts", "fix"),
    [
        ({"softDeletePolicy": {"retentionDurationSeconds": "604800"}}, "--clear-soft-delete"),
        ({"versioning": {"enabled": True}}, "--no-versioning"),
        ({"location": "EUROPE-WEST4", "locationType": "region"}, "keep the bucket in a region of gce_zones"),
    ],
)
def test_a_bucket_that_costs_more_than_it_must(scene: Scene, facts: dict[str, Any], fix: str) -> None:
    found = doctor_bucket.settings(scene.config, "gs://b", {"location": "US-EAST1", "locationType": "region", **facts})
    assert found.result == "warn"
    assert found.fix.endswith(fix)
