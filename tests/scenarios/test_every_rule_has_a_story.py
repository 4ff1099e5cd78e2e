"""A scenario plays each row of the table of statuses and observations (docs/rules.md, section 3).

A file names its rows by lines of the form `# row: STATUS | OBSERVATION`, in the words of the table.
"""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
RULES = HERE.parents[1] / "docs" / "rules.md"
ROW = re.compile(r"# row: (.+?) \| (.+)")


def rows_of_the_table() -> set[tuple[str, str]]:
    section = RULES.read_text(encoding="utf-8").split("\n## 3.")[1].split("\n## ")[0]
    cells = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    rows = {(status.strip(), seen.strip()) for status, seen, _ in cells[2:]}
    assert len(rows) > 30
    return rows


def rows_that_are_played() -> dict[tuple[str, str], str]:
    rows = {}
    for path in sorted(HERE.glob("*/*.txt")):
        for line in path.read_text(encoding="utf-8").splitlines():
            match = ROW.match(line)
            if match:
                rows[match.group(1), match.group(2)] = path.name
    return rows


def test_every_row_is_played() -> None:
    missing = rows_of_the_table() - rows_that_are_played().keys()
    assert not missing, f"no scenario under tests/scenarios plays these rows: {sorted(missing)}"


def test_no_scenario_plays_a_row_that_is_not_in_the_table() -> None:
    strange = {row: name for row, name in rows_that_are_played().items() if row not in rows_of_the_table()}
    assert not strange, f"the table of docs/rules.md does not have these rows (any more): {strange}"
