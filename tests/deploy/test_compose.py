"""deploy/compose.yaml: what it promises about addresses, secrets and images."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from supervisor import settings

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
            if re.search("PASSWORD|SECRET|TOKEN|URL", variable) and re.search(
                "://[^/]*:[^/]*@|^[0-9a-f]{8}", value
            ):
                found.append(f"{name}: {variable} holds a secret")
            if variable.startswith("SPOT_") and variable not in KNOWN:
                found.append(f"{name}: {variable} is no setting")
        found += [
            f"{name}: secret {one} is nowhere"
            for one in service.get("secrets", [])
            if one not in compose["secrets"]
        ]
        for volume in service.get("volumes", []):
            if volume.partition(":")[0] not in compose["volumes"]:
                found.append(f"{name}: volume {volume} has no name")
    return found


KNOWN = {settings.env_name(field) for field in settings.FIELDS}


def test_it_keeps_its_promises() -> None:
    assert problems(TEXT) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"127.0.0.1:8787:8787"', '"8787:8787"'),
        ("file:/run/secrets/database-url", "postgresql://spot:pa55word@postgres/spot"),
        ("@sha256:742f", "@sha256:"),
        ("SPOT_PROVIDER:", "SPOT_PROVIDR:"),
        ("secrets: [database-url]", "secrets: [database]"),
        ("supervisor:/var/lib/spot", "./data:/var/lib/spot"),
    ],
)
def test_a_broken_promise_is_found(before: str, after: str) -> None:
    assert before in TEXT
    assert len(problems(TEXT.replace(before, after))) == 1
