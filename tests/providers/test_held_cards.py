"""A card that others hold is not assigned and its process not ended, and nothing starts on an unreadable card."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from supervisor.host import nvidia_smi
from supervisor.ports.provider import CapacityInUse, LaunchRejected, NoCapacity, ProviderUnavailable
from tests.providers.gpu_house import given, wants
from tests.providers.local_machines import LocalSubject, alive, bystander
from tests.providers.stub_cards import StubCards, uuid


def test_a_stranger_keeps_its_card_and_is_named(house: LocalSubject, cards: StubCards, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import time\ntime.sleep(3600)\n")
    command = ["/opt/bin/python", str(script), "--api-key=hunter2"]
    with bystander(command, executable=sys.executable) as other:
        cards.hold(1, 11469, other.pid)
        house.up(wants(house, "first"))
        with pytest.raises(CapacityInUse) as told:  # the other card is with a machine of ours
            house.provider.launch(wants(house, "second"))
        assert f"GPU 1 is held by pid {other.pid} (python train.py, 11.2 GiB), which is not ours" in str(told.value)
        assert "hunter2" not in str(told.value)
        assert other.poll() is None, "it is never killed"
        cards.free(1)
        house.up(wants(house, "second"))
        assert given(house, wants(house, "second")) == [uuid(1)]


def test_a_stranger_with_a_little_memory_has_the_card_too(house: LocalSubject, cards: StubCards) -> None:
    with bystander() as other:
        cards.hold(0, 300, other.pid)
        house.up(wants(house, "first"))
    assert given(house, wants(house, "first")) == [uuid(1)]


def test_where_no_process_is_seen_the_memory_tells(house: LocalSubject, cards: StubCards) -> None:
    """In a container the list of processes is empty."""
    cards.hold(0, 2048)
    cards.hold(1, 1151)  # 5 % of the card: a desktop
    house.up(wants(house, "first"))
    assert given(house, wants(house, "first")) == [uuid(1)]
    with pytest.raises(CapacityInUse, match=r"GPU 0 is held: 2.0 GiB of it are in use, by no process that is visible"):
        house.provider.launch(wants(house, "second"))


def test_a_card_that_tells_no_figures_is_judged_by_its_processes(house: LocalSubject, cards: StubCards) -> None:
    cards.hold(0, "[N/A]")
    with bystander() as other:
        cards.hold(1, "[N/A]", other.pid)
        house.up(wants(house, "first"))
        with pytest.raises(CapacityInUse, match=rf"held by pid {other.pid} \(sleep 3600\), which is not ours"):
            house.provider.launch(wants(house, "second"))


def test_a_process_that_cannot_be_looked_at_has_the_name_that_the_tool_tells(
    house: LocalSubject, cards: StubCards
) -> None:
    for card in (0, 1):
        cards.hold(card, 9000, 2**22 + 7, name="/usr/local/bin/other, with a comma")
    with pytest.raises(NoCapacity, match=r"\(other, with a comma, 8.8 GiB\), which is not ours"):
        house.provider.launch(wants(house, "first"))


def test_a_strangers_name_is_made_harmless(house: LocalSubject, cards: StubCards, tmp_path: Path) -> None:
    script = tmp_path / "pack\nage.py"
    script.write_text("import time\ntime.sleep(3600)\n")
    with bystander([b"/bin/py\xff\x1b[2J", os.fsencode(script)], executable=sys.executable) as other:
        for card in (0, 1):
            cards.hold(card, 9000, other.pid)
        with pytest.raises(NoCapacity, match=r"\(py\?\?\[2J pack\?age.py, 8.8 GiB\), which"):
            house.provider.launch(wants(house, "first"))


def test_a_machine_on_a_card_that_was_not_given_to_it_is_told(house: LocalSubject, cards: StubCards) -> None:
    first = wants(house, "first")
    house.up(first)
    cards.hold(1, 5000, house.pids(first)["training"])
    with pytest.raises(CapacityInUse, match=f"of machine {first.name}, which was not given it"):
        house.provider.launch(wants(house, "second"))


def test_leftovers_of_a_machine_of_ours_are_ended(house: LocalSubject, cards: StubCards) -> None:
    """Its folder is gone, so it would never be released."""
    gone = house.data_dir / "machines" / "spot-gone-a1-t1"
    elsewhere = house.data_dir / "elsewhere" / "spot-gone-a1-t1"
    no_machine = house.data_dir / "machines" / ".new-x"
    with (
        bystander(env={"SPOT_MACHINE_DIR": str(no_machine)}) as unnamed,
        bystander(env={"SPOT_MACHINE_DIR": str(gone)}) as leftover,
        bystander(env={"SPOT_MACHINE_DIR": str(elsewhere)}) as another_supervisors,
    ):
        cards.hold(0, 9000, leftover.pid)
        cards.hold(1, 9000, another_supervisors.pid, unnamed.pid)
        with pytest.raises(NoCapacity):  # this stub still shows dead processes
            house.provider.launch(wants(house, "first"))
        assert leftover.wait(30) == -9
        assert another_supervisors.poll() is unnamed.poll() is None
        cards.free(0)
        house.up(wants(house, "first"))
        assert given(house, wants(house, "first")) == [uuid(0)]


def test_a_living_machine_is_no_leftover(house: LocalSubject, cards: StubCards) -> None:
    first = wants(house, "first")
    house.up(first)
    pid = house.pids(first)["training"]
    cards.hold(0, 9000, pid)
    house.up(wants(house, "second"))
    assert alive(pid)


def test_without_the_tool_the_launch_is_refused_with_advice(
    house: LocalSubject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchRejected, match="l4 has GPUs, but nvidia-smi is not on the supervisor's PATH"):
        house.provider.launch(wants(house, "first"))
    with pytest.raises(ProviderUnavailable, match="nvidia-smi is not on"):
        house.provider.cards()


@pytest.mark.parametrize(
    ("how", "text"),
    [
        (
            {"fail": "Failed to initialize NVML: Driver/library version mismatch"},
            "ended with code 9: Failed to initialize NVML: Driver/library version mismatch",
        ),
        ({"cards": [{"index": "zero", "uuid": "x", "name": "y", "used": 1, "total": 2}]}, "instead of a number"),
        ({"cards": [{"index": "0\n", "uuid": "x", "name": "y", "used": 1, "total": 2}]}, "not understood"),
    ],
)
def test_on_cards_that_cannot_be_read_nothing_is_started(
    house: LocalSubject, cards: StubCards, how: dict[str, object], text: str
) -> None:
    """Could not read is not absent; and since nothing was started the run may wait, with the reason."""
    cards.answers(**how)
    with pytest.raises(NoCapacity, match=text):
        house.provider.launch(wants(house, "first"))
    assert house.provider.machines().machines == ()
    with pytest.raises(ProviderUnavailable, match=text):
        house.provider.cards()


def test_a_driver_that_hangs_is_left_alone(cards: StubCards) -> None:
    cards.answers(hang=3600)
    smi = nvidia_smi.NvidiaSmi(timeout_s=0.5)
    began = time.monotonic()
    with pytest.raises(nvidia_smi.CardsUnread, match=r"did not respond within 0.5 s"):
        smi.read()
    assert time.monotonic() - began < 30
    cards.answers()
    stuck = subprocess.Popen(["/bin/sleep", "3600"], text=True)
    try:
        smi._hung = stuck  # one that no signal ends
        with pytest.raises(nvidia_smi.CardsUnread, match=f"hangs since its last call .pid {stuck.pid}"):
            smi.read()
    finally:
        stuck.kill()
        stuck.wait(30)
    smi._timeout_s = 60.0
    assert [card.index for card in smi.read()] == [0, 1]


def test_fewer_cards_than_promised_is_no_matter_of_waiting(house: LocalSubject, cards: StubCards) -> None:
    house.provider = house.fresh(gpus={"l4x2": 3})
    with pytest.raises(LaunchRejected, match="l4x2 promises 3 GPUs, and this computer has 2; set local_gpus"):
        house.provider.launch(wants(house, "first", "l4x2"))


def test_while_a_machine_cannot_be_read_no_card_is_given_out(house: LocalSubject) -> None:
    first = wants(house, "first")
    house.up(first)
    job = house.folder(first) / "job.json"
    whole = job.read_text()
    job.write_text("{")
    with pytest.raises(NoCapacity, match=f"the cards of machine {first.name} are unknown"):
        house.provider.launch(wants(house, "second"))
    job.write_text(whole)
    house.up(wants(house, "second"))
    assert given(house, wants(house, "second")) == [uuid(1)]


def test_the_doctor_is_told_of_each_card(house: LocalSubject, cards: StubCards) -> None:
    first = wants(house, "first")
    house.up(first)
    with bystander() as other:
        cards.hold(1, 2048, other.pid)
        told = house.provider.cards()
    assert [(card.index, card.name, card.ours) for card in told] == [(0, "NVIDIA L4", True), (1, "NVIDIA L4", False)]
    assert told[0].holder == f"with machine {first.name}"
    assert told[1].holder == f"held by pid {other.pid} (sleep 3600, 2.0 GiB), which is not ours"
