"""End to end on Google Cloud: submit over REST, a machine that boots, preempted, the next zone, the same weights.

Three stories: bucket only, with pushed beats, and with nobody there when the run finishes.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from supervisor.contract import runfiles
from tests.acceptance.canaries import assert_nowhere, canary, forms
from tests.acceptance.cloud_story import LONG_S, CloudStory, cloud_story, twin
from tests.cloud.cloud import BUCKET, ZONES
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("stories-cloud")


def test_preempted_resumed_and_the_same_weights(tmp_path: Path) -> None:
    with cloud_story(tmp_path) as story:
        _preempted_and_completed(story)


def test_the_same_on_postgres(tmp_path: Path, postgres_database: str) -> None:
    with cloud_story(tmp_path, {"SPOT_DATABASE_URL": postgres_database}) as story:
        _preempted_and_completed(story)


def _preempted_and_completed(story: CloudStory) -> None:
    story.submit("digits")
    story.trains("digits")
    story.cloud.registry.push("train", "1", "another image")
    story.cloud.compute.preempt(story.vm("digits").name)
    second = runfiles.facts("digits", 2)  # its agent gathers them beside the training, which may end at once
    wait_for(lambda: story.cloud.storage.find(BUCKET, second) is not None, LONG_S, "the facts of attempt 2")
    run = story.completed("digits")
    one, two = story.attempts("digits")
    assert (one["cause"], two["cause"]) == ("preempted", "finished")
    assert (one["placement"]["zone"], two["placement"]["zone"]) == ZONES[:2]
    assert two["step_from"] >= 10
    assert run["results_manifest_sha256"]
    assert story.weights("digits") == twin()
    _nothing_is_left(story, "digits", run)
    for attempt in (1, 2):
        digest = story.json_of(runfiles.facts("digits", attempt))["image_digest"]
        assert run["image"]["digest"].endswith(digest)  # also after the tag has moved
    assert story.json_of(runfiles.evidence("digits", 1))
    assert story.spot("pull", "digits", folder=story.folder).strip().endswith("errors 0")


def _nothing_is_left(story: CloudStory, run_id: str, run: Any) -> None:
    """No VM, no beat, and the meter stands."""
    assert story.cloud.compute.names() == []
    wait_for(lambda: story.cloud.storage.names(BUCKET, runfiles.beat(run_id)) == [], 30, "its beats to go")
    assert run["cost"]["usd"] > 0
    assert story.daemon.run(run_id)["cost"] == run["cost"]


def test_with_a_public_url_beats_are_pushed_and_a_notice_is_answered_at_once(tmp_path: Path) -> None:
    """A tick that nothing has asked for would come after every deadline of this test: pushed beats wake the loop."""
    slow = {"SPOT_POLL_INTERVAL_S": "600", "SPOT_BEAT_STORE_S": "60"}
    with cloud_story(tmp_path, slow, public=True) as story:
        story.submit("digits", "--steps", "100000", "--checkpoint-every", "20", "--step-delay-s", "0.03")
        story.until("digits", lambda run: (run["progress"] or {}).get("step"), "a step to be told")
        assert story.inserts() == 1
        story.cloud.compute.preempt(story.vm("digits").name)
        wait_for(lambda: story.inserts() > 1, LONG_S, "the next insert")
        story.until("digits", lambda run: run["attempt"] == 2 and run["status"] == "running", "attempt 2")
        assert story.attempts("digits")[0]["cause"] == "preempted"


def test_it_finishes_while_the_supervisor_is_dead(tmp_path: Path) -> None:
    with cloud_story(tmp_path) as story:
        story.submit("digits")
        story.trains("digits")
        vm = story.vm("digits")
        story.daemon.kill(signal.SIGKILL)
        story.open_gate("digits")
        wait_for(lambda: story.cloud.compute.instance(vm.name).status == "TERMINATED", 90, "the machine to be off")
        story.daemon.start()
        run = story.completed("digits")
        [one] = story.attempts("digits")
        assert one["cause"] == "finished"
        assert story.weights("digits") == twin()
        _nothing_is_left(story, "digits", run)


def test_a_secret_of_secret_manager_is_read_by_the_machine_and_lies_nowhere(tmp_path: Path) -> None:
    value = canary()
    with cloud_story(tmp_path) as story:
        reference = story.cloud.secrets.add("p", "token", value)
        command = 'printf %s "$TOKEN" | wc -c > "$SPOT_RESULTS_DIR/length"; echo "the token is $TOKEN"'
        story.daemon.submit("secret", command=command, image=story.cloud.image(), secrets={"TOKEN": reference})
        story.completed("secret")
        length = story.cloud.storage.find(BUCKET, runfiles.results("secret", 1) + "length")
        assert length is not None
        assert int(length.data) == len(value)
        wanted = list(forms(value))
        keys = story.cloud.storage.names(BUCKET)
        held = {key: story.cloud.storage.find(BUCKET, key) for key in keys}
        assert [key for key, one in held.items() if one and any(form in one.data for form in wanted)] == []
        serials = "".join(vm.serial() for vm in story.cloud.machines.vms).encode()
        assert not any(form in serials for form in wanted)
        logged = "\n".join(story.cloud.logging.texts()).encode()
        assert b"spot: phase=" in logged
        assert not any(form in logged for form in wanted)
        assert any(b"the token is" in one.data for key, one in held.items() if one and "/logs/" in key)
        assert_nowhere(story.daemon, [value])
