"""The providers and store of a supervisor: Google's only if the settings name it, and refusals with a fix."""

from __future__ import annotations

import ast
import base64
import gzip
import importlib.util
import subprocess
import sys
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from supervisor.domain.errors import SettingsRefused
from supervisor.ports.objectstore import StoreUnavailable
from supervisor.ports.provider import LaunchRequest, ProviderUnavailable
from supervisor.providers.gce import config as gce
from supervisor.providers.gce import make
from supervisor.providers.gce.machines import instance
from supervisor.providers.gce.settings import GceSettings
from supervisor.providers.local.traits import TRAITS as LOCAL
from supervisor.reconciler.system_clock import SystemClock
from supervisor.settings import loading as settings
from supervisor.wiring import adapters
from supervisor.wiring import settings as wired
from supervisor.wiring.adapters import open_store
from tests.settings.test_gce_settings import GOOD

# The light part of each kind of provider; loading all of it takes a few milliseconds.
LIGHT = {f"supervisor.providers.gce{part}" for part in ("", ".make", ".settings", ".traits")}
LOCAL_START = """
import sys
import supervisor.wiring.bootstrap
from supervisor.wiring import settings as wired
assert wired.load(environ={"HOME": "/h"}).provider == "local"
print(sorted(name for name in sys.modules
if name.split(".")[0] == "google" or name.startswith("supervisor.providers.gce")))
"""

GOOGLE_START = """
import sys
from supervisor.wiring import adapters
from supervisor.wiring import settings as wired
from supervisor.reconciler.system_clock import SystemClock
found = adapters.choose(wired.load(environ={environ!r}), None, SystemClock())
lone = found.lone
print(lone.provider.name, lone.scope, found.objects.url, lone.provider.traits.launches_at_once, lone.server_file)
print(any(name.startswith("google.cloud.compute_v1") for name in sys.modules), "google.cloud.storage" in sys.modules)
found.close()
"""


def load(**environ: str) -> settings.Settings:
    return wired.load(environ={"HOME": "/h", **GOOD, **environ})


def config_of(known: settings.Settings) -> Any:
    """What the provider is made of."""
    context = adapters.context_of(
        known, "gce", stored=open_store(known, None), agent=Path("/agent.pyz"), clock=SystemClock(),
        store=None, closing=threading.Event(),
    )  # fmt: skip
    return make.config_of("gce", known.sections["gce"].values, context)


def test_a_supervisor_of_local_machines_loads_nothing_of_google_s() -> None:
    told = subprocess.run([sys.executable, "-c", LOCAL_START], capture_output=True, text=True, check=True, timeout=60)
    assert set(ast.literal_eval(told.stdout)) <= LIGHT


def test_choosing_google_imports_no_slow_client_and_sends_no_request() -> None:
    script = GOOGLE_START.format(environ={"HOME": "/h", **GOOD})
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.splitlines() == ["gce my-project-123456 gs://my-bucket/spot 32 None", "False False"]


@pytest.mark.parametrize("missing", make.PACKAGES)
def test_a_missing_package_is_refused_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    def find(name: str) -> Any:
        if name == missing:
            raise ModuleNotFoundError(name)  # as for a part of a package that is not there
        return importlib.util.find_spec(name)

    monkeypatch.setattr(make, "find_spec", find)
    with pytest.raises(SettingsRefused) as refused:
        adapters.choose(load(), None, None)  # type: ignore[arg-type]
    assert missing in refused.value.detail
    assert "pip install 'spot-supervisor[google]'" in refused.value.detail


def test_every_setting_of_google_s_reaches_the_machines() -> None:
    config = config_of(
        load(
            SPOT_GCE_DATA_DISK="d", SPOT_GCE_DATA_DISK_ZONE="us-east1-b", SPOT_GCE_NOTICE_S="120",
            SPOT_GCE_EXTERNAL_IP="no", SPOT_GCE_PRICES="t4=0.25/0.75", SPOT_PUBLIC_URL="https://spot.example.org",
            SPOT_MACHINE_PREFIX="rav",
        )
    )  # fmt: skip
    assert (config.shapes["t4"].machine_type, config.shapes["t4"].gpus) == ("n1-standard-8", 1)
    assert (config.shapes["l4"].gpu_type, config.shapes["l4"].gpus) == ("", 1), "a G2 brings its card"
    assert (config.data_disk.name, config.data_disk.zone) == ("d", "us-east1-b")
    assert (config.notice_s, config.external_ip, config.machine_prefix) == (120, False, "rav")
    assert config.prices == {"t4": (0.25, 0.75)}
    assert (config.public_url, config.store_url) == ("https://spot.example.org", "gs://my-bucket/spot")


