"""Every failure that users have met has its own sentence and its fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.images.reasons import diagnose, masked
from supervisor.images.request import BuildRequest, checked, new_mark

BUILDER = "123-compute@developer.gserviceaccount.com"
IMAGE = "us-east1-docker.pkg.dev/my-project/images/train:1"


def request(**more: str) -> BuildRequest:
    values = {"image": IMAGE, "project": "my-project", "staging": "gs://bkt/build-staging"}
    return checked(BuildRequest(folder=Path(), **(values | more)))


# way, what was said, kind, part of the sentence, part of the fix
MET = [
    (
        "cloud-build", "ERROR: gcloud crashed (OSError): unexpected end of data", "other",
        "gcloud crashed (OSError: unexpected end of data)", "the other ways pack it themselves",
    ),
    (
        "cloud-build", f"{BUILDER} does not have storage.objects.get access to the Google Cloud Storage object.",
        "permission", f"{BUILDER} may not read the source: storage.objects.get on gs://bkt is missing",
        f"gs://bkt --member=serviceAccount:{BUILDER} --role=roles/storage.objectViewer",
    ),
    (
        "staged", "could not resolve source: googleapi: Error 403: Permission denied", "permission",
        "The account that Cloud Build works as may not read the source",
        '--member="serviceAccount:$(gcloud projects describe my-project --format=\'value(projectNumber)\')-compute@',
    ),
    (
        "staged", "me@example.com does not have storage.buckets.get access to the Google Cloud Storage bucket.",
        "permission", "me@example.com lacks storage.buckets.get on gs://bkt", "--member=user:me@example.com",
    ),
    (
        "staged", f"The service account {BUILDER} does not have permission to write logs to Cloud Logging.",
        "permission", "may not write the build's log", "roles/logging.logWriter",
    ),
    (
        "staged", 'denied: Permission "artifactregistry.repositories.uploadArtifacts" denied on resource', "permission",
        "may not push to us-east1-docker.pkg.dev/my-project/images/train",
        "gcloud artifacts repositories add-iam-policy-binding images --location=us-east1 --project=my-project",
    ),
    (
        "docker", "ERROR: failed to push: denied: Unauthenticated request. Unauthenticated requests do not have it",
        "permission", "docker is not logged in there", "gcloud auth configure-docker us-east1-docker.pkg.dev",
    ),
    ("docker", "no basic auth credentials", "permission", "refuses the push", "gcloud auth configure-docker"),
    (
        "docker", 'name unknown: Repository "images" not found', "other", "There is no repository",
        "gcloud artifacts repositories create images --repository-format=docker --location=us-east1",
    ),
    (
        "staged", "PERMISSION_DENIED Cloud Build API has not been used in project 123 before or it is disabled.",
        "permission", "The API cloudbuild.googleapis.com is switched off", "gcloud services enable cloudbuild",
    ),
    ("staged", "PERMISSION_DENIED The caller does not have permission", "permission", "may not start builds", "editor"),
    ("staged", "caller does not have permission 'iam.serviceAccounts.actAs'", "permission", "work as", "UserRole"),
    (
        "cloud-build", "ERROR: (gcloud.builds.submit) You do not currently have an active account selected.",
        "identity", "Your Google login is missing or too old", "gcloud auth login",
    ),
    (
        "staged", "Application Default Credentials were not found: x", "identity", "login is missing",
        "gcloud auth application-default login",
    ),
    ("docker", "ERROR: Cannot connect to the Docker daemon at unix:///x", "other", "docker daemon", "Start docker"),
    ("docker", "docker: unknown command: docker buildx", "other", "docker has no buildx", "buildx plugin"),
    (
        "docker", 'ERROR: failed to solve: process "/bin/sh -c false" did not complete successfully: exit code: 1',
        "source", "The Dockerfile failed: failed to solve: process", "--dry-run lists what is sent",
    ),
    (
        "docker", 'ERROR: failed to compute cache key: "/data.bin": not found', "source", '"/data.bin": not found',
        "left out by .gcloudignore",
    ),
    (
        "docker", "pull access denied for nobody/nothing, repository does not exist", "other",
        "The base image of the Dockerfile cannot be pulled", "",
    ),
    ("staged", "RESOURCE_EXHAUSTED Quota exceeded for builds", "other", "A quota of Cloud Build", "another --region"),
    ("staged", "The specified bucket does not exist.", "other", "There is no bucket gs://bkt", "buckets create gs://bkt"),
    ("docker", "step 1\nERROR: the moon is in the way\n----", "other", "the moon is in the way", ""),
    ("docker", "", "other", "It ended without a message", ""),
]  # fmt: skip


@pytest.mark.parametrize(("way", "said", "kind", "text", "fix"), MET, ids=[row[3][:40] for row in MET])
def test_what_was_said_becomes_a_sentence(way: str, said: str, kind: str, text: str, fix: str) -> None:
    reason = diagnose(said, request(), way)
    assert reason.kind == kind
    assert text in reason.text
    assert fix.replace("UserRole", "roles/iam.serviceAccountUser") in reason.fix


def test_an_account_of_ours_is_named_where_google_names_none() -> None:
    account = "spot-build@my-project.iam.gserviceaccount.com"
    reason = diagnose("storage.objects.get denied", request(account=account), "staged")
    assert f"--member=serviceAccount:{account} " in reason.fix


def test_a_registry_that_is_not_googles_gets_no_command_of_googles() -> None:
    reason = diagnose("uploadArtifacts denied", request(image="quay.io/me/train:1"), "staged")
    assert "quay.io/me/train" in reason.text
    assert "gcloud" not in reason.fix


@pytest.mark.parametrize(
    "text", ["Bearer ya29.c0AY_VpZ", "token=s3cr3tvalue", "https://me:s3cr3tvalue@host/x", "HF_TOKEN: s3cr3tvalue"]
)
def test_secrets_are_masked(text: str) -> None:
    shown = masked(f"before {text} after")
    assert "***" in shown
    assert shown.startswith("before ")
    assert "s3cr3tvalue" not in shown
    assert "c0AY" not in shown


def test_a_mark_is_a_unique_tag() -> None:
    assert new_mark(0.0).startswith("spot-19700101-000000-")
    assert len({new_mark(0.0) for _ in range(100)}) == 100
    build_request = request()
    assert build_request.marked == f"{IMAGE.removesuffix(':1')}:{build_request.mark}"
