"""The cost of beats: figures that can be checked on paper, and the page that repeats them."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.domain.findings import Check, Finding
from supervisor.services.doctor.doctor import Surroundings, examine
from supervisor.services.reading.cost import CONTROL_USD, beat_cost, cheap_beat_s, resting_cost
from tests.services.bed import Bed

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"


def test_a_beat_a_minute_is_43_200_writes_and_129_600_reads_a_month() -> None:
    cost = beat_cost(60.0, 300.0, 30.0, 600.0)
    marker_reads = 4320 * 0.0000004
    assert cost.beats_usd == pytest.approx(43_200 * 0.000005 + 129_600 * 0.0000004 + marker_reads)
    assert cost.logs_usd == pytest.approx(8640 * 0.000005)
    markers = 86_400 * (1 - 1 / 20) * 0.0000004  # one a tick, of which the run pays one in 20 ticks
    assert cost.looks_usd == pytest.approx(86_400 * 2 * 0.000005 + markers), "the canary and one page"


def test_every_thousand_runs_are_one_more_page() -> None:
    assert beat_cost(60.0, 300.0, 30.0, 600.0, 10_000).looks_usd == pytest.approx(86_400 * 11 * 0.000005)
    assert beat_cost(60.0, 300.0, 30.0, 600.0, 1000).looks_usd == pytest.approx(86_400 * 2 * 0.000005)


def test_the_page_of_settings_has_the_same_figures() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (\d+) s \| \$([0-9.]+) \|", text, flags=re.MULTILINE))
    assert rows == {str(pace): f"{beat_cost(pace, 300.0, 30.0, 600.0).beats_usd:.2f}" for pace in (30, 60, 120, 300)}
    default = beat_cost(60.0, 300.0, 30.0, 600.0)
    assert f"`log_chunk_s = 300` ${default.logs_usd:.2f} a month" in text
    assert f"`poll_interval_s = 30` ${default.looks_usd:.2f} a month" in text


def test_the_pace_at_which_the_control_of_a_run_costs_two_cents_a_month() -> None:
    pace_s = cheap_beat_s(600.0)
    assert 875.0 < pace_s < 885.0
    assert beat_cost(pace_s, 300.0, 30.0, 600.0).beats_usd == pytest.approx(CONTROL_USD)
    assert beat_cost(60.0, 300.0, 30.0, 600.0).beats_usd > 10 * CONTROL_USD, "the defaults are far from it"
    text = PAGE.read_text(encoding="utf-8")
    assert f"`beat_store_s = {math.ceil(pace_s)}`" in text


def test_acknowledged_pushes_leave_less_than_two_cents_for_a_run_alone() -> None:
    parts = resting_cost(60.0, 300.0, 30.0, 600.0)
    stored = 720 * (0.000005 + 3 * 0.0000004)
    glances = (8640 - 720) * 2 * 0.0000004
    assert parts.beats_usd == pytest.approx(stored + glances + 4320 * 0.0000004)
    assert parts.looks_usd == pytest.approx(360 * 2 * 0.000005)
    assert parts.beats_usd + parts.looks_usd <= CONTROL_USD
    assert f"${parts.beats_usd:.3f}" in PAGE.read_text(encoding="utf-8")


def doctor(bed: Bed, tmp_path: Path, pushed: bool) -> list[dict[str, str]]:
    cloud = Finding("identity", "ok", "worker@p", group="google")
    groups = {"google": "Google Cloud"} if bed.objects.url.startswith("gs:") else {}
    checks = [Check(cloud.name, lambda: [cloud])]
    around = Surroundings(tmp_path, None, checks=lambda: checks, pushed=pushed, groups=groups)
    found: list[dict[str, str]] = examine(bed.parts, around, lambda: bed.loop)["checks"]
    return found


def test_the_doctor_says_so_where_the_store_is_a_bucket(bed: Bed, tmp_path: Path) -> None:
    assert all(check["name"] != "beats cost" for check in doctor(bed, tmp_path, pushed=False))
    bed.objects.url = "gs://bucket"
    bed.parts = replace(bed.parts, knobs=replace(bed.parts.knobs, beat_store_s=120.0))
    found = {check["name"]: check for check in doctor(bed, tmp_path, pushed=False)}
    told = found["beats cost"]
    assert (told["group"], told["result"]) == ("google", "ok")
    assert told["fact"].startswith("a run that trains for a month costs $0.14 for beats (one stored every 120 s)")
    assert "pushed" not in told["fact"]
    assert "with beat_store_s = 880 the beats of a run cost $0.02" in told["fact"]
    assert found["objects"]["group"] == "google"
    assert found["identity"]["fact"] == "worker@p"
    bed.parts = replace(bed.parts, knobs=replace(bed.parts.knobs, beat_store_s=60.0))
    both = {c["name"]: c for c in doctor(bed, tmp_path, pushed=True)}["beats cost"]["fact"]
    assert "are acknowledged, a run that trains for a month costs $0.013, and the supervisor's reads $0.004" in both
    assert "without: a run that trains for a month costs $0.27 for beats" in both


def test_an_unusable_bucket_is_left_to_the_providers_checks(bed: Bed, tmp_path: Path) -> None:
    bed.objects.url = "gs://bucket/spot"
    bed.objects.fail_writes = True
    told = {check["name"]: check for check in doctor(bed, tmp_path, pushed=False)}["objects"]
    assert told["result"] == "fail"
    assert told["fix"] == "see the lines about Google Cloud below"


def test_a_store_that_ignores_conditions_is_found_out(
    bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An emulator that the doctor would otherwise accept: with it two agents could overwrite each other's files."""
    delete = bed.objects.delete
    monkeypatch.setattr(bed.objects, "delete", lambda key, if_generation=None: delete(key))
    told = {check["name"]: check for check in doctor(bed, tmp_path, pushed=False)}["objects"]
    assert (told["result"], told["fix"].startswith("use another store")) == ("fail", True)
