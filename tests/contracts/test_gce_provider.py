"""The gce provider keeps its promises before the tests' Compute Engine, and says nothing that Google's API has not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.ports.provider import SecretRefused
from tests.contracts.asking_suite import AskingContract
from tests.contracts.keeping_suite import KeepingContract
from tests.contracts.provider_subject import ref
from tests.contracts.provider_suite import SECRET, ProviderContract
from tests.providers.gce_subject import GceSubject


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[GceSubject]:
    subject = GceSubject(tmp_path)
    yield subject
    subject.close()


class TestGceProvider(ProviderContract, AskingContract, KeepingContract):
    """Secrets: no value comes near the supervisor, so what can be refused here is a reference of the wrong form."""

    def test_a_secret_that_cannot_be_read_refuses_the_launch_by_name(self, subject: GceSubject) -> None:  # type: ignore[override]
        good, bad = subject.keep_secret(SECRET), "env:WANDB_API_KEY"
        request = replace(subject.request(), secrets={"GOOD": good, "BAD_ONE": bad})
        with pytest.raises(SecretRefused, match="secret BAD_ONE"):
            subject.provider.launch(request)
        assert subject.listed(request) is None
        told = subject.provider.check_secrets([good, bad])
        assert told[good] == ""
        assert "gcp:projects/" in told[bad]

    def test_a_machine_that_is_there_needs_its_secrets_no_more(self, subject: GceSubject) -> None:  # type: ignore[override]
        request = replace(subject.request(), secrets={"API_KEY": subject.keep_secret(SECRET)})
        first = subject.up(request)
        changed = replace(request, secrets={"API_KEY": "file:key.txt"})
        assert subject.provider.launch(changed).machine_id == first.machine_id
        assert subject.provider.find(ref(request)) == first
