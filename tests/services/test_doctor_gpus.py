"""The doctor shows each GPU of this computer: free, with a machine of ours, or held by another process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from supervisor.contract.cards import Aside, Card
from supervisor.ports.provider import ProviderUnavailable
from supervisor.services.doctor.doctor import Surroundings, examine
from tests.services.bed import Bed

FREE = Card(0, "GPU-a", "NVIDIA L4")
OURS = Card(1, "GPU-b", "NVIDIA L4", "with machine spot-1-a1-t1", ours=True)
HELD = Card(2, "GPU-c", "NVIDIA L4", "held by pid 4242 (python train.py, 11.2 GiB), which is not ours")


def told(bed: Bed, tmp_path: Path, cards: Sequence[Card], promised: int = 1) -> dict[str, str] | None:
    around = Surroundings(tmp_path, None, lambda: cards, promised)
    checks = examine(bed.parts, around, lambda: bed.loop)["checks"]
    return next((check for check in checks if check["name"] == "gpus"), None)


def test_each_card_with_its_holder(bed: Bed, tmp_path: Path) -> None:
    found = told(bed, tmp_path, [FREE, OURS])
    assert found is not None
    assert found["result"] == "ok"
    assert found["fact"] == "GPU 0 (NVIDIA L4) is free; GPU 1 (NVIDIA L4) is with machine spot-1-a1-t1"
    found = told(bed, tmp_path, [FREE, OURS, HELD])
    assert found is not None
    assert found["result"] == "warn"
    assert "GPU 2 (NVIDIA L4) is held by pid 4242 (python train.py, 11.2 GiB), which is not ours" in found["fact"]


def test_fewer_cards_than_a_shape_promises(bed: Bed, tmp_path: Path) -> None:
    found = told(bed, tmp_path, [FREE], promised=2)
    assert found is not None
    assert found["result"] == "fail"
    assert found["cause"] == "a shape promises 2, and this computer has 1"
    assert found["fix"] == "set local_gpus to the number of cards"


def test_cards_that_cannot_be_read(bed: Bed, tmp_path: Path) -> None:
    def unread() -> Sequence[Card]:
        raise ProviderUnavailable("nvidia-smi did not respond within 10 s")

    around = Surroundings(tmp_path, None, unread, 1)
    [found] = [c for c in examine(bed.parts, around, lambda: bed.loop)["checks"] if c["name"] == "gpus"]
    assert (found["result"], found["cause"]) == ("fail", "nvidia-smi did not respond within 10 s")


def test_without_shapes_with_cards_there_is_no_check(bed: Bed, tmp_path: Path) -> None:
    def never() -> Sequence[Card]:
        raise AssertionError("asked")

    around = Surroundings(tmp_path, None, never)
    assert all(c["name"] != "gpus" for c in examine(bed.parts, around, lambda: bed.loop)["checks"])


def test_a_card_that_is_set_aside_is_named_with_its_way_back(bed: Bed, tmp_path: Path) -> None:
    why = Aside("it had Xid 79, which is an error of the hardware", "spot-1-a1-t1", "digits-7", 0.0)
    found = told(bed, tmp_path, [FREE._replace(aside=why), OURS])
    assert found is not None
    assert found["result"] == "warn"
    assert "GPU 0 (NVIDIA L4) is set aside: it had Xid 79" in found["fact"]
    assert "1970-01-01 00:00 UTC" in found["fact"]
    assert found["fix"] == "spot gpus --back GPU-a"
    gone = Card(None, "GPU-d", "", aside=why)
    found = told(bed, tmp_path, [FREE, gone], promised=2)
    assert found is not None
    assert (found["result"], found["fix"]) == ("warn", "spot gpus --back GPU-d")
