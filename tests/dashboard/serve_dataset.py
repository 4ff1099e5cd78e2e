"""A server with thirty runs to look at: `python -m tests.dashboard.serve_dataset [--port 8900]`, on loopback, no token.

Nothing happens there: no loop runs, and its clock stands still at the moment in which it was filled (`--now`: epoch
seconds). Its data are gone when it ends.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

from supervisor.api import server
from supervisor.dashboard.mounting import mount
from supervisor.domain.findings import OK, Finding
from supervisor.ports.notifier import WEBHOOKS
from supervisor.services.doctor import state
from tests.dashboard.dataset.fill import fill
from tests.dashboard.dataset.house import House, open_house
from tests.dashboard.dataset.sweep import add_sweep
from tests.services.fresh import open_fresh

# What the doctor would say of the computer at hand is no part of the data.
FACTS = {
    "python": "Python 3.12.8 at /opt/spot/bin/python",
    "disk": "41.6 GiB free at /var/lib/spot",
    "inodes": "6,112,804 files can still be made at /var/lib/spot",
    "agent": "148 KB, version 0.1.0",
}
COMPUTER = {name: lambda *_, name=name, fact=fact: Finding(name, OK, fact) for name, fact in FACTS.items()}


@contextmanager
def filled(now: float, sweep: bool = False) -> Iterator[House]:
    """The house with all runs, in a folder that is gone afterwards. `sweep`: and with a group."""
    with tempfile.TemporaryDirectory(prefix="spot-look-") as folder:
        store = open_fresh(Path(folder, "supervisor.db"), ("log", WEBHOOKS))
        try:
            house = open_house(store, Path(folder), now)
            fill(house)
            if sweep:
                add_sweep(house)
            with patch.multiple(state, **COMPUTER):
                yield house
        finally:
            store.close()


def main() -> None:
    reader = argparse.ArgumentParser()
    reader.add_argument("--port", type=int, default=0)
    reader.add_argument("--now", type=float, default=time.time())
    asked = reader.parse_args()
    with filled(asked.now, sweep=True) as house:
        listener = server.bind("127.0.0.1", asked.port)
        add = partial(mount, now=house.clock.now)
        server.run(house.services, listener, lambda: print(server.url_of(listener), flush=True), add=add)  # noqa: T201


if __name__ == "__main__":
    main()
