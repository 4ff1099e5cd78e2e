"""Thirty runs in all conditions, as the pictures of the documentation show them, on pages without a sign-in."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]


@contextmanager
def gallery(folder: Path) -> Iterator[str]:
    """Where it answers."""
    told = folder / "gallery.log"
    with told.open("wb") as log:
        command = [sys.executable, "-m", "tests.dashboard.serve_dataset"]
        server = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    def address() -> str:
        assert server.poll() is None, told.read_text()
        return next((line for line in told.read_text().splitlines() if line.startswith("http://")), "")

    try:
        yield wait_for(address, 60, "the gallery to open")
    finally:
        server.kill()
        server.wait(30)
