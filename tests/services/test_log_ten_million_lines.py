"""Ten million lines: their end, one in the middle and a search are answered rightly, in bounded memory.

How long that takes is measured by tests/benchmarks/long_logs.py.
"""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

from supervisor.objectstores.filesystem import FilesystemStore
from supervisor.services.logs.logs import Logs, Part
from tests.services import long_log
from tests.services.bed import Bed

LINES = 10_000_000
MEMORY_BYTES = 10_000_000  # measured: 1.3 MB
RUN = "digits-7"


def test_ten_million_lines_are_answered_without_holding_them(bed: Bed, tmp_path: Path) -> None:
    """Broken variant: reading the whole log takes 90 MB and more."""
    bed.submit(RUN)
    bed.train(RUN)
    objects = FilesystemStore.create(tmp_path / "objects")
    long_log.write(objects, RUN, LINES, {5_000_000: b"a needle", LINES: b"the end."})
    logs = Logs(replace(bed.parts, objects=objects), bed.services.queries, bed.inbox)
    tracemalloc.start()
    try:
        told = logs.show(RUN, None, Part(tail=500))
        assert told["text"].endswith("--------\nthe end.\n")
        assert (told["line"], told["lines"], told["text"].count("\n")) == (LINES - 499, LINES, 500)
        assert logs.show(RUN, None, Part(tail=500))["text"] == told["text"]
        told = logs.show(RUN, None, Part(line=5_000_000, lines=2))
        assert (told["text"], told["line"], told["offset"]) == ("a needle\n05000001\n", 5_000_000, 4_999_999 * 9)
        found = logs.search(RUN, None, "A NEEDLE", True, Part())
        assert [(match["line"], match["offset"]) for match in found["matches"]] == [(5_000_000, 4_999_999 * 9)]
        assert (found["more"], found["next_offset"]) == (False, LINES * 9)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_BYTES
