"""Sessions of Colab keep a provider's promises, by the client and by a pasted cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.ports.provider import ProviderUnavailable
from tests.contracts.provider_subject import Subject, ref
from tests.contracts.provider_suite import ProviderContract
from tests.providers.colab_subject import ColabSubject


@pytest.fixture
def subject(tmp_path: Path) -> ColabSubject:
    return ColabSubject(tmp_path)


class TestColabProvider(ProviderContract):
    pass


class TestColabByThePastedCell(ProviderContract):
    @pytest.fixture
    def subject(self, tmp_path: Path) -> ColabSubject:
        return ColabSubject(tmp_path, colab_ways=("cell", "client"))

    def test_what_cannot_be_read_is_unknown_not_absent(self, subject: Subject) -> None:
        """Launches and claims are all that is known of it: without them there is no listing at all."""
        request = subject.request()
        machine = subject.up(request)
        with subject.all_unreadable():
            with pytest.raises(ProviderUnavailable):
                subject.provider.machines()
            with pytest.raises(ProviderUnavailable):
                subject.provider.find(ref(request, machine.machine_id))
        assert subject.listed(request) == machine
