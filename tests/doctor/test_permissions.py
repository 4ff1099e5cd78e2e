"""Each permission of the table, removed alone: named, with its consequence and the command that grants it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.providers.gce.calls.errors import ApiError
from supervisor.providers.gce.config import DataDisk, GceConfig, parse_shape
from supervisor.providers.gce.doctor.access import project_access
from supervisor.providers.gce.doctor.permissions import ALWAYS, BUCKET, PROJECT, WORKER_ACCOUNT, needed_in_project
from tests.doctor.setup import a_set_up

CONFIG = GceConfig(
    "p",
    ("us-east1-c",),
    {"t4": parse_shape("n1-standard-8+1xnvidia-tesla-t4")},
    subnet="mine",
    boot_image="projects/p/global/images/family/own",
    data_disk=DataDisk("d", "us-east1-c"),
    resource_manager_endpoint="http://127.0.0.1:1",
)
NEEDED = needed_in_project(CONFIG)


class Google:
    """Has every requested permission except `missing`."""

    def __init__(self, *missing: str) -> None:
        self.missing = missing

    def other_api(self, method: str, url: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        assert (method, url) == ("POST", "http://127.0.0.1:1/v1/projects/p:testIamPermissions")
        return {"permissions": [one for one in body["permissions"] if one not in self.missing]}


def test_a_data_disk_is_checked_as_it_is_attached() -> None:
    readers = replace(CONFIG, data_disk=DataDisk("d", "us-east1-c", read_only=True))
    for config, needed, other in (
        (CONFIG, "compute.disks.use", "compute.disks.useReadOnly"),
        (readers, "compute.disks.useReadOnly", "compute.disks.use"),
    ):
        assert needed in needed_in_project(config)
        assert other not in needed_in_project(config)
        line = project_access(config, Google(needed).other_api, "")
        assert (line.result, line.fact) == ("fail", f"missing in p: {needed}")


@pytest.mark.parametrize("permission", NEEDED)
def test_one_that_is_missing(permission: str) -> None:
    found = project_access(CONFIG, Google(permission).other_api, "spot@p.iam.gserviceaccount.com")
    assert found.result in ("warn", "fail")
    assert found.fact == f"missing in p: {permission}"
    assert found.cause == NEEDED[permission]
    if permission.startswith("compute.advice."):
        assert found.fix == f"gcloud iam roles update spotAdvice --project=p --add-permissions={permission}"
    else:
        assert found.fix == (
            "gcloud projects add-iam-policy-binding p --member=serviceAccount:spot@p.iam.gserviceaccount.com "
            "--role=roles/compute.instanceAdmin.v1"
        )


def test_less_information_is_a_warning_and_no_machine_a_failure() -> None:
    def result(permission: str) -> str:
        return project_access(CONFIG, Google(permission).other_api, "").result

    assert result("compute.zones.get") == result("compute.advice.capacity") == "warn"
    assert result("compute.instances.create") == result("compute.disks.use") == "fail"


def test_what_only_some_runs_need_is_named_and_no_warning() -> None:
    found = project_access(CONFIG, Google("compute.instances.start", "compute.images.create").other_api, "")
    assert found.result == "ok"
    assert "none for `keep: machine`, which needs compute.instances.start;" in found.fact
    assert found.fact.endswith("none for `spot base create`, which needs compute.images.create")
    assert "`keep" not in project_access(CONFIG, Google().other_api, "").fact


def test_nothing_missing_and_everything() -> None:
    assert project_access(CONFIG, Google().other_api, "").result == "ok"
    found = project_access(CONFIG, Google(*NEEDED).other_api, "ann@example.org")
    assert found.fact.endswith(f" and {len(NEEDED) - 5} more")
    assert "--member=user:ann@example.org" in found.fix
    assert " && gcloud iam roles update spotAdvice" in found.fix


def test_a_question_without_an_answer_is_no_missing_permission() -> None:
    def refuse(*_: object) -> Iterator[Any]:
        raise ApiError("quota of requests", 429, "rateLimitExceeded")

    found = project_access(CONFIG, refuse, "")  # type: ignore[arg-type]
    assert (found.result, found.fact.startswith("not checked")) == ("warn", True)


def test_each_is_named_by_the_whole_doctor_in_a_set_up_that_is_else_in_order(tmp_path: Path) -> None:
    """The request lacks it, and where the bucket itself must be read, its response too."""
    needed = {
        **{name: "project access" for group in (*ALWAYS, "external_ip", "capacity_advice") for name in PROJECT[group]},
        **dict.fromkeys(WORKER_ACCOUNT, "account"),
        **{name: "bucket access" for name in BUCKET if name.startswith("storage.objects.")},
    }
    with a_set_up(tmp_path) as setup:
        cloud = setup.cloud
        for permission, line in needed.items():
            for fake in (cloud.projects, cloud.iam, cloud.storage):
                fake.holds = lambda asked, lacks=permission: asked != lacks
            found = {one["name"]: one for one in setup.report(alert_test=False)["checks"] if one["result"] != "ok"}
            assert set(found) - {"objects"} == {line}, (permission, found)
            assert found[line]["fact"].endswith(f": {permission}"), found[line]
            assert "add-iam-policy-binding" in found[line]["fix"] or "--add-permissions=" in found[line]["fix"]
