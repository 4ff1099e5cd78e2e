"""Machines in folders for a provider of another name: it needs a name, traits and offers, and no cards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.domain.machines import Capacity, MachineState
from supervisor.domain.profile import Profile
from supervisor.machinefolder.platform import FolderPlatform
from supervisor.machinefolder.provider import FolderProvider
from supervisor.ports.provider import CapacityInUse
from supervisor.providers.local.traits import TRAITS
from supervisor.reconciler.system_clock import SystemClock
from tests.contracts.provider_subject import ref
from tests.fakes.provider import offers_in
from tests.providers.local_machines import SCRIPTED_AGENT, ZONES, LocalSubject
from tools.project_files import ROOT


class ShedProvider(FolderProvider):
    name = "shed"
    traits = replace(TRAITS, kind="shed")

    def profile(self, zone: str = "") -> Profile:
        return Profile(self.traits.kind, self.traits.title)


class ShedSubject(LocalSubject):
    def fresh(self) -> ShedProvider:  # type: ignore[override]
        return ShedProvider(self.data_dir, offers_in(ZONES), {}, agent=SCRIPTED_AGENT, clock=SystemClock(), most=1)


@pytest.fixture
def shed(tmp_path: Path) -> Iterator[ShedSubject]:
    subject = ShedSubject(tmp_path / "data")
    yield subject
    subject.end_all()


def test_it_launches_counts_and_gives_back(shed: ShedSubject) -> None:
    request = shed.request()
    machine = shed.up(request)
    assert (machine.state, shed.provider.machines().capacity) == (MachineState.UP, Capacity(machines=0))
    with pytest.raises(CapacityInUse):
        shed.provider.launch(shed.request(run="second"))
    assert shed.fresh().launch(request) == machine, "a later supervisor finds it"
    shed.provider.release(ref(request))
    assert shed.provider.machines().capacity == Capacity(machines=1)


def test_its_own_papers_have_the_name_of_its_kind(shed: ShedSubject) -> None:
    shed.provider.scope()
    shed.provider.stockout(ZONES[:1], None)
    papers = {path.name for path in (shed.data_dir / "shed").iterdir()}
    assert papers == {"lock", "released", "scope.json", "stockouts.json"}
    assert not (shed.data_dir / "local").exists()


def test_its_platform_says_what_it_is_and_shows_no_secret(shed: ShedSubject, monkeypatch: pytest.MonkeyPatch) -> None:
    class ShedPlatform(FolderPlatform):
        place = "the shed"

    monkeypatch.setenv("API_KEY", "open-sesame")
    platform = ShedPlatform(shed.provider, shed.data_dir)
    assert platform.account().name == "the shed"
    assert "open-sesame" not in str(platform.preview(shed.request()))


def test_machines_in_folders_name_no_provider() -> None:
    names = [path.name for path in (ROOT / "supervisor/providers").iterdir() if path.is_dir()]
    texts = [path.read_text() for path in (ROOT / "supervisor/machinefolder").glob("*.py")]
    assert [name for name in names if any(name in text for text in texts) and name != "__pycache__"] == []
