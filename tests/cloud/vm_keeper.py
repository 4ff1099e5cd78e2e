"""No machine outlives the tests, even when they are killed with -9: a process of its own that ends what they leave.

    python -m tests.cloud.vm_keeper

It reads `+FOLDER` and `-FOLDER` for machines that come and go, one a line. The end of its input is also the end of the
tests: then everything in the machines that are left is killed.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
import threading
from pathlib import Path

from tests.cloud.vm_processes import end

_lock = threading.Lock()
_keepers: list[subprocess.Popen[str]] = []


def keep(folder: Path) -> None:
    _tell(f"+{folder}")


def forget(folder: Path) -> None:
    _tell(f"-{folder}")


def _tell(line: str) -> None:
    with _lock:
        if not _keepers:
            command = [sys.executable, "-m", "tests.cloud.vm_keeper"]
            root = Path(__file__).parents[2]
            keeper = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, cwd=root, start_new_session=True)
            _keepers.append(keeper)
            atexit.register(_close)
        given = _keepers[0].stdin
        assert given is not None
        given.write(line + "\n")
        given.flush()


def _close() -> None:
    _keepers[0].communicate()


def main() -> None:
    folders: set[Path] = set()
    for line in sys.stdin:
        change = folders.add if line[0] == "+" else folders.discard
        change(Path(line[1:].rstrip("\n")))
    for folder in folders:
        end(folder)


if __name__ == "__main__":
    main()