def test_a_new_disk_with_each_machine_and_a_shared_one_reach_the_machines() -> None:
    config = config_of(load(SPOT_GCE_DATA_DISK="new", SPOT_GCE_DATA_DISK_GB="50"))
    assert config.data_disk is None
    assert (config.new_disk.gb, config.new_disk.kind, config.new_disk.mount) == (50, "pd-balanced", "/mnt/disks/data")
    config = config_of(
        load(SPOT_GCE_DATA_DISK="d", SPOT_GCE_DATA_DISK_ZONE="us-east1-b", SPOT_GCE_DATA_DISK_READ_ONLY="true")
    )
    assert config.new_disk is None
    assert config.data_disk.read_only


OTHER = {
    "SPOT_GCE_PROJECT": "another-project",
    "SPOT_GCE_ZONES": "us-east1-d",
    "SPOT_GCE_SHAPES": "t4=n1-standard-4+2xnvidia-tesla-t4",
    "SPOT_GCE_PRICES": "t4=0.5/1.5",
    "SPOT_GCE_SERVICE_ACCOUNT": "worker@p.iam.gserviceaccount.com",
    "SPOT_GCE_NETWORK": "inner",
    "SPOT_GCE_SUBNET": "inner-east",
    "SPOT_GCE_EXTERNAL_IP": "no",
    "SPOT_GCE_BOOT_IMAGE": "projects/cos-cloud/global/images/cos-121",
    "SPOT_GCE_BOOT_DISK_GB": "200",
    "SPOT_GCE_BOOT_DISK_TYPE": "pd-balanced",
    "SPOT_GCE_MIN_CPU_PLATFORM": "Intel Skylake",
    "SPOT_GCE_MACHINE_SCOPES": "bigquery",
    "SPOT_GCE_SHIELDED": "no",
    "SPOT_GCE_GPU_DRIVER_VERSION": "535.288.01",
    "SPOT_GCE_NOTICE_S": "120",
    "SPOT_GCE_SHM_SIZE": "16g",
    "SPOT_GCE_DATA_DISK": "other",
    "SPOT_GCE_DATA_DISK_ZONE": "us-east1-c",
    "SPOT_GCE_DATA_DISK_MOUNT": "/data",
    "SPOT_GCE_DATA_DISK_FS": "xfs",
    "SPOT_GCE_DATA_DISK_READ_ONLY": "yes",
    "SPOT_GCE_CAPACITY_ADVICE": "no",
    "SPOT_GCE_SERIAL_LOGGING": "no",
    "SPOT_GCE_ENDPOINT": "http://127.0.0.1:9",
    "SPOT_SECRET_MANAGER_ENDPOINT": "http://127.0.0.1:9",
    "SPOT_BILLING_ENDPOINT": "http://127.0.0.1:9",
    "SPOT_BIGQUERY_ENDPOINT": "http://127.0.0.1:9",
    "SPOT_GCE_BILLING_TABLE": "my-project.billing.gcp_billing_export_resource_v1_0A1B2C_3D4E5F_6A7B8C",
    "SPOT_GCE_BILLING_READ_GB": "20",
    "SPOT_LOGGING_ENDPOINT": "http://127.0.0.1:9",
    "SPOT_RESOURCE_MANAGER_ENDPOINT": "http://127.0.0.1:9",
    "SPOT_IAM_ENDPOINT": "http://127.0.0.1:9",
    "SPOT_PUBLIC_URL": "https://spot.example.org",
    "SPOT_GPU_TIMEOUT_S": "1100",
    "SPOT_MACHINE_PREFIX": "rav",
    "SPOT_STORE_URL": "gs://my-bucket/other",
}


NEW_DISK = {"SPOT_GCE_DATA_DISK": "new", "SPOT_GCE_DATA_DISK_ZONE": ""}
OF_A_NEW_DISK = {"SPOT_GCE_DATA_DISK_GB": "50", "SPOT_GCE_DATA_DISK_TYPE": "pd-ssd"}


