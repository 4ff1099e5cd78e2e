"""Which checkpoints stay, which are removed, and how the removal is reported."""

from pathlib import Path

import pytest

from supervisor.contract import baton as rules
from supervisor.contract import runfiles
from supervisor.contract.baton import Keep
from supervisor.contract.heartbeat import Pruned
from supervisor.contract.stores.promise import StoreUnavailable
from tests.agent.bench import RUN
from tests.agent.checkpoint_bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_milestones_stay_and_each_removal_is_reported_with_its_rule(bench: Bench, tmp_path: Path) -> None:
    bench.saver = bench.new_saver(tmp_path, keep=Keep(last=2, best=1, every=10))
    for step in (4, 8, 13, 17, 21, 25):
        bench.write("step-%d.pt" % step)
        bench.save()
    assert [p.step for p in rules.pointers(bench.baton)] == [25, 21, 13]
    assert bench.files() == ["13-a1/step-13.pt", "21-a1/step-21.pt", "25-a1/step-25.pt"]
    assert bench.pruned[-1] == Pruned(3, ((4, "keep_last 2"), (8, "keep_last 2"), (17, "keep_last 2")))


def test_the_newest_best_ones_stay_and_with_keep_best_0_none_is_uploaded(bench: Bench, tmp_path: Path) -> None:
    bench.saver = bench.new_saver(tmp_path, keep=Keep(best=2))
    for step in (1, 2, 3):
        bench.write("best-%d.pt" % step)
        bench.save()
    assert [p.step for p in bench.baton.best] == [3, 2]
    assert bench.baton.checkpoint is None
    assert bench.files() == ["best-2-a1/best-2.pt", "best-3-a1/best-3.pt"]
    assert bench.pruned[-1] == Pruned(1, ((1, "keep_best 2"),))
    bench.saver = bench.new_saver(tmp_path, keep=Keep(best=0))
    bench.saver.clean(bench.baton)
    bench.write("best-4.pt")
    bench.write("step-4.pt")
    bench.save()
    assert bench.files() == ["4-a1/step-4.pt"]  # a rule that keeps fewer takes effect with the next save
    assert bench.pruned[-1].last == ((2, "keep_best 0"), (3, "keep_best 0"))


def test_while_the_newest_does_not_verify_the_old_ones_stay(bench: Bench) -> None:
    for step in (1, 2, 3):
        bench.write("step-%d.pt" % step)
        bench.save()
    kept = bench.files()
    bench.store.corrupt_uploads = 99
    for step in (4, 5):
        bench.write("step-%d.pt" % step)
        bench.save()
    assert bench.files() == kept  # and nothing is left of the failed uploads
    assert bench.pruned == []
    assert bench.baton.checkpoint is not None
    assert bench.baton.checkpoint.step == 3


def test_a_failed_deletion_is_repeated_at_the_next_save(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2, 3):
        bench.write("step-%d.pt" % step)
        bench.save()
    whole = bench.store.delete

    def away(key: str) -> bool:
        raise StoreUnavailable("away")

    monkeypatch.setattr(bench.store, "delete", away)
    bench.write("step-4.pt")
    bench.save()
    assert bench.pruned == []  # reported when it is done
    monkeypatch.setattr(bench.store, "delete", whole)
    bench.write("step-5.pt")
    bench.save()
    assert bench.pruned == [Pruned(2, ((1, "keep_last 3"), (2, "keep_last 3")))]
    assert bench.files() == ["3-a1/step-3.pt", "4-a1/step-4.pt", "5-a1/step-5.pt"]


def test_leftovers_of_a_dead_holder_are_reported(bench: Bench) -> None:
    begins = runfiles.checkpoints(RUN)
    for name in ("4-a0/step-4.pt", "best-6-a0/best.pt", "9-a0.2/epoch/model.pt", "9-a0.2/epoch/state.pt"):
        bench.store.inner.put(begins + name, b"x")
    bench.saver.clean(bench.baton)
    assert bench.files() == []
    why = "the baton does not name it"
    assert bench.pruned == [Pruned(3, ((4, why), (6, why), (9, why)))]


def test_only_the_last_few_are_named_and_all_are_counted(bench: Bench, tmp_path: Path) -> None:
    for step in range(1, 15):
        bench.write("step-%d.pt" % step)
        bench.save()
    account = bench.pruned[-1]
    assert account.count == 11
    assert [step for step, _ in account.last] == list(range(4, 12))
