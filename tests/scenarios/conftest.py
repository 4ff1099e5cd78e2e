"""Keep the database of a scenario in memory where the system has a folder for that: thousands of virtual ticks would
each wait for the disk, and no scenario tests a power cut."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

IN_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own in it, made with mkdtemp


@contextmanager
def memory_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="scenario-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as made:
        yield Path(made)


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made
