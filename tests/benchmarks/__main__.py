"""`make bench`: one JSON line for each figure, as soon as it is measured.

    python -m tests.benchmarks [--only NAME]... [--quick] [--list]

NAME is a part of a row's name. The exit code is 1 when something could not be measured; a target that is missed says
so in its row and changes nothing else. Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import os

from tests.benchmarks import (
    agent_cost,
    agents,
    boot,
    cloud_idling,
    cloud_reinserting,
    cloud_ticking,
    curves,
    delivering,
    evidence,
    forecasting,
    growth,
    hosts,
    idling,
    kubernetes_ticking,
    listing,
    live_pages,
    long_logs,
    looking,
    packing,
    queueing,
    reading,
    scraping,
    slurm_ticking,
    streaming,
    submit,
    syncing,
    ticking,
    uploading,
)
from tests.benchmarks.row import FULL, QUICK, Bench, dumps

THEMES = (
    boot, submit, listing, ticking, reading, agents, agent_cost, idling, growth, evidence, packing, scraping, uploading,
    syncing, curves, cloud_ticking, cloud_idling, cloud_reinserting, delivering, streaming,
    live_pages, long_logs, looking, queueing, hosts, slurm_ticking, kubernetes_ticking, forecasting,
)  # fmt: skip
ALL: tuple[Bench, ...] = tuple(bench for theme in THEMES for bench in theme.BENCHES)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="Measure and print figures.")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="rows whose name holds NAME")
    parser.add_argument("--quick", action="store_true", help="small sizes: does everything work?")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    wish = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process under test compiles every source again
    broken = False
    for bench in ALL:
        if wish.only and not any(part in row.name for part in wish.only for row in bench.rows):
            continue
        if wish.list:
            print("\n".join(row.name for row in bench.rows))
            continue
        for line in bench.report(QUICK if wish.quick else FULL):
            broken |= line["value"] is None
            print(dumps(line), flush=True)
    return int(broken)


if __name__ == "__main__":
    raise SystemExit(main())
