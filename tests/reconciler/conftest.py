"""An office on SQLite in a fresh folder."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from supervisor.reconciler.delivering import Delivering
from supervisor.storage.store import open_store
from tests.fakes.clock import FakeClock
from tests.fakes.courier import FakeCourier, OwnHands
from tests.reconciler.office import HELD, Office


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    with closing(open_store(f"sqlite:///{tmp_path}/x.db", True, ("log", "webhooks"))) as store:
        clock, courier = FakeClock(), FakeCourier()
        delivering = Delivering(store, courier, clock, lambda: HELD, hands=OwnHands())
        yield Office(store, clock, courier, delivering)
