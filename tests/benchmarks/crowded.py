"""The supervisor with a crowd: the real `serve`, whose local provider also lists the machines of crowd.json.

    python -m tests.benchmarks.crowded serve --data-dir DIR --port 0

Each tick leaves a line `began ended hold_ms`, the first two on the monotonic clock, in DATA_DIR/ticks.log: the
benchmarks have to know when a tick was under way, and how long a write transaction was open since the tick before.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from supervisor.cli.main import main
from supervisor.domain.machines import Machine, MachineListing, MachineState
from supervisor.ports.store import Lease
from supervisor.providers.local import provider as local
from supervisor.providers.local.provider import LocalProvider
from supervisor.reconciler.tick import Tick


def machines_of(data_dir: Path) -> tuple[Machine, ...]:
    rows = json.loads((data_dir / "crowd.json").read_text())
    return tuple(Machine(row[0], row[1], row[2], MachineState.UP, *row[3:]) for row in rows)


class CrowdedProvider(LocalProvider):
    def __init__(self, data_dir: Path, *others: Any, **more: Any) -> None:
        super().__init__(data_dir, *others, **more)
        self._crowd = machines_of(data_dir)

    def machines(self) -> MachineListing:
        listing = super().machines()
        return MachineListing((*listing.machines, *self._crowd), listing.unreachable)


def _told(run: Any) -> Any:
    def told(self: Any, lease: Lease) -> float | None:
        began, group = time.monotonic(), self.store.database.group  # None on Postgres
        try:
            return run(self, lease)
        finally:
            hold_ms = 0.0
            if group is not None:
                hold_ms, group.longest_hold_s = group.longest_hold_s * 1000, 0.0
            os.write(_log, f"{began:.4f} {time.monotonic():.4f} {hold_ms:.2f}\n".encode())

    return told


if __name__ == "__main__":
    folder = Path(sys.argv[sys.argv.index("--data-dir") + 1])
    _log = os.open(folder / "ticks.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    Tick.run = _told(Tick.run)  # type: ignore[method-assign]
    local.LocalProvider = CrowdedProvider  # type: ignore[misc]
    main()
