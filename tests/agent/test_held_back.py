"""`nan: stop`: which checkpoints a metric that is not finite holds back, and when it stays so."""

import math
import sys

import pytest

from supervisor.agent.watch.metrics import NAMES, MetricWatch
from supervisor.contract import baton as rules
from supervisor.contract import signs
from supervisor.contract.signs import MAX_BYTES, OddMetric, Signs
from supervisor.wording.stalls import odd_text
from tests.agent.machine_rig import Rig


class Stops:
    """A training that `loss: {nan: stop}` watches; the clocks move by hand."""

    def __init__(self) -> None:
        self.up_s = 0.0
        watched = {"loss": {"nan": "stop"}, "kl": {"nan": "alert"}}
        self.watch = MetricWatch(watched, lambda: self.up_s, wall=lambda: 1000.0 + self.up_s)

    def report(self, values: "dict[int, float]", name: str = "loss", every_s: float = 10.0) -> None:
        for step, value in values.items():
            self.up_s += every_s
            self.watch.add(step, {name: value}, None)

    @property
    def lasting(self) -> "list[OddMetric]":
        return [odd for odd in self.watch.signs().get("metrics", ()) if odd.kind in signs.STAYS]


@pytest.fixture
def stops() -> Stops:
    return Stops()


NO = math.nan


def test_checkpoints_are_held_back_from_the_first_value_on(stops: Stops) -> None:
    stops.report({9: 2.0, 10: NO, 11: NO})
    assert [bool(stops.watch.held(step)) for step in (8, 9, 10, 11)] == [False, False, True, True]
    assert stops.watch.held(11) == "loss is NaN since step 10"


def test_what_nobody_stops_by_holds_nothing(stops: Stops) -> None:
    stops.report({9: 2.0, 10: NO}, name="kl")
    stops.report({11: NO}, name="auc")
    assert stops.watch.held(11) == ""
    assert stops.lasting == []


def test_a_skipped_step_costs_its_own_checkpoint_only(stops: Stops) -> None:
    """Mixed precision skips a step: the state that follows is well."""
    stops.report({9: 2.0, 10: math.inf, 12: 1.9})
    assert [bool(stops.watch.held(step)) for step in (9, 10, 11, 12)] == [False, True, True, False]
    stops.report(dict.fromkeys(range(13, 40), 1.8))
    assert stops.lasting == []


def test_a_training_that_goes_back_by_itself_is_free_once_it_is_past_that_step(stops: Stops) -> None:
    stops.report({10: NO, 5: 2.0, 9: 2.0})
    assert stops.watch.held(10), "this file is of the first time"
    assert stops.watch.held(9) == ""
    stops.report({10: 1.9, 11: 1.8})
    assert stops.watch.held(11) == ""


@pytest.mark.parametrize(
    ("values", "every_s", "lasts"),
    [
        ([NO] * 5, 10.0, True),
        ([NO] * 4, 60.0, False),  # too few
        ([NO] * 50, 0.1, False),  # in a moment: a loss scale that is being found
        ([NO] * 4 + [2.0] + [NO] * 4, 60.0, False),  # not in a row
        ([math.inf, NO, NO, math.inf, NO], 10.0, True),
    ],
)
def test_when_a_metric_is_lasting(stops: Stops, values: "list[float]", every_s: float, lasts: bool) -> None:
    """Broken variant: without the row, or without the time, one of these ends a run that is well."""
    stops.report({8: 2.0})
    stops.report(dict(enumerate(values, 10)), every_s=every_s)
    assert bool(stops.lasting) == lasts


def test_lasting_is_for_good_and_names_the_last_finite_value(stops: Stops) -> None:
    """A beat may be lost: the next one says the same, also where the metric came back meanwhile."""
    stops.report({3: NO, 4: 2.4, 5: 2.31})
    stops.report(dict.fromkeys(range(6, 12), NO))
    stops.report({12: 2.0, 13: 2.0})
    [odd] = stops.lasting
    assert odd_text(odd) == "loss stays NaN since step 6; the last finite value was 2.31 at step 5"
    assert stops.watch.held(13)
    assert signs.decode(signs.encode(Signs(**stops.watch.signs()))).metrics[0] == odd, "first of all"


def test_the_sign_that_ends_a_run_is_in_the_shortest_text() -> None:
    """Broken variant: with many hits in the log the beat had no metric left, and the run went on."""
    odd = OddMetric("\u00e9" * 64, signs.NAN_STAYS, 10**15, 1e9, -1.23456789e17, 10**15)
    hits = tuple(signs.Hit("gpu_oom", signs.CAUSE, 1, "x" * 300, 1.0, 2.0, 0, at) for at in range(6))
    xids = tuple((card, 79, 1e6) for card in range(8))
    full = Signs(hits=hits, error="y" * 300, began="gpu_oom", xids=xids, metrics=(odd,) * 4)
    for text in (signs.encode(full), *signs.shorter(signs.encode(full))):
        assert len(text) <= MAX_BYTES
        assert [each.kind for each in signs.decode(text).metrics][:1] == [signs.NAN_STAYS]


