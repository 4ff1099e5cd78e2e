"""How many functions a reader passes on the way of a submit, and of a beat: its stops. `make house` runs this file and
reads its JSON.

A submit: one plain submit (a command, no id, no key) goes through the real route, use case and SQLite. From the first
function that reads the request (its query, its body, then its route) to the COMMIT of the transaction that inserts the
run, each function of supervisor/ that calls another function of supervisor/ is a stop. Functions before that (the
server, the middleware) do not count, nor do lambdas, comprehensions and the methods that dataclasses make.

A beat: a training hangs, and one tick reads its next beat. From the first function that gets the beat's bytes to the
function that raises the stall count, each function of supervisor/ that passes the beat on (its result is the beat, or a
value that holds it) is a stop, and so is each function that is still running when the count is raised.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from sqlalchemy import event
from sqlalchemy.pool import Pool

from supervisor.api.wire.reading import read_body, read_query
from supervisor.contract.heartbeat import Beat
from tests.scenarios.play import VERBS
from tests.scenarios.script import lines_of
from tests.scenarios.stage import Settings, Stage
from tests.services.bed import COMMAND, Client, make_bed
from tests.services.fresh import open_fresh

ROOT = Path(__file__).resolve().parents[2]
STORY = """# A training hangs.
submit digits-7 steps=100000 push=no
wait 5min
agent digits-7 hung
wait 1min
"""
TICKS = 5
DEPTH = 5  # of a beat in the values that hold it: snapshot, listing, part, beat


OWN = f"{ROOT}/supervisor/"


def is_own(frame: FrameType, root: str) -> bool:
    """A named function of a file below root."""
    return frame.f_code.co_filename.startswith(root) and not frame.f_code.co_name.startswith("<")


def own_stack(frame: FrameType | None, root: str) -> Iterator[CodeType]:
    """The named functions below root that this frame is in, the innermost first."""
    while frame is not None:
        if is_own(frame, root):
            yield frame.f_code
        frame = frame.f_back


class Calls:
    """Which function below root calls which, from `begin` until `ended`. `root` ends with a slash."""

    def __init__(self, root: str = OWN) -> None:
        self._root = root
        self._outer: set[CodeType] = set()
        self._callees: dict[CodeType, set[CodeType]] = {}
        self.begun = self.ended = False

    def begin(self, frame: FrameType) -> None:
        self.begun = True
        self._callees = {frame.f_code: set()}
        self._outer = set(own_stack(frame.f_back, self._root))

    def called(self, frame: FrameType) -> None:
        """A coroutine that continues looks like a call: the outer ones are left out."""
        if is_own(frame, self._root) and frame.f_code not in self._outer:
            self._callees.setdefault(frame.f_code, set())
            caller = next(own_stack(frame.f_back, self._root), None)
            if caller in self._callees and caller is not frame.f_code:
                self._callees[caller].add(frame.f_code)

    def stops(self) -> list[CodeType]:
        return [code for code, callees in self._callees.items() if callees]


@contextmanager
def profiled(watch: Callable[[FrameType, str, Any], None]) -> Iterator[None]:
    """In this thread, and in threads that start inside the block."""
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def submit_stops(folder: Path) -> list[CodeType]:
    """In the order of their first calls."""
    calls, inserted = Calls(), False

    def statement(text: str) -> None:
        nonlocal inserted
        inserted = inserted or (calls.begun and text.upper().startswith("INSERT INTO RUNS "))
        if inserted and text.upper() == "COMMIT":
            calls.ended = True

    with statements_go_to(statement), closing(open_fresh(folder / "submit.db")) as store:
        client = Client(make_bed(store, folder).services)
        readers = {function.__code__ for function in (read_query, read_body, _endpoint(client))}

        def watch(frame: FrameType, kind: str, value: Any) -> None:
            if kind == "call" and not calls.ended:
                if calls.begun:
                    calls.called(frame)
                elif frame.f_code in readers:
                    calls.begin(frame)

        client.post("/v1/runs", json={"spec": COMMAND})  # what is made once in a process is made now
        with profiled(watch):
            response = client.post("/v1/runs", json={"spec": COMMAND})
    if response.status_code != 201 or not calls.ended:
        raise AssertionError(f"no submit was seen from its route to its COMMIT: {response.text}")
    return calls.stops()


def _endpoint(client: Client) -> Callable[..., Any]:
    (route,) = (r for r in client._transport.app.routes if getattr(r, "name", "") == "submit_run")
    return route._endpoint


@contextmanager
def statements_go_to(take: Callable[[str], None]) -> Iterator[None]:
    """Each statement of the SQLite connections that are opened in the block, in the thread that executes it."""

    def connected(connection: Any, record: Any) -> None:
        connection.set_trace_callback(take)

    event.listen(Pool, "connect", connected)
    try:
        yield
    finally:
        event.remove(Pool, "connect", connected)


def beat_stops(folder: Path) -> list[CodeType]:
    """In the order in which the beat is passed on; then from the decision down to the count."""
    story = folder / "story.txt"
    story.write_text(STORY)
    stage = Stage(folder, Settings())
    with closing(stage):
        for line in lines_of(story):
            VERBS[line.verb](stage, line)
        for _ in range(TICKS):
            way = BeatsWay(_stall_polls(stage))
            with profiled(way.watch):
                stage.run_for(stage.settings.poll)
            if way.ended:
                return way.stops()
    raise AssertionError(f"no beat of a hung training raised its stall count in {TICKS} ticks")


def _stall_polls(stage: Stage) -> int:
    assert stage.supervisor is not None
    (run,) = stage.supervisor.tick.runs.values()
    assert run.pulse is not None
    return run.pulse.stall_polls


class BeatsWay:
    """The functions that pass a beat on, from its bytes until a result has one more stall poll."""

    def __init__(self, stall_polls: int, root: str = OWN) -> None:
        self._root = root
        self._stall_polls = stall_polls
        self._stops: dict[CodeType, None] = {}
        self.begun = self.ended = False

    def watch(self, frame: FrameType, kind: str, value: Any) -> None:
        if self.ended or kind not in ("call", "return") or not is_own(frame, self._root):
            return
        if kind == "call":
            self.begun = self.begun or any(_is_beat(argument) for argument in arguments_of(frame))
        elif self.begun and getattr(value, "stall_polls", 0) == self._stall_polls + 1:
            self._stops |= dict.fromkeys(reversed([*own_stack(frame, self._root)]))
            self.ended = True
        elif self.begun and holds_beat(value):
            self._stops[frame.f_code] = None

    def stops(self) -> list[CodeType]:
        return list(self._stops)


def arguments_of(frame: FrameType) -> list[Any]:
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return [frame.f_locals.get(name) for name in names]


def holds_beat(value: Any, depth: int = DEPTH) -> bool:
    """Values only: an object that works with beats does not hold one."""
    if _is_beat(value) or depth == 0:
        return _is_beat(value)
    if isinstance(value, Mapping):
        return any(holds_beat(part, depth - 1) for part in value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(holds_beat(part, depth - 1) for part in value)
    kind = type(value)
    if is_dataclass(kind) and kind.__dataclass_params__.frozen:
        return any(holds_beat(getattr(value, field.name), depth - 1) for field in fields(kind))
    return False


def _is_beat(value: Any) -> bool:
    """Its bytes are JSON with a launch id and a sequence, whatever else they say."""
    return isinstance(value, Beat) or (isinstance(value, bytes) and b'"launch_id"' in value and b'"sequence"' in value)


def main() -> None:
    """One JSON object: name of the way -> [[file, function], ...]"""
    with tempfile.TemporaryDirectory() as folder:
        ways = {"submit": submit_stops(Path(folder)), "beat": beat_stops(Path(folder))}
    json.dump({way: [_place(code) for code in stops] for way, stops in ways.items()}, sys.stdout)


def _place(code: CodeType) -> tuple[str, str]:
    return str(Path(code.co_filename).relative_to(ROOT)), code.co_qualname


if __name__ == "__main__":
    main()
