"""Thirty runs in all conditions, as the pictures of the documentation show them, on pages without a sign-in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.forked import Forked
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]


@contextmanager
def gallery(folder: Path) -> Iterator[str]:
    """Where it answers."""
    told = folder / "gallery.log"
    server = Forked("tests.dashboard.serve_dataset", [], os.environ, told, folder=ROOT)

    def address() -> str:
        assert server.poll() is None, told.read_text()
        if not told.exists():
            return ""
        return next((line for line in told.read_text().splitlines() if line.startswith("http://")), "")

    try:
        yield wait_for(address, 60, "the gallery to open")
    finally:
        server.kill()
        server.wait(30)
