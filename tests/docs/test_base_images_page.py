"""The page of prepared machines says what the code does: its limits, its paths, what the clean-up removes."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from supervisor.agent.life.setup import MARKERS
from supervisor.api.shapes.run_spec import RunSpec
from supervisor.domain.policies import StallLimits
from supervisor.providers.gce.doctor.permissions import PROJECT
from supervisor.providers.gce.machines.images import USD_PER_GB_MONTH, GceImages

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "base-images.md").read_text(encoding="utf-8")


def test_its_specs_are_accepted() -> None:
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", TEXT, flags=re.DOTALL)]
    assert len(blocks) == 2
    for spec in blocks:
        spec.pop("code", None)  # a folder, which the client packs
        RunSpec.model_validate(spec)
    assert RunSpec.model_validate({"command": "x", "setup": "make"}).setup == ["make"]


def test_its_figures_are_those_of_the_code() -> None:
    assert f"`stall.setup_s` ({StallLimits().setup_s / 60:.0f} min)" in TEXT
    assert MARKERS.replace("%d", "UID") in TEXT
    assert f"${USD_PER_GB_MONTH:.2f} for each GB and month" in TEXT


def test_it_names_what_the_clean_up_removes_and_the_permissions() -> None:
    section = TEXT.partition("## What is cleaned")[2].partition("\n## ")[0]
    named = re.findall(r"`(\.[a-z/-]+)`", section)
    assert {".ssh", ".netrc", ".env", ".git"} <= set(named)
    assert [name for name in named if name not in GceImages.clean_up] == []
    for permission in PROJECT["base_images"]:
        assert permission.rpartition(".")[2] in TEXT
