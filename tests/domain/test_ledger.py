"""The ledger: four runs computed by hand, and thousands of simulated ones whose classes are known.

The simulation writes the rows as the loop does (`close_attempt`, `gone_for_good`, the bill of kept disks), so the bill
comes from the sums that a run keeps, and the ledger from the times of its attempts: the two are independent.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from supervisor.domain import ledger
from supervisor.domain.attempt import Attempt, Kept, Pulse, Retiring
from supervisor.domain.causes import Cause
from supervisor.domain.ledger import Ledger, Span, Use
from supervisor.domain.machines import MachineRef
from supervisor.domain.observation import Seen
from supervisor.domain.run import Money, Run, run_cost_usd
from supervisor.domain.status import Status
from supervisor.lifecycle.ending.ending import End, close_attempt
from supervisor.lifecycle.ending.keeping import with_disks_billed
from supervisor.lifecycle.ending.retiring import gone_for_good
from supervisor.lifecycle.living.beats import follow
from supervisor.services.reading.ledger import by_month
from tests.lifecycle.sample_runs import attempt, beat_of, place, pulse, run_in
from tests.properties import examples

T = datetime(2026, 11, 2, tzinfo=UTC).timestamp()
RUNS = examples(2000, 10_000)
RUN = run_in(Status.RUNNING, created_at=T, generation_at=T, status_since=T)


def seconds(sums: Ledger) -> dict[str, float | None]:
    """The classes that have any."""
    return {str(use): None if value is None else round(value, 3) for use, value in sums.seconds.items() if value != 0}


# --- by hand ----------------------------------------------------------------------------------------------------------

FIRST = attempt(
    1, requested_at=T + 40, started_at=T + 60, pull_at=T + 90, pulled_at=T + 190, running_at=T + 200,
    training_at=T + 260, price_usd_per_h=3.6,
)  # fmt: skip


def test_a_preempted_run() -> None:
    """It trained for 1,000 s, saved at 700 s of them, for 20 s, and stalled for 50 s; its machine went 30 s later. The
    second one repeats what was lost."""
    first = replace(
        FIRST, ended_at=T + 1260, gone_at=T + 1290, stopped_at=T + 1290, cause=Cause.PREEMPTED, step_last=950,
        step_kept=650, progress_at=T + 1259, kept_at=T + 960, saving_s=20.0, stalled_s=50.0, beat_at=T + 1255,
    )  # fmt: skip
    second = attempt(
        2, requested_at=T + 1270, started_at=T + 1300, running_at=T + 1400, training_at=T + 1450, step_from=650,
        price_usd_per_h=3.6, finishing_at=T + 2450, ended_at=T + 2480, stopped_at=T + 2500, cause=Cause.FINISHED,
        step_last=1650, step_kept=1650, progress_at=T + 2449, kept_at=T + 2449, beat_at=T + 2475, saving_s=30.0,
    )  # fmt: skip
    sums = ledger.ledger_of(replace(RUN, status=Status.COMPLETED, attempt=second), [first], T + 9999)
    assert seconds(sums) == {
        "scheduling": 60 + 40, "boot": 30 + 10 + 100, "pull": 100, "restore": 60 + 50,
        "lost": 300 + 50, "save": 20 + 30, "productive": 630 + 970, "finishing": 30 + 30 + 20,
    }  # fmt: skip
    assert sums.billed_s == 1230 + 1200
    assert sums.billed_usd == pytest.approx(2430 * 0.001)
    assert sums.goodput == pytest.approx(1600 / 2430)
    assert (sums.run_s, sums.started_s) == (2480, 2420)
    assert sums.ettr_submit == pytest.approx(1600 / 2480)
    assert sums.usd_per_productive_h == pytest.approx(2.43 * 3600 / 1600)


def test_a_frozen_run() -> None:
    """Its agent made one beat between the seconds 400 and 1,000 of its training, so it was frozen for 540 s of them at
    least; then it fell silent for 10 minutes, and its end was found. Nothing was saved after the second 300."""
    before = Pulse(FIRST.launch_id, 100, "training", T, T + 660, step=400, up_s=500.0, checkpoint_at=T + 560)
    after = follow(before, Seen(beat_of(FIRST, 101, up_s=1100.0, step=401)), T + 1260, 30.0)
    assert after.frozen_s == 600 - 60
    silent = replace(RUN, attempt=FIRST, pulse=replace(after, beat_at=T + 1260, checkpoint_step=300))
    run = close_attempt(silent, End(Cause.AGENT_LOST, "no beat", machine_gone=True), T + 1860)
    sums = ledger.ledger_of(run, [], T + 1860)
    assert seconds(sums) == {
        "scheduling": 60, "boot": 40, "pull": 100, "restore": 60, "frozen": 540 + 600, "save": None,
        "productive": 300, "lost": 100 + 60,
    }  # fmt: skip
    assert sums.billed_usd == pytest.approx(run_cost_usd(run, T + 1860))


@pytest.mark.parametrize(
    "beat",
    [
        pytest.param({"sequence": 160, "up_s": 1100.0}, id="the supervisor was away"),
        pytest.param({"sequence": 101, "up_s": 510.0}, id="our clock was set"),
        pytest.param({"sequence": 101, "up_s": 610.0}, id="a late beat"),
        pytest.param({"sequence": 10**9 + 1, "up_s": 5.0}, id="another start of the agent"),
    ],
)
def test_what_is_not_frozen(beat: dict[str, float]) -> None:
    before = Pulse(FIRST.launch_id, 100, "training", T, T + 660, step=400, up_s=500.0)
    sequence, up_s = int(beat["sequence"]), beat["up_s"]
    assert follow(before, Seen(beat_of(FIRST, sequence, up_s=up_s)), T + 1260, 30.0).frozen_s == 0


@pytest.mark.parametrize("up_s", [None, 5.0])
def test_nothing_is_frozen_before_the_first_beat(up_s: float | None) -> None:
    """A quick start: the first beat that arrives trains already, and no beat before it has a time."""
    first = follow(None, Seen(beat_of(FIRST, 3, up_s=up_s, step=1)), T + 1260, 30.0)
    assert (first.frozen_s, first.frozen_at) == (0, None)


def test_saves_are_counted_by_their_phase() -> None:
    now = Pulse(FIRST.launch_id, 1, "training", T, T)
    for sequence, (at, phase) in enumerate([(10, "checkpoint"), (15, "checkpoint"), (22, "training")], 2):
        now = follow(now, Seen(beat_of(FIRST, sequence, phase)), T + at, 30.0)
    assert now.saving_s == 12


def test_a_kept_run() -> None:
    """Its machine was switched off 40 s after its end, its disks cost $0.036 for the hour; then the same machine
    trained again, and stayed 600 s for a person."""
    first = replace(FIRST, ended_at=T + 1260, stopped_at=T + 1300, gone_at=T + 4900, cause=Cause.PREEMPTED)
    second = attempt(
        2, requested_at=T + 4900, started_at=T + 4930, running_at=T + 4940, training_at=T + 4950, price_usd_per_h=3.6,
        ended_at=T + 5950, held_at=T + 5950, stopped_at=T + 6550, cause=Cause.FINISHED,
    )  # fmt: skip
    run = replace(RUN, status=Status.COMPLETED, attempt=second, money=Money(cost_usd=9.9, disks_usd=0.036))
    sums = ledger.ledger_of(run, [first], T + 9999)
    assert seconds(sums) == {
        "scheduling": 60 + 3670, "boot": 40 + 10, "pull": 100, "restore": 60 + 10, "productive": 2000, "save": None,
        "finishing": 40, "idle_kept": 600,
    }  # fmt: skip
    assert sums.usd[Use.IDLE_KEPT] == pytest.approx(0.6 + 0.036)
    assert sums.billed_usd == pytest.approx(1.24 + 1.62 + 0.036)


def test_an_imported_run() -> None:
    """Nothing is known of the cost of its life before; what it costs here is a lower bound."""
    stopped = replace(RUN, status=Status.STOPPED, status_since=T, money=Money(all_known=False))
    assert seconds(ledger.ledger_of(stopped, [], T + 500)) == {}
    resumed = replace(
        stopped, status=Status.RUNNING, generation=2, generation_at=T + 1000,
        attempt=attempt(
            1, generation=2, requested_at=T + 1010, started_at=T + 1020, running_at=T + 1030, training_at=T + 1040,
            price_usd_per_h=3.6,
        ),
    )  # fmt: skip
    sums = ledger.ledger_of(resumed, [], T + 1140)
    assert seconds(sums) == {"scheduling": 1020, "boot": 10, "restore": 10, "productive": 100, "save": None}
    assert (sums.billed_usd, sums.priced, sums.usd_per_productive_h) == (pytest.approx(0.12), False, None)


def test_the_platforms_minimum_is_idle() -> None:
    short = replace(FIRST, pull_at=None, pulled_at=None, ended_at=T + 80, gone_at=T + 80, minimum_s=60.0)
    short = replace(short, running_at=None, training_at=None, cause=Cause.BOOT_TIMEOUT)
    sums = ledger.ledger_of(replace(RUN, status=Status.FAILED, attempt=short), [], T + 500)
    assert seconds(sums) == {"scheduling": 60, "boot": 20, "idle_kept": 40}


def test_months_add_up() -> None:
    first = replace(FIRST, ended_at=T + 40 * 86_400, gone_at=T + 40 * 86_400, cause=Cause.PREEMPTED)
    run = replace(RUN, attempt=first, status=Status.COMPLETED)
    entries = ledger.entries_of(run, [], T + 50 * 86_400)
    months = {name: ledger.sums_of(part) for name, part in by_month(entries).items()}
    assert list(months) == ["2026-11", "2026-12"]
    assert months["2026-11"].run_s == 29 * 86_400
    whole = ledger.sums_of(entries)
    for use in ledger.BILLED:
        assert sum(part.seconds[use] or 0.0 for part in months.values()) == pytest.approx(whole.seconds[use] or 0.0)
    assert sum(part.run_s for part in months.values()) == pytest.approx(whole.run_s)


# --- simulated --------------------------------------------------------------------------------------------------------


@dataclass
class Life:
    """One simulated run, and what its seconds really were for."""

    chance: random.Random
    run: Run = RUN
    now: float = T
    past: list[Attempt] = field(default_factory=list)
    truth: dict[Use, float] = field(default_factory=lambda: dict.fromkeys(Use, 0.0))
    step: int = 0  # newest checkpoint

    def spend(self, use: Use, most_s: float) -> float:
        length_s = self.chance.uniform(0.0, most_s)
        self.truth[use] += length_s
        self.now += length_s
        return self.now

    def attempt(self, number: int, *, last: bool) -> None:
        """From the wait before it until its machine is gone, or off."""
        chance, price = self.chance, self.chance.choice((0.11, 1.9, 24.0))
        requested_at = self.spend(Use.SCHEDULING, 900)
        started = self.spend(Use.SCHEDULING, 60)
        new = attempt(
            number, requested_at=requested_at, started_at=started, price_usd_per_h=price,
            minimum_s=chance.choice((0.0, 60.0)), off_usd_per_h=0.01, step_from=self.step or None,
        )  # fmt: skip
        self.run = replace(self.run, status=Status.LAUNCHING, attempt=new, pulse=None)
        if chance.random() < 0.1:
            self.end(Cause.BOOT_TIMEOUT, self.spend(Use.BOOT, 30))
            return
        pull = self.spend(Use.BOOT, 100)
        pulled, running = self.spend(Use.PULL, 300), self.spend(Use.BOOT, 30)
        training = self.spend(Use.RESTORE, 200)
        new = replace(new, pull_at=pull, pulled_at=pulled, running_at=running, training_at=training)
        self.train(new, last=last)

    def train(self, new: Attempt, *, last: bool) -> None:
        chance, begin = self.chance, self.now
        self.spend(Use.PRODUCTIVE, 40_000)
        before = self.truth[Use.SAVE], self.truth[Use.LOST], self.truth[Use.FROZEN]
        self.spend(Use.SAVE, 300)
        kept_at = self.now
        self.spend(Use.LOST, chance.choice((0, 1000)))  # a stall that ended by itself
        stalled_s = self.truth[Use.LOST] - before[1]
        self.spend(Use.FROZEN, chance.choice((0, 600)))
        frozen_s = self.truth[Use.FROZEN] - before[2]
        kept_at += stalled_s + frozen_s  # they lay before the save
        if not last:
            self.spend(Use.LOST, 1500)
        progress_at, beat_at = self.now, self.now
        is_silent = not last and chance.random() < 0.3
        if is_silent:
            self.truth[Use.FROZEN] += 121.0
            self.spend(Use.FROZEN, 900)
            self.now += 121.0
        self.step += 1000
        finishing = self.now if last else None
        if last:
            self.spend(Use.FINISHING, 100)
        live = pulse(
            launch_id=new.launch_id, step=self.step + (0 if last else 7), checkpoint_step=self.step,
            progress_at=progress_at, checkpoint_at=kept_at, stalled_s=stalled_s, frozen_s=frozen_s, beat_at=beat_at,
            saving_s=self.truth[Use.SAVE] - before[0], phase_since=begin,
        )  # fmt: skip
        if last:
            live = replace(live, beat_at=self.now)
        self.run = replace(self.run, attempt=replace(new, finishing_at=finishing), pulse=live)
        self.end(Cause.FINISHED if last else Cause.PREEMPTED, self.now)

    def end(self, cause: Cause, ended_at: float) -> None:
        status = Status.COMPLETED if cause == Cause.FINISHED else Status.RECOVERING
        self.run = replace(close_attempt(self.run, End(cause, "so"), ended_at), status=status, status_since=ended_at)
        closed = self.run.attempt
        assert closed is not None
        held = self.chance.random() < 0.2
        use = Use.IDLE_KEPT if held else Use.FINISHING
        self.run = replace(self.run, attempt=replace(closed, held_at=ended_at if held else None))
        begin = self.now
        off_at = self.spend(use, 120)
        self.truth[Use.IDLE_KEPT] += max(0.0, closed.minimum_s - (self.now - closed.started_at))
        item = self.run.retiring[-1]
        if self.chance.random() < 0.3:  # it was switched off, and its disks stay
            kept = Kept(place(), off_by=begin, off_at=off_at, usd_per_h=0.01)
            self.run = with_disks_billed(self.run, kept, off_at + 3600.0 * 10)
        self.run, gone = gone_for_good(self.run, replace(item, up_at=off_at), off_at)
        self.run = replace(self.run, retiring=self.run.retiring[:-1])
        assert gone is not None
        self.past.append(gone)
        if cause != Cause.FINISHED:
            self.truth[Use.SCHEDULING] += self.now - begin  # the run waits from its end on
            self.now = max(self.now, off_at)


def simulated(seed: int) -> Life:
    life = Life(random.Random(seed))
    number = life.chance.randint(1, 4)
    for each in range(1, number + 1):
        life.attempt(each, last=each == number)
    return life


def unclosed(seed: int) -> str:
    """What does not close in this run's ledger; "" = everything does."""
    life = simulated(seed)
    sums, bill_usd = ledger.ledger_of(life.run, life.past, life.now), run_cost_usd(life.run, life.now)
    if abs(sums.billed_usd - bill_usd) > 0.001 * bill_usd:
        return f"seed {seed}: ${sums.billed_usd} in the ledger, ${bill_usd} on the bill"
    wrong = {
        str(use): (round(life.truth[use], 3), round(sums.seconds[use] or 0.0, 3))
        for use in Use
        if abs(life.truth[use] - (sums.seconds[use] or 0.0)) > 0.001 * sums.billed_s + 0.001
    }
    return f"seed {seed}: (true, in the ledger) {wrong}" if wrong else ""


