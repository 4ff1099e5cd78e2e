"""Code as a bundle: what the user has in a folder is what runs, whatever becomes of that folder later."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.contract import runfiles
from tests import forked
from tests.acceptance.stories import Stories, stories

MODEL = "word = 'first'\n"
# Tells where it runs, what it finds there, and waits for its gate.
TRAIN = """\
import os, sys, time
from pathlib import Path
sys.path.insert(0, "lib")
import model
gate = Path(sys.argv[1])
print("in", os.getcwd(), "with", model.word, flush=True)
while not gate.exists():
    time.sleep(0.05)
print("later", Path("lib/model.py").read_text().strip(), flush=True)
Path(os.environ["SPOT_RESULTS_DIR"], "word").write_text(model.word)
"""


class Desk:
    """A person with a folder of code and the command line."""

    def __init__(self, story: Stories, folder: Path) -> None:
        self.story, self.folder = story, folder
        self.code = folder / "project"
        (self.code / "lib").mkdir(parents=True)
        self.write("lib/model.py", MODEL)
        self.write("train.py", TRAIN)
        self.write(".gitignore", "*.pt\n")
        self.write("weights.pt", "not code")

    def write(self, name: str, text: str) -> Path:
        path = self.code / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def spot(self, *words: str) -> subprocess.CompletedProcess[str]:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SPOT_")}
        environ |= {**self.story.daemon.for_cli(), "NO_COLOR": "1"}
        return forked.spot(*words, environ=environ, folder=self.code)

    def submit(self, run_id: str, *words: str) -> str:
        """Its code's hash; what was printed beside it is in `said`."""
        command = words or (sys.executable, "-S", "train.py", str(self.story.gate(run_id)))
        answer = self.spot("submit", "--run-id", run_id, "--code", ".", "-o", "json", "--", *command)
        assert answer.returncode == 0, answer.stderr
        self.said = answer.stderr
        short = self.said.removeprefix("code ")[:12]
        [bundle] = [path.name for path in self.bundles() if path.name.startswith(short)]
        return bundle.removesuffix(".tar.gz")

    def refused(self, *words: str) -> str:
        """What the command line says; no run was made, and no bundle."""
        answer = self.spot("submit", "--run-id", "refused", "--code", ".", "--", *(words or ("python", "train.py")))
        assert answer.returncode == 2, (answer.returncode, answer.stdout, answer.stderr)
        assert "(CODE_REFUSED)" in answer.stderr
        assert self.story.get("/v1/runs")["runs"] == []
        return answer.stderr

    def bundles(self) -> list[Path]:
        return sorted((self.story.objects / runfiles.CODE).glob("*.tar.gz"))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with stories(tmp_path) as story:
        yield Desk(story, tmp_path)


def started(desk: Desk, run_id: str, attempt: int = 1) -> str:
    """The first line of its log, once it is there."""

    def said() -> list[str]:
        there = len(desk.story.attempts(run_id)) >= attempt
        lines = desk.story.log(run_id, attempt).splitlines() if there else []
        return [line for line in lines if line.startswith("in ")]

    return desk.story.until(said, 60, "the command to speak")[0]


def test_a_change_of_code_is_a_new_bundle_and_touches_no_live_run(desk: Desk) -> None:
    story = desk.story
    first = desk.submit("before")
    assert f"code {first[:12]}: 3 files" in desk.said, "weights.pt stays at home"
    assert "(stored, " in desk.said
    said = started(desk, "before")
    where = story.machine("before") / "work" / "code"
    assert said == f"in {where} with first"
    assert not (where / "weights.pt").exists()

    desk.write("lib/model.py", "word = 'second'\n")
    second = desk.submit("after")
    assert second != first
    assert started(desk, "after").endswith("with second")
    assert (where / "lib" / "model.py").read_text() == MODEL

    for run_id, code in (("before", first), ("after", second)):
        story.completes(run_id)
        assert [attempt["code"] for attempt in story.attempts(run_id)] == [code]
        shown = desk.spot("show", run_id).stdout
        assert f"code {code[:12]} (attempt 1)" in shown
        record = json.loads((story.objects / runfiles.instance(run_id, 1)).read_text())
        assert record["code"] == code
    assert "later word = 'first'" in story.log("before")
    assert (story.objects / runfiles.results("before", 1) / "word").read_text() == "first"


def test_the_next_machine_runs_the_same_bundle(desk: Desk) -> None:
    code = desk.submit("again")
    started(desk, "again")
    desk.write("lib/model.py", "word = 'second'\n")
    desk.story.post("/v1/dev/preempt", {"run_id": "again", "notice_s": 0})
    desk.story.ended("again", 1)
    assert started(desk, "again", 2).endswith("with first")
    desk.story.completes("again")
    assert [attempt["code"] for attempt in desk.story.attempts("again")] == [code, code]
    assert f"code {code[:12]} (attempts 1, 2)" in desk.spot("show", "again").stdout


