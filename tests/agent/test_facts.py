"""Facts of one attempt: each found where it is, each missing one with its reason, nothing secret among them."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent import facts as facts_module
from supervisor.agent.attention import Attention
from supervisor.agent.facts import MAX_BYTES, FactsDuty, collect, encode, seeds, with_hash
from supervisor.agent.hostfacts import gpu_facts, host_facts
from supervisor.agent.masking import Masker
from supervisor.agent.pythonfacts import python_facts, python_of
from supervisor.agent.reach import Reach
from supervisor.agent.trackers import find_tracker
from supervisor.domain import heartbeat, runfiles
from tests.agent.desk import RUN, HandClock, job, store_in

PYTHON_DIR = str(Path(sys.executable).parent)
ENV = {"PATH": PYTHON_DIR + os.pathsep + "/usr/bin:/bin"}


def program(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def package(folder: Path, name: str, version: str, origin: Mapping[str, Any] | None = None) -> None:
    """A distribution as pip leaves it."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps(origin))


# --- which Python ---------------------------------------------------------------------------------------------------


def test_the_python_that_the_command_names_is_asked(tmp_path: Path) -> None:
    own = program(tmp_path / "env" / "bin" / "python3.9", "#!/bin/sh\n")
    other = program(tmp_path / "bin" / "python3", "#!/bin/sh\n")
    env = {"PATH": str(tmp_path / "bin")}
    assert python_of((own, "train.py"), "/", env) == own
    assert python_of(("env/bin/python3.9", "train.py"), str(tmp_path), env) == own
    assert python_of(f"cd /x && A=1 exec {own} train.py 'a b'", "/", env) == own
    assert python_of(("python3", "train.py"), "/", env) == other
    assert python_of(("torchrun", "--nproc", "2", "train.py"), "/", env) == other
    assert python_of("sh -c 'unfinished", "/", env) == other
    assert python_of(("./train",), "/", {"PATH": str(tmp_path / "none")}) is None


def test_versions_and_packages_are_those_of_that_python(tmp_path: Path) -> None:
    package(tmp_path, "Some.Package", "1.2")
    git = {"vcs": "git", "commit_id": "abc"}
    package(tmp_path, "from_git", "2.0", {"url": "https://user:pw@host.test/x.git", "vcs_info": git})
    package(tmp_path, "edited", "3.0", {"url": "file:///src/edited", "dir_info": {"editable": True}})
    package(tmp_path, "nvidia_cudnn_cu12", "9.1.0.70")
    package(tmp_path / "later", "some-package", "0.9")
    path = f"{tmp_path}{os.pathsep}{tmp_path / 'later'}"
    told, why = python_facts((sys.executable,), "/", {**ENV, "PYTHONPATH": path})
    assert why == ""
    assert told["python"] == ".".join(map(str, sys.version_info[:3]))
    assert told["python_executable"] == sys.executable
    assert told["python_prefix"] == sys.prefix
    lines = told["packages"]
    assert "Some.Package==1.2" in lines  # the first on the path, as an import would find it
    assert not any("0.9" in line for line in lines if line.lower().startswith("some"))
    assert "from_git @ git+https://host.test/x.git@abc" in lines
    assert "-e file:///src/edited#egg=edited" in lines
    assert any(line.lower().startswith("numpy==") for line in lines)
    assert (told["torch"], told["cuda"], told["cudnn"]) == (None, None, "9.1.0.70")


def test_torch_is_read_and_never_imported(tmp_path: Path) -> None:
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('torch was imported')\n")
    (tmp_path / "torch" / "version.py").write_text(
        "from typing import Optional\n__version__ = '2.3.0+cu121'\ndebug = False\ncuda: Optional[str] = '12.1'\n"
        "hip: Optional[str] = None\n"
    )
    (tmp_path / "torch" / "lib" / "libcudnn.so.8").touch()
    told, why = python_facts((sys.executable,), "/", {**ENV, "PYTHONPATH": str(tmp_path)})
    assert why == ""
    assert (told["torch"], told["cuda"], told["cudnn"]) == ("2.3.0+cu121", "12.1", "8")