def test_a_checkpoint_waits_for_the_report_of_its_step(stops: Stops) -> None:
    """A training may save first and report then."""
    stops.report({9: 2.0})
    assert stops.watch.held(9) == ""
    assert stops.watch.held(10) is None
    assert MetricWatch({}, lambda: 1.0).held(10) == "", "nothing waits where nobody stops"


def test_a_number_in_a_name_may_count_epochs(stops: Stops) -> None:
    """epoch-4.pt at step 12,000: what appears while the metric is not finite is held back, whatever its number."""
    stops.report({11_000: 2.0, 12_000: NO})
    now = 1000.0 + stops.up_s
    assert stops.watch.held(4, changed_at=now + 0.1)
    assert stops.watch.held(3, changed_at=now - 5.0) == ""
    stops.report({13_000: 1.9})
    assert stops.watch.held(5, changed_at=1000.0 + stops.up_s - 0.1) == ""
    assert stops.watch.held(5, changed_at=1000.0 + stops.up_s + 0.1) is None


def test_an_epoch_after_a_skipped_step_is_no_step_of_that_time(stops: Stops) -> None:
    """Broken variant: mixed precision skipped the steps 3 to 7, and the checkpoints epoch-3.pt to epoch-6.pt, hours
    later, were dropped for it."""
    stops.report({2: 2.0, 3: math.inf, 4: math.inf, 7: 1.9})
    finite_at = 1000.0 + stops.up_s
    assert stops.watch.held(3, changed_at=finite_at - 5.0), "of that time"
    stops.report({5000: 1.5, 9000: 1.4})
    assert stops.watch.held(3, changed_at=finite_at + 9.0) == ""
    assert stops.watch.held(3), "a step that was announced is one"


def test_an_epoch_after_the_training_went_back(stops: Stops) -> None:
    """It loads its own checkpoint, and goes on from there. Broken variant: until it was past that step, each of its
    checkpoints was dropped, because it was younger than the first value that was not finite."""
    stops.report({10_000: NO, 5000: 2.0, 6000: 2.0})
    assert stops.watch.held(2, changed_at=1000.0 + stops.up_s - 1.0) == ""
    assert stops.watch.held(10_000), "this file is of the first time"
    stops.report({10_500: NO, 10_600: NO})
    assert stops.watch.held(3, changed_at=1000.0 + stops.up_s - 1.0), "it is not finite again"
    assert stops.watch.held(2, changed_at=1000.0 + stops.up_s - 25.0) == "", "of the time between"


def test_a_watched_metric_is_followed_whatever_its_place(stops: Stops) -> None:
    """Broken variant: a training with a norm of each layer had too many names, and its NaN was not seen."""
    for at in range(NAMES):
        stops.report({1: 0.5}, name="norm/%d" % at)
    stops.report(dict.fromkeys(range(2, 12), NO))
    assert stops.watch.held(2)
    assert len(stops.lasting) == 1


DIVERGES = """
import os, signal, time
import spot_progress
folder = os.environ["SPOT_CHECKPOINT_DIR"]
leaves = []
signal.signal(signal.SIGTERM, lambda *_: leaves.append(1))
def save(name, step):
    path = os.path.join(folder, name)
    with open(path + ".tmp", "w") as target: target.write(str(step))
    os.rename(path + ".tmp", path)
    spot_progress.checkpoint(path, step)
step = 0
while not leaves:
    step += 1
    save("step-%d" % step, step)
    if step in (2, 6): save("best-%d" % step, step)
    spot_progress.report(step, loss=2.5 if step < 5 else float("nan"))
    time.sleep(0.3)
save("last", step)
"""


def test_a_metric_that_is_reported_no_more_holds_nothing_for_ever(stops: Stops) -> None:
    stops.report({7: NO})
    stops.report(dict.fromkeys(range(8, 107), 1.0), name="acc")
    assert stops.watch.held(106) != "", "99 reports without it"
    stops.report({107: 1.0}, name="acc")
    assert stops.watch.held(107) == ""
    assert stops.watch.held(50) != "", "from the time when nobody knew"
    stops.report({108: NO})
    assert stops.watch.held(108) != ""


def test_many_quick_reports_without_the_metric_show_nothing(stops: Stops) -> None:
    stops.report({7: NO})
    stops.report(dict.fromkeys(range(8, 900), 1.0), name="acc", every_s=0.1)
    assert stops.watch.held(899) != "", "a minute and a half"


def test_no_checkpoint_with_nan_becomes_the_pointer(rig: Rig) -> None:
    """Neither one of a step, nor the best, nor the last one after TERM; the training's own files stay. It saves before
    it reports."""
    rig.start(sys.executable, "-c", DIVERGES, watch={"loss": {"nan": "stop"}})
    rig.beat_with("checkpoint 4", lambda beat: beat.checkpoint_step == 4)
    rig.at_step(9)
    rig.stop_marker()
    rig.ended()
    baton = rig.baton
    assert baton.checkpoint is not None
    assert max(pointer.step for pointer in rules.pointers(baton)) == baton.checkpoint.step == 4
    assert [pointer.step for pointer in baton.best] == [2]
    assert "loss is NaN since step 5" in rig.console
    assert {"step-9", "best-6", "last"} <= {path.name for path in (rig.machine / "work/checkpoints").iterdir()}
