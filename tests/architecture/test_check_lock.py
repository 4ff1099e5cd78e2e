"""tools/checks/lock.py: a lock that lacks something or says too much."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tools.checks.lock import DEV_LOCK, REGISTRIES, SCRIPTS, SCRIPTS_LOCK, check
from tools.checks.lock import IMAGE_LOCK as IMAGE

HASH = "--hash=sha256:" + "0" * 64
GOOD_LOCK = f"""# made by a program
click==8.1.0 ; python_version > '3' \\
    {HASH} \\
    {HASH}
Hatch_ling==1.0 {HASH}
"""
IMAGE_LOCK = f"click==8.1.0 {HASH}\nhatch-ling==1.0 {HASH}\n"
PYPROJECT = """
[build-system]
requires = ["hatch-ling>=1"]
[project]
dependencies = ["click>=8,<9"]
[project.optional-dependencies]
postgres = []
google = []
[dependency-groups]
dev = []
image = []
"""


ASKED = {"htmx.org": "2.0.11"}
NPM: dict[str, Any] = {
    "packages": {
        "": {"dependencies": ASKED},
        "node_modules/htmx.org": {"version": "2.0.11", "integrity": f"sha512-{'A' * 86}=="},
    }
}


def problems(
    root: Path, lock: str = GOOD_LOCK, image: str = IMAGE_LOCK, npm: dict[str, Any] = NPM, **others: str
) -> list[str]:
    (root / "requirements-dev.lock").write_text(lock)
    (root / "deploy/server").mkdir(parents=True)
    (root / "deploy/server/requirements.lock").write_text(image)
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / SCRIPTS).parent.mkdir(parents=True)
    (root / SCRIPTS).write_text(json.dumps({"dependencies": ASKED}))
    (root / SCRIPTS_LOCK).write_text(json.dumps(npm))
    for name, text in others.items():
        (root / name).write_text(text)
    return check(root)


def test_a_good_lock_passes(tmp_path: Path) -> None:
    assert problems(tmp_path) == []


@pytest.mark.parametrize(
    ("lock", "complaint"),
    [
        (GOOD_LOCK + "rich==1.0\n", "without a hash: rich==1.0"),
        (GOOD_LOCK + f"rich>=1.0 {HASH}\n", "neither a pin"),
        (GOOD_LOCK + "--index-url somewhere\n", "neither a pin"),
        (GOOD_LOCK + "# from https://example.invalid\n", "holds a URL"),
        (f"hatch-ling==1.0 {HASH}\n", "click is required"),
        (f"click==8.1.0 {HASH}\n", "hatch-ling is required"),
    ],
)
def test_a_bad_lock_is_found(tmp_path: Path, lock: str, complaint: str) -> None:
    complaints = [line for line in problems(tmp_path, lock) if line.startswith(DEV_LOCK)]
    assert len(complaints) == 1
    assert complaint in complaints[0]


@pytest.mark.parametrize(
    ("lock", "complaint"),
    [
        (IMAGE_LOCK + "rich==1.0\n", "without a hash: rich==1.0"),
        (IMAGE_LOCK + f"rich==1.0 {HASH}\n", "rich 1.0 is not the version that the tests run with"),
        (IMAGE_LOCK.replace("8.1.0", "8.1.1"), "click 8.1.1 is not the version that the tests run with"),
        (IMAGE_LOCK.splitlines()[0], "hatch-ling is required"),
    ],
)
def test_a_bad_lock_of_the_image_is_found(tmp_path: Path, lock: str, complaint: str) -> None:
    complaints = problems(tmp_path, image=lock)
    assert complaint in complaints[0]
    assert all(line.startswith(IMAGE) for line in complaints)


@pytest.mark.parametrize(
    ("place", "name", "value", "complaint"),
    [
        ("", "dependencies", {"htmx.org": "2.0.10"}, "was made for another package.json"),
        ("node_modules/htmx.org", "version", "2.0.10", "htmx.org is required as 2.0.11 and locked as 2.0.10"),
        ("node_modules/htmx.org", "integrity", "sha1-short", "without a hash: node_modules/htmx.org"),
        ("node_modules/htmx.org", "resolved", "https://example.invalid/htmx.tgz", "holds a URL"),
        ("node_modules/more", "version", "1.0.0", "without a hash: node_modules/more"),
    ],
)
def test_a_bad_lock_of_the_scripts_is_found(
    tmp_path: Path, place: str, name: str, value: object, complaint: str
) -> None:
    npm = deepcopy(NPM)
    npm["packages"].setdefault(place, {})[name] = value
    (complaints,) = problems(tmp_path, npm=npm)
    assert complaints.startswith(SCRIPTS_LOCK)
    assert complaint in complaints


@pytest.mark.parametrize("host", REGISTRIES)
def test_a_registry_named_anywhere_is_found(tmp_path: Path, host: str) -> None:
    assert problems(tmp_path, notes=f"first\nget it from files.{host.upper()}\n") == [
        f"notes:2: names the package registry {host}"
    ]
