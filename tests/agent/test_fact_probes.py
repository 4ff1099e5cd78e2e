"""The probes of the facts: the command's Python and its packages; the machine and its cards."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.facts.attempt_facts import collect, gpu_facts, host_facts, python_facts, python_of
from tests.agent.bench import job

PYTHON_DIR = str(Path(sys.executable).parent)
ENV = {"PATH": PYTHON_DIR + os.pathsep + "/usr/bin:/bin"}


def program(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def package(folder: Path, name: str, version: str, origin: Mapping[str, Any] | None = None) -> None:
    """A distribution as pip installs it."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps(origin))


# --- which Python ---------------------------------------------------------------------------------------------------


def test_the_python_that_the_command_names_is_used(tmp_path: Path) -> None:
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
    facts, why = python_facts((sys.executable,), "/", {**ENV, "PYTHONPATH": path})
    assert why == ""
    assert facts["python"] == ".".join(map(str, sys.version_info[:3]))
    assert facts["python_executable"] == sys.executable
    assert facts["python_prefix"] == sys.prefix
    lines = facts["packages"]
    assert "Some.Package==1.2" in lines  # the first on the path, as an import would find it
    assert not any("0.9" in line for line in lines if line.lower().startswith("some"))
    assert "from_git @ git+https://host.test/x.git@abc" in lines
    assert "-e file:///src/edited#egg=edited" in lines
    assert any(line.lower().startswith("numpy==") for line in lines)
    assert (facts["torch"], facts["cuda"], facts["cudnn"]) == (None, None, "9.1.0.70")


def test_one_torn_package_costs_its_own_line_only(tmp_path: Path) -> None:
    package(tmp_path, "whole", "1.0")
    for name, data in (("ripped", b"Name: ripped\xff\nVersion: 1"), ("empty", b"")):
        (tmp_path / f"{name}-1.dist-info").mkdir()
        (tmp_path / f"{name}-1.dist-info" / "METADATA").write_bytes(data)
    facts, why = python_facts((sys.executable,), "/", {**ENV, "PYTHONPATH": str(tmp_path)})
    assert why == ""
    assert "whole==1.0" in facts["packages"]
    assert not [line for line in facts["packages"] if "ripped" in line]


def test_packages_of_old_installers_and_in_archives_count_too(tmp_path: Path) -> None:
    head = "Metadata-Version: 1.2\nName: {name}\nVersion: 4.0\nName: other\n\nName: a text\n"
    (tmp_path / "of_a_file-4.0.egg-info").write_text(head.format(name="of_a_file"))
    for folder in ("of_a_folder-4.0.egg-info", "of_an_egg-4.0-py3.11.egg/EGG-INFO"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "PKG-INFO").write_text(head.format(name=folder.partition("-")[0]))
    with zipfile.ZipFile(tmp_path / "zipped.egg", "w") as archive:
        archive.writestr("EGG-INFO/PKG-INFO", head.format(name="zipped"))
    (tmp_path / "broken.zip").write_bytes(b"not an archive")
    on_path = ("", "of_an_egg-4.0-py3.11.egg", "zipped.egg", "broken.zip", "nowhere")
    path = os.pathsep.join(str(tmp_path / name) for name in on_path)
    facts, why = python_facts((sys.executable,), "/", {**ENV, "PYTHONPATH": path})
    assert why == ""
    assert {"of_a_file==4.0", "of_a_folder==4.0", "of_an_egg==4.0", "zipped==4.0"} <= set(facts["packages"])
    assert not [line for line in facts["packages"] if "other" in line or "text" in line.lower()]


def test_the_version_of_torch_is_read_without_an_import(tmp_path: Path) -> None:
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('torch was imported')\n")
    (tmp_path / "torch" / "version.py").write_text(
        "from typing import Optional\n__version__ = '2.3.0+cu121'\ndebug = False\ncuda: Optional[str] = '12.1'\n"
        "hip: Optional[str] = None\n"
    )
    (tmp_path / "torch" / "lib" / "libcudnn.so.8").touch()
    facts, why = python_facts((sys.executable,), "/", {**ENV, "PYTHONPATH": str(tmp_path)})
    assert why == ""
    assert (facts["torch"], facts["cuda"], facts["cudnn"]) == ("2.3.0+cu121", "12.1", "8")


def test_modules_beside_the_training_do_not_confuse_the_probe(tmp_path: Path) -> None:
    for name in ("json.py", "re.py", "email.py"):
        (tmp_path / name).write_text("raise RuntimeError('not the real one')\n")
    (tmp_path / "site_noise").mkdir()
    (tmp_path / "site_noise" / "sitecustomize.py").write_text("import sys; sys.stdout.write('hello')\n")
    env = {**ENV, "PYTHONPATH": str(tmp_path / "site_noise")}
    facts, why = python_facts((sys.executable,), str(tmp_path), env)
    assert (why, bool(facts)) == ("", True)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exec sleep 60\n", "did not answer within 0.2 s"),
        ("echo 'no site' >&2; exit 3\n", "failed when it was asked: no site"),
        ("exit 3\n", "failed when it was asked: exit code 3"),
        ("echo '[]'\n", "failed when it was asked: exit code 0"),
    ],
)
def test_a_python_that_does_not_respond_is_reported(tmp_path: Path, script: str, why: str) -> None:
    python = program(tmp_path / "python", "#!/bin/sh\n" + script)
    facts, reason = python_facts((python,), "/", ENV, timeout_s=0.2 if "sleep" in script else 20.0)
    assert facts == {}
    assert reason.endswith(why)


def test_without_a_python_the_other_facts_are_still_there(tmp_path: Path) -> None:
    facts = collect(job(command=("./train",)), "/", {"PATH": str(tmp_path)})
    assert facts["absent"]["packages"] == "no python is on the command's PATH"
    assert "packages" not in facts
    assert "torch" not in facts
    assert facts["cores"] >= 1


# --- the machine ----------------------------------------------------------------------------------------------------


def test_the_facts_of_the_host() -> None:
    facts = host_facts()
    assert facts["kernel"] == os.uname().release
    assert facts["cores"] == len(os.sched_getaffinity(0))
    assert facts["memory_bytes"] > 2**27
    assert facts["cpu"]


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


def test_without_kernel_files_nvidia_smi_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = cards(tmp_path / "nvidia", "NVRM version: of another make\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    facts, why = gpu_facts(None, proc)
    assert (facts, why.startswith("nvidia-smi did not tell of the driver")) == ({}, True)
    program(tmp_path / "bin" / "nvidia-smi", "#!/bin/sh\necho '0, GPU-7, NVIDIA A100, 550.1'\n")
    a100 = {"driver": "550.1", "gpus": ["NVIDIA A100"]}
    assert gpu_facts(None, proc) == (a100, "")
    assert gpu_facts(None, str(tmp_path / "wsl")) == (a100, "")
