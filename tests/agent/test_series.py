"""Every report's metrics reach the store: at a pace that their size sets, masked, over outages and restarts of the
agent; and over two preemptions no step is missing and none is there twice."""

import math
import os
import random
import signal
import zlib
from pathlib import Path

import pytest

from supervisor.agent.machine.masking import Masker
from supervisor.agent.store.access import Contact
from supervisor.agent.watch.ends import EndReasons
from supervisor.agent.watch.series import BYTES_PER_S, MetricSeries, SeriesDuty
from supervisor.contract import heartbeat, metric_series, runfiles
from supervisor.contract.metric_series import MAX_NAMES, Series, last_counted
from supervisor.contract.stores.promise import ObjectMissing, StoreUnavailable
from tests.agent.bench import RUN, ManualClock, job, store_in
from tests.agent.machine_rig import RUN as RIG_RUN
from tests.agent.machine_rig import Rig
from tests.waiting import wait_for


class Bench:
    def __init__(self, folder: Path, secrets: "dict[str, str] | None" = None) -> None:
        self.clock, self.store = ManualClock(), store_in(folder)
        self.uploads: list[tuple[float, str]] = []
        self.began = self.clock.now
        self.series = MetricSeries(lambda: self.clock.now - self.began, Masker(secrets or {}))
        reasons = EndReasons(job(), Contact(self.clock), self.clock, lambda: None)
        self.reasons = reasons
        self.duty = SeriesDuty(job(), self.store, self.series, reasons, self.clock)
        self.store.before_put = lambda key: self.uploads.append((self.clock.now, key))

    def stored(self) -> Series:
        series = metric_series.decode(self.store.inner.get(runfiles.metrics(RUN, 1))[0])
        assert series is not None
        return series

    def points(self, name: str = "loss") -> list[tuple[int, float]]:
        return [(step, value) for step, _, value in self.stored().curves[name].points]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_every_report_is_stored(bench: Bench) -> None:
    for step in range(100):
        bench.series.add(step, {"loss": 1.0 / (step + 1), "count": step}, None)
    bench.duty.step()
    assert [step for step, _ in bench.points()] == list(range(100))
    assert bench.points("count")[-1] == (99, 99.0)
    assert not bench.stored().complete
    bench.duty.finish()
    assert bench.duty.step() is None
    assert bench.stored().complete


def test_nothing_reported_writes_nothing(bench: Bench) -> None:
    bench.duty.step()
    bench.duty.finish()
    assert bench.duty.step() is None
    assert bench.uploads == []


def test_anything_may_be_in_a_report(bench: Bench) -> None:
    bench.series.add(1, {"loss": 0.5, "text": "0.5", "flag": True, "none": None, "list": [1], "": 1, "a\tb": 1}, None)
    bench.series.add(2, {"loss": 10**400}, "text")
    bench.series.add(3, None, {"loss": "nan", "other": "-inf"})
    bench.series.add(4, [1], ["loss", 7])
    bench.series.add(5, {"loss": math.inf, "x" * 65: 1}, None)
    bench.duty.step()
    assert sorted(bench.stored().curves) == ["loss", "other"]
    values = [str(value) for _, value in bench.points()]
    assert values == ["0.5", "inf", "nan", "nan", "inf"]
    assert bench.points("other") == [(3, -math.inf)]


def test_a_report_of_many_metrics_and_a_training_of_many_names_are_bounded(bench: Bench) -> None:
    bench.series.add(0, {f"m{number}": 1.0 for number in range(40)}, None)
    for step in range(1, 300):
        bench.series.add(step, {f"m{step + 100}": 1.0}, None)
    bench.duty.step()
    stored = bench.stored()
    assert len(stored.curves) == MAX_NAMES
    assert "m15" in stored.curves
    assert "m16" not in stored.curves
    assert stored.left_out == 299 - (MAX_NAMES - 16)


def test_many_metrics_share_the_room(bench: Bench) -> None:
    chance = random.Random(1)
    for step in range(6_000):
        bench.series.add(step, {f"m{number}": chance.random() for number in range(16)}, None)
    now = bench.series.now(complete=False)
    assert sum(len(kept.points) for kept in now.curves.values()) <= metric_series.MAX_TOTAL
    assert min(len(kept.points) for kept in now.curves.values()) > 250
    assert {kept.reports for kept in now.curves.values()} == {6_000}


def test_names_are_masked_and_values_stay(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"TOKEN": "hf_abcdefgh"})
    bench.series.add(1, {"loss of hf_abcdefgh": 0.5}, None)
    bench.series.add(2, {"loss of hf_abcdefgh": 0.4}, None)
    bench.duty.step()
    assert bench.points("loss of [secret TOKEN]") == [(1, 0.5), (2, 0.4)]
    raw = b"".join(bench.store.inner.get(key)[0] for _, key in bench.uploads)
    assert b"hf_abcdefgh" not in zlib.decompress(raw, 31)


