"""Hosts by SSH: what the doctor says of them, what a listing measures, which settings are refused, how agents start."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.domain.errors import SettingsRefused
from supervisor.domain.findings import FAIL, OK
from supervisor.domain.profile import Source
from supervisor.host import operations
from supervisor.providers.ssh import settings
from supervisor.providers.ssh.doctor import CLOCK_S, FREE_BYTES, _trouble, host_checks
from supervisor.providers.ssh.settings import SshSettings
from tests.providers.ssh_machines import SshSubject

GOOD = {"at": 1000.0, "inodes": 100, "inodes_free": 50, "disk_free_bytes": FREE_BYTES}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[SshSubject]:
    subject = SshSubject(tmp_path)
    yield subject
    subject.end_all()


def test_each_host_has_a_line_and_one_that_is_away_says_why(lab: SshSubject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.providers.ssh.doctor.FREE_BYTES", 1)  # whatever this computer has
    lab.hosts[1].stop()
    first, second = (next(iter(check.ask())) for check in host_checks(lab.provider.hosts))
    assert (first.name, first.result) == ("gpu1", OK)
    assert "Python 3." in first.fact
    assert (second.name, second.result) == ("gpu2", FAIL)
    assert "gpu2 cannot be reached" in second.cause
    assert second.fix == "try it by hand: ssh -o BatchMode=yes gpu2 true"


def test_the_line_of_a_host_says_who_ends_its_bill(tmp_path: Path) -> None:
    lab = SshSubject(tmp_path, ssh_preset="runpod", ssh_meter_command=("stop", "{host}"), ssh_meters={"gpu2": "ask"})
    try:
        checks = host_checks(lab.provider.hosts, lab.provider.meters)
        first, second = (next(iter(check.ask())).fact for check in checks)
        assert first.endswith("; billed until a command ends it (terminate)")
        assert second.endswith("; billed until a person ends it (terminate)")
    finally:
        lab.end_all()


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({}, ""),
        ({"at": 1000.0 + CLOCK_S}, ""),
        ({"at": 1001.0 + CLOCK_S}, "its clock differs by 61 s from ours"),
        ({"at": 999.0 - CLOCK_S}, "its clock differs by 61 s from ours"),
        ({"inodes_free": 11}, ""),
        ({"inodes_free": 9}, "almost all inodes of its disk are used"),
        ({"inodes": 0, "inodes_free": 0}, ""),
        ({"disk_free_bytes": FREE_BYTES - 1}, "its disk is almost full"),
    ],
)
def test_what_is_wrong_on_a_host(change: dict[str, float], cause: str) -> None:
    assert _trouble({**GOOD, **change}, 1000.0)[0] == cause


def test_a_listing_measures_the_disk_of_a_host(lab: SshSubject) -> None:
    def size_fact() -> object:
        return next(tier for tier in lab.provider.profile("gpu1").tiers if "~" in tier.paths).bytes_cap

    assert not size_fact().is_known
    lab.provider.machines()
    assert (size_fact().source, size_fact().value > 0) == (Source.MEASURED, True)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"ssh_hosts": ("me@gpu1",), "ssh_prices": {}}, "ssh_hosts = me@gpu1"),
        ({"ssh_folder": "~/my folder"}, "ssh_folder = ~/my folder"),
        ({"ssh_python": "python3; true"}, "ssh_python = python3; true"),
        ({"ssh_preset": "aws"}, "ssh_preset = aws: expected one of autodl, generic"),
        ({"ssh_prices": {"gpu9": "1.20"}}, "ssh_prices names gpu9"),
    ],
)
def test_settings_that_a_host_could_not_serve_are_refused(change: dict[str, object], text: str) -> None:
    good = SshSettings(ssh_hosts=("gpu1",), ssh_preset="runpod", ssh_prices={"gpu1": "1.20"})
    settings.check(good)
    with pytest.raises(SettingsRefused, match=re.escape(text)):
        settings.check(replace(good, **change))


@pytest.mark.parametrize(("lingers", "code", "scope"), [(True, 0, True), (True, 1, False), (False, 0, False)])
def test_an_agent_gets_a_scope_only_where_systemd_outlives_the_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lingers: bool, code: int, scope: bool
) -> None:
    tool = tmp_path / "systemd-run"
    tool.write_text(f"#!/bin/sh\nexit {code}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(operations, "lingers", lambda: lingers)
    assert operations.detaching_prefix() == (list(operations.SYSTEMD_RUN) if scope else [])
