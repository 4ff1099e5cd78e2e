"""The local provider keeps its promises with real processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.disasters_suite import DisastersContract
from tests.contracts.keeping_suite import KeepingContract
from tests.contracts.provider_suite import ProviderContract
from tests.providers.local_machines import LocalSubject


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[LocalSubject]:
    subject = LocalSubject(tmp_path)
    yield subject
    subject.end_all()


class TestLocalProvider(ProviderContract, DisastersContract, KeepingContract):
    pass
