"""submit --build: the image is built first, from the run's folder, and the run gets it by its digest."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.cli.exits import AUTH, CliError
from supervisor.cli.files import build_image
from tests.cli.fake_api import FakeApi, accept_submits

DIGEST = "us-docker.pkg.dev/p/r/train@sha256:" + "1" * 64


@pytest.fixture
def builds(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, str]]:
    """(folder, requested image) of each build."""
    made: list[tuple[Path, str]] = []

    def built(folder: Path, settings: object, image: str = "") -> SimpleNamespace:
        assert api.requests == [] or all(request.method == "GET" for request in api.requests), "nothing is sent before"
        made.append((folder, image))
        return SimpleNamespace(reference=DIGEST)

    monkeypatch.setattr(build_image, "built", built)
    api.respond("GET", "/v1/meta", {"provider": "gce"})
    accept_submits(api)
    return made


def test_what_was_built_is_what_runs(api: FakeApi, spot: Any, builds: Any, tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_text("command: python train.py\nimage: us-docker.pkg.dev/p/r/train:1\n")
    assert spot("submit", str(file), "--build").code == 0
    assert builds == [(tmp_path, "us-docker.pkg.dev/p/r/train:1")]
    assert api.bodies("/v1/runs")[-1]["spec"]["image"] == DIGEST


def test_without_a_file_this_folder_is_built(api: FakeApi, spot: Any, builds: Any) -> None:
    assert spot("submit", "--build", "--", "python", "train.py").code == 0
    assert builds == [(Path(), "")]
    assert api.bodies("/v1/runs")[-1]["spec"]["image"] == DIGEST


def test_a_build_that_fails_stops_and_submits_nothing(
    api: FakeApi, spot: Any, builds: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(folder: Path, settings: object, image: str = "") -> None:
        raise CliError("The build failed.", AUTH, "IMAGE_BUILD_REFUSED")

    monkeypatch.setattr(build_image, "built", fails)
    assert spot("submit", "--build", "--cleanup-all", "--yes", "--", "x").code == AUTH
    assert {request.method for request in api.requests} == {"GET"}, "only what machines there are"


@pytest.mark.parametrize("words", [("--skip-build",), ()])
def test_a_submit_builds_nothing_by_itself(api: FakeApi, spot: Any, builds: Any, words: tuple[str, ...]) -> None:
    assert spot("submit", *words, "--", "x").code == 0
    assert builds == []


def test_build_and_skip_build_contradict_each_other(api: FakeApi, spot: Any, builds: Any) -> None:
    ended = spot("submit", "--build", "--skip-build", "--", "x")
    assert (ended.code, builds) == (2, [])
    assert "not both" in ended.err
