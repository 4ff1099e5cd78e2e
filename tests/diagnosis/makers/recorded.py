"""`make record-gpu`: cases of the corpus recorded by the real agent on a machine with an NVIDIA card.

    python -m tests.diagnosis.makers.recorded [--only PART]... [--again] [--into FOLDER] [--load-s SECONDS]

It needs an NVIDIA driver and a Python with torch: `TORCH_PYTHONS="path1 path2"`, else the one on the PATH. Without them
it says in one line what is missing and exits with 2. It needs no network, and itself only the standard library: Python
3.11 or newer, `supervisor` and `tests` of a checkout. One card is used: the first of CUDA_VISIBLE_DEVICES, else card 0.

It reads the card's settings and never changes them, and it ends only processes that it started. What cannot be made is
skipped with its reason (exit code 1): also a mechanism whose command ended in another way, so that no answer is written
beside a story that it does not describe. Tests never run it on a card.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from supervisor.agent.facts.attempt_facts import gpu_facts
from supervisor.agent.facts.start import cards_before, held
from supervisor.agent.machine.gpus import GpuReader
from supervisor.contract.beat_telemetry import Gpus, decode
from tests.diagnosis.cases import CORPUS, RECORDED, Case, Expected
from tests.diagnosis.makers.answers import ALIVE, FINISHED, GPU_OOM, HELD, KILLED, KNOWN_ERROR, NO_GPU, not_
from tests.diagnosis.makers.card_scripts import (
    ASSERTION,
    CAUGHT,
    FULL,
    HOLDER,
    ILLEGAL,
    KERNELS,
    LAST_STEP,
    LOAD,
    NO_CARD,
    NO_DEVICES,
    PROBE,
)
from tests.diagnosis.makers.lives import PYTHON, Life, Live, archive, make
from tests.diagnosis.makers.real.memory import REPORT
from tests.diagnosis.measuring import judge
from tests.waiting import wait_for

LOAD_S = 600.0
IMPORT_S, LIFE_S, FREE_S = 120.0, 180.0, 60.0  # deadlines: to import torch, of a case, until the card is free
FIGURES_S = 10.0  # between two lines of `figures`
HIDDEN = {"CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True)
class Torch:
    """One Python with torch. `card`: the name of the card that it sees; "" = none."""

    version: str
    cuda: str
    card: str
    python: str  # as it was given
    executable: str = PYTHON  # as it calls itself
    folders: tuple[str, ...] = ()  # where torch lies, then those of Python

    @property
    def names(self) -> list[tuple[str, str]]:
        """What the corpus calls its Python and its folders, the longest first."""
        longest = sorted({*self.folders[1:]} - {"/usr", "/"}, key=len, reverse=True)
        site = [(folder, "/opt/python/site-packages") for folder in self.folders[:1]]
        return [
            (self.python, PYTHON),
            (self.executable, PYTHON),
            *site,
            *((folder, "/opt/python") for folder in longest),
        ]


@dataclass(frozen=True)
class Mechanism:
    """`name`: family/name. `says`: words of the log or the document without which another story happened. `free`: the
    card's memory must be free before. `each`: once for each torch."""

    name: str
    live: Callable[[Torch], Live]
    says: tuple[str, ...]
    free: bool = True
    each: bool = False


def _trains(name: str, answer: Expected, text: str, how: str, *words: str, **more: object) -> Callable[[Torch], Live]:
    def live(torch: Torch) -> Live:
        def command(life: Life) -> Sequence[str]:
            return [torch.python, life.script(REPORT + text), *words]

        return Live(name, answer, command, how=how, deadline_s=LIFE_S, **{"job": {"gpus": 1}, **more})

    return live


def _refused(name: str, how: str, **more: object) -> Callable[[Torch], Live]:
    """The agent counts the cards before the command, which never starts."""
    return lambda torch: Live(name, NO_GPU, lambda life: life.python(REPORT), how=how, deadline_s=LIFE_S, **more)


def _beside_another(torch: Torch) -> Live:
    def wrapper(life: Life, stack: ExitStack) -> tuple[str, ...]:
        stack.enter_context(_Holder(torch.python))
        return ()

    how = "another process holds 70 % of the card's memory before the start; then it runs out"
    return replace(_trains("held", HELD, FULL, how)(torch), wrapper=wrapper)


