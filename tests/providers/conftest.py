"""Fixtures of the provider tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.providers.local_machines import LocalSubject


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalSubject]:
    subject = LocalSubject(tmp_path)
    yield subject
    subject.end_all()
