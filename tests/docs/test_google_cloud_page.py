"""docs/google-cloud.md: the tests that its fault table names exist; its settings and causes are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from supervisor.domain.causes import Cause
from supervisor.providers.gce.machines.records import MEANINGS
from supervisor.wiring import settings as wired
from tests.docs.test_pages_match_the_code import ROOT, page

PAGE = page("docs/google-cloud.md")
# The faults that must be shown, each by words of its row.
FAULTS = (
    "no capacity in any zone", "_WITH_DETAILS", "quota of the region", "GPUS_ALL_REGIONS", "insert times out",
    "response is lost", "no clear response to an insert", "belongs to another try", "the list cannot reach",
    "429, 403", "token ends", "while it was created", "70 s after the insert", "container never starts",
    "GPU never responds", "docker ends with 125", "image does not exist", "deletes that overlap", "false 404",
    "zombie", "`.stop` by hand", "deleted or stopped by hand", "third such", "63 characters", "foreign VMs",
    "supervisor is dead",
)  # fmt: skip


def rows() -> list[list[str]]:
    found = re.search(r"<!-- faults: begin -->\n(.*?)\n<!-- faults: end -->", PAGE, re.DOTALL)
    assert found is not None
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in found[1].splitlines()[2:]]


def test_every_fault_has_a_row_and_every_row_three_cells():
    told = [row[0] for row in rows()]
    assert [fault for fault in FAULTS if not any(fault in one for one in told)] == []
    assert [row for row in rows() if len(row) != 3] == []


def missing(row: list[str]) -> bool:
    file, _, name = row[2].strip("`").partition("::")
    path = ROOT / file
    return not (path.exists() and re.search(rf"^def {name}\(", path.read_text(), re.MULTILINE))


def test_every_test_that_the_table_names_exists():
    assert [row[2] for row in rows() if missing(row)] == []
    assert missing(["", "", "`tests/acceptance/test_cloud_story.py::test_of_nothing`"])


def test_its_settings_and_causes_are_those_of_the_code():
    named = set(re.findall(r"`((?:gce|beat|silence|boot|gpu|public|secret|store)_[a-z_]+)`", PAGE))
    assert named - set(wired.load({}, {"HOME": "/h"}).flat) - {cause.value for cause in Cause} == set()
    ends = PAGE.partition("## Why a machine ended")[2].partition("## Beats")[0]
    causes = re.findall(r"^\| [^|]* \| `([a-z_]+)`", ends, re.MULTILINE)
    assert len(causes) > 10
    assert set(causes) - {cause.value for cause in Cause} == set()


def test_every_operation_that_ends_a_machine_is_told():
    ends = PAGE.partition("## Why a machine ended")[2]
    assert [kind for kind in MEANINGS if kind.rpartition(".")[2] not in ends] == []


def test_it_is_linked():
    assert "docs/google-cloud.md" in page("README.md")
    assert Path(ROOT, "docs/google-cloud.md").exists()
