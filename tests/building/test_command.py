"""`spot build-image`: what it shows before it begins, what it prints, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli import main
from supervisor.cli.files.build_image import built
from supervisor.wiring import settings as wired
from tests.building.scene import BUCKET, PROJECT, Scene
from tests.cloud.cloudbuild import BUILDER, CANNOT_READ

TOKEN = "ya29.a0ARealLookingToken"


@pytest.fixture
def spot(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """One command line in this process, with the settings of a supervisor on Google Cloud: code, output, errors."""
    monkeypatch.setenv("HOME", str(scene.room / "home"))
    for name, value in {
        "PROVIDER": "gce", "STORE_URL": f"gs://{BUCKET}/runs", "GCE_PROJECT": PROJECT, "GCE_ZONES": "us-east1-c",
        "GCE_SHAPES": "t4=n1-standard-8+1xnvidia-tesla-t4", "DEFAULT_IMAGE": scene.image,
        "CLOUD_BUILD_ENDPOINT": scene.builds.url,
    }.items():  # fmt: skip
        monkeypatch.setenv(f"SPOT_{name}", value)
    monkeypatch.setattr("supervisor.cli.files.build_image.POLL_S", 0.0)
    monkeypatch.setattr("supervisor.images.cloud_build.BACKOFF_S", 0.0)

    def run(*words: Any) -> tuple[int, str, str]:
        code = main.run(["build-image", *map(str, words)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_settings_say_what_is_not_said_and_all_of_it_is_shown_first(scene: Scene, spot: Callable[..., Any]) -> None:
    scene.program("gcloud", submit=True)
    code, out, err = spot(scene.folder)
    assert (code, out) == (0, f"{scene.registry.host}/team/train@{scene.digest()}\n")
    shown, _, after = err.partition("Way 1 of 3")
    for line in (
        f"image       {scene.image}   (default_image, environment SPOT_DEFAULT_IMAGE)",
        f"project     {PROJECT}   (gce_project, environment SPOT_GCE_PROJECT)",
        f"staging     gs://{BUCKET}/build-staging   (store_url, environment SPOT_STORE_URL)",
        "Dockerfile  the one of spot, because the folder has none",
    ):
        assert line in shown.splitlines()
    assert "Created [https://cloudbuild.googleapis.com" in after, "gcloud's own words are passed on"
    assert after.endswith("Built and pushed by gcloud builds submit.\n")


def test_an_old_environment_file_says_project_image_and_bucket(
    scene: Scene, spot: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("PROVIDER", "STORE_URL", "GCE_PROJECT", "GCE_ZONES", "GCE_SHAPES", "DEFAULT_IMAGE"):
        monkeypatch.delenv(f"SPOT_{name}")
    old = tmp_path / "rav_spot.env"
    old.write_text(f"PROJECT={PROJECT}\nREGION=us-east1\nSA=a@b.c\nIMAGE={scene.image}\nBUCKET={BUCKET}\n")
    code, out, err = spot(scene.folder, "--env-file", old, "--way", "staged")
    assert (code, out) == (0, f"{scene.registry.host}/team/train@{scene.digest()}\n")
    assert f"staging     gs://{BUCKET}/build-staging" in err


def test_a_dry_run_lists_the_files_and_sends_nothing(scene: Scene, spot: Callable[..., Any]) -> None:
    (scene.folder / ".env").write_text("TOKEN=1")
    (scene.folder / "sub").mkdir()
    (scene.folder / "sub" / "key.json").write_text("-----BEGIN RSA PRIVATE KEY-----")
    code, out, err = spot(scene.folder, "--dry-run")
    assert code == 0
    assert out.splitlines() == [".spot/agent.pyz  (added by spot)", "Dockerfile  (added by spot)", "train.py"]
    assert "left out    sub/key.json: may be secrets" in err
    assert (scene.builds.requests, scene.storage.names(BUCKET), scene.registry.requests) == ([], [], [])
    document = json.loads(spot(scene.folder, "--dry-run", "-o", "json")[1])
    assert document["files"] == [".spot/agent.pyz", "Dockerfile", "train.py"]
    assert document["secrets_left_out"] == ["sub/key.json"]


def test_json_says_which_way_worked_and_why_others_did_not(scene: Scene, spot: Callable[..., Any]) -> None:
    scene.program("gcloud", before="ERROR: gcloud crashed (OSError): unexpected end of data", code=1)
    code, out, _ = spot(scene.folder, "-o", "json")
    document = json.loads(out)
    assert (code, document["way"], document["digest"], document["build"]) == (0, "staged", scene.digest(), "build-1")
    (failure,) = document["failures"]
    assert (failure["way"], failure["kind"]) == ("cloud-build", "other")
    assert "unexpected end of data" in failure["reason"]


def test_a_failure_names_the_permission_first_then_every_way(scene: Scene, spot: Callable[..., Any]) -> None:
    scene.program("docker", before="ERROR: Cannot connect to the Docker daemon at unix:///x. Is it running?", code=1)
    scene.builds.reads_source = False
    code, out, err = spot(scene.folder)
    assert (code, out) == (4, "")
    verdict = err[err.index("error:") :].splitlines()
    assert verdict[0].startswith(f"error: No image was built. {BUILDER} may not read the source")
    assert f"gs://{BUCKET} --member=serviceAccount:{BUILDER} --role=roles/storage.objectViewer" in verdict[0]
    assert verdict[0].endswith("(IMAGE_BUILD_FAILED)")
    assert [line.split(":")[0].strip() for line in verdict[1:]] == [
        "gcloud builds submit",
        "own upload and the Cloud Build API",
        "docker buildx on this computer",
    ]


def test_nothing_secret_is_printed(scene: Scene, spot: Callable[..., Any]) -> None:
    words = f"Authorization: Bearer {TOKEN}\nfetching https://me:hunter22@host/x\nPIP_TOKEN=abc123 {CANNOT_READ}"
    scene.program("gcloud", before=words, code=1)
    scene.program("docker", before=f"ERROR: denied: token={TOKEN}", code=1)
    scene.builds.switch_off()
    code, out, err = spot(scene.folder, "-o", "json")
    assert code == 4
    for secret in (TOKEN, "hunter22", "abc123"):
        assert secret not in out + err
    assert "Bearer ***" in err, "the broken variant: the words did come this way"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--image", "UPPER/case:1"], "is not a reference to an image"),
        (["--image", f"a.b/c@sha256:{'0' * 64}"], "has a digest"),
        (["--project", "Not A Project"], "--project 'Not A Project' is not valid"),
        (["--staging", "my-bucket"], "--staging 'my-bucket' is not valid"),
        (["--region", "US"], "--region 'US' is not valid"),
        (["--service-account", "nobody"], "is not the address of an account"),
        (["--way", "magic"], "is not one of"),
        (["--timeout", "soon"], "is not a duration"),
    ],
)
def test_wrong_values_are_refused_before_anything_is_sent(
    scene: Scene, spot: Callable[..., Any], words: list[str], text: str
) -> None:
    code, _, err = spot(scene.folder, *words)
    assert code == 2
    assert text in err
    assert (scene.builds.requests, scene.storage.requests) == ([], [])


def test_a_folder_that_is_not_there(scene: Scene, spot: Callable[..., Any]) -> None:
    code, _, err = spot(scene.folder / "absent")
    assert code == 2
    assert "is not a folder" in err


def test_submit_builds_by_the_same_function(scene: Scene, spot: Callable[..., Any], capsys: Any) -> None:
    scene.program("gcloud", submit=True)
    settings = wired.load({})
    made = built(scene.folder, settings)
    assert made.reference == f"{scene.registry.host}/team/train@{scene.digest()}"
    other = built(scene.folder, settings, f"{scene.registry.host}/team/other")
    assert other.image == f"{scene.registry.host}/team/other:latest"
    assert capsys.readouterr().out == "", "standard output is the submit's"
