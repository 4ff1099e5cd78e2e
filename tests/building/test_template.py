"""What the product brings: a Dockerfile on a base that cannot change, and Cloud Build's words for it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from supervisor.images import context
from tests.building.scene import Scene
from tests.cloud.discovery import Oracle
from tests.cloud.web import Request, Response

ROOT = Path(__file__).parents[2]
PINNED = re.compile(r"FROM [a-z0-9/._-]+:[A-Za-z0-9._-]+@sha256:[0-9a-f]{64}( AS [a-z]+)?")


def dockerfile() -> str:
    return (context.brought_folder() / "Dockerfile").read_text()


def bases(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("FROM ")]


def test_every_base_is_pinned_by_content_and_keeps_its_tag_for_people() -> None:
    assert bases(dockerfile())
    assert [line for line in bases(dockerfile()) if not PINNED.fullmatch(line)] == []


@pytest.mark.parametrize(
    "line", ["FROM pytorch/pytorch:2.7.1", "FROM pytorch/pytorch@sha256:" + "0" * 64, "FROM a:1@sha256:abc"]
)
def test_a_base_that_is_not_pinned_so_would_be_seen(line: str) -> None:
    assert not PINNED.fullmatch(line)


def test_it_runs_the_agent_as_an_ordinary_user_and_unbuffered() -> None:
    words = dockerfile()
    assert re.search(r"^USER 1000:1000$", words, re.MULTILINE)
    assert 'ENTRYPOINT ["python", "/opt/spot/agent.pyz"]' in words
    assert "PYTHONUNBUFFERED=1" in words
    assert words.index("requirements*.txt") < words.index("COPY --chown=1000:1000 . ."), "code does not undo the cache"


def test_alone_it_uses_the_machine_folder_of_the_start_up_script() -> None:
    script = (ROOT / "supervisor" / "providers" / "gce" / "machines" / "startup_container.sh").read_text()
    (folder,) = re.findall(r"^MACHINE=\$ROOT(\S+)", script, re.MULTILINE)
    assert f'CMD ["{folder}"]' in dockerfile()
    assert f"--owner spot --group spot /workspace {folder}" in dockerfile()


def test_the_request_to_cloud_build_matches_its_api(scene: Scene) -> None:
    request = scene.request(account="b@p.iam.gserviceaccount.com", build_s=1800.0)
    config = context.build_config(request)
    path = "/v1/projects/my-project/locations/global/builds"
    posted = Request("POST", path, {}, {"content-type": "application/json"}, Response(200, config).encoded)
    assert Oracle("cloudbuild").check(posted, Response(200, {"name": "operations/x"})) == []
    assert config["timeout"] == "1800s"
    assert config["options"]["logging"] == "CLOUD_LOGGING_ONLY", "Cloud Build demands a choice with an account of ours"
    assert config["images"] == ["${_IMAGE}", "${_MARK}"]
    assert set(config["substitutions"]) == set(re.findall(r"\$\{(\w+)}", str(config))), "MUST_MATCH is the default"


def test_the_oracle_would_see_a_misspelt_option(scene: Scene) -> None:
    config = context.build_config(scene.request())
    config["options"]["loggin"] = config["options"].pop("logging")
    path = "/v1/projects/my-project/locations/global/builds"
    posted = Request("POST", path, {}, {"content-type": "application/json"}, Response(200, config).encoded)
    assert Oracle("cloudbuild").check(posted, Response(200, {"name": "operations/x"})) != []