def test_modules_beside_the_training_do_not_confuse_the_probe(tmp_path: Path) -> None:
    for name in ("json.py", "re.py", "email.py"):
        (tmp_path / name).write_text("raise RuntimeError('not the real one')\n")
    (tmp_path / "site_noise").mkdir()
    (tmp_path / "site_noise" / "sitecustomize.py").write_text("import sys; sys.stdout.write('hello')\n")
    env = {**ENV, "PYTHONPATH": str(tmp_path / "site_noise")}
    told, why = python_facts((sys.executable,), str(tmp_path), env)
    assert (why, bool(told)) == ("", True)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exec sleep 60\n", "did not answer within 0.2 s"),
        ("echo 'no site' >&2; exit 3\n", "failed when it was asked: no site"),
        ("exit 3\n", "failed when it was asked: exit code 3"),
        ("echo '[]'\n", "failed when it was asked: exit code 0"),
    ],
)
def test_a_python_that_does_not_answer_is_told_as_such(tmp_path: Path, script: str, why: str) -> None:
    python = program(tmp_path / "python", "#!/bin/sh\n" + script)
    told, reason = python_facts((python,), "/", ENV, timeout_s=0.2 if "sleep" in script else 20.0)
    assert told == {}
    assert reason.endswith(why)


def test_without_a_python_the_rest_is_still_told(tmp_path: Path) -> None:
    found = collect(job(command=("./train",)), "/", {"PATH": str(tmp_path)})
    assert found["absent"]["packages"] == "no python is on the command's PATH"
    assert "packages" not in found
    assert "torch" not in found
    assert found["cores"] >= 1


# --- the machine ----------------------------------------------------------------------------------------------------


def test_the_host_is_told() -> None:
    found = host_facts()
    assert found["kernel"] == os.uname().release
    assert found["cores"] == len(os.sched_getaffinity(0))
    assert found["memory_bytes"] > 2**27
    assert found["cpu"]


def cards(folder: Path, version: str, *names: str) -> str:
    folder.mkdir()
    (folder / "version").write_text(version)
    for number, name in enumerate(names):
        card = folder / "gpus" / f"0000:0{number}:00.0"
        card.mkdir(parents=True)
        text = f"Model: \t\t {name}\nIRQ:   \t\t 24\nGPU UUID: \t GPU-{number}\nDevice Minor: \t {number}\n"
        (card / "information").write_text(text)
    return str(folder)


CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version: 12\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (builder)\n"


@pytest.mark.parametrize(("text", "version"), [(CLOSED, "535.104.05"), (OPEN, "570.86.15")])
def test_driver_and_cards_are_read_from_the_kernel(tmp_path: Path, text: str, version: str) -> None:
    proc = cards(tmp_path / "nvidia", text, "NVIDIA L4", "NVIDIA H200")
    assert gpu_facts(None, proc) == ({"driver": version, "gpus": ["NVIDIA L4", "NVIDIA H200"]}, "")
    assert gpu_facts(("1",), proc)[0]["gpus"] == ["NVIDIA H200"]
    assert gpu_facts(("GPU-0",), proc)[0]["gpus"] == ["NVIDIA L4"]


def test_a_machine_without_a_driver_has_no_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_facts(None, str(tmp_path / "none")) == ({"driver": None, "gpus": []}, "")