class _Holder:
    """Another process with memory of the card. Ends with this block."""

    def __init__(self, python: str) -> None:
        self._python = python

    def __enter__(self) -> None:
        with TemporaryDirectory(prefix="holder-") as folder:
            said = Path(folder, "said")
            with said.open("wb") as output:
                self._process = subprocess.Popen(
                    [self._python, "-c", HOLDER], stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT
                )
            try:
                wait_for(
                    lambda: b"holding" in said.read_bytes() or self._process.poll() is not None, IMPORT_S, "held memory"
                )
            except AssertionError:
                self.__exit__()
                raise
            if self._process.poll() is not None:
                raise AssertionError(f"nothing is held: {said.read_text(errors='replace')[-200:]}")

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()


def _without_devices(life: Life, stack: ExitStack) -> tuple[str, ...]:
    """Raises AssertionError where this machine cannot make it."""
    folder = str(life.machine_to_be.parent / "dev")
    way = ("unshare", "-Urm", "sh", "-c", NO_DEVICES, folder)
    done = subprocess.run([*way, "ls", "/dev"], capture_output=True, text=True, check=False, timeout=30)
    if done.returncode != 0 or "nvidia" in done.stdout:
        raise AssertionError(f"no folder of devices of its own: {done.stderr.strip()[:200]}")
    return way


def _kill(life: Life) -> None:
    life.beat_with("a training card", lambda beat: (beat.step or 0) >= 8, LIFE_S)
    os.kill(life.command_pid(), signal.SIGKILL)


def load(seconds: float) -> Mechanism:
    """Full load: the figures of a card that is busy with work, and slows down by itself if its settings say so."""

    def act(life: Life) -> None:
        """`wait_for` waits for ten minutes at most, which is too short for an import of torch besides."""
        until = time.monotonic() + seconds + LIFE_S
        while not (life.server.beats and life.server.beats[-1].step == LAST_STEP):
            if life.agent.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"no end of the load was seen: {life.output()[-200:]!r}")
            time.sleep(0.2)

    live = _trains(
        "load", not_(ALIVE, "U21", "U23"), LOAD, f"{seconds:.0f} s of matrix products", str(seconds),
        act=act, alive=True, job={"gpus": 1, "slow_s": seconds / 2},
    )  # fmt: skip
    return Mechanism("alive/recorded-load", live, ("loaded",))


def _figures(life: Life) -> Iterator[str]:
    """A line each ten seconds: seconds, then of each card the figures of its clock."""
    names = [name for name in Gpus._fields if name not in ("ecc_uncorrected", "lost")]
    yield "up_s " + " ".join(names)
    next_s = 0.0
    for beat in life.server.beats:
        telemetry = decode(beat.telemetry) if beat.telemetry else None
        if telemetry is not None and telemetry.gpus is not None and (beat.up_s or 0.0) >= next_s:
            next_s = (beat.up_s or 0.0) + FIGURES_S
            columns = [getattr(telemetry.gpus, name) for name in names]
            yield f"{beat.up_s:.0f} " + " ".join(",".join(map(str, column)) or "-" for column in columns)


def mechanisms(load_s: float = LOAD_S) -> tuple[Mechanism, ...]:
    application = not_(KNOWN_ERROR, "U22")
    return (
        Mechanism("cards/recorded-full", _trains("full", GPU_OOM, FULL, "tensors until the card's memory is full"),
                  ("out of memory",), each=True),
        Mechanism("cards/recorded-held", _beside_another, ("out of memory",)),
        Mechanism("gone/recorded-killed-in-a-kernel",
                  _trains("killed", KILLED, KERNELS, "kill -9 while kernels run", act=_kill), ("trains",)),
        Mechanism("cards/recorded-hidden", _refused("hidden", "CUDA_VISIBLE_DEVICES is empty, and one card is promised",
                  job={"gpus": 1, "env": HIDDEN}), ("0 can be opened",), free=False),
        Mechanism("cards/recorded-no-devices", _refused("no-devices", "/dev without the card, as in a container",
                  job={"gpus": 1}, wrapper=_without_devices), ("0 can be opened",), free=False),
        Mechanism("cards/recorded-no-card-by-its-words", _trains("words", replace(NO_GPU, certainty="likely"), NO_CARD,
                  "CUDA_VISIBLE_DEVICES is empty, and no card is promised", job={"env": HIDDEN}),
                  ("No CUDA GPUs are available",), free=False),
        Mechanism("cards/recorded-assertion", _trains("assertion", application, ASSERTION,
                  "an index outside its table, on the card"), ("device-side assert",)),
        Mechanism("cards/recorded-illegal-access", _trains("illegal", application, ILLEGAL,
                  "a kernel writes to an address that is not its own"), ("illegal memory access",)),
        Mechanism("cards/recorded-caught", _trains("caught", not_(FINISHED, "U10"), CAUGHT,
                  "the memory runs out, the error is caught, and the training ends well"), ("out of memory", "done")),
        load(load_s),
    )  # fmt: skip


