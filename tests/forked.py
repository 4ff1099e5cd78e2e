"""Supervisors and commands under test are forks of a process that has imported everything.

A start of Python that imports the supervisor costs more than a second of CPU, a fork of it some 30 ms. All workers of
the tests share one fork server, which is the standard library's. The fork runs the same module with the same arguments,
environment and log as `python -m` does.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
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
    module: str, command: Sequence[str], environ: Mapping[str, str], files: tuple[str, str], folder: str | None
) -> None:
    os.environ.clear()
    os.environ.update(environ)
    for target, path in enumerate(files, 1):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(descriptor, target)
        os.close(descriptor)
    if folder is not None:
        os.chdir(folder)
    sys.argv = [module, *command]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


class Forked:
    """As much of `subprocess.Popen` as the tests use. `errors`: where standard error goes, None = into the log too."""

    def __init__(
        self,
        module: str,
        command: Sequence[str],
        environ: Mapping[str, str],
        log: Path,
        *,
        errors: Path | None = None,
        folder: Path | None = None,
    ) -> None:
        files = (str(log), str(errors or log))
        arguments = (module, list(command), dict(environ), files, None if folder is None else str(folder))
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
