"""A log of ten million lines, asked for as its page does: its end, a line in it, a text in it.

The requests are real but for the socket; the log lies in a folder, in ten chunks. `tail_first_ms` counts all lines, as
whoever asks first does; after that they are known.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

from supervisor.objectstores.filesystem import FilesystemStore
from supervisor.services.logs.logs import Logs
from supervisor.storage.store import open_store
from tests.benchmarks import scene
from tests.benchmarks.row import Bench, Figure, Row, Size, percentile
from tests.services import long_log
from tests.services.bed import Client, make_bed

LINES = 10_000_000
RUN = "digits-7"
LOGS = f"/v1/runs/{RUN}/logs"
WINDOW = "lines=500&limit=1048576"


def asked(size: Size) -> Mapping[str, Figure]:
    lines = LINES if size.runs >= 10_000 else 1_000_000
    with scene.folder() as folder, closing(open_store(f"sqlite:///{folder / 'bench.db'}", migrate=True)) as store:
        bed = make_bed(store, folder)
        bed.submit(RUN)
        bed.train(RUN)
        objects = FilesystemStore.create(folder / "objects")
        long_log.write(objects, RUN, lines, {lines // 2: b"a needle"})
        parts = replace(bed.parts, objects=objects)
        client = Client(replace(bed.services, logs=Logs(parts, bed.services.queries, bed.inbox)))
        tail_first, told = _ms(client, "tail=500&limit=1048576")
        assert told["lines"] == lines
        tails = [_ms(client, "tail=500&limit=1048576")[0] for _ in range(10 * size.times)]
        jumps = []
        for line in random.Random(1).sample(range(1, lines), 20 * size.times):
            spent, told = _ms(client, f"line={line}&{WINDOW}")
            assert told["line"] == line
            jumps.append(spent)
        searches = []
        for _ in range(size.times):
            spent, told = _ms(client, "q=A+NEEDLE&ignore_case=true")
            assert [match["line"] for match in told["matches"]] == [lines // 2]
            searches.append(spent)
        note = {"lines": lines, "bytes": told["size"]}
        return {
            "log_10m_lines_tail_p95_ms": Figure(
                percentile(tails, 0.95), note={**note, "tail_first_ms": round(tail_first)}
            ),
            "log_10m_lines_jump_p95_ms": Figure(percentile(jumps, 0.95), note=note),
            "log_10m_lines_search_ms": Figure(percentile(searches, 0.5), note=note),
        }


def _ms(client: Client, query: str) -> tuple[float, dict[str, object]]:
    began = time.perf_counter()
    answer = client.get(f"{LOGS}?{query}")
    spent = (time.perf_counter() - began) * 1000
    assert answer.status_code == 200
    return spent, answer.json()


BENCHES = (
    Bench(
        asked,
        (
            Row("log_10m_lines_tail_p95_ms", "ms", target=50.0),
            Row("log_10m_lines_jump_p95_ms", "ms", target=100.0),
            Row("log_10m_lines_search_ms", "ms", target=1000.0),
        ),
    ),
)
