"""The server's image, as far as it can be judged without an engine: what it copies is enough to build from, what it
runs is what it says, and its health check tells a living supervisor from a dead one. hadolint is in `make check`."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from supervisor.settings import loading as settings
from supervisor.wiring import settings as wired
from tests.acceptance.daemon import running

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "deploy/server/Dockerfile").read_text().replace("\\\n", " ")
LINES = [line.split(maxsplit=1) for line in DOCKERFILE.splitlines() if line and not line.startswith("#")]


def said(word: str) -> list[str]:
    return [rest for name, rest in LINES if name == word]


def copied() -> list[str]:
    return [source for line in said("COPY") if "--from" not in line for source in line.split()[:-1]]


def test_what_is_copied_is_enough_to_build_the_package(tmp_path: Path) -> None:
    for source in copied():
        target = tmp_path / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, target)
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert "the dashboard will have no scripts" in built.stdout + built.stderr, "that is for its own step"
    assert len(list((tmp_path / "dist").glob("spot_supervisor-*.whl"))) == 1


def test_the_engine_is_sent_what_is_copied_and_little_else() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines, "nothing is sent but what is named"
    sent = [line.removeprefix("!") for line in lines if line.startswith("!")]
    assert sorted(sent) == sorted(copied())


def test_the_base_is_pinned_and_nobody_is_root() -> None:
    bases = {line.split()[0] for line in said("FROM")}
    assert len(bases) == 1
    assert re.search(r"@sha256:[0-9a-f]{64}$", bases.pop())
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", said("USER")[-1]), "a number, so that an engine can check it"
    assert any("--require-hashes" in line for line in said("RUN"))
    assert any("compileall" in line for line in said("RUN"))
    assert any("CI=true tools/fetch_assets.sh" in line for line in said("RUN")), "no image without its scripts"


def test_its_environment_is_made_of_settings() -> None:
    names = re.findall(r"\b(SPOT_[A-Z_]+)=", said("ENV")[-1])
    assert names
    assert set(names) <= {settings.env_name(field) for field in wired.load({}, {"HOME": "/h"}).flat}


def test_the_health_check_tells_the_living_from_the_dead(tmp_path: Path) -> None:
    check = json.loads(said("HEALTHCHECK")[0].partition("CMD ")[2])
    assert check[0] == "python"
    with running(tmp_path / "data") as daemon:
        port = daemon.url.rpartition(":")[2]
        command = [sys.executable, *(word.replace("8787", port) for word in check[1:])]
        assert command[-1] != check[-1], "the port of the image is in it"

        def healthy() -> bool:
            return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0

        assert healthy()
        daemon.kill(signal.SIGKILL)
        assert not healthy()
