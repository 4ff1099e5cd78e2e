"""deploy/compose.yaml: what it promises about addresses, secrets and images."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from supervisor.domain.errors import SpotError
from supervisor.settings import loading as settings
from supervisor.wiring import settings as wired

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "deploy/compose.yaml").read_text()


def problems(text: str) -> list[str]:
    """Every broken promise."""
    compose: dict[str, Any] = yaml.safe_load(text)
    found = []
    for name, service in compose["services"].items():
        found += [f"{name}: {port}" for port in service.get("ports", []) if not port.startswith("127.0.0.1:")]
        if "build" not in service and not re.search(r"@sha256:[0-9a-f]{64}$", service["image"]):
            found.append(f"{name}: not pinned")
        if "restart" not in service or "mem_limit" not in service:
            found.append(f"{name}: no restart or no limit")
        for variable, value in service.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|TOKEN|URL", variable) and re.search("://[^/]*:[^/]*@|^[0-9a-f]{8}", value):
                found.append(f"{name}: {variable} holds a secret")
            if variable.startswith("SPOT_") and variable not in KNOWN:
                found.append(f"{name}: {variable} is no setting")
        found += [
            f"{name}: secret {one} is nowhere" for one in service.get("secrets", []) if one not in compose["secrets"]
        ]
        for volume in service.get("volumes", []):
            if volume.partition(":")[0] not in compose["volumes"]:
                found.append(f"{name}: volume {volume} has no name")
    return found


KNOWN = {settings.env_name(field) for field in wired.load({}, {"HOME": "/h"}).flat}


def test_it_keeps_its_promises() -> None:
    assert problems(TEXT) == []


def settings_of(text: str, folder: Path) -> settings.Settings:
    """Those that the supervisor in the container has, with the environment file that the setup's page makes."""
    page = (ROOT / "docs/google-cloud-setup.md").read_text()
    lines = re.search(r"cat > spot.env <<END\n(.*?)END", page, re.DOTALL)
    assert lines is not None
    named = re.sub(r"\$\{WORKER[^}]*\}", "worker@my-name.iam.gserviceaccount.com", lines.group(1))
    (folder / "spot.env").write_text(re.sub(r"\$\w+", "my-name", named))
    (folder / "url").write_text("postgresql://spot:secret@postgres/spot\n")
    service = yaml.safe_load(text)["services"]["supervisor"]
    environ = dict(line.split("=", 1) for line in (folder / Path(service["env_file"]).name).read_text().splitlines())
    environ |= service["environment"] | {"SPOT_DATABASE_URL": f"file:{folder / 'url'}"}
    return wired.load({"data_dir": str(folder)}, environ)


def test_it_starts_with_the_settings_that_the_page_of_google_cloud_makes(tmp_path: Path) -> None:
    found = settings_of(TEXT, tmp_path)
    assert (found.provider, found.store_url) == ("gce", "gs://my-name")
    assert found.value("gce_zones")
    assert found.value("gce_shapes")
    assert found.database_url.endswith("@postgres/spot")


def test_a_variable_that_is_handed_on_empty_would_be_found(tmp_path: Path) -> None:
    broken = TEXT.replace(
        "    environment:\n      SPOT", '    environment:\n      SPOT_ALLOWED_HOSTS: ""\n      SPOT', 1
    )
    with pytest.raises(SpotError):
        settings_of(broken, tmp_path)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"127.0.0.1:8787:8787"', '"8787:8787"'),
        ("file:/run/secrets/database-url", "postgresql://spot:pa55word@postgres/spot"),
        ("@sha256:742f", "@sha256:"),
        ("SPOT_DATABASE_URL:", "SPOT_DATABASE_ULR:"),
        ("secrets: [database-url]", "secrets: [database]"),
        ("supervisor:/var/lib/spot", "./data:/var/lib/spot"),
    ],
)
def test_a_broken_promise_is_found(before: str, after: str) -> None:
    assert before in TEXT
    assert len(problems(TEXT.replace(before, after))) == 1
