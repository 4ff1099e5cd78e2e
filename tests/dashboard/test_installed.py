"""An installed product: the wheel contains pages, styles and scripts, and serves them without a network.

Without third-party scripts the pages still work."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from supervisor.dashboard import rendering
from tests.acceptance.daemon import QUICK, Daemon
from tests.components import require_component
from tests.dashboard.document import read
from tests.dashboard.looking import Looking
from tests.services.bed import Bed

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "build" / "vendor"
OF_OTHERS = {"htmx.min.js", "sse.min.js"}
BUILD = (sys.executable, "-m", "hatchling", "build")


def unpacked_wheel(source: Path, folder: Path) -> Path:
    subprocess.run([*BUILD, "--target", "wheel", "--directory", folder], cwd=source, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_component("npm's share of the dashboard", SCRIPTS.is_dir(), "make env, where npm is installed")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([*BUILD, "--target", "sdist", "--directory", folder], cwd=ROOT, check=True, capture_output=True)
    (archive,) = folder.glob("*.tar.gz")
    subprocess.run(["tar", "-xzf", archive, "-C", folder], check=True)
    (source,) = (path for path in folder.iterdir() if path.is_dir())
    return unpacked_wheel(source, folder)


@pytest.fixture(scope="module")
def daemon(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """What is installed and nothing of the checkout."""
    elsewhere = {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    served = Daemon(tmp_path_factory.mktemp("data"), {**QUICK, **elsewhere})
    served.start()
    try:
        yield served
    finally:
        served.kill()
        served.http.close()


def test_the_wheel_that_was_built_from_the_archive_of_the_source_has_everything(installed: Path) -> None:
    inside = installed / "supervisor" / "dashboard"
    assert {path.name for path in (inside / "_vendor").iterdir()} >= OF_OTHERS
    licences = {path.name for path in (inside / "_vendor").glob("LICENSE.*")}
    assert licences == {f"LICENSE.{name}.txt" for name in ("htmx.org", "htmx-ext-sse")}
    for part in ("templates", "static"):
        own = ROOT / "supervisor" / "dashboard" / part
        assert {path.name for path in (inside / part).iterdir()} == {path.name for path in own.iterdir()}


def named_by(page: httpx.Response) -> Iterator[str]:
    """Addresses of styles, scripts and icons."""
    assert page.status_code == 200
    document = read(page.text)
    yield from (one.attributes["href"] for one in document.all("link"))
    yield from (one.attributes["src"] for one in document.all("script"))


def test_what_is_installed_serves_its_pages_with_all_they_name(daemon: Daemon) -> None:
    with httpx.Client(base_url=daemon.url, trust_env=False, timeout=60) as browser:
        named = set(named_by(browser.get("/ui/sign-in")))
        assert named
        form = {"token": daemon.token}
        assert browser.post("/ui/sign-in", data=form, headers={"Origin": daemon.url}).status_code == 303
        named |= set(named_by(browser.get("/ui/runs")))
        assert any("htmx.min." in address for address in named)
        for address in sorted(named):
            answer = browser.get(address)
            assert answer.status_code == 200, address
            assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
            (digest,) = re.findall(r"\.([0-9a-f]{12})\.", address)
            assert hashlib.sha256(answer.content).hexdigest().startswith(digest)
            assert browser.get(address.replace(digest, "0" * 12)).status_code == 404


def test_all_scripts_of_others_are_known_there(installed: Path) -> None:
    code = "from supervisor.dashboard.rendering import assets; print(sorted(assets().urls), assets().missing)"
    run = [sys.executable, "-P", "-c", code]
    told = subprocess.run(run, env={"PYTHONPATH": str(installed)}, capture_output=True, text=True, check=True)
    assert all(name in told.stdout for name in OF_OTHERS)
    assert told.stdout.strip().endswith("()")


@pytest.fixture
def bare(bed: Bed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Looking]:
    """A clone on a computer without npm."""
    monkeypatch.setattr(rendering, "VENDOR", (tmp_path / "none", tmp_path / "neither"))
    caches = (rendering.assets, rendering.environment)
    for cache in caches:
        cache.cache_clear()
    yield Looking(bed.services)
    for cache in caches:
        cache.cache_clear()


def test_without_scripts_of_others_pages_are_whole_and_name_none(bare: Looking, bed: Bed) -> None:
    assert set(rendering.assets().missing) == OF_OTHERS
    bed.submit("digits-7")
    bed.train("digits-7")
    for path in ("/ui/runs", "/ui/runs/digits-7", "/ui/runs/digits-7/charts"):
        page = bare.page(path)
        named = [one.attributes.get("src", "") for one in page.all("script")]
        assert not [address for address in named if re.search(r"htmx|sse\.min", address)]
        assert page.one("h1").text
    told = bare.page("/ui/system").text
    assert "Third-party scripts are not installed" in told
    assert all(name in told for name in OF_OTHERS)


def test_with_scripts_of_others_nothing_is_said_of_them(bed: Bed) -> None:
    require_component("npm's share of the dashboard", SCRIPTS.is_dir(), "make env, where npm is installed")
    assert "not installed" not in Looking(bed.services).page("/ui/system").text
