"""An environment file of the older runner with a project configures a whole supervisor on Google Cloud."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.domain.errors import SettingsRefused
from supervisor.settings import loading as settings
from supervisor.wiring import settings as wired

# The values that the older runner's notes and wrapper scripts used.
REAL = """
PROJECT=rav-ai-488706
REGION=us-east1
SA=rav-spot@rav-ai-488706.iam.gserviceaccount.com
IMAGE=us-east1-docker.pkg.dev/rav-ai-488706/rav/trainer:latest
BUCKET=gs://rav-ai-train-artifacts/
ZONE=us-east1-c
FALLBACK_ZONES=(us-east1-b us-east1-c us-east1-d)
MACHINE_TYPE=n1-standard-8
GPU_TYPE=nvidia-tesla-t4
BOOT_DISK_SIZE=100GB
BOOT_DISK_TYPE=pd-ssd
GPU_TIMEOUT_SEC=1200
POLL_INTERVAL=120
PROGRESS_STALL_POLLS=10
MAX_RESTARTS=10
MAX_RUNTIME_SEC=172800
DATA_DISK_ENABLED=false
DATA_DISK_NAME=rav-data
"""
SHORT = "PROJECT=my-project\nBUCKET=my-bucket\n"


def load(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> settings.Settings:
    env_file = tmp_path / "rav_spot.env"
    env_file.write_text(text, encoding="utf-8")
    return wired.load(environ={"HOME": "/h", **(environ or {})}, env_file=env_file)


def test_the_real_file(tmp_path: Path) -> None:
    known = load(tmp_path, REAL)
    assert (known.provider, known.value("gce_project")) == ("gce", "rav-ai-488706")
    assert known.store_url == "gs://rav-ai-train-artifacts"
    assert known.value("gce_zones") == ("us-east1-c", "us-east1-b", "us-east1-d")
    assert known.value("gce_shapes") == {"t4": "n1-standard-8+1xnvidia-tesla-t4"}
    assert known.value("gce_service_account") == "rav-spot@rav-ai-488706.iam.gserviceaccount.com"
    assert known.machines.default_image == "us-east1-docker.pkg.dev/rav-ai-488706/rav/trainer:latest"
    assert (known.value("gce_boot_disk_gb"), known.value("gce_boot_disk_type")) == (100, "pd-ssd")
    assert known.value("gce_data_disk") == "", "it was not enabled"
    assert (known.machines.gpu_timeout_s, known.stall.boot_timeout_s, known.limits.max_attempts) == (1200.0, 1500.0, 11)
    assert known.origins["gce_zones"].endswith("rav_spot.env ZONE, FALLBACK_ZONES")
    assert [warning.split()[3] for warning in known.warnings] == ["REGION"]


def test_missing_values_are_the_older_scripts_defaults(tmp_path: Path) -> None:
    known = load(tmp_path, SHORT)
    assert known.value("gce_zones") == ("us-east1-c", "us-east1-b", "us-east1-d")
    assert known.value("gce_shapes") == {"t4": "n1-standard-8+1xnvidia-tesla-t4"}


def test_another_region_has_no_fallbacks_in_the_old_one(tmp_path: Path) -> None:
    assert load(tmp_path, SHORT + "ZONE=europe-west4-a\n").value("gce_zones") == ("europe-west4-a",)


@pytest.mark.parametrize(
    ("machine", "gpu", "shapes"),
    [
        ("g2-standard-8", "nvidia-l4", {"l4": "g2-standard-8"}),
        ("a2-highgpu-1g", "", {"a2-highgpu-1g": "a2-highgpu-1g"}),
        ("n1-standard-4", "nvidia-tesla-v100", {"v100": "n1-standard-4+1xnvidia-tesla-v100"}),
    ],
)
def test_a_machine_that_brings_its_cards_gets_no_others(
    tmp_path: Path, machine: str, gpu: str, shapes: dict[str, str]
) -> None:
    given = f"GPU_TYPE={gpu}\n" if gpu else ""
    assert load(tmp_path, SHORT + f"MACHINE_TYPE={machine}\n{given}").value("gce_shapes") == shapes


def test_a_data_disk_pins_its_zone(tmp_path: Path) -> None:
    disk = "ZONE=us-east1-d\nDATA_DISK_ENABLED=true\nDATA_DISK_NAME=rav-data\nDATA_DISK_MOUNT_PATH=/mnt/disks/x\n"
    known = load(tmp_path, SHORT + disk)
    assert (known.value("gce_data_disk"), known.value("gce_data_disk_zone")) == ("rav-data", "us-east1-d")
    assert known.value("gce_data_disk_mount") == "/mnt/disks/x"


def test_a_file_without_a_bucket_is_refused_with_the_form_that_is_needed(tmp_path: Path) -> None:
    with pytest.raises(SettingsRefused, match=r"gce needs store_url = gs://BUCKET.*BUCKET=my-bucket in an old"):
        load(tmp_path, "PROJECT=my-project\n")


@pytest.mark.parametrize("line", ["ZONE=$(gcloud config get-value zone)", "BOOT_DISK_SIZE=big"])
def test_an_unreadable_value_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(SettingsRefused, match="line 3"):
        load(tmp_path, SHORT + line + "\n")


def test_the_environment_wins(tmp_path: Path) -> None:
    known = load(tmp_path, REAL, {"SPOT_GCE_ZONES": "us-central1-a", "SPOT_DEFAULT_IMAGE": "r/i:2"})
    assert (known.value("gce_zones"), known.machines.default_image) == (("us-central1-a",), "r/i:2")
