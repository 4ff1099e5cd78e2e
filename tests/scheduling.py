"""Which tests a worker runs together, and in which order: a file belongs to one worker, and so does a group
(`xdist_group`).

What a file prepares (fixtures of a module, caches, strategies) is then prepared once. Two things keep both cores busy:
as long as there are both, one worker runs files that mostly compute and the others those that mostly wait for
processes; and the dearest of each kind come first, so that none is left alone at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import pytest

# Beginnings of groups and files, dearest first; the longest one that fits counts. docs/benchmarks.md has the seconds.
WAITING = (
    "stories-cloud", "browser", "tests/acceptance/test_slurm", "tests/providers/test_slurm_stories",
    "tests/agent/test_drills", "tests/acceptance/test_colab", "tests/contracts/test_slurm",
    "tests/acceptance/test_ssh_digits", "tests/examples/", "tests/acceptance/test_stories_results", "stories-secrets",
    "replicas", "tests/acceptance/", "tests/providers/test_ssh", "stories-", "tests/agent/test_endings",
    "tests/agent/test_failures", "postgres", "tests/agent/", "tests/providers/test_slurm_reading", "tests/deploy/",
    "tests/providers/test_startup",
)  # fmt: skip
COMPUTING = (
    "tests/scenarios/", "tests/acceptance/test_cloud_faults", "tests/api/test_conformance", "tests/contracts/test_ssh",
    "tests/attacks/", "tests/objectstores/test_relay", "tests/domain/test_baton", "tests/lifecycle/",
    "tests/contracts/", "tests/paper/", "tests/providers/", "tests/services/", "tests/dashboard/", "tests/api/",
)  # fmt: skip


class Scopes:
    """The tests, by scope; each is an index of `items`."""

    def __init__(self, items: Sequence[pytest.Item]) -> None:
        self._names = [scope(item) for item in items]
        self._left: dict[str, list[int]] = {}
        self.put_back(range(len(items)))

    def __len__(self) -> int:
        return len(self._left)

    def put_back(self, indices: Iterable[int]) -> None:
        for index in indices:
            self._left.setdefault(self._names[index], []).append(index)

    def take(self, running: Iterable[int]) -> list[int]:
        """The tests of one scope. It computes if none of the `running` tests does, else it waits, if there is such a
        one: the dearest. [] = none is left."""
        if not self._left:
            return []
        due = WAITING if any(kind(self._names[index]) is COMPUTING for index in running) else COMPUTING
        names = [name for name in self._left if kind(name) is due] or list(self._left)
        return self._left.pop(min(names, key=rank))


def scope(item: pytest.Item) -> str:
    """Its groups, else its file."""
    groups = {str(mark.args[0]) for mark in item.iter_markers("xdist_group")}
    return "_".join(sorted(groups)) or item.nodeid.split("::", 1)[0]


def start(scope: str) -> str:
    """The beginning that counts; "" = none."""
    return max((each for each in (*WAITING, *COMPUTING) if scope.startswith(each)), key=len, default="")


@cache
def kind(scope: str) -> tuple[str, ...]:
    return WAITING if start(scope) in WAITING else COMPUTING


@cache
def rank(scope: str) -> int:
    """The place in the order of its kind."""
    order, begins = kind(scope), start(scope)
    return order.index(begins) if begins else len(order)
