"""A computer with GPUs, for tests: a stub of nvidia-smi in a folder that goes first on the PATH."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

STUB = Path(__file__).with_name("stub_nvidia_smi.py")
TOTAL_MIB = 23034


def uuid(index: int) -> str:
    return f"GPU-{index:08x}-0000-4000-8000-000000000000"


class StubCards:
    """Cards 0 to `count` - 1, all free at first; every change is there for the next question."""

    def __init__(self, folder: Path, count: int) -> None:
        folder.mkdir()
        self.folder = folder
        self._cards = [
            {"index": i, "uuid": uuid(i), "name": "NVIDIA L4", "used": 1, "total": TOTAL_MIB, "holders": []}
            for i in range(count)
        ]
        tool = folder / "nvidia-smi"
        shutil.copyfile(STUB, folder / "stub.py")
        tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{folder / "stub.py"}" "$@"\n')
        tool.chmod(0o755)
        self.answers()

    @property
    def path(self) -> str:
        """The PATH of a supervisor that finds these cards."""
        return f"{self.folder}{os.pathsep}{os.environ['PATH']}"

    def answers(self, **how: Any) -> None:
        """From now on; `fail`, `hang` and `lost` as the stub has them."""
        half_made = self.folder / "cards.json.half"
        half_made.write_text(json.dumps({"cards": self._cards, **how}))
        half_made.rename(self.folder / "cards.json")

    def hold(self, index: int, used_mib: int | str, *pids: int, **words: Any) -> None:
        """So much memory of a card is in use, by these processes if any can be seen."""
        holders = [{"pid": pid, "used": used_mib, **words} for pid in pids]
        self._cards[index].update(used=used_mib, holders=holders)
        self.answers()

    def free(self, index: int) -> None:
        self._cards[index].update(used=1, holders=[])
        self.answers()

    def vanish(self, index: int) -> None:
        """The driver shows this card no more."""
        self._cards = [card for card in self._cards if card["index"] != index]
        self.answers()