def outcome(**environ: str) -> tuple[Any, ...]:
    """What the provider takes from the settings: machine, offers, addresses, and whether it requests advice."""
    disk = {"SPOT_GCE_DATA_DISK": "d", "SPOT_GCE_DATA_DISK_ZONE": "us-east1-b"}
    config = config_of(load(**({} if "SPOT_GCE_ZONES" in environ else disk) | environ))
    offered = gce.offers(config)
    request = LaunchRequest(
        name="spot-1-a1-t1", placement=offered[0].placement, run_id="r", launch_id="1.1.1", request_id="x",
        supervisor_id="s", machine_max_s=3600.0, job={"command": "x"}, image="r/i:1",
    )  # fmt: skip
    body = instance.build(config, request, instance.Payload("#!/bin/bash", "0" * 64))
    spoken = {item["key"]: item["value"] for item in body.pop("metadata")["items"]}
    job = gzip.decompress(base64.b64decode(spoken.pop("spot-job")))
    elsewhere = (config.billing_endpoint, config.logging_endpoint)
    elsewhere += (config.resource_manager_endpoint, config.iam_endpoint)
    elsewhere += (config.bigquery_endpoint, config.billing_table, str(config.billing_read_gb))
    return body, spoken, job, offered, config.root, config.capacity_advice, config.project, elsewhere


def test_each_setting_has_its_effect() -> None:
    """A setting without effect would be a broken promise."""
    given = {field.name for field in fields(GceSettings)} - {"cloud_build_endpoint"}  # the user's own computer's
    assert given <= {name.removeprefix("SPOT_").lower() for name in (*OTHER, *OF_A_NEW_DISK)}
    before, before_new = outcome(), outcome(**NEW_DISK)
    same = [name for name, value in OTHER.items() if outcome(**{name: value}) == before]
    same += [name for name, value in OF_A_NEW_DISK.items() if outcome(**NEW_DISK, **{name: value}) == before_new]
    assert same == []


def test_warming_up_reports_no_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs in its own thread, where nothing catches an error; the first use reports it."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/no/such/file")
    found = adapters.choose(load(), None, SystemClock())  # type: ignore[arg-type]
    found.warm()
    with pytest.raises(StoreUnavailable, match="no Application Default Credentials"):
        found.objects.stat("a")
    found.close()


def test_the_end_of_the_process_ends_every_wait_for_google() -> None:
    closing = threading.Event()
    make.pause(0.0, closing)
    closing.set()
    with pytest.raises(ProviderUnavailable, match="closing"):
        make.pause(3600.0, closing)


def test_a_shape_that_google_cannot_mean_is_refused_by_its_name() -> None:
    with pytest.raises(SettingsRefused, match="gce_shapes: l4: g2-standard-8 already includes 1 cards"):
        config_of(load(SPOT_GCE_SHAPES="l4=g2-standard-8+1xnvidia-l4"))


def test_one_bucket_has_one_spelling() -> None:
    """A run is tied to it by this text."""
    assert load(SPOT_STORE_URL="gs://my-bucket/").store_url == load(SPOT_STORE_URL="gs://my-bucket").store_url


@pytest.mark.parametrize("host", ["http://127.0.0.1:9", "127.0.0.1:9"])
def test_machines_get_the_address_of_another_storage(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", host)
    assert config_of(load()).storage_endpoint == "http://127.0.0.1:9"
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    assert config_of(load()).storage_endpoint == ""


def test_the_folder_of_a_local_supervisor_stays_as_it_was(tmp_path: Path) -> None:
    known = wired.load(environ={"HOME": str(tmp_path)})
    assert settings.agent_paces(known, LOCAL)["log_chunk_s"] == 1.0
    assert settings.gpu_timeout_s(known, LOCAL) == 0.0
    assert settings.public_host(known) == ""
    assert settings.public_host(load(SPOT_PUBLIC_URL="https://Spot.Example.org:8443/x")) == "spot.example.org"


def test_all_cloud_apis_are_never_given_to_a_machine() -> None:
    with pytest.raises(SettingsRefused, match="every package of a training could use all APIs"):
        load(SPOT_GCE_MACHINE_SCOPES="bigquery,cloud-platform")
