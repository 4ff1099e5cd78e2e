"""The cards of this computer, and the processes that use their memory, by nvidia-smi.

The tool runs as a child process with a deadline: a driver that hangs must not hang the supervisor. A child that not
even SIGKILL ends (it waits inside the kernel) is left behind, and no second one is started while it exists. In a
container the list of processes is empty: then only the memory figure shows that a card is in use.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Dict, List, NamedTuple, Optional, Tuple

from supervisor.host.files import Unreadable, clause

if TYPE_CHECKING:
    import subprocess

TIMEOUT_S = 10.0
MIB = 2**20
CARDS = ("--query-gpu=index,uuid,name,memory.used,memory.total", 5)
HOLDERS = ("--query-compute-apps=gpu_uuid,pid,process_name,used_memory", 4)
CUDA = re.compile(r"CUDA Version:\s*(\d+\.\d+)")  # in the head of its table


class CardsUnread(Unreadable):
    """The cards of this computer, or their holders, are unknown now."""


class NoNvidiaSmi(CardsUnread):
    """The tool is not on the supervisor's PATH."""


class Holder(NamedTuple):
    """A process with memory on a card; `used_bytes` None = unknown."""

    pid: int
    name: str
    used_bytes: Optional[int]


class Reading(NamedTuple):
    """One card. Figures are None where the driver has none (a computer whose GPU shares the main memory)."""

    index: int  # type: ignore[assignment] # a reading is nowhere used as a tuple
    uuid: str
    name: str
    used_bytes: Optional[int]
    total_bytes: Optional[int]
    holders: Tuple[Holder, ...] = ()


class NvidiaSmi:
    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._hung: Optional[subprocess.Popen[str]] = None

    def read(self) -> Tuple[Reading, ...]:
        """Every card in order of index. Raises CardsUnread."""
        holders: Dict[str, List[Holder]] = {}
        cards = self._ask(*CARDS)
        for uuid, pid, name, used in self._ask(*HOLDERS):
            number = _number(pid)
            holders.setdefault(uuid, []).append(Holder(number, _words(number, name), _bytes(used)))
        readings = (
            Reading(_number(index), uuid, name, _bytes(used), _bytes(total), tuple(holders.get(uuid, ())))
            for index, uuid, name, used, total in cards
        )
        return tuple(sorted(readings, key=lambda card: card.index))

    def cuda(self) -> Optional[str]:
        """The newest CUDA that the driver supports, such as 12.4; None = it does not say. Raises CardsUnread."""
        shown = CUDA.search(self._run([self._tool()]))
        return None if shown is None else shown.group(1)

    def _ask(self, query: str, columns: int) -> List[List[str]]:
        output = self._run([self._tool(), query, "--format=csv,noheader,nounits"])
        rows = [line.split(", ") for line in output.splitlines() if line.strip()]
        if any(len(row) < columns for row in rows):
            raise CardsUnread(f"the output of nvidia-smi is not understood: {clause(output.strip()[:200])}")
        # Nothing is quoted: a name, which is the third column, may contain the separator.
        last = columns - 3
        return [[*row[:2], ", ".join(row[2:-last]), *row[-last:]] for row in rows]

    def _tool(self) -> str:
        tool = shutil.which("nvidia-smi")
        if tool is None:
            raise NoNvidiaSmi("nvidia-smi is not on the supervisor's PATH")
        return tool

    def _run(self, command: List[str]) -> str:
        import subprocess  # late: most computers of operations.py have no such tool

        if self._hung is not None and self._hung.returncode is None:
            raise CardsUnread(f"nvidia-smi hangs since its last call (pid {self._hung.pid})")
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise CardsUnread(f"nvidia-smi cannot be run: {error}") from None
        try:
            out, err = child.communicate(timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            self._leave(child)
            raise CardsUnread(f"nvidia-smi did not respond within {self._timeout_s:g} s") from None
        if child.returncode:
            message = clause(" ".join((err.strip() or out.strip()).split())[:200])
            raise CardsUnread(f"nvidia-smi ended with code {child.returncode}: {message or 'without a message'}")
        return out

    def _leave(self, child: subprocess.Popen[str]) -> None:
        child.kill()
        for pipe in (child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
        self._hung = child
        threading.Thread(target=child.wait, name="nvidia-smi", daemon=True).start()


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise CardsUnread(f"nvidia-smi shows {text[:40]!r} instead of a number") from None


def _bytes(text: str) -> Optional[int]:
    """From MiB; a text in brackets, such as [N/A], is not a figure."""
    return None if text.startswith("[") else _number(text) * MIB


def _words(pid: int, name: str) -> str:
    """The program and its script, for users. Never its other arguments: they may contain a secret."""
    try:
        words = [os.fsdecode(word) for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") if word]
    except OSError:
        words = []
    script = words[2:3] if words[1:2] == ["-m"] else [word for word in words[1:2] if not word.startswith("-")]
    shown = (words[0], *script) if words else (name,)
    text = " ".join(word.rpartition("/")[2][:40] for word in shown)
    return "".join(sign if sign.isprintable() else "?" for sign in text)
