"""Tests on several workers: `pytest -n 4`.

The tests are collected once. Each worker is a fork of the process that has done that: it has every import and every
test, and shares the memory. The first process hands out scopes (tests/scheduling.py) and reports what the workers send;
when one dies, the test that it ran has failed, and a new worker goes on with the rest.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import random
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any, cast

import pytest
from _pytest.tmpdir import TempPathFactory

from tests.scheduling import Scopes

ASKS, RAN, WARNS, FAILED = "asks", "ran", "warns", "failed"  # what a worker says
END_S = 30.0  # a worker that has run its last test ends its fixtures: servers, machines

_context = multiprocessing.get_context("fork")


def pytest_addoption(parser: pytest.Parser) -> None:
    # A short option in lower case is pytest's own, unless it is asked for in this way.
    parser.getgroup("workers")._addoption(
        "-n", dest="workers", type=int, default=0, metavar="N", help="run the tests on N workers; 0 = in this process"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "xdist_group(name): all tests of a group run on one worker, one after the other")
    if config.option.workers and config.args_source is config.ArgsSource.TESTPATHS:  # the whole suite
        importlib.import_module("tests.forked").share()  # it imports on one core while tests are collected on another


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """None = pytest's own loop goes on."""
    option = session.config.option
    if not option.workers or option.usepdb or option.collectonly or session.testsfailed or not session.items:
        return None
    _prepare()
    Pool(session, option.workers).run()
    return True


def _prepare() -> None:
    """What each worker would start, import or read for itself, where the tests that were collected can need it."""
    if "tests.forked" in sys.modules:
        importlib.import_module("tests.forked").share()
    if "tests.agent.machine_rig" in sys.modules:
        importlib.import_module("tests.agent.machine_rig").agent_with_bytecode()
    if "tests.cloud.cloud" in sys.modules:
        importlib.import_module("supervisor.providers.gce.calls.official").load()
        importlib.import_module("tests.cloud.rolefiles").grants()
        importlib.import_module("tests.cloud.discovery").document_of("compute")
    gc.freeze()


class Stopped(Exception):
    """A worker met an error that is no test's."""


@dataclass(eq=False)
class Worker:
    """`given`: indices of the tests that it has not reported yet, in its order. `idle`: it ends its fixtures."""

    number: int
    process: ForkProcess
    pipe: Connection[Any, Any]
    given: list[int] = field(default_factory=list)
    idle: bool = False


class Pool:
    """The workers, as the first process sees them."""

    def __init__(self, session: pytest.Session, count: int) -> None:
        self.session = session
        self.scopes = Scopes(session.items)
        self.count = min(count, len(self.scopes))
        self.started = 0
        self.live: dict[Connection[Any, Any], Worker] = {}
        self.factory: TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
        self.factory.getbasetemp()  # once for all

    def run(self) -> None:
        """Until every test is reported. `session.Failed`: as many failed as --maxfail says; Stopped."""
        try:
            for _ in range(self.count):
                self._start()
            while self.live:
                for ready in wait([*self.live, *(worker.process.sentinel for worker in self.live.values())]):
                    if ready in self.live:
                        self._hear(self.live[cast(Any, ready)])
                    else:
                        self._look_at_ended()
        finally:
            self._end()

    def _start(self) -> None:
        ours, theirs = multiprocessing.Pipe()
        process = _context.Process(target=_work, args=(self.session, theirs, self.started, [*self.live, ours]))
        process.start()
        theirs.close()
        self.live[ours] = Worker(self.started, process, ours)
        self.started += 1

    def _hear(self, worker: Worker) -> None:
        try:
            kind, *content = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._gone(worker)
            return
        if kind == ASKS:
            self._answer(worker)
        elif kind == RAN:
            assert worker.given.pop(0) == content[0]
            self._report(content[1])
        elif kind == WARNS:
            self.session.config.hook.pytest_warning_recorded.call_historic(kwargs=content[0])
        else:
            raise Stopped(f"worker {worker.number}: {content[0]}")

    def _answer(self, worker: Worker) -> None:
        running = [other.given[0] for other in self.live.values() if other.given]
        worker.given = [] if self.session.shouldfail else self.scopes.take(running)
        worker.idle = not worker.given
        worker.pipe.send(worker.given)

    def _report(self, reports: Sequence[dict[str, Any]]) -> None:
        hook = self.session.config.hook
        for data in reports:
            report = hook.pytest_report_from_serializable(config=self.session.config, data=data)
            hook.pytest_runtest_logreport(report=report)
        if self.session.shouldfail:
            raise self.session.Failed(self.session.shouldfail)

    def _look_at_ended(self) -> None:
        """Those that have ended, and from which there is nothing more to hear."""
        for worker in [one for one in self.live.values() if not one.process.is_alive() and not one.pipe.poll()]:
            self._gone(worker)

    def _gone(self, worker: Worker) -> None:
        worker.process.join()
        worker.pipe.close()
        del self.live[worker.pipe]
        if worker.idle and worker.process.exitcode == 0:
            return
        if not worker.given:
            raise Stopped(f"worker {worker.number} ended between two tests, with exit code {worker.process.exitcode}")
        died_in, *rest = worker.given
        self.scopes.put_back(rest)
        self._start()
        item = self.session.items[died_in]
        why = f"worker {worker.number} ended with exit code {worker.process.exitcode} in this test"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")
        self._report([self.session.config.hook.pytest_report_to_serializable(config=item.config, report=report)])

    def _end(self) -> None:
        """None outlives the run. Those that still run a test have heard of no end, or of a Ctrl-C."""
        for worker in self.live.values():
            worker.pipe.close()
        for worker in self.live.values():
            worker.process.join(END_S)
            worker.process.kill()
            worker.process.join()


