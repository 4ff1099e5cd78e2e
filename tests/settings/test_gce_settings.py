"""Settings of Google Cloud: forms, bounds, and contradicting pairs, refused with both values."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.domain.errors import SettingsRefused
from supervisor.providers.gce import settings as settings_gce
from supervisor.providers.gce.traits import TRAITS
from supervisor.settings import loading as settings
from supervisor.wiring import settings as wired

GOOD = {
    "SPOT_PROVIDER": "gce",
    "SPOT_STORE_URL": "gs://my-bucket/spot",
    "SPOT_GCE_PROJECT": "my-project-123456",
    "SPOT_GCE_ZONES": "us-east1-c,us-east1-b",
    "SPOT_GCE_SHAPES": "t4=n1-standard-8+1xnvidia-tesla-t4,l4=g2-standard-8",
}


def load(**environ: str) -> settings.Settings:
    return wired.load(environ={"HOME": "/h", **GOOD, **environ})


def without(name: str) -> settings.Settings:
    return wired.load(environ={"HOME": "/h", **{key: value for key, value in GOOD.items() if key != name}})


def test_a_supervisor_on_google_cloud_needs_four_settings() -> None:
    known = load()
    assert known.provider == "gce"
    assert known.value("gce_shapes") == {"t4": "n1-standard-8+1xnvidia-tesla-t4", "l4": "g2-standard-8"}
    assert (known.value("gce_external_ip"), known.value("gce_notice_s"), known.machines.public_url) == (True, 0, "")
    assert settings.gpu_timeout_s(known, TRAITS) == 1200.0
    assert settings.agent_paces(known, TRAITS)["log_chunk_s"] == 300.0


def test_a_file_says_the_same(tmp_path: Path) -> None:
    file = tmp_path / "spot.toml"
    file.write_text(
        'provider = "gce"\nstore_url = "gs://my-bucket/spot"\ngce_project = "my-project-123456"\n'
        'gce_zones = ["us-east1-c", "us-east1-b"]\ngce_external_ip = false\n'
        '[gce_shapes]\nt4 = "n1-standard-8+1xnvidia-tesla-t4"\nl4 = "g2-standard-8"\n'
        "[gce_prices]\nt4 = [0.25, 0.75]\n"
    )
    known = wired.load(environ={"HOME": "/h"}, file=file)
    assert known.value("gce_shapes") == load().value("gce_shapes")
    assert (known.value("gce_external_ip"), known.value("gce_prices")) == (False, {"t4": (0.25, 0.75)})


@pytest.mark.parametrize("name", ["SPOT_GCE_PROJECT", "SPOT_GCE_ZONES", "SPOT_GCE_SHAPES"])
def test_a_missing_setting_is_named_with_an_example(name: str) -> None:
    with pytest.raises(SettingsRefused, match=f"it is not set. For example: {name}="):
        without(name)


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"SPOT_STORE_URL": "file:///tmp/x"}, r"gce needs store_url = gs://.*it is file:///tmp/x"),
        ({"SPOT_PROVIDER": "local"}, r"local needs store_url = file:///FOLDER; it is gs://my-bucket/spot"),
        ({"SPOT_STORE_URL": "gs://B"}, "it is gs://B"),
        ({"SPOT_PROVIDER": "aws"}, "expected local or gce"),
        ({"SPOT_PUBLIC_URL": "http://example.org"}, "public_url: expected https://HOST"),
        ({"SPOT_PUBLIC_URL": "https://user:word@example.org"}, "public_url: expected"),
        ({"SPOT_PUBLIC_URL": "https://"}, "public_url: expected"),
        ({"SPOT_GCE_ENDPOINT": "http://10.0.0.1:80"}, "gce_endpoint: expected"),
        ({"SPOT_GCE_NOTICE_S": "30"}, "gce_notice_s = 30: Google gives 0 or 120 seconds"),
        ({"SPOT_GCE_NOTICE_S": "121"}, "a whole number from 0 to 120"),
        ({"SPOT_GCE_ZONES": "us-east1"}, "gce_zones names us-east1: expected zones such as us-east1-c"),
        ({"SPOT_GCE_SHAPES": "t4"}, "name=machine pairs, such as t4=n1"),
        ({"SPOT_GCE_SHAPES": "t4=n1-standard-8+0xnvidia-tesla-t4"}, "name=machine pairs"),
        ({"SPOT_GCE_PRICES": "v100=1/2"}, r"gce_prices names v100, which is not one of gce_shapes \(t4, l4\)"),
        ({"SPOT_GCE_DATA_DISK": "d"}, "gce_data_disk = d, but gce_data_disk_zone is not set"),
        (
            {"SPOT_GCE_DATA_DISK": "d", "SPOT_GCE_DATA_DISK_ZONE": "us-east1-d"},
            r"gce_data_disk_zone = us-east1-d is not one of gce_zones \(us-east1-c, us-east1-b\)",
        ),
        (
            {"SPOT_GCE_DATA_DISK": "new", "SPOT_GCE_DATA_DISK_ZONE": "us-east1-c"},
            "gce_data_disk = new creates a disk with each machine, in its zone, but gce_data_disk_zone = us-east1-c",
        ),
        ({"SPOT_GCE_DATA_DISK_READ_ONLY": "true"}, "needs an existing disk, and gce_data_disk is not set"),
        (
            {"SPOT_GCE_DATA_DISK": "new", "SPOT_GCE_DATA_DISK_READ_ONLY": "true"},
            "needs an existing disk, and gce_data_disk is new",
        ),
        ({"SPOT_GCE_DATA_DISK_GB": "9"}, "a whole number from 10 to 65536"),
        ({"SPOT_GCE_DATA_DISK_MOUNT": "data"}, "gce_data_disk_mount = data: expected an absolute path"),
        ({"SPOT_GCE_BOOT_DISK_GB": "9"}, "a whole number from 10 to 65536"),
        ({"SPOT_GCE_EXTERNAL_IP": "maybe"}, "expected true or false"),
        ({"SPOT_GCE_SHM_SIZE": "2 gigabytes"}, "gce_shm_size = 2 gigabytes: expected a size such as 2g"),
        ({"SPOT_GCE_GPU_DRIVER_VERSION": "newest"}, "expected default, latest, or a version"),
        ({"SPOT_GCE_SERVICE_ACCOUNT": "worker"}, "gce_service_account = worker: expected"),
        ({"SPOT_GCE_PROJECT": "My Project"}, "gce_project = My Project: expected the id"),
    ],
)  # fmt: skip
def test_refused_with_the_value_and_the_expected_form(environ: dict[str, str], told: str) -> None:
    with pytest.raises(SettingsRefused, match=told):
        load(**environ)


@pytest.mark.parametrize(
    "environ",
    [
        {"SPOT_PUBLIC_URL": "https://spot.example.org/base"},
        {"SPOT_PUBLIC_URL": "http://127.0.0.1:8787", "SPOT_GCE_ENDPOINT": "http://localhost:1"},
        {"SPOT_PUBLIC_URL": ""},
        {"SPOT_GCE_NOTICE_S": "120"},
        {"SPOT_GCE_DATA_DISK": "d", "SPOT_GCE_DATA_DISK_ZONE": "us-east1-b"},
        {"SPOT_STORE_URL": "gs://b.example.org/a/b/"},
        {"SPOT_GCE_ZONES": "us-central1-ai1a"},
        {"SPOT_GCE_GPU_DRIVER_VERSION": "535.288.01"},
    ],
)
def test_accepted(environ: dict[str, str]) -> None:
    assert load(**environ).warnings == ()


def test_a_project_without_its_provider_gets_a_warning() -> None:
    known = wired.load(environ={"HOME": "/h", "SPOT_GCE_PROJECT": "my-project"})
    (warning,) = known.warnings
    assert warning.startswith("gce_project = my-project has no effect, because provider = local")


def test_without_the_rule_the_disk_would_lie_where_no_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant."""
    monkeypatch.setattr(settings_gce, "_check_disk", lambda s: None)
    known = load(SPOT_GCE_DATA_DISK="d", SPOT_GCE_DATA_DISK_ZONE="us-east1-d")
    assert known.value("gce_data_disk_zone") not in known.value("gce_zones")
