"""The page of faults gives each number a test, and each test that it names exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "designs" / "0019-faults-found-by-measurement.md").read_text(encoding="utf-8")
NUMBERS = range(1, 43)
STORIES = "tests/scenarios/test_scenarios.py"
QUOTED = re.compile(r"`([^`\n]*::[^`\n]*)`")
TEST_ID = re.compile(r"(tests/[\w/]+\.py)::((?:\w+::)?test_\w+)(?:\[([^\]]+)\])?")


def faults(page: str) -> list[str]:
    """The test ids that name no test, and the numbers without a test."""
    tests_of: dict[str, int] = {}
    for line in page.splitlines():
        cells = re.split(r"(?<!\\)\|", line)
        if re.match(r"\| (\d+|flakes)\b", line):
            number = cells[1].split()[0]
            tests_of[number] = tests_of.get(number, 0) + len(QUOTED.findall(cells[4]))
    missing = [str(number) for number in (*NUMBERS, "flakes") if not tests_of.get(str(number))]
    return missing + [name for name in QUOTED.findall(page) if not exists(name)]


def exists(test_id: str) -> bool:
    match = TEST_ID.fullmatch(test_id)
    if match is None:
        return False
    path, name, case = ROOT / match[1], match[2], match[3]
    is_story = match[1] == STORIES and case
    return path.is_file() and name in functions(path) and (not is_story or (path.parent / f"{case}.txt").is_file())


@cache
def functions(path: Path) -> set[str]:
    """`name` and `Class::name` of each function in the file."""

    def names() -> Iterator[str]:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                yield node.name
            elif isinstance(node, ast.ClassDef):
                yield from (f"{node.name}::{item.name}" for item in node.body if isinstance(item, ast.FunctionDef))

    return set(names())


def test_each_number_has_a_test_and_each_test_exists() -> None:
    assert faults(PAGE) == []


@pytest.mark.parametrize(
    "wrong",
    [
        "tests/docs/test_faults_page.py::test_that_does_not_exist",
        "tests/docs/test_no_such_file.py::test_each_number_has_a_test_and_each_test_exists",
        "tests/docs/test_faults_page.py::TestNoSuchClass::test_each_number_has_a_test_and_each_test_exists",
        f"{STORIES}::test_the_story_ends_as_it_must[limits/no-such-story]",
        "::test_each_number_has_a_test_and_each_test_exists",
    ],
)
def test_a_wrong_id_is_caught(wrong: str) -> None:
    right = "tests/storage/test_queries.py::test_old_samples_are_found_without_reading_the_others"
    assert faults(PAGE.replace(right, wrong)) == [wrong]


def test_a_number_without_a_row_or_without_a_test_is_caught() -> None:
    lines = PAGE.splitlines()
    assert faults("\n".join(line for line in lines if not line.startswith("| 17 |"))) == ["17"]
    rowless = "\n".join(line for line in lines if not line.startswith(("| 8 |", "| flakes |")))
    assert faults(f"{rowless}\n| 8 | fault | fix | none | none |") == ["8", "flakes"]
