"""Names that a training gives its results, and that would harm a program that trusts them: what is pulled stays in its
folder, and what cannot be written safely is an error that names it."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.acceptance.stories import stories
from tests.acceptance.test_stories_results import pull

ODD = ["-rf", "a b.txt", "..hidden", "über.txt", "..\\evil", "%2e%2e%2fevil", "~", "$HOME", ".spot-pull/x", "x" * 250]
HOSTILE = ["esc\x1b[2J.txt", "two\nlines"]
WRITES = """
import os, sys
from pathlib import Path
for name in sys.argv[1:]:
    path = Path(os.environ["SPOT_RESULTS_DIR"], name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(name)
"""


def test_a_pull_of_hostile_names_writes_nothing_outside_and_tells_what_it_left(tmp_path: Path) -> None:
    mine = tmp_path / "person" / "mine"
    with stories(tmp_path / "house") as house:
        house.daemon.submit("names", command=[sys.executable, "-S", "-c", WRITES, *ODD, *HOSTILE])
        house.wait("names", "completed")
        code, last, err = pull(house.daemon, "names", str(mine))
        assert (code, last) == (0, "OK 12/12, errors 0")
        assert "\x1b" not in err
        places = {name: mine / name for name in ODD} | {".spot-pull/x": mine / "results/g1/.spot-pull/x"}
        assert {name: place.read_text() for name, place in places.items()} == {name: name for name in ODD}
        there = [path for path in mine.parent.rglob("*") if path.is_file() and path.name != ".spot-pulled"]
        assert len(there) == len(ODD) + len(HOSTILE)
        escaped = [path for path in there if path.read_text() in HOSTILE]
        assert len(escaped) == len(HOSTILE)
        assert all(path.parent == mine and path.name.isprintable() for path in escaped), escaped
        assert house.daemon.run("names")["results"]["pulled"] is True
