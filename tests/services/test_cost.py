"""What runs cost and what their files take: unknown is null, one listing for all."""

from __future__ import annotations

from dataclasses import replace

from supervisor.contract import runfiles
from supervisor.domain.run import Money
from supervisor.ports.store import RunFilter
from supervisor.services.reading.cost import GIB, cost_page, run_cost
from supervisor.services.views.formats import Json
from tests.services.bed import Bed

RUN = "digits-7"


def filled(bed: Bed, run_id: str = RUN) -> None:
    bed.submit(run_id)
    bed.train(run_id)
    for key, size in {
        runfiles.results(run_id, 1) + "model.pt": 1000,
        runfiles.checkpoint(run_id, 100, 1) + "step.pt": 2000,
        runfiles.checkpoint(run_id, 100, 1, best=True) + "best.pt": 500,
        runfiles.log_chunk(run_id, 1, 1): 30,
        runfiles.evidence(run_id, 1): 7,
        runfiles.agent_evidence(run_id, 1): 2,
        runfiles.console(run_id, 1): 1,
        runfiles.baton(run_id): 4,
        runfiles.manifest(run_id): 6,
    }.items():
        bed.objects.put(key, b"x" * size)


def priced(bed: Bed, usd: float | None) -> Bed:
    bed.parts = replace(bed.parts, defaults=replace(bed.parts.defaults, store_usd_per_gib_month=usd))
    return bed


def one(bed: Bed, run_id: str = RUN) -> Json:
    return run_cost(bed.parts, bed.services.queries, run_id)


def listed(bed: Bed, page_size: int = 0, **where: object) -> Json:
    return cost_page(bed.parts, bed.services.queries, RunFilter(**where), page_size=page_size, cursor=None)  # type: ignore[arg-type]


def test_bytes_are_told_by_what_they_are_for(any_bed: Bed) -> None:
    filled(any_bed)
    told = one(any_bed)
    assert told["stored_bytes"] == {
        "results": 1000, "checkpoints": 2500, "logs": 30, "evidence": 10, "other": 10,
    }  # fmt: skip
    assert (told["files"], told["attempts"], told["usd_per_h"]) == (9, 1, 0.1)
    assert (told["cost_usd"], told["lower_bound"]) == (0.001667, False)


def test_a_month_is_not_known_until_somebody_tells_the_price(bed: Bed) -> None:
    filled(bed)
    assert one(bed)["stored_usd_per_month"] is None
    assert one(priced(bed, 100.0))["stored_usd_per_month"] == round(100 * 3550 / GIB, 6)
    assert one(priced(bed, 0.0))["stored_usd_per_month"] == 0.0  # told to be free is not unknown


def test_what_has_no_price_is_null_and_what_is_partly_known_is_a_lower_bound(bed: Bed) -> None:
    filled(bed)
    run = bed.run(RUN)
    assert run.attempt is not None
    bed.change(RUN, attempt=replace(run.attempt, price_usd_per_h=None, on_demand_usd_per_h=None))
    told = one(bed)
    assert (told["cost_usd"], told["lower_bound"], told["usd_per_h"]) == (None, True, None)
    bed.change(RUN, money=Money(cost_usd=2.0, all_known=False))
    told = one(bed)
    assert (told["cost_usd"], told["lower_bound"]) == (2.0, True)
    assert told["usd_per_h"] is None


def test_many_runs_cost_one_listing(any_bed: Bed) -> None:
    names = [f"run-{n}" for n in range(5)]
    for name in names:
        filled(any_bed, name)
    any_bed.objects.put(runfiles.manifest("run-0-of-nobody"), b"xx")
    any_bed.objects.put(runfiles.code("ab"), b"tar")
    before = any_bed.objects.calls["pages"]
    answer = listed(any_bed)
    assert any_bed.objects.calls["pages"] - before == 2  # the runs' files, and the code bundles
    assert [run["run_id"] for run in answer["runs"]] == names[::-1]
    assert sum(run["files"] for run in answer["runs"]) == 45
    assert {run["stored_bytes"]["results"] for run in answer["runs"]} == {1000}
    assert answer["code"] == {"stored_bytes": 3, "stored_usd_per_month": None}


def test_filters_and_pages_are_those_of_the_list(bed: Bed) -> None:
    for name in ("alpha-1", "beta-1", "beta-2"):
        filled(bed, name)
    assert [run["run_id"] for run in listed(bed, text="beta")["runs"]] == ["beta-2", "beta-1"]
    first = listed(bed, page_size=2)
    assert [run["run_id"] for run in first["runs"]] == ["beta-2", "beta-1"]
    following = cost_page(bed.parts, bed.services.queries, RunFilter(), page_size=2, cursor=first["next_cursor"])
    assert [run["run_id"] for run in following["runs"]] == ["alpha-1"]
    assert following["next_cursor"] is None


def test_a_store_that_cannot_be_read_leaves_the_costs_and_no_zero(bed: Bed) -> None:
    filled(bed)
    bed.objects.fail_prefixes.add(runfiles.logs(RUN, 1))  # in the middle of the listing
    told = one(bed)
    assert (told["cost_usd"], told["files"], told["stored_bytes"]) == (0.001667, None, None)
    assert listed(bed)["runs"] == [told]


def test_no_run_at_all_is_an_empty_table(bed: Bed) -> None:
    assert listed(bed)["runs"] == []
