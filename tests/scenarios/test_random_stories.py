"""A few random stories; `make campaign` plays some hundreds more."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.lifecycle.offers import groups
from supervisor.ports.store import Lease
from supervisor.reconciler.tick import Tick
from tests.properties import examples
from tests.scenarios.random_story import live


@pytest.mark.parametrize("seed", range(examples(6, 12)))
def test_every_run_completes_in_the_end(seed: int, folder: Path) -> None:
    live(seed, folder)


@pytest.mark.parametrize("seed", range(100, 100 + examples(6, 40)))
def test_a_group_keeps_its_limit_and_completes_in_the_end(seed: int, folder: Path) -> None:
    live(seed, folder, limit=1 + seed % 2)


def test_a_limit_that_does_not_hold_is_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_without_slot", lambda *_: ([], []))
    with pytest.raises(AssertionError, match="have a machine, the limit is 1"):
        live(100, folder, limit=1)


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
