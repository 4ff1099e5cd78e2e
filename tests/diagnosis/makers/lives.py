"""One attempt under the real agent on this machine, and the case that it makes.

Names of folders, the machine's ids, its Python and the ids of its cards are replaced by general ones; nothing else is
changed.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from supervisor.contract import runfiles
from supervisor.domain.causes import Cause
from supervisor.machinefolder.agent_archive import with_bytecode, write_agent
from tests.agent.machine_rig import RUN, Rig
from tests.diagnosis.cases import REAL, Expected, Json, write
from tests.diagnosis.makers.documents import document
from tests.waiting import wait_for

PYTHON = "/opt/python/bin/python"  # what the corpus calls this machine's Python
_IDS = re.compile(r'("(?:machine_id|boot_id|at_start|now)":\s*")([0-9a-f-]{32,40})(")')
_CARD = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Life(Rig):
    """A machine whose command is a script of the maker."""

    @property
    def archive(self) -> str:
        return str(self._archive)

    def script(self, text: str, name: str = "train.py") -> str:
        path = self._folder / name
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        return str(path)

    def python(self, text: str, name: str = "train.py") -> list[str]:
        return [sys.executable, self.script(text, name)]

    @property
    def machine_to_be(self) -> Path:
        """The folder of the first machine, before it is made."""
        return self._folder / "machine-1.1.1-0"

    def part(self) -> Json | None:
        keys = self.keys(f"runs/{RUN}/instances/")
        key = runfiles.agent_evidence(RUN, 1)
        return json.loads(self.store.get(key)[0]) if key in keys else None

    def stalled(self) -> Json:
        """The part of the stall."""
        return wait_for(self.part, 30, "the part of the stall")

    def output(self) -> bytes:
        path = self.machine / "work" / "output.log"
        return path.read_bytes() if path.exists() else self.log()


@dataclass(frozen=True)
class Live:
    """A real case. `command` makes the command; `act` does what the fault needs and returns when the end is near."""

    name: str
    expected: Expected
    command: Callable[[Life], Sequence[str] | str]
    act: Callable[[Life], None] = lambda life: None
    how: str = ""  # the fault in words, for the provenance
    wrapper: Callable[[Life, ExitStack], tuple[str, ...]] = lambda life, stack: ()
    job: dict[str, Any] = field(default_factory=dict)
    stall: bool = False
    alive: bool = False  # the case is the last beat before `act` returns, and the later part without its end: `windows`
    deadline_s: float = 60.0


def archive(folder: Path) -> Path:
    return with_bytecode(write_agent(folder / "plain.pyz"), folder / "agent.pyz")


def make(
    live: Live,
    case_folder: Path,
    agent: Path,
    *,
    provenance: Mapping[str, str] | None = None,
    names: Sequence[tuple[str, str]] = (),
) -> None:
    """Live it and write it down. `provenance`: further lines, and another kind. `names`: further (private, general)."""
    with _life(agent) as life, ExitStack() as stack:
        life.wrapper = live.wrapper(life, stack)
        command = live.command(life)
        words = [command] if isinstance(command, str) else list(command)
        as_text = {"command": command} if isinstance(command, str) else {}
        life.start(*words, **{**live.job, **as_text})
        made, output = _seen(live, life)
        lines = {
            "kind": REAL,
            "fault": live.how or live.name,
            "command": _general(command if isinstance(command, str) else " ".join(words), life, names)[:300],
            "kernel": platform.release(),
            "python": platform.python_version(),
            "cgroups": "v1" if os.path.isdir("/sys/fs/cgroup/memory") else "v2",
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            **(provenance or {}),
        }
        data = json.loads(_general(json.dumps(made), life, names))
        log = _general(output.decode("latin-1"), life, names).encode("latin-1")
        write(case_folder, data, log, live.expected, lines)


def _seen(live: Live, life: Life) -> tuple[Json, bytes]:
    """The document and the output."""
    if live.stall:
        part = life.stalled()
        beat = wait_for(lambda: life.server.beats and life.server.beats[-1], 30, "a beat")
        return document(beat, part, cause=Cause.STALLED, detail="no progress"), life.output()
    live.act(life)
    if live.alive:
        beat, output = life.server.beats[-1], life.output()
        assert beat.exit is None, "it has ended"
        assert beat.left is None, beat.message
        life.ended(live.deadline_s)
        return document(beat, {**(life.part() or {}), "exit": None, "left": None}), output
    beat = life.ended(live.deadline_s)
    return document(beat, life.part()), life.output()


@contextmanager
def _life(agent: Path) -> Iterator[Life]:
    with TemporaryDirectory(prefix="corpus-") as folder:
        life = Life(Path(folder), agent)
        try:
            yield life
        finally:
            life.close()


def _general(text: str, life: Life, names: Sequence[tuple[str, str]] = ()) -> str:
    root = str(life.machine.parent)
    for private, general in (
        (str(life.machine), "/machine"),
        (root, "/home/user"),
        (life.archive, "/machine/agent.pyz"),
        *names,
        (sys.executable, PYTHON),
        (os.path.realpath(sys.executable), PYTHON),
        (sys.base_prefix, "/opt/python"),
        (sys.prefix, "/opt/python"),
        (os.path.expanduser("~/.pyenv"), "/opt/python"),
        (os.getcwd(), "/home/user/project"),
    ):
        text = text.replace(private, general)
    text = _CARD.sub(lambda found: "GPU-" + _disguised(found[0]), text)
    return _IDS.sub(lambda found: found[1] + _disguised(found[2]) + found[3], text)


def _disguised(name: str) -> str:
    """Another id, the same for the same one."""
    number = sum(ord(letter) * (place + 1) for place, letter in enumerate(name)) % 10**8
    return f"{number:08d}-0000-4000-8000-000000000000"
