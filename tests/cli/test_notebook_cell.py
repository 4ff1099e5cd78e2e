"""spot cell: the cell alone on standard output, what to do with it beside, and the same as a notebook."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

SHOWN = {
    "run_id": "digits-7",
    "launch_id": "1.1.1",
    "cell": 'TICKET = "1f3c"\nrun()\n',
    "notebook": '{"cells": []}',
    "url": "https://example.com/#new",
    "wanted": "Runtime > T4",
}


def shown(api: Any) -> None:
    expires_at = datetime.now(UTC) + timedelta(minutes=14, seconds=30)
    api.respond("GET", "/v1/runs/digits-7/cell", {**SHOWN, "expires_at": expires_at.isoformat()})


def test_only_the_cell_goes_to_standard_output(api: Any, spot: Any) -> None:
    shown(api)
    answer = spot("cell", "digits-7")
    assert answer.out == SHOWN["cell"]
    assert (
        "at https://example.com/#new, choose Runtime > T4, paste this into cell 1, and run it within 14 min"
        in answer.err
    )
    assert json.loads(spot("cell", "digits-7", "-o", "json").out)["launch_id"] == "1.1.1"


def test_a_notebook_is_for_its_user_alone(api: Any, spot: Any, tmp_path: Path) -> None:
    shown(api)
    file = tmp_path / "digits.ipynb"
    answer = spot("cell", "digits-7", "--notebook", str(file))
    assert file.read_text() == SHOWN["notebook"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert answer.out == ""
    assert f"Upload {file} at https://example.com/ (File > Upload notebook), and run cell 1 within" in answer.err
    refused = spot("cell", "digits-7", "--notebook", str(tmp_path))
    assert refused.code != 0