@pytest.mark.parametrize("saves", [False, True])
def test_the_bytes_of_an_hour_stay_within_the_pace(tmp_path: Path, saves: bool) -> None:
    """16 noisy metrics, a checkpoint every few seconds: 64 KB a minute on average."""
    bench, chance, sizes = Bench(tmp_path), random.Random(1), []
    for minute in range(20):
        for second in range(0, 60, 5):
            bench.series.add(12 * minute + second // 5, {f"m{n}": chance.random() for n in range(16)}, None)
            if saves:
                bench.duty.saved()
            before = len(bench.uploads)
            bench.duty.step()
            if len(bench.uploads) > before:
                sizes.append(bench.store.inner.stat(runfiles.metrics(RUN, 1)).size)
            bench.clock.sleep(5.0)
    assert len(sizes) > 10
    assert sum(sizes[:-2]) <= 20 * 60 * BYTES_PER_S


def test_a_checkpoint_is_followed_at_once_although_the_pace_says_later(bench: Bench) -> None:
    bench.series.add(1, {"loss": 1.0}, None)
    bench.duty.step()
    bench.series.add(2, {"loss": 1.0}, None)
    bench.duty.step()
    assert len(bench.points()) == 1, "the pace is not kept"
    bench.duty.saved()
    bench.duty.step()
    assert len(bench.points()) == 2


def test_an_outage_loses_nothing(bench: Bench) -> None:
    bench.store.away = True
    bench.series.add(1, {"loss": 1.0}, None)
    assert bench.duty.step() is not None
    bench.series.add(2, {"loss": 2.0}, None)
    bench.store.away = False
    bench.duty.step()
    assert bench.points() == [(1, 1.0), (2, 2.0)]


def test_nothing_is_written_after_the_baton_was_lost(bench: Bench) -> None:
    bench.series.add(1, {"loss": 1.0}, None)
    bench.reasons.add(heartbeat.SUPERSEDED, may_write=False)
    assert bench.duty.step() is None
    assert bench.uploads == []


def test_a_restarted_agent_goes_on_and_writes_over_nothing_that_it_could_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Bench(tmp_path)
    for step in range(101, 151):
        before.series.add(step, {"loss": 1.0}, None)
    before.series.resumed_from = 100
    before.duty.step()
    after = Bench(tmp_path)
    after.series.resumed_from = 140

    def unreadable(*args: object) -> object:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(after.store, "read", unreadable)
        after.series.add(141, {"loss": 2.0}, None)
        after.duty.step()
        assert after.uploads == []
    after.series.add(142, {"loss": 2.0}, None)
    after.duty.step()
    assert after.points() == [(step, 1.0 if step <= 140 else 2.0) for step in range(101, 143)]
    assert after.stored().resumed_from == 100, "the attempt has begun there"


# --- whole attempts ---------------------------------------------------------------------------------------------------


def last_step(rig: Rig, attempt: int) -> int:
    try:
        series = metric_series.decode(rig.store.get(runfiles.metrics(RIG_RUN, attempt))[0])
    except ObjectMissing:
        return -1
    return -1 if series is None else series.curves["sum"].points[-1][0]


def counted_steps(rig: Rig, attempts: int) -> list[int]:
    """As a reader joins them: each attempt up to the step that a later one restored."""
    series = []
    for attempt in range(1, attempts + 1):
        read = metric_series.decode(rig.store.get(runfiles.metrics(RIG_RUN, attempt))[0])
        assert read is not None
        series.append(read)
    begins = [-1 if each.resumed_from is None else each.resumed_from for each in series]
    return [
        step
        for each, end in zip(series, last_counted(begins), strict=True)
        for step, _, _ in each.curves["sum"].points
        if end is None or step <= end
    ]


def test_two_preemptions_leave_no_overlap_and_no_gap(rig: Rig) -> None:
    """One with a notice, one as hard as it gets. Each training does a step beyond its last checkpoint."""
    rig.start(*rig.toy("--steps", "40", "--wait-at", "11"))
    rig.beat_with("checkpoint 10", lambda b: b.checkpoint_step == 10)
    rig.notice(30.0)
    assert rig.ended().left == heartbeat.NOTICED
    rig.start(*rig.toy("--steps", "40", "--wait-at", "23"), attempt=2, holder_gone=True)
    rig.beat_with("checkpoint 22", lambda b: b.checkpoint_step == 22)

    wait_for(lambda: last_step(rig, 2) >= 22, 30, "the metrics up to the checkpoint")
    os.killpg(rig.agent.pid, signal.SIGSTOP)
    for pid in rig.survivors():
        os.kill(pid, signal.SIGKILL)
    rig.agent.wait()
    rig.start(*rig.toy("--steps", "40"), attempt=3, holder_gone=True)
    rig.ended()
    assert counted_steps(rig, 3) == list(range(1, 41))
    last = metric_series.decode(rig.store.get(runfiles.metrics(RIG_RUN, 3))[0])
    assert last is not None
    assert last.complete
    assert last.resumed_from == 22


@pytest.mark.parametrize(
    ("begins", "ends"),
    [([], []), ([-1], [None]), ([-1, 10], [10, None]), ([-1, 100, 50], [50, 50, None]), ([-1, 10, -1], [-1, -1, None])],
)
def test_what_a_later_attempt_did_again_does_not_count(begins: list[int], ends: "list[int | None]") -> None:
    assert last_counted(begins) == ends


def test_metrics_that_cannot_be_stored_keep_no_end_back(rig: Rig) -> None:
    """Broken variant: the agent waited for them without end, and the supervisor never heard that the run is done."""
    (Path(rig.store.root) / runfiles.metrics(RIG_RUN, 1)).mkdir(parents=True)  # nothing can be written or read there
    rig.start(*rig.toy("--steps", "3"))
    assert rig.ended().phase == heartbeat.FINISHED
    assert rig.baton.done is not None
