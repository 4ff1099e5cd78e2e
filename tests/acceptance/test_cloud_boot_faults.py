"""Machines that do not come as far as the training: from the real start-up script to the sentence of the run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.contract import runfiles
from tests.acceptance.cloud_story import CloudStory, cloud_story
from tests.cloud.cloud import BUCKET, ZONES
from tests.cloud.vm_scene import Scene
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("stories-cloud")
QUICK_GPU = {"SPOT_GPU_TIMEOUT_S": "2", "SPOT_RECOVERY_BACKOFF_S": "0.5"}
REFUSAL = "docker: Error response from daemon: failed to create task for container: no space left"


def submit(story: CloudStory, run_id: str) -> None:
    spec = {"command": "echo trained > $SPOT_RESULTS_DIR/out.txt", "image": story.cloud.image()}
    story.daemon.submit(run_id, **spec)


def first_end(story: CloudStory, run_id: str) -> tuple[str, str]:
    """(cause, evidence) of the first attempt, once it is over."""

    def over() -> tuple[str, str] | None:
        ended = [one for one in story.attempts(run_id)[:1] if one["cause"]]
        return (ended[0]["cause"], ended[0]["evidence"]) if ended else None

    found = wait_for(over, 90, "the first attempt to end")
    story.cloud.machines.scene = Scene()
    return found


def test_a_gpu_that_never_answers_is_told_with_what_was_seen_and_another_zone_is_tried(tmp_path: Path) -> None:
    with cloud_story(tmp_path, QUICK_GPU) as story:
        story.cloud.machines.scene = replace(Scene(), cards=0)
        # It is off a second after its last words, and a busy supervisor may look later.
        story.cloud.compute.serial_of_stopped = True
        submit(story, "blind")
        cause, evidence = first_end(story, "blind")
        assert cause == "gpu_unavailable"
        assert "0 of 1" in evidence
        story.completed("blind")
        zones = [one["placement"]["zone"] for one in story.attempts("blind")]
        assert zones[0] == ZONES[0] != zones[-1]
        console = story.cloud.storage.find(BUCKET, runfiles.console("blind", 1))
        assert console is not None
        assert b"phase=driver" in console.data


def test_exit_125_is_explained_with_dockers_own_words(tmp_path: Path) -> None:
    with cloud_story(tmp_path, QUICK_GPU) as story:
        story.cloud.machines.scene = replace(Scene(), refusal=f"125 {REFUSAL}")
        submit(story, "refused")
        cause, evidence = first_end(story, "refused")
        assert cause == "unknown"
        assert "no space left" in evidence
        story.completed("refused")
