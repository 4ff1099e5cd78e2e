"""Which checkpoints stay, which go, and what is told of those that went."""

from pathlib import Path

import pytest

from supervisor.contract import baton as rules
from supervisor.contract import runfiles
from supervisor.contract.baton import Keep
from supervisor.contract.heartbeat import Pruned
from supervisor.contract.stores.promise import StoreUnavailable
from tests.agent.checkpoint_desk import Desk
from tests.agent.desk import RUN


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_milestones_stay_and_each_removal_is_told_with_its_rule(desk: Desk, tmp_path: Path) -> None:
    desk.saver = desk.new_saver(tmp_path, keep=Keep(last=2, best=1, every=10))
    for step in (4, 8, 13, 17, 21, 25):
        desk.write("step-%d.pt" % step)
        desk.save()
    assert [p.step for p in rules.pointers(desk.baton)] == [25, 21, 13]
    assert desk.files() == ["13-a1/step-13.pt", "21-a1/step-21.pt", "25-a1/step-25.pt"]
    assert desk.pruned[-1] == Pruned(3, ((4, "keep_last 2"), (8, "keep_last 2"), (17, "keep_last 2")))


def test_the_newest_best_ones_stay_and_with_none_wanted_none_is_uploaded(desk: Desk, tmp_path: Path) -> None:
    desk.saver = desk.new_saver(tmp_path, keep=Keep(best=2))
    for step in (1, 2, 3):
        desk.write("best-%d.pt" % step)
        desk.save()
    assert [p.step for p in desk.baton.best] == [3, 2]
    assert desk.baton.checkpoint is None
    assert desk.files() == ["best-2-a1/best-2.pt", "best-3-a1/best-3.pt"]
    assert desk.pruned[-1] == Pruned(1, ((1, "keep_best 2"),))
    desk.saver = desk.new_saver(tmp_path, keep=Keep(best=0))
    desk.saver.clean(desk.baton)
    desk.write("best-4.pt")
    desk.write("step-4.pt")
    desk.save()
    assert desk.files() == ["4-a1/step-4.pt"]  # a rule that keeps fewer takes effect with the next save
    assert desk.pruned[-1].last == ((2, "keep_best 0"), (3, "keep_best 0"))


def test_while_the_newest_does_not_verify_the_old_ones_stay(desk: Desk) -> None:
    for step in (1, 2, 3):
        desk.write("step-%d.pt" % step)
        desk.save()
    kept = desk.files()
    desk.store.corrupt_uploads = 99
    for step in (4, 5):
        desk.write("step-%d.pt" % step)
        desk.save()
    assert desk.files() == kept  # and nothing is left of what did not arrive
    assert desk.pruned == []
    assert desk.baton.checkpoint is not None
    assert desk.baton.checkpoint.step == 3


def test_what_could_not_be_deleted_goes_with_the_next_save(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2, 3):
        desk.write("step-%d.pt" % step)
        desk.save()
    whole = desk.store.delete

    def away(key: str) -> bool:
        raise StoreUnavailable("away")

    monkeypatch.setattr(desk.store, "delete", away)
    desk.write("step-4.pt")
    desk.save()
    assert desk.pruned == []  # told when it is done
    monkeypatch.setattr(desk.store, "delete", whole)
    desk.write("step-5.pt")
    desk.save()
    assert desk.pruned == [Pruned(2, ((1, "keep_last 3"), (2, "keep_last 3")))]
    assert desk.files() == ["3-a1/step-3.pt", "4-a1/step-4.pt", "5-a1/step-5.pt"]


def test_leftovers_of_a_dead_holder_are_told(desk: Desk) -> None:
    begins = runfiles.checkpoints(RUN)
    for name in ("4-a0/step-4.pt", "best-6-a0/best.pt", "9-a0.2/epoch/model.pt", "9-a0.2/epoch/state.pt"):
        desk.store.calm.put(begins + name, b"x")
    desk.saver.clean(desk.baton)
    assert desk.files() == []
    why = "the baton does not name it"
    assert desk.pruned == [Pruned(3, ((4, why), (6, why), (9, why)))]


def test_only_the_last_few_are_named_and_all_are_counted(desk: Desk, tmp_path: Path) -> None:
    for step in range(1, 15):
        desk.write("step-%d.pt" % step)
        desk.save()
    account = desk.pruned[-1]
    assert account.count == 11
    assert [step for step, _ in account.last] == list(range(4, 12))