class Reporting:
    """In a worker: a plugin that sends what pytest reports."""

    def __init__(self, config: pytest.Config, pipe: Connection[Any, Any]) -> None:
        self._config, self._pipe = config, pipe
        self.reports: list[dict[str, Any]] = []

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    @pytest.hookimpl
    def pytest_warning_recorded(self, warning_message: Any, when: Any, nodeid: str, location: Any) -> None:
        warning_message.source = None  # any object
        recorded = {"warning_message": warning_message, "when": when, "nodeid": nodeid, "location": location}
        self._pipe.send((WARNS, recorded))


def _work(session: pytest.Session, pipe: Connection[Any, Any], number: int, others: list[Connection[Any, Any]]) -> None:
    """The whole life of a worker."""
    for other in others:
        other.close()
    reporting = Reporting(session.config, pipe)
    _become_a_worker(session.config, number, reporting)
    try:
        with suppress(KeyboardInterrupt, BrokenPipeError, EOFError, ConnectionResetError):
            _run_scopes(session, pipe, reporting)
        session._setupstate.teardown_exact(None)  # fixtures of the session, which scopes shared
    except BaseException:  # noqa: BLE001 - whatever it is, the first process says it
        with suppress(OSError):
            pipe.send((FAILED, traceback.format_exc()))


def _become_a_worker(config: pytest.Config, number: int, reporting: Reporting) -> None:
    """What two processes cannot share: the terminal, files of captured output, the folder of files, chance."""
    plugins = config.pluginmanager
    plugins.unregister(name="terminalreporter")
    plugins.register(reporting)
    capture: Any = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    config.option.basetemp = config._tmp_path_factory.getbasetemp() / f"worker-{number}"  # type: ignore[attr-defined]
    config._tmp_path_factory = TempPathFactory.from_config(config, _ispytest=True)  # type: ignore[attr-defined]
    random.seed()


def _run_scopes(session: pytest.Session, pipe: Connection[Any, Any], reporting: Reporting) -> None:
    items = session.items
    while True:
        pipe.send((ASKS,))
        indices = pipe.recv()
        if not indices:
            return
        for index, following in zip(indices, [*indices[1:], None], strict=True):
            # After the last one everything but the fixtures of the session is torn down.
            after = session if following is None else items[following]
            session.config.hook.pytest_runtest_protocol(item=items[index], nextitem=after)
            pipe.send((RAN, index, reporting.reports))
            reporting.reports = []
            if session.shouldfail or session.shouldstop:
                return