def test_where_the_kernel_does_not_tell_nvidia_smi_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc = cards(tmp_path / "nvidia", "NVRM version: of another make\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    told, why = gpu_facts(None, proc)
    assert (told, why.startswith("nvidia-smi did not tell of the driver")) == ({}, True)
    program(tmp_path / "bin" / "nvidia-smi", "#!/bin/sh\necho '0, GPU-7, NVIDIA A100, 550.1'\n")
    a100 = {"driver": "550.1", "gpus": ["NVIDIA A100"]}
    assert gpu_facts(None, proc) == (a100, "")
    assert gpu_facts(None, str(tmp_path / "wsl")) == (a100, "")


# --- seeds, tracker, size -------------------------------------------------------------------------------------------


def test_seeds_are_found_in_variables_and_in_the_command() -> None:
    env = {
        "PYTHONHASHSEED": "0",
        "SEED": "7",
        "DATA_SEED": "-3",
        "WALLET_SEED": "correct horse",
        "SEEDS": "1",
    }
    words = (
        "python",
        "t.py",
        "--seed",
        "42",
        "--data-seed=5",
        "trainer.seed=9",
        "--seedling",
        "3",
        "--no-seed",
    )
    assert seeds(words, env) == {
        "PYTHONHASHSEED": "0", "SEED": "7", "DATA_SEED": "-3", "--seed": "42", "--data-seed": "5", "trainer.seed": "9",
    }  # fmt: skip
    assert seeds("python t.py --seed 1 && echo 'x", {}) == {"--seed": "1"}


WANDB = "https://wandb.ai/me/digits/runs/3kq9x1ab"


@pytest.mark.parametrize(
    ("line", "page"),
    [
        (f"wandb: 🚀 View run at \x1b[34m{WANDB}\x1b[0m", WANDB),
        ("wandb: ⭐️ View project at https://wandb.ai/me/digits", None),
        ("wandb: View run at http://10.0.0.5:8080/me/p/runs/abc", "http://10.0.0.5:8080/me/p/runs/abc"),
        ("see https://forge.test/me/p/runs/abc", None),
        (
            "🏃 View run calm-fox at: http://mlflow.lab.test:5000/#/experiments/2/runs/0f3a9b.",
            "http://mlflow.lab.test:5000/#/experiments/2/runs/0f3a9b",
        ),
        (
            "COMET INFO: Experiment is live on comet.com https://www.comet.com/me/p/0123456789abcdef0123456789abcdef",
            "https://www.comet.com/me/p/0123456789abcdef0123456789abcdef",
        ),
        ("Open in the app: https://app.neptune.ai/me/p/e/PR-12", "https://app.neptune.ai/me/p/e/PR-12"),
        (
            "* View dashboard by going to: https://huggingface.co/spaces/me/trackio",
            "https://huggingface.co/spaces/me/trackio",
        ),
        ("* View dashboard by going to: https://me-trackio.hf.space/", "https://me-trackio.hf.space/"),
        ("Read https://huggingface.co/docs/transformers first", None),
        ("downloading https://files.test/model.bin", None),
        (f"wandb: {WANDB}?apiKey=0123456789abcdef&x=1", f"{WANDB}?apiKey=removed&x=1"),
        (f"({WANDB}?note=[secret HF_TOKEN])", f"{WANDB}?note=masked-HF_TOKEN"),
    ],
)
def test_the_page_that_a_tracker_prints_is_found(line: str, page: str | None) -> None:
    assert find_tracker(line) == page


def test_facts_that_are_too_large_lose_packages_and_say_so() -> None:
    whole = [f"package-{number}==1.0.0" for number in range(20_000)]
    facts = with_hash({"attempt": 1, "packages": whole})
    data = encode(facts)
    cut = json.loads(data)
    assert len(data) <= MAX_BYTES
    assert 0 < len(cut["packages"]) < 20_000
    assert cut["packages"] == whole[: len(cut["packages"])]
    assert (
        cut["packages_note"] == f"the first {len(cut['packages'])} of 20000 packages; the hash is that of all"
    )
    assert cut["packages_sha256"] == facts["packages_sha256"]


def test_a_command_of_200_kb_fits_too() -> None:
    for command in ("x" * 200_000, ("python", "x" * 200_000)):
        found = collect(job(command=command), "/", {"PATH": ""})
        assert len(encode(found)) < MAX_BYTES
        assert found["command"].endswith("… (cut)")


# --- the thread -----------------------------------------------------------------------------------------------------


class Scene:
    def __init__(self, folder: Path, **changes: Any) -> None:
        self.store = store_in(folder)
        self.output = folder / "output.log"
        self.output.touch()
        self.job = job(command=(sys.executable, "train.py"), **changes)
        self.attention = Attention(self.job, Reach(), HandClock(), lambda: None)
        self.duty = FactsDuty(
            self.job, self.store, str(self.output), Masker({"HF_TOKEN": "s3cr3t-value"}), self.attention
        )
        self.duty.of("/", ENV)

    def say(self, line: str) -> None:
        with self.output.open("a") as target:
            target.write(line + "\n")

    @property
    def stored(self) -> Any:
        return json.loads(self.store.calm.get(runfiles.facts(RUN, 1))[0])


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command's Python is not asked; this thread keeps its priority."""
    asked: list[str] = []

    def answer(*_: Any) -> Any:
        asked.append("asked")
        return {"python": "3.11.4", "packages": ["a==1", "token @ https://x/s3cr3t-value"]}, ""

    monkeypatch.setattr(facts_module, "python_facts", answer)
    monkeypatch.setattr(facts_module, "_yield_to_everybody", lambda: None)
    return asked


def test_facts_are_written_at_once_and_again_with_the_tracker(tmp_path: Path, quick: list[str]) -> None:
    scene = Scene(tmp_path, code="c" * 64)
    assert scene.duty.step() == facts_module.LOOK_S
    first = scene.stored
    assert (first["attempt"], first["code"], first["command"]) == (1, "c" * 64, [sys.executable, "train.py"])
    assert first["packages"] == ["a==1", "token @ https://x/[secret HF_TOKEN]"]
    assert "tracker_url" not in first
    scene.say(f"wandb: View run at {WANDB}?note=s3cr3t-value")
    assert scene.duty.step() is None
    assert scene.stored == {**first, "tracker_url": f"{WANDB}?note=masked-HF_TOKEN"}
    assert quick == ["asked"]


def test_a_tracker_that_was_given_is_not_looked_for(tmp_path: Path, quick: list[str]) -> None:
    scene = Scene(tmp_path, tracker_url="https://tracker.test/1")
    scene.say(WANDB)
    assert scene.duty.step() is None
    assert scene.stored["tracker_url"] == "https://tracker.test/1"


def test_the_watch_ends_after_500_lines_and_after_five_minutes(
    tmp_path: Path, quick: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    for number in range(499):
        scene.say(f"line {number}")
    assert scene.duty.step() == facts_module.LOOK_S
    scene.say("line 500")
    scene.say(WANDB)
    assert scene.duty.step() is None
    assert "tracker_url" not in scene.stored

    (tmp_path / "late").mkdir()
    late = Scene(tmp_path / "late")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + facts_module.WATCHED_S + 1)
    assert late.duty.step() is None


def test_a_store_that_is_away_is_tried_again_and_nothing_is_asked_twice(
    tmp_path: Path, quick: list[str]
) -> None:
    scene = Scene(tmp_path)
    scene.store.away = True
    assert scene.duty.step() == facts_module.RETRY_S
    scene.store.away = False
    assert scene.duty.step() == facts_module.LOOK_S
    assert scene.stored["python"] == "3.11.4"
    assert quick == ["asked"]


def test_a_command_that_ended_at_once_still_leaves_its_facts(tmp_path: Path, quick: list[str]) -> None:
    scene = Scene(tmp_path)
    scene.say(WANDB)
    scene.duty.finish()
    assert scene.duty.step() is None
    assert scene.stored["tracker_url"] == WANDB


def test_whoever_has_lost_the_baton_writes_no_facts(tmp_path: Path, quick: list[str]) -> None:
    scene = Scene(tmp_path)
    scene.attention.ask(heartbeat.SUPERSEDED, may_write=False)
    assert scene.duty.step() is None
    assert quick == []
