"""A build that pushed without a response is recognized by its digest, and nothing is built twice."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace

import pytest

from supervisor.images.build import build
from supervisor.images.request import AllWaysFailed, Interrupted
from tests.building.scene import PROJECT, Scene
from tests.cloud.web import Request, Reset, Response

FORBIDDEN = {"error": {"code": 403, "message": "Permission denied on resource", "status": "PERMISSION_DENIED"}}
LOGS = "ERROR: (gcloud.builds.submit) This tool can only stream logs if you are Viewer/Owner of the project"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.images.cloud_build.BACKOFF_S", 0.0)


def test_gcloud_died_after_the_push(scene: Scene) -> None:
    scene.program("gcloud", submit=True, after="ERROR: gcloud crashed (ConnectionError): reset by peer", code=1)
    made = scene.build()
    assert (made.way, made.recovered, made.failures) == ("cloud-build", True, ())
    assert made.digest == scene.digest()
    assert scene.builds_begun() == 1


def test_gcloud_died_while_the_build_runs_and_the_build_is_waited_for(scene: Scene) -> None:
    scene.builds.looks = 4
    scene.program("gcloud", submit=True, wait=False, after=LOGS, code=1)
    made = scene.build()
    assert (made.way, made.recovered, made.digest) == ("cloud-build", True, scene.digest())
    assert scene.builds_begun() == 1
    assert any("still runs at Cloud Build: waiting for it" in words for words in scene.said)


def test_the_answer_to_create_is_lost_and_the_build_is_found_by_its_mark(scene: Scene) -> None:
    scene.builds.lose_create = 1
    made = scene.build(ways=("staged",))
    assert (made.way, made.recovered, made.digest) == ("staged", True, scene.digest())
    assert scene.builds_begun() == 1


def test_the_build_is_unreadable_and_the_registry_has_the_digest(scene: Scene) -> None:
    request = scene.request(ways=("staged",))
    scene.builds.fail("GET", Response(403, FORBIDDEN), None)
    looked = []

    def look(words: str) -> None:
        looked.append(words)
        if "looking for the image in the registry" in words:
            scene.builds.end("build-1")  # it is pushed while nobody can ask how it goes

    made = build(request, look, scene.lines.append)
    assert (made.recovered, made.digest) == (True, scene.digest())
    assert scene.builds_begun() == 1
    assert any("Cloud Build cannot be read" in words for words in looked)


def test_the_response_to_create_is_lost_no_build_is_readable_and_the_digest_proves_the_push(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark is the proof where Cloud Build does not respond; docker would build the same again."""
    scene.builds.lose_create = 1
    scene.program("docker", push=True)

    def nobody_may_look(_: Request) -> Response:
        scene.builds.end("build-1")  # it is pushed meanwhile
        return Response(403, FORBIDDEN)

    monkeypatch.setattr(scene.builds, "_list", nobody_may_look)
    made = scene.build(ways=("staged", "docker"))
    assert (made.way, made.recovered, made.digest) == ("staged", True, scene.digest())
    assert (scene.builds_begun(), scene.calls("docker")) == (1, [])


def test_docker_pushed_and_then_lost_its_connection(scene: Scene) -> None:
    scene.program("docker", push=True, metadata=False, code=1)
    made = scene.build(ways=("docker",))
    assert (made.recovered, made.digest) == (True, scene.digest())


def test_docker_says_no_digest_and_the_registry_does(scene: Scene) -> None:
    scene.program("docker", push=True, metadata=False)
    made = scene.build(ways=("docker",))
    assert (made.recovered, made.digest) == (False, scene.digest())


def test_another_build_of_the_same_name_does_not_count_as_this_one(scene: Scene) -> None:
    """The broken variant of the mark: the requested tag exists already, and proves nothing."""
    scene.registry.push("team/train", "1", "yesterday's")
    scene.program("docker", before="ERROR: Cannot connect to the Docker daemon at unix:///x.", code=1)
    with pytest.raises(AllWaysFailed):
        scene.build(ways=("docker",))


def test_a_failure_of_an_earlier_way_is_not_counted_for_the_next(scene: Scene) -> None:
    scene.builds.ends_as = {"status": "FAILURE", "failureInfo": {"type": "PUSH_FAILED", "detail": "Push broke off"}}
    scene.program("gcloud", submit=True, wait=False, code=1, after="ERROR: it failed")

    def say(words: str) -> None:
        scene.said.append(words)
        if words.startswith("Way 2"):
            scene.builds.fail("POST", Reset(), None)  # the answer is lost, and nothing has begun

    with pytest.raises(AllWaysFailed) as caught:
        build(scene.request(ways=("cloud-build", "staged")), say, scene.lines.append)
    first, second = (failure.reason.text for failure in caught.value.failures)
    assert "Push broke off" in first
    assert "no clear response" in second


def test_a_build_of_another_user_does_not_count_as_this_one(scene: Scene) -> None:
    scene.build(ways=("staged",))
    scene.builds.reads_filter = False
    scene.program("docker", push=True)

    def say(words: str) -> None:
        if words.startswith("Way 1"):
            scene.builds.fail("POST", Reset(), None)

    made = build(scene.request(ways=("staged", "docker")), say, scene.lines.append)
    assert (made.way, made.recovered) == ("docker", False)


def test_pushed_without_a_digest(scene: Scene) -> None:
    scene.program("docker", push=True, metadata=False)
    scene.registry.hidden.add("team/train")
    with pytest.raises(AllWaysFailed, match="was built and pushed, but its digest cannot be read") as caught:
        scene.build(ways=("docker", "staged"))
    assert len(caught.value.failures) == 1, "and nothing is built once more"


def test_a_build_over_its_time_is_cancelled_before_the_next_way(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    # Cloud Build gets 0.3 s, docker a minute: a busy computer needs more than 0.3 s to start it.
    monkeypatch.setattr("supervisor.images.cloud_build.QUEUE_S", 0.3 - 60.0)
    scene.builds.looks = 10_000
    scene.program("docker", push=True)
    made = scene.build(ways=("staged", "docker"), build_s=60.0)
    assert made.way == "docker"
    assert [begun["status"] for begun in scene.builds.builds.values()] == ["CANCELLED"]


def test_ctrl_c_says_what_still_runs_and_how_to_end_it(scene: Scene) -> None:
    scene.builds.looks = 10_000
    request = replace(scene.request(ways=("staged",)), poll_s=0.02)

    def interrupt() -> None:
        end = time.monotonic() + 20
        while len(scene.builds.requests) < 3 and time.monotonic() < end:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(Interrupted) as caught:
        build(request, scene.said.append, scene.lines.append)
    thread.join()
    assert str(caught.value) == (
        "Build build-1 still runs at Cloud Build. To end it: "
        f"gcloud builds cancel build-1 --project={PROJECT} --region=global"
    )


def test_ctrl_c_while_cloud_build_does_not_answer_never_says_that_nothing_runs(scene: Scene) -> None:
    scene.program("gcloud", hang=True)
    request = scene.request(ways=("cloud-build",))
    scene.builds.fail("GET", Response(403, FORBIDDEN), None)

    def interrupt() -> None:
        end = time.monotonic() + 20
        while not (scene.room / "gcloud.pid").exists() and time.monotonic() < end:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(Interrupted) as caught:
        build(request, scene.said.append, scene.lines.append)
    thread.join()
    assert str(caught.value) == (
        "Whether a build still runs at Cloud Build cannot be read now. To see it: gcloud builds list --ongoing "
        f'--filter="tags={request.mark}" --project={PROJECT} --region=global'
    )
