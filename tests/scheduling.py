"""Which worker runs which tests: a file belongs to one worker, and so does a group (`xdist_group`).

What a file prepares (fixtures of a module, caches, strategies) is then prepared once, and the controller has less to
send. Two things keep both cores busy: files that mostly wait for processes alternate with those that mostly compute,
and the dearest of each kind come first, so that none is left alone at the end.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cache
from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling

# Beginnings of groups and files, dearest first; the longest one that fits counts. docs/benchmarks.md has the seconds.
WAITING = (
    "stories-cloud", "browser", "tests/providers/test_slurm_stories", "tests/acceptance/test_slurm", "tests/examples/",
    "tests/acceptance/test_stories_results", "stories-secrets", "replicas", "tests/contracts/test_slurm",
    "tests/acceptance/", "tests/providers/test_ssh", "stories-", "tests/agent/test_endings",
    "tests/agent/test_failures", "postgres", "tests/agent/", "tests/deploy/", "tests/providers/test_startup",
    "tests/providers/test_slurm_reading",
)  # fmt: skip
COMPUTING = (
    "tests/acceptance/test_ssh_digits", "tests/acceptance/test_cloud_faults", "tests/scenarios/",
    "tests/api/test_conformance", "tests/contracts/test_ssh", "tests/attacks/", "tests/domain/test_baton",
    "tests/objectstores/test_relay", "tests/lifecycle/", "tests/contracts/", "tests/paper/", "tests/providers/",
    "tests/services/", "tests/dashboard/", "tests/api/",
)  # fmt: skip


class ByFile(LoadGroupScheduling):
    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._waiting_next = True

    def _split_scope(self, nodeid: str) -> str:
        return str(super()._split_scope(nodeid)).split("::", 1)[0]

    def _assign_work_unit(self, node: Any) -> None:
        self.workqueue.move_to_end(self._next_scope(self.workqueue), last=False)
        super()._assign_work_unit(node)

    def _next_scope(self, queue: OrderedDict[str, dict[str, bool]]) -> str:
        """The dearest of the kind that is due, else of the other one."""
        waiting = [scope for scope in queue if kind(scope) is WAITING]
        computing = [scope for scope in queue if kind(scope) is COMPUTING]
        wanted = (waiting if self._waiting_next else computing) or waiting or computing
        self._waiting_next = not self._waiting_next
        return min(wanted, key=rank)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """As before; a scope that is done is forgotten, because each completed test counts what is pending."""
        nodeid = self.registered_collections[node][item_index]
        work, scope = self.assigned_work[node], self._split_scope(nodeid)
        work[scope][nodeid] = True
        if all(work[scope].values()):
            del work[scope]
        self._reschedule(node)


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


@pytest.hookimpl(optionalhook=True)  # there is none without xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile | None:
    return ByFile(config, log) if config.getvalue("dist") == "loadgroup" else None
