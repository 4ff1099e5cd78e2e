"""A supervisor on Google Cloud logs once the name and number of its project."""

from __future__ import annotations

import logging

import pytest

from supervisor.ports.platform import Account
from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.gce import make
from tests.fakes.platform import FakePlatform


def told(caplog: pytest.LogCaptureFixture, platform: FakePlatform) -> list[tuple[str, str]]:
    caplog.set_level(logging.INFO)
    make.log_account(platform)
    return [
        (record.project, record.project_number)  # type: ignore[attr-defined]
        for record in caplog.records
        if "this project" in record.getMessage()
    ]


def test_the_project_is_logged_by_name_and_number(caplog: pytest.LogCaptureFixture) -> None:
    assert told(caplog, FakePlatform(Account("p", "123456789012"))) == [("p", "123456789012")]


def test_a_project_that_cannot_be_read_holds_nothing_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> Account:
        raise ProviderUnavailable("away")

    platform = FakePlatform()
    monkeypatch.setattr(platform, "account", away)
    assert told(caplog, platform) == []