def test_two_submits_of_one_tree_are_one_bundle(desk: Desk) -> None:
    first = desk.submit("one")
    [stored] = desk.bundles()
    before = stored.stat().st_mtime_ns
    for path in desk.code.rglob("*"):
        os.utime(path, (1, 1))
    assert desk.submit("two") == first
    assert "stored already" in desk.said
    [again] = desk.bundles()
    assert again.stat().st_mtime_ns == before, "it is not written again"
    for run_id in ("one", "two"):
        desk.story.completes(run_id)


def test_what_cannot_travel_is_refused_with_the_fix(desk: Desk) -> None:
    crlf = desk.write("run.sh", "#!/bin/sh\r\necho hello\r\n")
    said = desk.refused("sh", "run.sh")
    assert r"sed -i 's/\r$//' run.sh" in said
    assert "*.sh text eol=lf" in said
    crlf.unlink()

    link = desk.code / "data"
    link.symlink_to(desk.folder)
    said = desk.refused()
    assert "'data'" in said
    assert str(desk.folder) in said
    link.unlink()

    with desk.write("dump/huge.bin", "").open("wb") as huge:
        huge.truncate(200_000_000)
    said = desk.refused()
    for told in ("200 MB", "dump/", ".spotignore"):
        assert told in said
    (desk.code / "dump" / "huge.bin").unlink()

    said = desk.refused("python", "trian.py")
    assert "trian.py is not in the bundle; did you mean train.py?" in said
    desk.write("go.sh", "echo hello\n")
    assert "chmod +x go.sh" in desk.refused("./go.sh")


def test_a_damaged_bundle_ends_the_run_with_clear_words(desk: Desk) -> None:
    story = desk.story
    gate = story.gate("torn")
    first = desk.submit("whole")
    story.completes("whole")
    [stored] = desk.bundles()
    raw = bytearray(stored.read_bytes())
    raw[-9] ^= 0xFF  # the checksum: its length stays, and so does what is unpacked
    stored.write_bytes(bytes(raw))
    body: dict[str, Any] = {"command": [sys.executable, "train.py", str(gate)], "code": first}
    story.daemon.submit("torn", **body)
    run = story.wait("torn", "failed")
    assert run["cause"] == "launch_rejected"
    assert f"code bundle {first[:12]}" in run["status_text"].lower()
    assert len(story.attempts("torn")) == 2, "it is delivered again once"
    assert "code bundle" in story.log("torn")
    story.nothing_is_left("torn")

    stored.write_bytes(b"short")
    assert desk.submit("healed") == first
    assert "(stored, " in desk.said, "a bundle of another size is stored anew"
    story.completes("healed")


def test_the_active_environment_of_the_submit_is_the_python_that_runs(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module is in the environment of the person alone, the supervisor has another Python."""
    prefix = desk.folder / "own env"
    venv.create(prefix, symlinks=True)
    [site] = prefix.glob("lib/python3*/site-packages")
    (site / "torch_of_mine.py").write_text("")
    desk.write("needs.py", "import torch_of_mine, sys\nprint('ran with', sys.prefix)\n")
    monkeypatch.setenv("VIRTUAL_ENV", str(prefix))
    answer = desk.spot("submit", "--run-id", "with-it", "--code", ".", "--", "python", "needs.py")
    assert f"python: {prefix}/bin/python of the active environment" in answer.stderr
    desk.story.wait("with-it", "completed")
    assert f"ran with {prefix}" in desk.story.log("with-it")

    desk.spot("submit", "--run-id", "without", "--venv", "none", "--", "python3", "needs.py")
    run = desk.story.wait("without", "failed")
    assert "ModuleNotFoundError: No module named 'torch_of_mine' (python: /" in run["status_text"]
    assert "Submit it from another environment with `--replace-spec`" in run["status_text"]


def test_a_conda_environment(desk: Desk) -> None:
    story = desk.story
    root = desk.folder / "conda"
    for prefix in (root, root / "envs" / "torch", root / "envs" / "jax"):
        (prefix / "conda-meta").mkdir(parents=True)
        (prefix / "bin").mkdir()
    tool = root / "envs" / "torch" / "bin" / "which-env"
    tool.write_text('#!/bin/sh\necho "in $CONDA_DEFAULT_ENV of $CONDA_PREFIX"\n')
    tool.chmod(0o755)
    env = {"CONDA_EXE": str(root / "bin" / "conda"), "HOME": str(desk.folder)}
    story.daemon.submit("there", command=["which-env"], env=env, conda_env="torch")
    story.wait("there", "completed")
    assert f"in torch of {root / 'envs' / 'torch'}" in story.log("there")

    story.daemon.submit("missing", command=["which-env"], env=env, conda_env="troch")
    run = story.wait("missing", "failed")
    assert run["cause"] == "command_not_found"
    assert "the conda environment troch" in run["status_text"]
    assert "there are: base, jax, torch" in run["status_text"]
    assert len(story.attempts("missing")) == 1
