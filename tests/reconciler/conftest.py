"""An outbox on SQLite in a fresh folder."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from supervisor.reconciler.delivering.delivering import Delivering
from tests.fakes.clock import FakeClock
from tests.fakes.courier import FakeCourier
from tests.reconciler.outbox import HELD, Outbox
from tests.scenarios.fault_points import AtOnce
from tests.services.fresh import open_fresh


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    with closing(open_fresh(tmp_path / "x.db", ("log", "webhooks"))) as store:
        clock, courier = FakeClock(), FakeCourier()
        delivering = Delivering(store, courier, clock, lambda: HELD, threads=AtOnce())
        yield Outbox(store, clock, courier, delivering)
