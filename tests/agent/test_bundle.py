"""The agent's archive: the same bytes from the same sources, complete, and usable on Python 3.8."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.contract import heartbeat
from supervisor.machinefolder import agent_archive as agent_bundle
from tests.agent.machine_rig import Rig
from tests.components import require_component

ROOT = Path(__file__).parents[2]


def test_the_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    first = agent_bundle.build_agent()
    os.utime(ROOT / "supervisor" / "agent" / "machine" / "folder.py")
    assert agent_bundle.build_agent() == first


def test_it_holds_the_agent_and_nothing_of_the_supervisor(archive: Path) -> None:
    names = zipfile.ZipFile(archive).namelist()
    packages = {name.rpartition("/")[0] for name in names}
    rooms = {"/".join(package.split("/")[:2]) for package in packages}
    assert rooms == {"", "supervisor", "supervisor/contract", "supervisor/host", "supervisor/agent"}
    assert "supervisor/agent/spot_progress.py" in names
    assert "supervisor/contract/baton.py" in names


def test_an_outdated_archive_is_built_again_and_a_current_one_is_not(tmp_path: Path) -> None:
    path = agent_bundle.agent_path(tmp_path / "cache")
    before = path.stat().st_ino
    assert agent_bundle.agent_path(tmp_path / "cache").stat().st_ino == before
    path.write_bytes(b"of yesterday")
    assert agent_bundle.agent_path(tmp_path / "cache").read_bytes() == agent_bundle.build_agent()
    assert [p.name for p in (tmp_path / "cache").iterdir()] == ["agent.pyz"]


def test_with_bytecode_it_is_the_same_agent_and_its_sources_are_not_compiled_again(
    archive: Path, tmp_path: Path
) -> None:
    path = agent_bundle.with_bytecode(archive, tmp_path / "compiled.pyz")
    plain, compiled = zipfile.ZipFile(archive), zipfile.ZipFile(path)
    assert all(compiled.read(name) == plain.read(name) for name in plain.namelist())
    assert {name[:-1] for name in set(compiled.namelist()) - set(plain.namelist())} == {
        name for name in plain.namelist() if name.endswith(".py")
    }
    look = "import sys; sys.path.insert(0, %r); import supervisor.agent.machine.folder as m; print(m.__cached__)" % str(
        path
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip().endswith("folder.pyc")


def test_each_of_its_modules_is_loaded_once(archive: Path, tmp_path: Path) -> None:
    path = agent_bundle.with_bytecode(archive, tmp_path / "compiled.pyz")
    words = [sys.executable, "-S", "-vv", str(path), "host"]
    told = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL).stderr
    assert "spot: not a request" in told
    loaded = [line for line in told.splitlines() if line.startswith(f"# trying {path}/supervisor/host/folders.pyc")]
    assert len(loaded) == 1


def test_bytecode_of_another_python_is_ignored(archive: Path, tmp_path: Path) -> None:
    path = agent_bundle.with_bytecode(archive, tmp_path / "compiled.pyz")
    strange = tmp_path / "strange.pyz"
    with zipfile.ZipFile(path) as ours, zipfile.ZipFile(strange, "w") as theirs:
        for name in ours.namelist():
            content = ours.read(name)
            theirs.writestr(name, b"\0\0\r\n" + content[4:] if name.endswith(".pyc") else content)
    done = subprocess.run([sys.executable, str(strange)], capture_output=True, text=True, check=False)
    assert (done.returncode, "usage: python agent.pyz MACHINE_DIR" in done.stderr) == (2, True)


def test_an_archive_that_is_missing_stays_missing(tmp_path: Path) -> None:
    missing = tmp_path / "agent.pyz"
    assert agent_bundle.with_bytecode(missing, tmp_path / "compiled.pyz") == missing


def test_where_it_cannot_be_written_the_archive_itself_is_used(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert agent_bundle.with_bytecode(archive, tmp_path / "file" / "compiled.pyz") == archive


def test_it_prints_its_usage(archive: Path) -> None:
    done = subprocess.run([sys.executable, str(archive)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage: python agent.pyz MACHINE_DIR" in done.stderr


@pytest.mark.parametrize("paper", [None, "{", "[]", '{"version": 2}', '{"version": 1}'])
def test_an_invalid_job_is_refused_with_a_reason(archive: Path, tmp_path: Path, paper: "str | None") -> None:
    if paper is not None:
        (tmp_path / "job.json").write_text(paper)
    done = subprocess.run([sys.executable, str(archive), str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "job.json" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "agent.json").exists()


def python38() -> str:
    """A Python 3.8 on this machine, or "" when there is none."""
    candidates = [shutil.which("python3.8") or ""]
    candidates += [str(p) for p in sorted(Path.home().glob(".pyenv/versions/3.8.*/bin/python3.8"))]
    for path in candidates:
        if path:
            done = subprocess.run(
                [path, "-c", "import ssl, sys; print(sys.version_info[:2])"], capture_output=True, check=False
            )
            if done.stdout.strip() == b"(3, 8)":
                return path
    return ""


@pytest.fixture
def old_rig(tmp_path: Path, archive: Path) -> Iterator[Rig]:
    python = python38()
    require_component("Python 3.8", bool(python), "pyenv install 3.8")
    rig = Rig(tmp_path, archive, python)
    try:
        yield rig
    finally:
        rig.close()


def test_a_whole_attempt_on_python_3_8(old_rig: Rig) -> None:
    old_rig.start(*old_rig.toy("--steps", "20", "--wait-at", "7", "--on-term", "save"))
    old_rig.at_step(7)
    old_rig.notice(10.0)
    assert old_rig.ended().left == heartbeat.NOTICED
    old_rig.start(*old_rig.toy("--steps", "20"), attempt=2)
    last = old_rig.ended()
    assert last.resumed_from == 7
    assert last.exit is not None
    assert last.exit.code == 0
    assert old_rig.baton.done is not None
    assert old_rig.text(old_rig.baton.done.prefix + "sum.txt") == str(sum(range(1, 21)))
