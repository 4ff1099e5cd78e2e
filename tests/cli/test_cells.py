"""The cells of a sweep file: names, values, fields, order, and what is refused at which place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisor.cli.runs.cells import Cell, SweepRefused, cells_of, is_sweep
from supervisor.cli.runs.specfile import read_spec
from supervisor.contract.identifiers import is_run_id

EXAMPLE = Path(__file__).parents[2] / "examples" / "sweep.yaml"
TRAIN = ["python", "train.py", "--lr={lr}", "--seed={seed}"]


def sweep(**fields: Any) -> dict[str, Any]:
    return {"group": "digits", "command": TRAIN, "matrix": {"lr": [0.1, 0.01], "seed": [1, 2]}, **fields}


def by_id(**fields: Any) -> dict[str, Cell]:
    return {cell.run_id: cell for cell in cells_of(sweep(**fields))}


def refusal(**fields: Any) -> tuple[str, str]:
    with pytest.raises(SweepRefused) as refused:
        cells_of(sweep(**fields))
    return "/".join(refused.value.names), refused.value.text


def test_one_cell_for_each_combination_in_the_order_of_the_file() -> None:
    cells = by_id()
    assert list(cells) == ["digits-lr0-1-seed1", "digits-lr0-1-seed2", "digits-lr0-01-seed1", "digits-lr0-01-seed2"]
    first = cells["digits-lr0-1-seed1"]
    assert first.spec["command"] == ["python", "train.py", "--lr=0.1", "--seed=1"]
    assert first.values == first.spec["labels"] == {"lr": "0.1", "seed": "1"}
    assert is_sweep(sweep())
    assert "matrix" not in first.spec


def test_names_are_run_ids_the_same_each_time_and_different_for_different_values() -> None:
    values = [1, -1, 0.5, "1e-5", True, "adam", "Adam W/2", "x" * 80, "x" * 81]
    names = list(by_id(matrix={"opt": values}, command=["t", "{opt}"]))
    assert len(set(names)) == len(values)
    assert all(map(is_run_id, names))
    assert names[:7] == [
        "digits-opt1", "digits-opt-1", "digits-opt0-5", "digits-opt1e-5", "digits-opt-true", "digits-opt-adam",
        "digits-opt-adam-w-2",
    ]  # fmt: skip
    assert names == list(by_id(matrix={"opt": values}, command=["t", "{opt}"]))


def test_a_name_does_not_depend_on_the_other_cells() -> None:
    """A cell that is added later moves no other: its run is found again."""
    assert set(by_id()) < set(by_id(matrix={"lr": [0.3, 0.1, 0.01], "seed": [1, 2]}))


def test_placeholders_in_every_text_and_none_of_the_shells() -> None:
    fields = {
        "command": "python train.py --lr {lr} --out ${lr} --json '{\"a\": 1}' {other_thing}",
        "env": {"SEED": "{seed}", "RATE": "lr={lr}"},
        "labels": {"team": "vision", "seed": "of {seed}"},
        "limits": {"max_runtime_s": "{lr}", "budget_usd": 3},
        "results": [{"path": "{cell}/model-{seed}.pt"}],
    }
    spec = by_id(**fields)["digits-lr0-01-seed2"].spec
    assert spec["command"] == "python train.py --lr 0.01 --out ${lr} --json '{\"a\": 1}' {other_thing}"
    assert spec["env"] == {"SEED": "2", "RATE": "lr=0.01"}
    assert spec["labels"] == {"lr": "0.01", "team": "vision", "seed": "of 2"}
    assert spec["limits"] == {"max_runtime_s": 0.01, "budget_usd": 3}
    assert spec["results"] == [{"path": "lr0-01-seed2/model-2.pt"}]


def test_a_line_has_values_a_name_and_fields_of_its_own() -> None:
    lines = [
        {"values": {"lr": 0.5, "seed": 7}, "shapes": ["big"], "env": {"B": "2"}, "limits": {"budget_usd": 9}},
        {"name": "plain", "command": ["echo", "over"]},
    ]
    cells = by_id(lines=lines, env={"A": "1", "B": "1"}, limits={"max_attempts": 3}, matrix=None)
    assert list(cells) == ["digits-lr0-5-seed7", "digits-plain"]
    first = cells["digits-lr0-5-seed7"]
    assert (first.spec["shapes"], first.spec["env"]) == (["big"], {"A": "1", "B": "2"})
    assert first.spec["limits"] == {"max_attempts": 3, "budget_usd": 9}
    assert (first.line, first.own) == (0, {"shapes", "env", "limits"})
    assert cells["digits-plain"].spec["command"] == ["echo", "over"]
    assert cells["digits-plain"].spec["labels"] == {}


def test_a_cell_comes_behind_the_cells_that_it_starts_after() -> None:
    lines = [{"name": "prepare", "command": ["p"], "after": []}]
    cells = by_id(lines=lines, after=["{group}-prepare", "elsewhere"])
    assert next(iter(cells)) == "digits-prepare"
    assert cells["digits-lr0-1-seed1"].spec["after"] == ["digits-prepare", "elsewhere"]


def test_cells_that_wait_for_each_other_are_refused() -> None:
    lines = [
        {"name": "a", "command": ["a"], "after": ["digits-b"]},
        {"name": "b", "command": ["b"], "after": ["digits-a"]},
    ]
    assert refusal(lines=lines) == ("lines/0", "digits-a would wait for itself: its `after` leads back to it.")


@pytest.mark.parametrize(
    ("fields", "place", "text"),
    [
        ({"group": None}, "group", "a sweep needs a group"),
        ({"group": "Digits 7"}, "group", "a sweep needs a group"),
        ({"matrix": {"lr": 0.1}}, "matrix/lr", "matrix.lr must be a list of values."),
        ({"matrix": {"lr": []}}, "matrix/lr", "matrix.lr must be a list of values."),
        ({"matrix": {"lr": [1, 1], "seed": [1]}}, "matrix/lr/1", "matrix.lr has the value 1 twice."),
        ({"matrix": {"lr": [[1]], "seed": [1]}}, "matrix/lr/0", "a value must be a text, a number, true or false."),
        ({"matrix": {"l r": [1]}}, "matrix/l r", "l r is not a name for an axis"),
        ({"matrix": {"cell": [1]}}, "matrix/cell", "cell is not a name for an axis"),
        ({"matrix": [1]}, "matrix", "matrix must have a list of values for each axis."),
        ({"matrix": None, "lines": []}, "", "the sweep has no cell"),
        ({"matrix": {"lr": [1, 2], "wd": [0, 1], "seed": [1]}}, "matrix/wd", "nothing uses the axis wd: put {wd}"),
        ({"matrix": {"lr": [1], "sed": [1, 2]}}, "matrix/sed", "Did you mean it where {seed} stands?"),
        ({"command": ["t", "{lr}", "{seed}", "{sed}"]}, "command/3", "there is no axis sed; did you mean {seed}?"),
        ({"command": ["t", "{seed}", {"lr": None}]}, "command/2", "put {lr} into quotes: YAML reads braces"),
        ({"lines": [{"values": {"lr": 3}}]}, "lines/0/command/3", "the cell has no value for {seed}."),
        ({"lines": [{"shapes": ["a"]}]}, "lines/0", "the line needs values, or a name for its run."),
        ({"lines": [{"values": {"lr": 3, "seed": 1}, "group": "x"}]}, "lines/0/group", "belongs to the whole sweep"),
        ({"lines": ["lr"]}, "lines/0", "a line must have fields"),
        ({"lines": [{"name": "A B", "command": ["t"]}]}, "lines/0", "digits-A B is not a run id"),
        ({"lines": [{"values": {"lr": 0.1, "seed": 1}}]}, "lines/0",
         "two cells have the name digits-lr0-1-seed1: lr=0.1, seed=1 and lines[0] (lr=0.1, seed=1)."),
        ({"matrix": {"lr": list(range(101)), "seed": list(range(100))}}, "matrix", "the sweep has 10,100 cells"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_at_its_place(fields: dict[str, Any], place: str, text: str) -> None:
    refused = refusal(**fields)
    assert refused[0] == place
    assert text in refused[1]


def test_the_example_is_a_sweep() -> None:
    run_id, spec = read_spec(str(EXAMPLE))
    cells = cells_of(spec)
    assert run_id is None
    assert [cell.run_id for cell in cells] == [
        "digits-seed1-steps200", "digits-seed1-steps400", "digits-seed2-steps200", "digits-seed2-steps400",
        "digits-long", "digits-summary",
    ]  # fmt: skip
    assert cells[0].spec["command"] == ["python3", "train.py", "--seed", "1", "--steps", "200"]
    assert {cell.spec["code"] for cell in cells} == {str(EXAMPLE.parent / "digits")}
    assert cells[4].spec["limits"] == {"max_runtime_s": 7200}
    assert cells[5].spec["after"] == [cell.run_id for cell in cells[:4]]
