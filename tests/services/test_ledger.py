"""The ledger by run, group, owner and month, and the completion ratio: what they sum, and whose a miss is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.domain.causes import Cause, Whose
from supervisor.domain.diagnosis.verdict import Certainty, Retry, Verdict, Where
from supervisor.domain.run import Money, Run, run_cost_usd
from supervisor.domain.status import Status
from supervisor.ports.store import RunFilter
from supervisor.services.reading import ledger
from supervisor.services.reading.ledger import By, LedgerList
from tests.lifecycle.sample_runs import NOW, attempt, run_in
from tests.services.bed import COMMAND, Bed


def of(bed: Bed, by: By, since: float | None = None, **where: object) -> LedgerList:
    return ledger.show_ledger(bed.parts, bed.services.queries, RunFilter(**where), by, since)  # type: ignore[arg-type]


def three_runs(bed: Bed) -> None:
    """Two of a group, each of them billed for 160 s, and one that waits."""
    for run_id, group in (("a-1", "sweep"), ("b-1", "sweep"), ("c-1", None)):
        bed.submit(run_id, {**COMMAND, **({"group": group} if group else {})})
    bed.train("a-1")
    bed.train("b-1")
    bed.clock.advance(100.0)


def test_rows_add_up_to_the_bill(bed: Bed) -> None:
    three_runs(bed)
    bed.end("b-1")
    now = bed.clock.now()
    bill_usd = sum(run_cost_usd(bed.run(run_id), now) for run_id in ("a-1", "b-1"))
    for by in By:
        answer = of(bed, by)
        assert answer["complete"]
        rows_usd = sum(row["billed_usd"] for row in answer["rows"])
        assert rows_usd == pytest.approx(answer["total"]["billed_usd"], abs=1e-5)
        assert sum(row["billed_s"] for row in answer["rows"]) == pytest.approx(320.0)
        assert sum(row["runs"] for row in answer["rows"]) == answer["total"]["runs"] == 3
    assert answer["total"]["billed_usd"] == pytest.approx(2 * 160 / 3600 * 0.1, rel=1e-3)
    assert answer["total"]["attempts"] == 2
    assert bill_usd == pytest.approx(160 / 3600 * 0.1), "the end of the second one is not in its sums: the bed wrote it"


def test_rows_have_the_names_of_what_was_asked_for(bed: Bed) -> None:
    three_runs(bed)
    assert [row["name"] for row in of(bed, By.RUN)["rows"]] == ["c-1", "b-1", "a-1"]
    assert [(row["name"], row["runs"]) for row in of(bed, By.GROUP)["rows"]] == [(None, 1), ("sweep", 2)]
    assert [row["name"] for row in of(bed, By.OWNER)["rows"]] == [bed.run("a-1").owner]
    assert len(of(bed, By.RUN, group="sweep")["rows"]) == 2
    assert of(bed, By.RUN, run_ids=("nobody-1",))["total"]["billed_s"] == 0


def test_a_live_run_is_read_with_its_last_moment(bed: Bed) -> None:
    three_runs(bed)
    row = of(bed, By.RUN, run_ids=("a-1",))["rows"][0]
    assert row["seconds"]["productive"] == 140
    assert row["seconds"]["save"] is None, "its training names no phase of its saves"
    assert (row["seconds"]["boot"], row["seconds"]["restore"]) == (10, 10)
    assert row["goodput"] == pytest.approx(140 / 160)
    assert row["usd_per_productive_h"] == pytest.approx(0.1 * 160 / 140, rel=1e-4)


def test_a_lost_race_and_disks_count_in_the_last_month(bed: Bed) -> None:
    three_runs(bed)
    beside = {"disks_usd": 0.05, "races_s": 36.0, "races_usd": 0.01}
    bed.change(
        "a-1", created_at=NOW - 90 * 86_400, generation_at=NOW - 90 * 86_400, money=Money(cost_usd=0.06, **beside)
    )
    for by in By:
        answer = of(bed, by)
        for rows in (answer["rows"], [answer["total"]]):
            assert sum(row["seconds"]["lost"] for row in rows) == 36.0
            assert sum(row["usd"]["lost"] for row in rows) == pytest.approx(0.01)
            assert sum(row["disks_usd"] for row in rows) == pytest.approx(0.05)
    months = of(bed, By.MONTH)["rows"]
    assert len(months) > 1
    assert [row["seconds"]["lost"] for row in months] == [36.0] + [0.0] * (len(months) - 1)


def test_only_the_time_since_then_counts(bed: Bed) -> None:
    three_runs(bed)
    total = of(bed, By.RUN, since=bed.clock.now() - 40)["total"]
    assert total["billed_s"] == pytest.approx(80.0)
    assert of(bed, By.MONTH, since=bed.clock.now() + 1)["rows"] == []


def test_an_unknown_price_makes_a_lower_bound(bed: Bed) -> None:
    three_runs(bed)
    bed.change("b-1", money=Money(all_known=False))
    rows = {row["name"]: row for row in of(bed, By.RUN)["rows"]}
    assert (rows["a-1"]["lower_bound"], rows["b-1"]["lower_bound"]) == (False, True)
    assert rows["b-1"]["usd_per_productive_h"] is None
    assert of(bed, By.GROUP, group="sweep")["total"]["lower_bound"]


def test_earlier_attempts_are_read_too(any_bed: Bed) -> None:
    bed = any_bed
    three_runs(bed)
    bed.end("a-1", Status.RECOVERING)
    first = bed.run("a-1").attempt
    bed.train("a-1", 2)
    assert first is not None
    answer = of(bed, By.RUN, run_ids=("a-1",))
    assert answer["rows"][0]["attempts"] == 2
    assert set(bed.store.attempts_of([bed.run("a-1").key, bed.run("c-1").key])) == {bed.run("a-1").key}


def test_no_name_is_a_formula() -> None:
    row = ledger._row("=1+1", ledger.ledger.sums_of([]), 1)
    text = ledger.csv_text({"by": "owner", "since": None, "rows": [row], "total": row, "complete": True})
    assert text.splitlines()[1].startswith("'=1+1,")


# --- the completion ratio ---------------------------------------------------------------------------------------------


def ended(status: Status, cause: Cause | None, **fields: object) -> Run:
    return run_in(status, cause=cause, **fields)


def verdict(where: Where, certainty: Certainty = Certainty.CERTAIN, cause: Cause = Cause.KILLED) -> Verdict:
    return Verdict("rule", certainty, cause, where, True, Retry.NEVER, "so")


KILLED = attempt(cause=Cause.KILLED, ended_at=NOW)


@pytest.mark.parametrize(
    ("run", "whose"),
    [
        (ended(Status.FAILED, Cause.RESULTS_UNVERIFIED), Whose.OURS),
        (ended(Status.FAILED, Cause.BUDGET), Whose.USER),
        (ended(Status.STOPPED, Cause.DEADLINE), Whose.USER),
        (ended(Status.FAILED, Cause.NO_CAPACITY), Whose.CLOUD),
        (ended(Status.FAILED, Cause.NO_PROGRESS, attempt=attempt(cause=Cause.ORPHANED)), Whose.CLOUD),
        (ended(Status.FAILED, Cause.LIMIT_REACHED, attempt=attempt(cause=Cause.STALLED)), Whose.USER),
        (ended(Status.FAILED, Cause.KILLED, attempt=replace(KILLED, verdict=verdict(Where.MACHINE))), Whose.CLOUD),
        (
            ended(Status.FAILED, Cause.KILLED, attempt=replace(KILLED, verdict=verdict(Where.OURS, Certainty.HINT))),
            Whose.USER,
        ),
        (
            ended(
                Status.FAILED, Cause.DISK_FULL,
                attempt=attempt(cause=Cause.DISK_FULL, verdict=verdict(Where.OURS, cause=Cause.DISK_FULL)),
            ),
            Whose.OURS,
        ),
    ],
)  # fmt: skip
def test_whose_a_miss_is(run: Run, whose: Whose) -> None:
    miss = ledger.missed(run)
    assert miss is not None
    assert miss == (run.cause, whose)


@pytest.mark.parametrize(
    "run",
    [
        ended(Status.COMPLETED, Cause.FINISHED),
        ended(Status.PARTIAL, Cause.FINISHED),
        ended(Status.FAILED, Cause.USER_ERROR),
        ended(Status.FAILED, Cause.LIMIT_REACHED, attempt=attempt(cause=Cause.GPU_OOM)),
        ended(Status.STOPPED, Cause.STOP_REQUESTED),
    ],
)
def test_what_is_no_miss(run: Run) -> None:
    assert ledger.missed(run) is None


def test_the_ratio() -> None:
    runs = [
        *[ended(Status.COMPLETED, Cause.FINISHED)] * 7,
        ended(Status.FAILED, Cause.NO_CAPACITY),
        ended(Status.FAILED, Cause.USER_ERROR),
        ended(Status.STOPPED, Cause.STOP_REQUESTED),
        run_in(Status.RUNNING),
        ended(Status.FAILED, Cause.RESULTS_UNVERIFIED, status_since=NOW - 5000),
    ]
    shown = ledger.completion_of(runs, NOW - 100)
    assert (shown["reached"], shown["could"], shown["ratio"]) == (7, 8, 0.875)
    assert (shown["own_code"], shown["stopped"], shown["ours"], shown["user"], shown["cloud"]) == (1, 1, 0, 0, 1)
    assert [miss["cause"] for miss in shown["misses"]] == ["no_capacity"]
    assert ledger.completion_of([], NOW)["ratio"] is None, "no run is not a ratio of 0"
