"""End to end: one daemon with two providers. A run goes from Google Cloud to this computer and back, and its weights
are those of a training that nobody touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cloud_story import ENDED, CloudStory, cloud_story, twin
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("stories-cloud")
SECTIONS = """
[providers.cloud]
kind = "gce"

[providers.lab]
kind = "local"
zones = ["bench"]
"""
# A zone that has said no is asked again after so many seconds: longer than three refusals and a start here take.
PAUSE = {"SPOT_COOLDOWN_MIN_S": "8", "SPOT_COOLDOWN_MAX_S": "8"}


def trains_on(story: CloudStory, run_id: str, attempt: int) -> str:
    """The provider of this attempt, once it has saved a checkpoint of its own."""

    def holds(run: Any) -> bool:
        assert run["status"] not in ENDED, story.told(run_id)
        if run["attempt"] != attempt or run["status"] != "running":
            return False
        began_at: int = story.attempts(run_id)[-1]["step_from"] or 0
        return (run["checkpoint_step"] or 0) > began_at

    story.until(run_id, holds, f"attempt {attempt} to keep a step of its own")
    provider: str = story.attempts(run_id)[-1]["placement"]["provider"]
    return provider


def cooling(story: CloudStory) -> list[str]:
    zones = story.daemon.call("GET", "/v1/zones")["zones"]
    return [one["zone"] for one in zones if one["state"] == "cooling"]


def test_a_run_moves_from_the_cloud_to_this_computer_and_back(tmp_path: Path) -> None:
    file = tmp_path / "spot.toml"
    file.write_text(SECTIONS, encoding="utf-8")
    with cloud_story(tmp_path, {"SPOT_PROVIDER": None, "SPOT_CONFIG": str(file), **PAUSE}) as story:
        story.submit("digits", providers=("cloud", "lab"))
        assert trains_on(story, "digits", 1) == "cloud"
        story.cloud.compute.stock_out("*")
        story.cloud.compute.preempt(story.vm("digits").name)
        assert trains_on(story, "digits", 2) == "lab", story.told("digits")
        story.cloud.compute.restock()
        wait_for(lambda: not cooling(story), 60, "the cloud to be asked again")
        story.daemon.call("POST", "/v1/dev/preempt", {"run_id": "digits", "notice_s": 5})
        story.completed("digits")
        attempts = story.attempts("digits")
        assert [one["placement"]["provider"] for one in attempts] == ["cloud", "lab", "cloud"]
        assert [one["cause"] for one in attempts] == ["preempted", "preempted", "finished"]
        kept = [one["step_from"] or 0 for one in attempts]
        assert kept == sorted(set(kept)), "each went on from what the one before had kept"
        assert story.weights("digits") == twin()
        assert story.cloud.compute.names() == []
        assert "in bench of lab" in story.told("digits")
