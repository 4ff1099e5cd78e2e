"""The database of a scenario lies in memory where the system has a folder for that: what is on the disk after a power
cut is no question here, and thousands of virtual ticks each wait for it otherwise."""

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
