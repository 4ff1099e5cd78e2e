"""Sessions of the tests' Kaggle keep a provider's promises, and no exchange has what Kaggle's client has not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from supervisor.ports.claims import HandsOver
from supervisor.ports.provider import LendsHours
from supervisor.providers.kaggle.platform import KagglePlatform
from tests.contracts.platform_suite import PlatformContract, PlatformStage
from tests.contracts.provider_subject import ref
from tests.contracts.provider_suite import ProviderContract
from tests.providers.kaggle_subject import KaggleSubject


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[KaggleSubject]:
    subject = KaggleSubject(tmp_path)
    yield subject
    subject.close()


class TestKaggleProvider(ProviderContract):
    def test_it_hands_jobs_over_and_lends_hours(self, subject: KaggleSubject) -> None:
        assert isinstance(subject.provider, HandsOver)
        assert isinstance(subject.provider, LendsHours)


class KaggleStage(PlatformStage):
    """The console is the log of the version."""

    tells_history = False

    def __init__(self, subject: KaggleSubject) -> None:
        self.subject, self.request = subject, subject.request()
        self.platform = KagglePlatform(subject.provider, subject.settings)
        machine = subject.up(self.request)
        self.ref = ref(self.request, machine.machine_id)
        self._written = b""

    def write(self, data: bytes) -> None:
        self._written += data
        self.subject.version(self.request).printed = self._written.decode(errors="ignore")

    def end(self) -> None:
        self.subject.provider.release(self.ref)
        self.subject.gone(self.request)

    def unreadable(self) -> AbstractContextManager[None]:
        return self.subject.all_unreadable()


class TestKagglePlatform(PlatformContract):
    @pytest.fixture
    def stage(self, subject: KaggleSubject) -> KaggleStage:
        return KaggleStage(subject)