# --- what is here -----------------------------------------------------------------------------------------------------


def torches(given: str) -> tuple[list[Torch], list[str]]:
    """(Pythons with torch and a card, what is wrong with the others). `given`: paths; "" = the first on the PATH."""
    paths = given.split() or [path for path in map(shutil.which, ("python3", "python")) if path] + [sys.executable]
    found, faults = [], []
    for path in dict.fromkeys(paths):
        torch = _torch(path)
        if torch is None:
            faults.append(f"{path} does not import torch")
        elif not torch.card:
            faults.append(f"torch {torch.version} of {path} sees no card")
        else:
            found.append(torch)
            if not given:
                break
    return found, faults


def _torch(path: str) -> Torch | None:
    try:
        done = subprocess.run([path, "-c", PROBE], capture_output=True, text=True, check=True, timeout=IMPORT_S)
        version, cuda, card, executable, *folders = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
    return Torch(version, cuda, card, path, executable, tuple(folders))


def _wait_until_free() -> None:
    """The agent's own look. Raises AssertionError."""
    reader = GpuReader(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
    wait_for(lambda: not held(cards_before(reader)), FREE_S, "the card's memory: another process holds it")


# --- recording --------------------------------------------------------------------------------------------------------


def record(mechanism: Mechanism, torch: Torch, agent: Path, folder: Path, driver: str) -> str:
    """Write the case into a new folder; what the verdict says of it. Raises OSError, AssertionError."""
    if mechanism.free:
        _wait_until_free()
    live, figures = mechanism.live(torch), list[str]()

    def act(life: Life) -> None:
        live.act(life)
        if live.alive:
            figures.extend(_figures(life))

    lines = {"kind": RECORDED, "card": torch.card, "driver": driver, "cuda": torch.cuda, "torch": torch.version}
    make(replace(live, act=act), folder, agent, provenance=lines, names=torch.names)
    if figures:
        (folder / "figures").write_text("\n".join(figures) + "\n")
    case = Case(folder.parent.name, folder.name, folder)
    told = case.log.decode("utf-8", "replace") + json.dumps(case.document)
    missing = [words for words in mechanism.says if words not in told]
    if missing:
        end = case.document.get("exit")
        raise AssertionError(f"another story: nothing said {missing[0]!r}; the end: {end}; {case.log[-200:]!r}")
    judged = judge(case)
    said = "nothing" if judged.verdict.cause is None else judged.verdict.cause.value
    return "as expected" if judged.right else f"the verdict is wrong: {judged.verdict.rule} says {said}"


def due(torch: Sequence[Torch], load_s: float) -> Iterator[tuple[str, Mechanism, Torch]]:
    for mechanism in mechanisms(load_s):
        for each in torch if mechanism.each else torch[:1]:
            version = each.version.partition("+")[0].replace(".", "-")
            yield f"{mechanism.name}.torch-{version}" if mechanism.each else mechanism.name, mechanism, each


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make record-gpu", description="Record cases on an NVIDIA card.")
    parser.add_argument("--only", action="append", default=[], metavar="PART")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--into", type=Path, default=CORPUS, metavar="FOLDER")
    parser.add_argument("--load-s", type=float, default=LOAD_S, metavar="SECONDS")
    options = parser.parse_args(words)
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
    facts, unread = gpu_facts(None)
    found, faults = torches(os.environ.get("TORCH_PYTHONS", ""))
    driver = facts.get("driver") or ""
    if not driver or not found:
        missing = [] if driver else [unread or "an NVIDIA driver"]
        missing += [] if found else [f"a Python with torch ({'; '.join(faults)})"]
        print(f"record-gpu: missing: {', and '.join(missing)}", file=sys.stderr)
        return 2
    skipped = len(faults) if os.environ.get("TORCH_PYTHONS") else 0
    print(*faults[:skipped], sep="\n", end="\n" if skipped else "", file=sys.stderr)
    with TemporaryDirectory(prefix="corpus-agent-") as scratch:
        agent = archive(Path(scratch))
        for name, mechanism, torch in due(found, options.load_s):
            fresh, folder = Path(scratch, name), options.into / name
            if not any(part in name for part in options.only or [""]) or (folder.exists() and not options.again):
                continue
            try:
                print(f"{name}: {record(mechanism, torch, agent, fresh, driver)}", flush=True)
            except (OSError, AssertionError, subprocess.SubprocessError) as error:
                skipped += 1
                print(f"{name}: not made: {str(error)[:400]}", file=sys.stderr, flush=True)
                continue
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(fresh, folder)
    return 1 if skipped else 0


if __name__ == "__main__":
    sys.exit(main())
