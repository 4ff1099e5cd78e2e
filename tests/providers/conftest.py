"""Fixtures of the provider tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.providers.gpu_house import gpu_house
from tests.providers.local_machines import LocalSubject
from tests.providers.startup_rig import StartupRig
from tests.providers.stub_cards import StubCards


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalSubject]:
    subject = LocalSubject(tmp_path)
    yield subject
    subject.end_all()


@pytest.fixture
def cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubCards:
    stub = StubCards(tmp_path / "bin", 2)
    monkeypatch.setenv("PATH", f"{stub.folder}{os.pathsep}{os.environ['PATH']}")
    return stub


@pytest.fixture
def house(tmp_path: Path, cards: StubCards) -> Iterator[LocalSubject]:
    subject = gpu_house(tmp_path / "data")
    yield subject
    subject.end_all()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[StartupRig]:
    rig = StartupRig(tmp_path / "vm")
    yield rig
    rig.close()
