"""Supervisors and commands under test are forks of a process that has imported everything.

A start of Python that imports the supervisor costs more than a second of CPU, a fork of it some 30 ms. All workers of
the tests share one fork server, which is the standard library's. The fork runs the same module with the same arguments,
environment and log as `python -m` does.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import multiprocessing.forkserver
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.preloaded"])


def share() -> None:
    """Start the fork server, for this process and its forks: they cannot look after a process of their parent."""
    server: Any = multiprocessing.forkserver._forkserver  # type: ignore[attr-defined]
    server.ensure_running()  # once: from then on it is replaced
    server.ensure_running = lambda: None


def _become(
    module: str,
    command: Sequence[str],
    environ: Mapping[str, str],
    files: tuple[str, str],
    folder: str | None,
    first: Callable[[], None] | None = None,
) -> None:
    if first is not None:
        first()
    os.environ.clear()
    os.environ.update(environ)
    for target, path in enumerate(files, 1):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(descriptor, target)
        os.close(descriptor)
    if folder is not None:
        os.chdir(folder)
    if command[:1] == ["trial"]:
        importlib.import_module("supervisor.cli.server.trial").start_serving = Reserve()  # type: ignore[attr-defined]
    sys.argv = [module, *command]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


class Reserve:
    """A fork that becomes the supervisor of a trial when the trial starts one: a start of Python that imports all of it
    takes more than two seconds of CPU. It is made before the trial has opened anything, and ends with it if unused.

    As much of `subprocess.Popen` as a trial uses."""

    def __init__(self) -> None:
        self.returncode: int | None = None
        heard, self._orders = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(heard)
            return
        os.close(self._orders)
        with open(heard) as orders:
            order = json.loads(orders.read() or "null")
        if order is None:
            os._exit(0)
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        _become("supervisor", **order)
        raise SystemExit(0)

    def __call__(self, command: list[str], log: Path) -> Reserve:
        words, files = command[command.index("supervisor") + 1 :], (str(log), str(log))
        order = {"command": words, "environ": dict(os.environ), "files": files, "folder": None}
        with open(self._orders, "w") as orders:
            json.dump(order, orders)
        return self

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


class Forked:
    """As much of `subprocess.Popen` as the tests use. `errors`: where standard error goes, None = into the log too.
    `first`: what the process does before all else; it must be picklable."""

    def __init__(
        self,
        module: str,
        command: Sequence[str],
        environ: Mapping[str, str],
        log: Path,
        *,
        errors: Path | None = None,
        folder: Path | None = None,
        first: Callable[[], None] | None = None,
    ) -> None:
        files = (str(log), str(errors or log))
        arguments = (module, list(command), dict(environ), files, None if folder is None else str(folder), first)
        self._process = _context.Process(target=_become, args=arguments, daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("supervisor", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def spot(
    *words: str, environ: Mapping[str, str], folder: Path | None = None, timeout_s: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """A command as a user types it. A start of its own takes 0.2 s of CPU, and 1.5 s with Google's clients."""
    with tempfile.TemporaryDirectory() as made:
        out, errors = Path(made, "out"), Path(made, "errors")
        process = Forked("supervisor", words, environ, out, errors=errors, folder=folder)
        try:
            code = process.wait(timeout_s)
        finally:
            process.kill()
        return subprocess.CompletedProcess(["spot", *words], code, out.read_text(), errors.read_text())
