"""base: create one from a script or a run, list them with what they cost, remove one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

AT = "2026-11-26T03:00:00Z"
BASE: dict[str, Any] = {
    "name": "torch-v2", "family": "torch", "status": "ready", "detail": "", "owner": "ann", "provider": "gce",
    "run_id": "base-torch-v2", "container": "r/train@sha256:1", "image": "spot-base-1-torch-v2",
    "size_bytes": 4_200_000_000, "usd_per_month": 0.21, "created_at": AT, "ready_at": AT, "script": "true",
}  # fmt: skip
FAILED = {**BASE, "name": "torch-v1", "status": "failed", "detail": "its run failed", "size_bytes": None,
          "usd_per_month": None}  # fmt: skip


def test_a_base_is_created_from_a_file_for_a_machine_that_is_named(api, spot, tmp_path: Path) -> None:
    (tmp_path / "setup.sh").write_text("pip install timm\n")
    api.respond("POST", "/v1/bases", {**BASE, "status": "preparing"})
    ended = spot(
        "base", "create", "torch", "--script", str(tmp_path / "setup.sh"), "--shape", "cpu", "--setup-limit", "15m",
        "--secret", "HF=env:HF_TOKEN",
    )  # fmt: skip
    assert (ended.code, ended.lines) == (0, ["Base torch-v2 is preparing."])
    assert "spot watch base-torch-v2" in ended.err
    [body] = api.bodies("/v1/bases")
    assert body == {
        "name": "torch", "script": "pip install timm\n", "shapes": ["cpu"], "setup_s": 900.0,
        "secrets": {"HF": "env:HF_TOKEN"},
    }  # fmt: skip


def test_either_a_script_or_a_run(api, spot) -> None:
    api.respond("POST", "/v1/bases", BASE)
    assert spot("base", "create", "torch", "--from", "digits-7", "-o", "json").code == 0
    assert api.bodies("/v1/bases") == [{"name": "torch", "from_run": "digits-7"}]
    assert spot("base", "create", "torch").code == 2
    assert spot("base", "create", "torch", "--from", "digits-7", "--script", "x").code == 2
    ended = spot("base", "create", "torch", "--script", "/no/such/file")
    assert (ended.code, "SCRIPT_UNREADABLE" in ended.err, "cannot be read" in ended.err) == (2, True, True)


def test_the_list_shows_size_and_price_and_never_invents_one(api, spot) -> None:
    api.respond("GET", "/v1/bases", {"bases": [BASE, FAILED]})
    shown = "\n".join(spot("base", "ls").lines)
    assert "4.2 GB" in shown
    assert "$0.21" in shown
    assert "its run failed" in shown
    assert json.loads(spot("base", "ls", "-o", "json").out) == {"bases": [BASE, FAILED]}
    assert spot("base", "ls", "-o", "name").lines == ["torch-v2", "torch-v1"]
    api.respond("GET", "/v1/bases", {"bases": []})
    assert "There is no base." in spot("base", "ls").err


def test_one_is_removed_and_a_refusal_is_shown(api, spot) -> None:
    api.respond("DELETE", "/v1/bases/torch-v2", {**BASE, "status": "deleting"})
    assert spot("base", "rm", "torch-v2").lines == ["Base torch-v2 is deleting."]
    api.refuse("DELETE", "/v1/bases/torch-v2", 409, "BASE_IN_USE", "torch-v2 is used by digits-7.")
    assert spot("base", "rm", "torch-v2").code == 6
