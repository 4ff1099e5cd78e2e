"""The table of the doctor in docs/operations.md names every line that the doctor can say, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.shown import sections

ROOT = Path(__file__).resolve().parents[2]
FILES = (
    "services/doctor/doctor.py",
    "services/doctor/state.py",
    "services/machines/gc.py",
    "services/doctor/credentials.py",
    "providers/gce/doctor/checks.py",
    "providers/gce/doctor/places.py",
    "providers/gce/doctor/access.py",
    "providers/gce/doctor/bucket.py",
    "wiring/surroundings.py",
    "providers/local/settings.py",
    "wiring/examining.py",
)
# A name is the first text of Finding, _check, _finding, told or _told, or stands first in a pair of a list of checks.
NAMED = re.compile(
    r"(?:Finding|_one|_check|_finding|\btold|_told)\(\s*\"([a-z_ ]+)\","
    r"|^\s*asked\.append\(\(\"([a-z_ ]+)\"|^\s+\(\"([a-z_ ]+)\", ",
    re.MULTILINE,
)
ELSEWHERE = {"supervisor", "lease", "tick", "gcloud", "account", "project access", "bucket access"}


def rows() -> list[str]:
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    table = sections(text, "## ")["The doctor"]
    return re.findall(r"^\| `([a-z_ ]+)` \|", table, flags=re.MULTILINE)


def said() -> set[str]:
    found = set()
    for name in FILES:
        text = (ROOT / "supervisor" / name).read_text(encoding="utf-8")
        found |= {one for groups in NAMED.findall(text) for one in groups if one}
    return found - {"ok", "warn", "fail", "loop"}


def test_every_line_has_its_row_and_every_row_its_line() -> None:
    listed = rows()
    assert sorted(listed) == sorted(set(listed))
    assert said() | ELSEWHERE == set(listed)


def test_a_line_without_a_row_would_be_seen() -> None:
    assert NAMED.findall('    return Finding("weather", OK, "sunny")')[0][0] == "weather"
    assert len(said()) > 25
