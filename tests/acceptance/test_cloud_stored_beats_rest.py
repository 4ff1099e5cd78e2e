"""A whole supervisor and a real agent over a bucket, while stored beats rest: who falls silent then costs no run.

The grant has the conditions of a real house, at the pace of a test: a push every 0.5 s, a stored beat every 1.5 s.
A listing that nobody needs would come after three minutes, which is later than every wait here.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

from supervisor.contract import runfiles
from tests.acceptance.cloud_story import CloudStory, cloud_story
from tests.acceptance.replicas import Training
from tests.cloud.cloud import BUCKET
from tests.waiting import wait_for

STORE_S, SILENCE_S = 1.5, 5.0
PACE = {"SPOT_BEAT_STORE_S": str(STORE_S), "SPOT_SILENCE_S": str(SILENCE_S)}


def stored_age_s(story: CloudStory) -> float:
    found = story.cloud.storage.find(BUCKET, runfiles.beat("one"))
    return -1.0 if found is None else time.time() - found.updated


def rests(story: CloudStory) -> None:
    wait_for(lambda: stored_age_s(story) > 2 * STORE_S, 60, "the stored beats to rest")


def test_a_killed_supervisor_ends_nothing_and_a_frozen_machine_is_known_as_soon_as_ever(tmp_path: Path) -> None:
    with cloud_story(tmp_path, PACE, public=True) as story:
        training = Training(tmp_path, "one")
        story.daemon.submit("one", command=training.command, image=story.cloud.image())
        story.daemon.wait_status("one", "running")
        rests(story)
        story.daemon.kill(signal.SIGKILL)
        wait_for(lambda: 0 <= stored_age_s(story) < STORE_S, 10, "a stored beat as soon as no push arrives")
        story.daemon.start()
        rests(story)
        assert (len(story.attempts("one")), story.daemon.run("one")["status"]) == (1, "running")

        story.vm("one").freeze()
        story.until("one", lambda run: story.attempts("one")[0]["ended_at"], "the frozen machine to be known")
        first = story.attempts("one")[0]
        assert first["cause"] == "agent_lost"
        assert "(limit 5 s)" in first["evidence"], first["evidence"]
        training.finish()
        story.completed("one")
        assert (len(story.attempts("one")), training.lives) == (2, 2)
