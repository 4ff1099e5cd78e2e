"""A house whose every run meets one fault: one kind of call, one bad answer, one course of its machine.

Each cell of the matrix is a run with a shape of its own, so that what one run learns about a zone says nothing to the
others. Faults of calls that name a machine hit that run alone; those of the listings hit all runs of a window. Watched
at every request: how many machines of each run are alive, and what its sentence says about the bill.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.domain.machines import RUN_LABEL
from supervisor.domain.status import Status
from supervisor.providers.gce.config import parse_shape
from supervisor.wording.run import status_text
from tests.acceptance.cloud_house import SHAPE, CloudHouse
from tests.cloud.cloud import ZONES
from tests.cloud.compute_errors import OperationFailure
from tests.cloud.compute_faults import Failure, How
from tests.cloud.web import Hang, Request, Reset
from tests.fakes.objectstore import MemoryStore
from tests.scenarios.fault_points import StoreAccess, TrueClock
from tests.scenarios.sim_plan import Plan

ANSWERS: dict[str, tuple[How, str | None]] = {
    **{str(status): (status, None) for status in (400, 401, 404, 409, 412, 429, 500, 502, 503)},
    "403": (403, "forbidden"),
    "403 rate": (403, "rateLimitExceeded"),
    "reset": (Reset, None),
    "hang": (Hang, None),
    "HTML": ((200, b"<html><body>Sign in</body></html>"), None),
    "HTML 403": ((403, b"<html><body>Forbidden</body></html>"), None),
    "torn JSON": ((200, b'{"id": "12", "name": "oper'), None),
    "other JSON": ((200, b'{"status": "ok"}'), None),
}
# Kind of call -> the courses of its machine. "insert again": the poll says that there is no such operation, so that the
# same insert is asked again. "lost": carried out first.
CALLS: dict[str, tuple[str, ...]] = {
    "insert": ("up", "no room"),
    **dict.fromkeys(("insert lost", "poll", "get", "poll and get", "insert again"), ("up", "slow", "no room")),
    **dict.fromkeys(("delete", "delete lost", "serial"), ("up",)),
    **dict.fromkeys(("list", "records"), ("up", "slow")),
}
OF_ALL = ("list", "records")  # their faults hit all runs
LASTS_S = {"get": 150.0}  # from the first call that meets it: longer than Google's own word on an end may take
BRIEFLY_S = 35.0  # the others
HANGS = 1  # a run; each takes real time
SLOW_S = 45.0
ALIVE = ("PENDING", "PROVISIONING", "STAGING", "RUNNING")
SHORT = Plan(steps=20, checkpoint=0, boot=1.0, restore=1.0, finish=1.0, save=0.0, push=False, after="stays")
IMAGE = f"us-docker.pkg.dev/p/train/digits@sha256:{'a' * 64}"
KINDS = (
    ("insert", "POST", re.compile(r"/instances$")),
    ("list", "GET", re.compile(r"/aggregated/instances$")),
    ("records", "GET", re.compile(r"/operations$")),
    ("poll", "GET", re.compile(r"/operations/(?P<operation>[^/]+)$")),
    ("get", "GET", re.compile(r"/instances/(?P<machine>[^/]+)$")),
    ("delete", "DELETE", re.compile(r"/instances/(?P<machine>[^/]+)$")),
    ("serial", "GET", re.compile(r"/instances/(?P<machine>[^/]+)/serialPort$")),
)


@dataclass
class Cell:
    call: str
    answer: str
    course: str
    run_id: str
    until: float | None = None  # its fault ends then; None = no call has met it
    inserts: int = 0
    hits: int = 0

    def __str__(self) -> str:
        return f"{self.run_id} ({self.call}: {self.answer}; {self.course})"


def cells(*calls: str) -> list[Cell]:
    """Of these calls, one answer after the other."""
    wanted = [(call, answer, course) for call in calls for answer in ANSWERS for course in CALLS[call]]
    return [Cell(*one, f"run-{number}") for number, one in enumerate(wanted)]


class Forgetful(MemoryStore):
    def close(self) -> None:
        pass


class MatrixHouse(CloudHouse):
    """`twins`, `untrue`: what must never be, by run."""

    per_try_s = 0.15

    def __init__(self, folder: Path, chosen: list[Cell]) -> None:
        self.cells = {cell.run_id: cell for cell in chosen}
        self.window: list[Cell] = []  # whose fault the listings have now
        self.twins: dict[str, str] = {}
        self.untrue: dict[str, str] = {}
        self._cell_of: dict[str, Cell] = {}  # by machine name
        shapes = {run_id: parse_shape(SHAPE) for run_id in self.cells}
        super().__init__(folder, {"zones": ZONES[:2], "shapes": shapes, "prices": {}}, overlap=1e9)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.agents_access = StoreAccess(self.objects)
        # Each exchange is held against the discovery document and the role files elsewhere.
        self.compute.server.watch_nothing()
        self.compute.server.guard(lambda _: None)
        self.compute.failing = self._failing  # type: ignore[method-assign]
        self.compute.judge = self._judge  # type: ignore[method-assign]

    def _store(self) -> Any:
        return Forgetful(now=TrueClock(self.clock).now)

    def begin(self, cell: Cell) -> None:
        self.submit(cell.run_id, SHORT, image=IMAGE, shapes=[cell.run_id])

    def over(self, chosen: Iterable[Cell]) -> bool:
        runs = (self.rows.find(cell.run_id) for cell in chosen)
        return all(run is not None and run.terminal and run.settled for run in runs)

    # --- the cloud's side ---------------------------------------------------------------------------------------------

    def _judge(self, vm: Any, now: float) -> OperationFailure | None:
        """What becomes of an insert that was accepted."""
        cell = self._cell_of[vm.name]
        self.compute.create_s = SLOW_S if cell.course == "slow" else 0.2
        if cell.course == "no room" and vm.zone == ZONES[0]:
            return OperationFailure("ZONE_RESOURCE_POOL_EXHAUSTED", "There is no room.", 503)
        return None

    def _failing(self, request: Request, now: float) -> Failure | None:
        self._watch_the_bill(request.path)
        call, cell = self._call_of(request)
        if cell is None:
            return None
        if call == "insert":
            cell.inserts += 1
        lost = cell.call in ("insert lost", "delete lost")
        how = self._answer_of(cell, call, now)
        return None if how is None else Failure(None, _ANY, *how, None, None, lost)

    def _answer_of(self, cell: Cell, call: str, now: float) -> tuple[How, str | None] | None:
        if cell.call == "insert again":  # the poll says that there is no such operation
            hit = call == "poll" or (call == "insert" and cell.inserts > 1)
        else:
            hit = call in cell.call.removesuffix(" lost").split(" and ")
        if not hit:
            return None
        cell.until = now + LASTS_S.get(cell.call, BRIEFLY_S) if cell.until is None else cell.until
        if now >= cell.until or (cell.answer == "hang" and cell.hits >= HANGS):
            return None
        for one in (cell, *self.window):
            one.hits += 1
        return (404, None) if cell.call == "insert again" and call == "poll" else ANSWERS[cell.answer]

    def _call_of(self, request: Request) -> tuple[str, Cell | None]:
        for call, method, pattern in KINDS:
            match = pattern.search(request.path)
            if match is None or method != request.method:
                continue
            if call in OF_ALL:
                return call, self.window[0] if self.window else None
            given = match.groupdict()
            name = str(given.get("machine") or "")
            if call == "insert":
                body = request.json()
                name = str(body["name"])
                self._cell_of[name] = self.cells[body["labels"][RUN_LABEL]]
            elif call == "poll":
                name = self.compute.operations.get(_zone_of(request), given["operation"]).target.rpartition("/")[2]
            return call, self._cell_of.get(name)
        return "", None

    # --- what must never be -------------------------------------------------------------------------------------------

    def _run_due(self) -> None:
        super()._run_due()
        self._watch_the_bill("between two requests")

    def _watch_the_bill(self, when: str) -> None:
        """At most one machine of each run is alive, and no run says that nothing is billed while one is."""
        alive = Counter(vm.labels.get(RUN_LABEL, "") for vm in self.compute.instances.values() if vm.status in ALIVE)
        for run_id, count in alive.items():
            if count > 1:
                self.twins.setdefault(run_id, f"{self.cells[run_id]}: {count} machines at {when}")
        runs = {} if self.supervisor is None else self.supervisor.tick.runs
        for run in runs.values():
            text = status_text(run, self.clock.now()) if run.run_id in alive and run.status == Status.WAITING else ""
            if "nothing is billed" in text.lower():
                self.untrue.setdefault(run.run_id, f"{self.cells[run.run_id]}: {text}")


@contextmanager
def matrix_house(folder: Path, chosen: list[Cell]) -> Iterator[MatrixHouse]:
    house = MatrixHouse(folder, chosen)
    try:
        yield house
    finally:
        house.close()


_ANY = re.compile("")


def _zone_of(request: Request) -> str:
    return request.path.split("/zones/")[1].split("/")[0]
