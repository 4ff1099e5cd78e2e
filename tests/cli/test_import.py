"""spot import: the request, the output, and an import that takes longer than one request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli.server import importing
from tests.cli.conftest import Ended
from tests.cli.fake_api import RUN, FakeApi

Spot = Callable[..., Ended]
URL = "gs://old-bucket/runs/rav-1"
ANSWER: dict[str, Any] = {
    "run_id": "rav-1", "source": URL, "dry_run": False, "old_state": "STOPPED", "step": None,
    "files": [{"name": "last.pt", "size": 412_000_000}], "events": 8,
    "spec": {"command": "set -e\npython train.py", "image": "r/i:1", "labels": {"imported-from": URL}},
    "left_out": ["zone: the setting gce_zones says\x1b[31m which zones are tried."], "warnings": ["It is odd."],
    "run": {**RUN, "run_id": "rav-1", "status": "stopped", "status_text": f"Imported from {URL} at 03:12 UTC."},
}  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "POLL_S", 0.0)


def test_what_was_taken_over_is_shown(api: FakeApi, spot: Spot) -> None:
    api.respond("POST", "/v1/imports", ANSWER, 201)
    ended = spot("import", URL)
    assert ended.code == 0
    assert ended.lines == [
        f"rav-1  imported from {URL}",
        f"  ■ stopped  Imported from {URL} at 03:12 UTC.",
        "  checkpoint: last.pt (412 MB), step unknown, counts as 0; history: 8 events; the old run was STOPPED",
        "  command: set -e python train.py",
        "  image: r/i:1",
        "  not imported: zone: the setting gce_zones says which zones are tried.",
        "  note: It is odd.",
    ]
    assert api.bodies("/v1/imports") == [{"url": URL, "dry_run": False}]


def test_equal_reasons_share_a_line_and_values_are_readable(api: FakeApi, spot: Spot) -> None:
    why = "the setting gce_zones says which zones are tried."
    spec = {"command": "x", "env": {"EPOCHS": "30"}, "limits": {"max_runtime_s": 172800.0}}
    left_out = [f"zone: {why}", "env: K may be a secret.", f"fallback_zones: {why}"]
    api.respond("POST", "/v1/imports", {**ANSWER, "spec": spec, "left_out": left_out}, 201)
    lines = spot("import", URL).lines
    assert lines[4:6] == ["  env: EPOCHS = 30", "  limits: max_runtime_s = 172800"]
    assert lines[6:8] == [f"  not imported: zone, fallback_zones: {why}", "  not imported: env: K may be a secret."]


def test_name_spec_and_dry_run_are_handed_on(api: FakeApi, spot: Spot, tmp_path: Path) -> None:
    api.respond("POST", "/v1/imports", {**ANSWER, "dry_run": True, "run": None, "step": 4200})
    (tmp_path / "s.yaml").write_text("run_id: from-the-file\ncommand: python new.py\n")
    ended = spot("import", URL, "--spec", str(tmp_path / "s.yaml"), "--dry-run")
    assert ended.lines[0] == f"rav-1  would be imported from {URL}"
    assert "step 4,200" in ended.lines[1]
    spot("import", URL, "--as", "mine")
    assert api.bodies("/v1/imports") == [
        {"url": URL, "dry_run": True, "run_id": "from-the-file", "spec": {"command": "python new.py"}},
        {"url": URL, "dry_run": False, "run_id": "mine"},
    ]


def test_a_refusal_has_its_exit_code(api: FakeApi, spot: Spot) -> None:
    api.refuse("POST", "/v1/imports", 409, "OLD_RUN_ALIVE", "The old run may still be going on.")
    ended = spot("import", URL)
    assert (ended.code, "OLD_RUN_ALIVE" in ended.err) == (6, True)


def test_an_answer_that_takes_too_long_is_waited_for(api: FakeApi, spot: Spot) -> None:
    """The connection is lost, the next request says that the first is under way, the third gives the run."""
    running = {"title": "x", "status": 409, "code": "IMPORT_RUNNING", "detail": "rav-1 is being imported."}
    api.responses[("POST", "/v1/imports")] = [(200, None), (409, running), (200, ANSWER)]
    ended = spot("import", URL, "-o", "name")
    assert (ended.code, ended.lines) == (0, ["rav-1"])
    assert ended.err.count("takes longer than one request") == 1


def test_an_import_of_another_user_is_not_waited_for(api: FakeApi, spot: Spot) -> None:
    api.refuse("POST", "/v1/imports", 409, "IMPORT_RUNNING", "rav-1 is being imported.")
    assert spot("import", URL).code == 6


def test_an_empty_address_is_a_mistake(spot: Spot) -> None:
    assert spot("import", "").code == 2
