"""Hosts by SSH keep a provider's promises, with two real sshd."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.ports.provider import MachineMissing, NotSupported
from tests.contracts.disasters_suite import DisastersContract
from tests.contracts.keeping_suite import KeepingContract
from tests.contracts.provider_subject import Subject, ref
from tests.contracts.provider_suite import ProviderContract
from tests.providers.ssh_machines import SshSubject


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[SshSubject]:
    subject = SshSubject(tmp_path)
    yield subject
    subject.end_all()


class TestSshProvider(ProviderContract, DisastersContract, KeepingContract):
    """A host is no zone of a cloud: it has no stock-outs."""

    def test_a_stock_out_holds_for_its_zones_until_it_is_called_off(self, subject: Subject) -> None:
        with pytest.raises(NotSupported):
            subject.provider.stockout(["gpu1"], None)

    def test_a_stock_out_does_not_touch_machines_that_are_there(self, subject: Subject) -> None:
        with pytest.raises(NotSupported):
            subject.provider.stockout(["gpu1"], 3600.0)

    def test_disasters_refuse_what_is_not_there(self, subject: Subject) -> None:
        for disaster in (subject.provider.kill, subject.provider.freeze):
            with pytest.raises(MachineMissing):
                disaster(ref(subject.request()))
        with pytest.raises(MachineMissing):
            subject.provider.preempt(ref(subject.request()), 30.0)
