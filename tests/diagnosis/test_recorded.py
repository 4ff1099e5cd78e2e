"""`make record-gpu` without a card: its answers agree with the table, it says what is missing, and it can record."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.contract.beat_telemetry import HARDWARE_XIDS
from tests.agent.nvml_library import CUDA, build
from tests.diagnosis.cases import RECORDED, Case, load
from tests.diagnosis.makers import card_scripts, recorded
from tests.diagnosis.makers.composed.cards import full_text
from tests.diagnosis.makers.real.memory import REPORT
from tests.diagnosis.makers.recorded import Torch, mechanisms
from tests.diagnosis.makers.situations import Mechanism, Story, cards, cases_of
from tests.diagnosis.makers.variations import Variation
from tests.diagnosis.measuring import Judged, judge
from tests.diagnosis.test_corpus import check

TORCH = Torch("2.9.0+cu128", "12.8", "NVIDIA L4", sys.executable)
LIVES = {mechanism.name: mechanism for mechanism in mechanisms()}
# A torch with as much of a card as the probe and two mechanisms ask for.
FAKE_TORCH = """
import time
__version__, uint8, float16, left = "2.9.0+cu128", 1, 2, [3]
class OutOfMemoryError(RuntimeError):
    __module__ = "torch"
class version:
    cuda = "12.8"
class cuda:
    is_available = staticmethod(lambda: True)
    get_device_name = staticmethod(lambda card: "Made-up card")
    synchronize = staticmethod(lambda: time.sleep(0.05))
    mem_get_info = staticmethod(lambda: (2**34, 2**34))
class Matrix:
    __matmul__ = lambda self, other: self
def randn(*size, dtype, device):
    return Matrix()
