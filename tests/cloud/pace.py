"""In which order machines and operations changed in a recording, and how long that took, held against the fakes.

A recording shows a status only at a read, so statuses may be left out but never come back. Two reads that
overlapped say nothing about their order. Times are compared by class, not by the second: a fake that is a little
quicker than Google proves nothing wrong, but one that is done at once where Google takes minutes may hide a race.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from statistics import median
from typing import Any

from tests.cloud.compute_life import Life

Json = Mapping[str, Any]

# As compute_life and compute_operations move them: a rank never falls. A machine that is off is STOPPING again while it
# is deleted.
RANKS = {
    "machine": {"PROVISIONING": 0, "STAGING": 1, "RUNNING": 2, "STOPPING": 3, "TERMINATED": 3},
    "operation": {"PENDING": 0, "RUNNING": 1, "DONE": 2},
}
BEGINS_ANEW = "REPAIRING"  # after a host error the machine is RUNNING again
# Kind of operation -> seconds that the fakes take for it.
TAKES_S = {"insert": Life.create_s, "delete": Life.delete_s, "stop": Life.stop_s, "simulateMaintenanceEvent": 0.0}
ANSWER_S = 0.1  # a fake's response to one request
CLASSES = ((10.0, "less than 10 s"), (60.0, "less than a minute"), (float("inf"), "a minute or more"))


def differences(lines: list[Json]) -> list[str]:
    """In sentences; [] = the fakes change in this order and at this pace."""
    answered = sorted((line for line in lines if "status" in line), key=lambda line: float(line["at"]))
    return [*_out_of_order(answered), *_slow_operations(answered), *_slow_answers(answered)]


def _out_of_order(lines: list[Json]) -> Iterator[str]:
    last: dict[tuple[str, str], tuple[str, float]] = {}  # resource -> its status, when that was answered
    told = set()
    for line in lines:
        for kind, name, status in _statuses(line):
            before, answered_at = last.get((kind, name), ("", float("-inf")))
            ranks = RANKS[kind]
            if status not in (*ranks, BEGINS_ANEW):
                told.add(f"{kind}: Google has the status {status}, the fakes do not")
                continue
            if line["at"] < answered_at:
                continue
            if before in ranks and status in ranks and ranks[status] < ranks[before]:
                told.add(f"{kind}: {status} came after {before} from Google, and never does from the fakes")
            last[kind, name] = (status, line["at"] + line["took_s"])
    yield from sorted(told)


def _slow_operations(lines: list[Json]) -> Iterator[str]:
    took_s: dict[str, dict[str, float]] = {}  # kind -> name -> seconds
    for line in lines:
        for found in _resources(line["answer"]):
            kind = found.get("operationType", "")
            if kind in TAKES_S and "endTime" in found and "insertTime" in found and "name" in found:
                took_s.setdefault(kind, {})[found["name"]] = _epoch(found["endTime"]) - _epoch(found["insertTime"])
    for kind, each in sorted(took_s.items()):
        yield from _compared(f"the operation {kind}", median(each.values()), TAKES_S[kind])


def _slow_answers(lines: list[Json]) -> Iterator[str]:
    took_s: dict[str, list[float]] = {}
    for line in lines:
        service = "Cloud Storage" if "/storage/v1/" in line["path"] else "the other services"
        took_s.setdefault(f"a {line['method']} of {service}", []).append(line["took_s"])
    for what, each in sorted(took_s.items()):
        yield from _compared(what, median(each), ANSWER_S)


def _compared(what: str, google_s: float, fakes_s: float) -> Iterator[str]:
    google, fakes = _class(google_s), _class(fakes_s)
    if google != fakes:
        yield f"{what} took {google_s:.1f} s from Google ({google}), and takes {fakes} from the fakes"


def _class(seconds: float) -> str:
    return next(name for limit_s, name in CLASSES if seconds < limit_s)


def _statuses(line: Json) -> Iterator[tuple[str, str, str]]:
    """(kind, name, status) of machines and operations in a response of Compute Engine. A mask may leave out the name:
    then the path says it."""
    if "/compute/v1/" not in line["path"] or line["status"] != 200:
        return
    for found in _resources(line["answer"]):
        is_operation = "operationType" in found or "/operations" in line["path"]
        is_machine = "/instances" in line["path"] and line["method"] == "GET"
        if is_operation or is_machine:
            name = found.get("name") or line["path"].rpartition("/")[2]
            yield "operation" if is_operation else "machine", name, found["status"]


def _resources(answer: Any) -> Iterator[dict[str, Any]]:
    """What has a status, at any depth; nothing below it."""
    if isinstance(answer, dict):
        if isinstance(answer.get("status"), str):
            yield answer
            return
        for part in answer.values():
            yield from _resources(part)
    elif isinstance(answer, list):
        for part in answer:
            yield from _resources(part)


def _epoch(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
