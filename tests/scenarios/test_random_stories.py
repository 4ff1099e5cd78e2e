"""A few random stories; `make campaign` plays some hundreds more."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.ports.store import Lease
from supervisor.reconciler.tick import Tick
from tests.properties import examples
from tests.scenarios.random_story import live


@pytest.mark.parametrize("seed", range(examples(6, 12)))
def test_every_run_completes_in_the_end(seed: int, folder: Path) -> None:
    live(seed, folder)


@pytest.mark.parametrize("seed", range(12, 18))
def test_so_they_do_where_the_runs_that_ask_are_decided_first(
    seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On readings that are a whole poll interval old."""
    run, asked = Tick.run, list[bool]()

    def ask_first(tick: Tick, lease: Lease) -> float | None:
        asked.append(tick.run_asked(lease) is not None)
        return run(tick, lease)

    monkeypatch.setattr(Tick, "run", ask_first)
    live(seed, folder)
    assert any(asked)