def empty(size, dtype, device):
    left[0] -= 1
    if left[0] < 0:
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has 16.00 GiB in all.")
"""


def _ends(text: str, code: int = 1, *facts: tuple) -> Callable[[Variation], Story]:
    def tell(drawn: Variation) -> Story:
        drawn.train(3)
        drawn.error(text or full_text(drawn))
        return Story(recorded.ALIVE, code=code, telemetry=cards(22.8), facts=facts)

    return tell


def _caught(drawn: Variation) -> Story:
    drawn.train(3)
    drawn.say(full_text(drawn).partition("\n")[0], "- retrying with a smaller batch")
    drawn.train(4)
    drawn.say("done")
    return Story(recorded.ALIVE, code=0, telemetry=cards(22.8))


def _killed(drawn: Variation) -> Story:
    drawn.say("trains")
    drawn.train(8)
    return Story(recorded.ALIVE, number=9, telemetry=cards(9.0))


def _refused(drawn: Variation) -> Story:
    return Story(recorded.ALIVE, left="no_gpu", message="1 GPU promised, 0 can be opened")


def _loaded(drawn: Variation) -> Story:
    """The power limit holds the clock down: no failure, and no lack of work."""
    drawn.train(8)
    drawn.say("loaded")
    figures = {"gpu_util": 100, "sm_clock_share": 0.7, "power_share": 0.99, "clock_reasons": 4, "steps_share": 1.0}
    facts = tuple((f"window.{name}", figure, "agent") for name, figure in figures.items())
    return Story(recorded.ALIVE, telemetry=cards(9.0, util=100.0), facts=facts)


# Texts of PyTorch, and what the agent reports beside them.
TOLD: dict[str, Callable[[Variation], Story]] = {
    "cards/recorded-full": _ends(""),
    "cards/recorded-held": _ends("", 1, ("card.held", (0, 12 * 2**30), "agent", 1.0, "card 0")),
    "gone/recorded-killed-in-a-kernel": _killed,
    "cards/recorded-hidden": _refused,
    "cards/recorded-no-devices": _refused,
    "cards/recorded-no-card-by-its-words": _ends(
        "RuntimeError: No CUDA GPUs are available", 1, ("card.opened", 0, "agent")
    ),
    "cards/recorded-assertion": _ends("torch.AcceleratorError: CUDA error: device-side assert triggered"),
    "cards/recorded-illegal-access": _ends(
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
    ),
    "cards/recorded-caught": _caught,
    "alive/recorded-load": _loaded,
}


def _judged(name: str, tell: Callable[[Variation], Story], folder: Path) -> tuple[Judged, Case]:
    expected = LIVES[name].live(TORCH).expected
    family, _, short = name.partition("/")
    made = cases_of(family, [Mechanism(short, lambda drawn: replace(tell(drawn), expected=expected), 1)])
    for write_case in made.values():
        write_case(folder / name)
    (case,) = load(root=folder)
    return judge(case), case


@pytest.mark.parametrize("name", LIVES)
def test_the_answer_is_that_of_the_table_for_the_documented_text(name: str, tmp_path: Path) -> None:
    judged, case = _judged(name, TOLD[name], tmp_path)
    assert judged.right, judged.verdict
    assert not judged.too_sure
    told = case.log.decode() + str(case.document)
    assert [words for words in LIVES[name].says if words not in told] == []


@pytest.mark.parametrize("code", [13, 31, 43, 79])
def test_an_error_of_the_application_is_no_fault_of_the_card(code: int, tmp_path: Path) -> None:
    """79 is one of the hardware: the answer would then be wrong."""
    tell = _ends(
        "torch.AcceleratorError: CUDA error: device-side assert triggered", 1,
        ("card.xid", (0, code), "agent", 1e9, "NVML event"),
    )  # fmt: skip
    judged, _ = _judged("cards/recorded-assertion", tell, tmp_path)
    assert judged.right == (code not in HARDWARE_XIDS), judged.verdict


def test_each_script_is_a_program() -> None:
    """Most of them run on a machine with a card only."""
    texts = {name: text for name, text in vars(card_scripts).items() if name.isupper() and isinstance(text, str)}
    assert len(texts) == 10
    for name in texts.keys() - {"NO_DEVICES"}:
        compile(REPORT + texts[name], name, "exec")


def test_two_versions_of_torch_record_the_full_card_twice() -> None:
    names = [name for name, _, _ in recorded.due([TORCH, replace(TORCH, version="2.4.1")], 600)]
    assert names[:3] == ["cards/recorded-full.torch-2-9-0", "cards/recorded-full.torch-2-4-1", "cards/recorded-held"]
    assert len(names) == len(LIVES) + 1


def test_without_a_card_it_says_so_in_one_line(tmp_path: Path) -> None:
    """By the standard library alone, as on a machine without a network."""
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has a card of its own")
    env = {"PATH": str(tmp_path), "TORCH_PYTHONS": str(tmp_path / "none")}
    command = [sys.executable, "-S", "-m", "tests.diagnosis.makers.recorded", "--into", str(tmp_path)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr == (
        f"record-gpu: missing: an NVIDIA driver, and a Python with torch ({tmp_path}/none does not import torch)\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up card, driver and torch. The Python with torch."""
    build(tmp_path)
    build(tmp_path, CUDA)
    python = tmp_path / "with-torch"
    for path, text in (
        (tmp_path / "nvidia-smi", "#!/bin/sh\necho 0, GPU-fake-0, Made-up card, 535.161.07\n"),
        (python, f'#!/bin/sh\nPYTHONPATH="{tmp_path}/site:$PYTHONPATH" exec {sys.executable} "$@"\n'),
    ):
        path.write_text(text)
        path.chmod(0o755)
    (tmp_path / "site" / "torch").mkdir(parents=True)
    (tmp_path / "site" / "torch" / "__init__.py").write_text(FAKE_TORCH)
    (tmp_path / "cuda").write_text("0")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    for name, value in (
        ("LD_LIBRARY_PATH", tmp_path), ("FAKE_CUDA", tmp_path / "cuda"), ("FAKE_NVML_CARDS", 1), ("FAKE_NVML_QUIET", 1),
        ("FAKE_NVML_USED", 300), ("TORCH_PYTHONS", python),
    ):  # fmt: skip
        monkeypatch.setenv(name, str(value))
    return python


def test_it_records_a_full_card_a_hidden_one_and_a_busy_one(machine: Path, tmp_path: Path) -> None:
    into = tmp_path / "corpus"
    command = [sys.executable, "-m", "tests.diagnosis.makers.recorded", "--into", str(into), "--load-s", "2"]
    chosen = ("recorded-full", "recorded-hidden", "recorded-load", "recorded-assertion")
    only = [word for name in chosen for word in ("--only", name)]
    done = subprocess.run([*command, *only], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.splitlines() == [
        "cards/recorded-full.torch-2-9-0: as expected",
        "cards/recorded-hidden: as expected",
        "alive/recorded-load: as expected",
    ], done.stderr
    assert done.returncode == 1
    assert done.stderr.startswith("cards/recorded-assertion: not made: another story: nothing said 'device-side assert")
    cases = load(root=into)
    assert [case.name for case in cases] == ["recorded-load", "recorded-full.torch-2-9-0", "recorded-hidden"]
    head, *lines = (cases[0].folder / "figures").read_text().splitlines()
    assert len(head.split()) == len(lines[0].split()), "the first reading; the next one would come ten seconds later"
    assert (cases[0].document["exit"], cases[0].document["beat"]["phase"]) == (None, "training")
    for case in cases:
        check(case)
        assert case.provenance["kind"] == RECORDED
        assert {name: case.provenance[name] for name in ("card", "driver", "cuda", "torch")} == {
            "card": "Made-up card", "driver": "535.161.07", "cuda": "12.8", "torch": "2.9.0+cu128",
        }  # fmt: skip
        assert str(tmp_path) not in (case.folder / "evidence.json").read_text() + case.log.decode()
