"""The page of a group: the cells with their values, metrics, costs and sentences, in any order; and the ways to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from supervisor.dashboard.pages.group import ordered
from supervisor.wording.cells import cell_table, group_line
from supervisor.wording.figures import DASH
from tests.dashboard.dataset.house import NOW
from tests.dashboard.document import Element
from tests.dashboard.looking import Looking
from tests.dashboard.serve_dataset import filled
from tests.services.bed import COMMAND, Bed

GROUP = "/ui/groups/resnet-lr"


@pytest.fixture(scope="module")
def sweep() -> Iterator[Looking]:
    with filled(NOW, sweep=True) as house:
        yield Looking(house.services, now=house.clock.now)


def cells(page: Element) -> list[str]:
    return [row.one("th").text.removeprefix("resnet-lr-") for row in page.one("tbody").all("tr")]


def columns(page: Element) -> list[str]:
    return [head.text for head in page.one("thead").all("th")]


def row(page: Element, name: str) -> list[str]:
    return [cell.text for cell in page.one("tr", id=f"cell-resnet-lr-{name}").all("td")]


def test_one_row_for_each_cell_with_values_metrics_cost_and_sentence(sweep: Looking) -> None:
    page = sweep.page(GROUP)
    assert columns(page) == ["Run", "lr", "seed", "State", "Step", "loss", "accuracy", "Cost", "Now"]
    assert len(cells(page)) == 6
    done = row(page, "lr0-1-seed1")
    assert done[:3] == ["lr 0.1", "seed 1", "✔ completed"]
    assert done[3].startswith("100 %")
    assert [float(text.split()[1]) for text in done[4:6]] == pytest.approx([0.31, 0.91], abs=0.2)
    assert done[6].startswith("Cost $")
    assert done[7].startswith("Completed")
    waiting = row(page, "lr0-1-seed2")
    assert waiting[2:7] == ["○ waiting", DASH, f"loss {DASH}", f"accuracy {DASH}", "Cost $0.00"]
    assert "2 runs of group resnet-lr may have a machine at once" in waiting[7]
    assert "FloatingPointError" in row(page, "lr0-9-seed1")[7]


def test_counts_costs_and_what_can_be_done_with_all(sweep: Looking) -> None:
    page = sweep.page(GROUP)
    choices = {link.text: link.attributes["href"] for link in page.one("nav", class_="choices").all("a")}
    assert choices["All 6"] == "/ui/runs?group=resnet-lr"
    assert choices["○ waiting 2"] == "/ui/runs?group=resnet-lr&status=waiting"
    assert "at most 2 at once" in page.one(id="group-now").text
    assert "so far" in page.one(id="group-now").text
    assert [button.text for button in page.one(id="group-now").all("button")] == [
        "Stop all 4 live…",
        "Resume the one ended…",
    ]
    question = sweep.page("/ui/many/stop?group=resnet-lr")
    assert "Stop 4 runs?" in question.text


def test_an_order_stands_in_the_address_and_turns_round(sweep: Looking) -> None:
    page = sweep.page(f"{GROUP}?sort=label.lr")
    assert [name.partition("-seed")[0] for name in cells(page)] == [
        "lr0-01", "lr0-03", "lr0-03", "lr0-1", "lr0-1", "lr0-9",
    ]  # fmt: skip
    head = next(head for head in page.one("thead").all("th") if "aria-sort" in head.attributes)
    assert (head.attributes["aria-sort"], head.one("a").attributes["href"]) == ("ascending", f"{GROUP}?sort=-label.lr")
    best = cells(sweep.page(f"{GROUP}?sort=-metric.accuracy"))
    assert set(best[-3:]) == {"lr0-9-seed1", "lr0-1-seed2", "lr0-03-seed2"}, "cells without a value come last"
    assert cells(sweep.page(f"{GROUP}?sort=-cost"))[-1] in {"lr0-1-seed2", "lr0-03-seed2"}
    assert cells(sweep.page(f"{GROUP}?sort=nonsense")) == cells(sweep.page(GROUP))


def test_a_run_leads_to_its_group(sweep: Looking) -> None:
    listed = sweep.page("/ui/runs?group=resnet-lr")
    assert listed.one("tr", id="run-resnet-lr-lr0-1-seed1").all("a", href=GROUP)
    assert sweep.page("/ui/runs/resnet-lr-lr0-1-seed1").one(id="run-head").all("a", href=GROUP)
    assert not sweep.page("/ui/runs/llm-a").one(id="run-head").all("a", href=GROUP)


def test_an_unknown_group_says_what_makes_one(sweep: Looking) -> None:
    answer = sweep.get("/ui/groups/nobody")
    assert answer.status_code == 404
    assert "No run is in this group" in answer.text
    assert sweep.get("/ui/groups/No-Such").status_code == 422


def test_labels_from_outside_are_only_text(bed: Bed, looking: Looking) -> None:
    for number, label in enumerate(("<b>1</b>", "2")):
        bed.submit(f"cell-{number}", {**COMMAND, "group": "probe", "labels": {"<i>lr</i>": label, "x": "1"}})
    page = looking.page("/ui/groups/probe")
    assert columns(page)[1] == "<i>lr</i>"
    assert not page.all("b", text="1")
    assert not page.all("i")


# --- the table --------------------------------------------------------------------------------------------------------


def a_cell(
    name: str, metrics: dict[str, float] | None = None, usd: float | None = 0.0, **labels: str
) -> dict[str, object]:
    progress = None if metrics is None else {"step": 1, "total": None, "metrics": metrics}
    cost = {"usd": usd, "known": usd is not None}
    return {
        "run_id": name,
        "labels": labels,
        "status": "running",
        "status_text": "x",
        "progress": progress,
        "cost": cost,
    }


def test_axes_are_the_labels_in_which_runs_differ() -> None:
    table = cell_table([a_cell("a", lr="1", team="v"), a_cell("b", lr="2", team="v", note="n")])
    assert table.axes == ("lr", "note")
    assert [found.values for found in table.rows] == [("1", DASH), ("2", "n")]


def test_numbers_are_ordered_as_numbers_and_words_after_them() -> None:
    table = cell_table([a_cell(text, lr=text) for text in ("10", "9", "nan", "1e-3", "adam")])
    assert [found.run["run_id"] for found in ordered(table, "label.lr")] == ["1e-3", "9", "10", "adam", "nan"]


def test_an_axis_and_a_metric_of_one_name_are_two_columns() -> None:
    table = cell_table([a_cell("a", {"lr": 2.0}, lr="1"), a_cell("b", {"lr": 1.0}, lr="2")])
    assert [found.run["run_id"] for found in ordered(table, "metric.lr")] == ["b", "a"]
    assert [found.run["run_id"] for found in ordered(table, "label.lr")] == ["a", "b"]


def test_the_line_of_the_group() -> None:
    runs = [a_cell("a", usd=1.0), a_cell("b", usd=0.2)]
    assert group_line("g", runs, {"running": 1, "waiting": 2}) == "g: 3 runs · 2 waiting, 1 running · $1.20"
    limited = [{**runs[0], "max_parallel": 3}, {**runs[1], "max_parallel": 1, "status": "failed"}]
    assert group_line("g", limited, {"running": 1}) == "g: 1 run · 1 running · at most 3 at once · $1.20"
    assert group_line("g", [a_cell("a", usd=None)], {"running": 1}) == "g: 1 run · 1 running"