def test_thousands_of_ledgers_close() -> None:
    wrong = [text for seed in range(RUNS) if (text := unclosed(seed))]
    assert not wrong, f"{len(wrong)} of {RUNS}: {wrong[:3]}"


def _without(use: Use) -> Callable[[list[Span], float], list[Span]]:
    return lambda spans, drift_s: [span for span in spans if span.use is not use]


@pytest.mark.parametrize("use", ledger.BILLED)
def test_a_ledger_without_one_of_its_classes_does_not_close(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "_without_drift", _without(use))
    assert any(unclosed(seed) for seed in range(40))


@pytest.mark.parametrize("name", ["minimum_s", "disks_usd", "lost_s"])
def test_a_ledger_that_forgets_something_does_not_close(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "minimum_s":
        spans = ledger.billed_spans
        monkeypatch.setattr(
            ledger, "billed_spans", lambda run, own, after, now: spans(run, replace(own, minimum_s=0.0), after, now)
        )
    else:
        monkeypatch.setattr(ledger, name, lambda *args: 0.0)
    assert any(unclosed(seed) for seed in range(200))


def test_what_stops_and_is_not_gone_is_read_from_the_row() -> None:
    """The stored row of an earlier attempt has no end of its bill before its machine is gone; the run's row has it."""
    closed = replace(FIRST, ended_at=T + 1260, cause=Cause.PREEMPTED)
    item = Retiring(
        MachineRef("gce", "us-east1-d", "m"), "1.1.1", T + 1260, T, attempt=replace(closed, stopped_at=T + 1300)
    )
    run = replace(RUN, retiring=(item,), attempt=attempt(2, started_at=T + 1400, requested_at=T + 1300))
    assert ledger.attempts_now(run, [closed])[0].stopped_at == T + 1300
