"""The stories of faults fail where a part is broken in the way that they are about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.domain.machines import Machine, MachineListing, MachineState
from supervisor.images.registry import Registries
from supervisor.ports.provider import LaunchRequest, NoCapacity, ProviderUnavailable
from supervisor.providers.gce.machines.launching import Launcher
from supervisor.providers.gce.provider import GceProvider
from tests.acceptance import test_cloud_faults_ends as ends
from tests.acceptance import test_cloud_faults_placing as placing


def test_an_unclear_answer_taken_for_a_no(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Launcher.launch

    def launch(self: Launcher, request: LaunchRequest) -> Machine:
        try:
            return real(self, request)
        except ProviderUnavailable as error:
            raise NoCapacity(str(error)) from None

    monkeypatch.setattr(Launcher, "launch", launch)
    with pytest.raises(AssertionError):
        placing.test_the_next_zone_is_asked_only_when_the_first_has_said_no(folder)


def test_an_image_that_nobody_looks_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Registries, "pin", lambda self, image: f"{image}@sha256:{'0' * 64}")
    with pytest.raises(AssertionError):
        placing.test_an_image_that_is_not_there_ends_the_run_before_anything_is_rented(folder)


def test_a_machine_that_is_ending_taken_for_gone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = GceProvider.machines

    def machines(self: GceProvider) -> MachineListing:
        found = real(self)
        return replace(found, machines=tuple(one for one in found.machines if one.state is not MachineState.ENDING))

    monkeypatch.setattr(GceProvider, "machines", machines)
    with pytest.raises(AssertionError):
        ends.test_a_false_404_while_it_goes_does_not_make_it_gone(folder)


def test_a_person_taken_for_nobody(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = GceProvider.machines

    def machines(self: GceProvider) -> MachineListing:
        found = real(self)
        return replace(found, machines=tuple(replace(one, record=None) for one in found.machines))

    monkeypatch.setattr(GceProvider, "machines", machines)
    monkeypatch.setattr(GceProvider, "find", lambda self, ref: None)
    with pytest.raises(AssertionError):
        ends.test_a_machine_that_a_person_took_away_names_the_person(folder, "delete_by")
