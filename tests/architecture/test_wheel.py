"""What an installed product has: the wheel carries the package, its migrations and the agent, and nothing else."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools.project_files import project_files

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_every_file_of_the_package_is_in_it(unpacked: Path) -> None:
    for path in project_files(ROOT / "supervisor"):
        assert (unpacked / path.relative_to(ROOT)).exists()


def test_every_migration_is_in_it(unpacked: Path) -> None:
    migrations = [path.relative_to(ROOT / "migrations") for path in project_files(ROOT / "migrations", ".py")]
    assert migrations
    for path in migrations:
        assert (unpacked / "supervisor" / "_migrations" / path).exists()


def test_the_agent_is_in_it(unpacked: Path) -> None:
    assert zipfile.is_zipfile(unpacked / "supervisor" / "_agent.pyz")


def test_what_a_build_of_an_image_needs_is_in_it(unpacked: Path) -> None:
    for name in ("Dockerfile", ".gcloudignore", "cloudbuild.yaml"):
        carried = unpacked / "supervisor" / "_training_image" / name
        assert carried.read_bytes() == (ROOT / "deploy" / "training-image" / name).read_bytes()


def test_nothing_else_is_in_it(unpacked: Path) -> None:
    (metadata,) = unpacked.glob("*.dist-info")
    assert {path.name for path in unpacked.iterdir()} == {"supervisor", metadata.name}
    assert "spot = supervisor.cli.main:main" in (metadata / "entry_points.txt").read_text()
