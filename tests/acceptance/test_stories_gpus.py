"""Runs on this computer's GPUs: each has its own card, what a stranger holds is waited for, a reboot costs nothing."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from tests.acceptance.daemon import kill_if_there
from tests.acceptance.own_mounts import own_mounts
from tests.acceptance.stories import STORY, Stories, pids_of, process_file, stories
from tests.agent.nvml_library import build
from tests.providers.local_machines import bystander
from tests.providers.stub_cards import StubCards, uuid
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("stories-gpus")


@pytest.fixture
def cards(tmp_path: Path) -> StubCards:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return StubCards(tmp_path / "bin", 2)
    pytest.skip("this computer has a driver of its own, which knows no cards of a stub")


@pytest.fixture
def house(tmp_path: Path, cards: StubCards) -> Iterator[Stories]:
    gpus = {
        "SPOT_LOCAL_SHAPES": "l4",
        "SPOT_LOCAL_GPUS": "l4=1",
        "SPOT_LOCAL_ZONES": "only",
        "PATH": cards.path,
        "CUDA_VISIBLE_DEVICES": "7",
        "LD_LIBRARY_PATH": str(tmp_path / "driver"),  # empty, until a test has a driver
        "FAKE_NVML_LOST": str(tmp_path / "lost"),
        "FAKE_NVML_QUIET": "1",
    }
    with stories(tmp_path, {**STORY, **gpus}) as stage:
        yield stage


def break_card(house: Stories, index: int) -> None:
    """There is a driver, and it says that this card is lost."""
    (house.folder / "driver").mkdir()
    build(house.folder / "driver")
    (house.folder / "lost").write_text(str(index))


def mend_cards(house: Stories) -> None:
    (house.folder / "lost").unlink()


def card_of(house: Stories, run_id: str) -> str:
    """What the training itself sees."""
    [pid] = house.training_pids(run_id)
    found = [v for v in process_file(pid, "environ").split(b"\0") if v.startswith(b"CUDA_VISIBLE_DEVICES=")]
    assert len(found) == 1
    return found[0].partition(b"=")[2].decode()


def test_a_run_waits_for_a_card_that_a_stranger_holds_and_goes_on_when_it_is_free(
    house: Stories, cards: StubCards
) -> None:
    with bystander() as other:
        cards.hold(1, 11469, other.pid)
        house.train("first")
        house.trains("first")
        assert card_of(house, "first") == uuid(0)
        house.train("second")
        run = house.wait("second", "waiting")
        assert run["cause"] == "queued", "the other card is with a machine of ours"
        assert "Nothing is billed" in run["status_text"]
        holder = f"GPU 1 is held by pid {other.pid} (sleep 3600, 11.2 GiB), which is not ours"
        assert holder in run["status_text"]
        assert any(holder in text for text in house.told("second", "waiting"))
        assert house.told("second", "try_failed") == [], "nobody is asked for what is known"
        [told] = [check for check in house.get("/v1/doctor")["checks"] if check["name"] == "gpus"]
        assert told["result"] == "warn"
        assert holder.removeprefix("GPU 1 ") in told["fact"]
        house.daemon.kill()  # the cards are known from the folders, not from memory
        house.daemon.start()
        assert house.wait("second", "waiting")["counters"]["attempts"] == 0
        assert other.poll() is None
    cards.free(1)
    house.trains("second")
    assert card_of(house, "second") == uuid(1)
    for run_id in ("first", "second"):
        assert house.completes(run_id)["counters"]["counted"] == 0
    house.train("third")
    house.trains("third")
    assert card_of(house, "third") == uuid(0), "given back"
    house.completes("third")


def test_on_a_machine_without_its_card_no_training_begins(house: Stories, cards: StubCards) -> None:
    cards.answers(lost=[0, 1])
    house.train("cold")
    ended = house.ended("cold", 1)
    assert ended["cause"] == "gpu_unavailable"
    assert "1 GPU promised, 0 can be opened" in ended["evidence"]

    def kept() -> bool:
        answer = house.daemon.http.get(f"{house.daemon.url}/v1/runs/cold/attempts/1/evidence")
        told = answer.json()
        return answer.status_code == 200 and "1 GPU promised, 0 can be opened" in "\n".join(told["log_tail"])

    house.until(kept, 60, "its evidence")

    def refused() -> bool:
        run = house.daemon.run("cold")
        return (run["status"], run["cause"]) == ("waiting", "gpu_unavailable")

    # The cards stay lost until each place was asked once: from then on the run waits for a person, card or no card.
    house.until(refused, 90, "cold to be refused by every place")
    asked = house.attempts("cold")
    assert {attempt["cause"] for attempt in asked} == {"gpu_unavailable"}
    assert house.lives("cold") == []
    cards.answers()
    house.looks_again("cold")  # on the very card
    assert refused()
    assert len(house.attempts("cold")) == len(asked)

    house.daemon.call("POST", "/v1/runs/cold/retry")
    house.trains("cold")
    assert house.lives("cold") == [(len(asked) + 1, 0)], "the one that had its card"
    house.completes("cold")


def test_a_broken_card_is_no_later_run_s_either_until_a_person_says_that_it_is_back(
    house: Stories, cards: StubCards
) -> None:
    break_card(house, 0)
    house.train("first")
    ended = house.ended("first", 1)
    assert ended["cause"] == "gpu_unavailable"
    assert uuid(0) in ended["evidence"]
    house.train("second")
    house.trains("second")
    assert card_of(house, "second") == uuid(1), "not the broken one"
    assert len(house.attempts("second")) == 1

    house.daemon.kill()  # the card is known from a paper, not from memory
    house.daemon.start()
    house.trains("second")
    mend_cards(house)  # the driver is quiet again, which proves nothing
    house.train("third")
    run = house.wait("third", "waiting")
    assert "GPU 0 is set aside: its driver says that it is lost" in run["status_text"]
    [told] = [check for check in house.get("/v1/doctor")["checks"] if check["name"] == "gpus"]
    assert (told["result"], told["fix"]) == ("warn", f"spot gpus --back {uuid(0)}")
    assert "of run first" in told["fact"]
    assert house.daemon.run("third")["counters"]["attempts"] == 0

    house.daemon.call("POST", "/v1/gpus/back", {"gpu": uuid(0)})
    house.trains("third")
    assert card_of(house, "third") == uuid(0)
    assert [gpu["set_aside"] for gpu in house.get("/v1/gpus")["gpus"]] == [None, None]
    for run_id in ("second", "third"):
        house.completes(run_id)
    house.daemon.call("POST", "/v1/runs/first/retry")
    house.trains("first")
    house.completes("first")


def test_after_a_reboot_of_the_computer_the_run_goes_on_when_the_service_is_back(
    house: Stories, tmp_path: Path
) -> None:
    """A test cannot reboot: everything is killed, as by a power cut, and what comes after it lives in another boot."""
    boot_id = tmp_path / "boot_id"
    boot_id.write_text(f"{uuid4()}\n")
    tried = subprocess.run(["unshare", "-Urm", "sh", "-c", _OTHER_BOOT, str(boot_id)], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip("this computer allows no mounts of one's own")
    house.train("trains-on")
    house.trains("trains-on")
    house.saved("trains-on")
    before, machine = house.attempts("trains-on")[0]["machine_id"], house.machine("trains-on")
    house.daemon.kill()
    _power_cut(machine)
    kept = house.saved("trains-on")

    house.daemon.first = partial(own_mounts, _OTHER_BOOT, str(boot_id))
    house.daemon.start()
    ended = house.ended("trains-on", 1)
    assert ended["cause"] == "host_rebooted"
    run = house.trains("trains-on", beyond=kept)
    assert house.attempts("trains-on")[1]["machine_id"].split(":")[1] != before.split(":")[1]
    assert (run["counters"]["attempts"], run["counters"]["counted"]) == (2, 0), "free"
    assert house.lives("trains-on") == [(1, 0), (2, kept)]
    assert card_of(house, "trains-on") == uuid(0), "its card was given back"
    assert any("host_rebooted" in text for text in house.told("trains-on", "attempt_ended"))
    house.completes("trains-on")


_OTHER_BOOT = 'mount --bind "$0" /proc/sys/kernel/random/boot_id'


def _power_cut(machine: Path) -> None:
    for pid in pids_of(machine.name):
        kill_if_there(pid)
    wait_for(lambda: not pids_of(machine.name), what="the machine's end")
