"""Three ways to an image: each works alone when the ways before it fail, and every failure is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.images.request import AllWaysFailed
from tests.building.scene import BUCKET, PROJECT, Scene
from tests.cloud.cloudbuild import BUILDER, CANNOT_READ
from tests.cloud.web import Response

CRASH = "ERROR: gcloud crashed (OSError): unexpected end of data"
NO_DAEMON = "ERROR: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"


def test_gcloud_leads_to_an_image_and_its_defaults_are_not_relied_on(scene: Scene) -> None:
    scene.program("gcloud", submit=True)
    made = scene.build()
    assert (made.way, made.recovered, made.failures) == ("cloud-build", False, ())
    assert made.reference == f"{scene.registry.host}/team/train@{scene.digest()}"
    ((*words,),) = scene.calls("gcloud")
    assert words[:2] == ["builds", "submit"]
    for option in (
        f"--project={PROJECT}",
        "--region=global",
        f"--gcs-source-staging-dir=gs://{BUCKET}/build-staging",
        "--quiet",
    ):
        assert option in words


def test_a_crash_of_gcloud_is_reported_and_the_api_builds(scene: Scene) -> None:
    scene.program("gcloud", before=CRASH, code=1)
    made = scene.build()
    assert made.way == "staged"
    assert made.digest == scene.digest()
    (failure,) = made.failures
    assert failure.reason.text == "gcloud crashed (OSError: unexpected end of data)."
    assert any("gcloud crashed (OSError: unexpected end of data)." in words for words in scene.said)
    assert scene.builds_begun() == 1
    assert scene.storage.names(BUCKET) == [], "the staged archive has served"


def test_docker_builds_where_neither_gcloud_nor_the_api_can(scene: Scene) -> None:
    scene.program("docker", push=True)
    scene.builds.switch_off()
    made = scene.build()
    assert made.way == "docker"
    assert made.digest == scene.digest()
    assert [failure.reason.text for failure in made.failures] == [
        "gcloud is not installed on this computer.",
        f"The API cloudbuild.googleapis.com is switched off in project {PROJECT}.",
    ]
    assert "gcloud services enable cloudbuild.googleapis.com --project=my-project" in made.failures[1].reason.fix
    assert scene.storage.names(BUCKET) == []
    ((*words,),) = scene.calls("docker")
    assert words[:2] == ["buildx", "build"]
    assert {"--push", "--platform=linux/amd64", f"--tag={scene.image}"} <= set(words)


@pytest.mark.parametrize("way", ["cloud-build", "staged", "docker"])
def test_one_way_alone_is_tried_when_it_is_named(scene: Scene, way: str) -> None:
    scene.program("gcloud", submit=True)
    scene.program("docker", push=True)
    made = scene.build(ways=(way,))
    assert (made.way, made.digest) == (way, scene.digest())
    assert len(scene.calls("gcloud")) == (way == "cloud-build")
    assert len(scene.calls("docker")) == (way == "docker")


def test_docker_alone_needs_no_project_and_no_bucket(scene: Scene) -> None:
    scene.program("docker", push=True)
    assert scene.build(ways=("docker",), project="", staging="").digest == scene.digest()


def test_a_403_on_the_source_names_identity_role_and_bucket_first(scene: Scene) -> None:
    scene.program("gcloud", before=f"ERROR: (gcloud.builds.submit) INVALID_ARGUMENT: {CANNOT_READ}", code=1)
    scene.builds.reads_source = False
    scene.program("docker", before=NO_DAEMON, code=1)
    with pytest.raises(AllWaysFailed) as caught:
        scene.build()
    first, second, third = (failure.reason for failure in caught.value.failures)
    for reason in (first, second):
        assert reason.kind == "permission"
        assert BUILDER in reason.text
        assert f"gs://{BUCKET}" in reason.text
        assert (
            f"gcloud storage buckets add-iam-policy-binding gs://{BUCKET} --member=serviceAccount:{BUILDER} "
            "--role=roles/storage.objectViewer" in reason.fix
        )
    assert third.text == "The docker daemon does not run on this computer, or you may not use it."
    assert str(caught.value).startswith(f"No image was built. {BUILDER} may not read the source")
    assert scene.builds_begun() == 0


def test_a_403_of_the_cloud_does_not_keep_docker_from_building(scene: Scene) -> None:
    scene.program("gcloud", before=CANNOT_READ, code=1)
    scene.builds.reads_source = False
    scene.program("docker", push=True)
    made = scene.build()
    assert made.way == "docker"
    assert [failure.reason.kind for failure in made.failures] == ["permission", "permission"]


def test_a_403_on_the_bucket_names_the_missing_permission(scene: Scene) -> None:
    text = f"me@example.com does not have storage.objects.create access to the bucket {BUCKET}."
    body = {
        "error": {
            "code": 403,
            "message": text,
            "errors": [{"domain": "global", "reason": "forbidden", "message": text}],
        }
    }
    scene.storage.trouble(lambda _: Response(403, body), when="storage.objects.insert")
    with pytest.raises(AllWaysFailed) as caught:
        scene.build(ways=("staged",))
    (failure,) = caught.value.failures
    assert "me@example.com lacks storage.objects.create on gs://spot-tests" in failure.reason.text
    assert "--member=user:me@example.com --role=roles/storage.objectCreator" in failure.reason.fix


def test_a_dockerfile_that_fails_is_not_tried_twice(scene: Scene) -> None:
    scene.builds.ends_as = {
        "status": "FAILURE",
        "failureInfo": {"type": "USER_BUILD_STEP", "detail": "Build step failure: build step 0 failed: exit 1"},
    }
    scene.program("docker", push=True)
    with pytest.raises(AllWaysFailed, match="The Dockerfile failed") as caught:
        scene.build()
    assert [failure.way for failure in caught.value.failures] == ["cloud-build", "staged"]
    assert scene.calls("docker") == []
    assert "console.cloud.google.com/cloud-build" in str(caught.value), "where its log is"


def test_the_build_may_not_push(scene: Scene) -> None:
    scene.builds.ends_as = {"status": "FAILURE", "failureInfo": {"type": "PUSH_NOT_AUTHORIZED", "detail": "x"}}
    with pytest.raises(AllWaysFailed) as caught:
        scene.build(ways=("staged",), account="builder@my-project.iam.gserviceaccount.com")
    assert "builder@my-project.iam.gserviceaccount.com may not push to" in str(caught.value)
    assert "roles/artifactregistry.writer" in str(caught.value)
    (build,) = scene.builds.builds.values()
    assert build["serviceAccount"].endswith("/serviceAccounts/builder@my-project.iam.gserviceaccount.com")


def test_a_program_that_hangs_is_ended_and_the_next_way_taken(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.images.build.UPLOAD_S", 0.0)
    scene.program("gcloud", before="Uploading tarball", hang=True)
    made = scene.build(build_s=0.7)
    assert made.way == "staged"
    (failure,) = made.failures
    assert failure.reason.kind == "limit"
    assert "was ended" in failure.reason.text
    assert not Path("/proc", (scene.room / "gcloud.pid").read_text()).exists()


def test_a_request_to_a_busy_service_is_retried(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.images.cloud_build.BACKOFF_S", 0.0)
    scene.storage.trouble(503, times=2, when="storage.objects.insert")
    scene.builds.fail("GET", Response(503, {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}), 2)
    assert scene.build(ways=("staged",)).digest == scene.digest()
    assert scene.builds_begun() == 1
