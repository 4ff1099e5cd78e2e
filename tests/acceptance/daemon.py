"""A real supervisor as a process of its own, started and killed as users and kernels do it."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.acceptance.canaries import CANARY_NAME, canary, files_with, settle
from tests.cloud.vm_processes import naming
from tests.forked import Forked
from tests.waiting import wait_for

# Everything at the pace of a test; relations of the limits hold as they do by default.
QUICK = {
    "SPOT_POLL_INTERVAL_S": "0.5",
    "SPOT_BEAT_PUSH_S": "0.5",
    "SPOT_BEAT_STORE_S": "2",
    "SPOT_RECOVERY_BACKOFF_S": "0.5",
    "SPOT_REST_S": "1",
    "SPOT_RATE_PER_S": "5000",
    "SPOT_RATE_BURST": "10000",
}


# Daemons of tests speak plain HTTP: a context that reads the computer's authorities is 22 ms of CPU for each of them.
NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

# What the computer on which the tests run may have been set to.
OF_WHO_TESTS = ("SPOT_", "CLOUDSDK_", "GOOGLE_")


class Admin(httpx.Auth):
    """Every request carries the token that the supervisor left in its data folder; while there is none, nothing."""

    def __init__(self, data_dir: Path) -> None:
        self._file = data_dir / "admin-token"

    def token(self) -> str:
        try:
            return self._file.read_text().strip()
        except FileNotFoundError:
            return ""

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        if token := self.token():
            request.headers["Authorization"] = f"Bearer {token}"
        yield request


class Daemon:
    """`http` carries the admin's token. `start` may be called again after `kill`: same data folder, new process."""

    module = "supervisor"  # what `python -m` runs
    port = 0  # 0 = any free one
    started_with: tuple[str, ...] = ()  # more options of `serve`
    first: Callable[[], None] | None = None  # what its process does before all else; picklable
    sources: Path | None = None  # the folder of the package that is run; None = this checkout's

    def __init__(self, data_dir: Path, environ: Mapping[str, str] = QUICK) -> None:
        self.data_dir = data_dir
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OF_WHO_TESTS)}
        # How many cores the computer has that runs the tests must not decide what they see.
        self.environ = {**kept, "SPOT_LOCAL_MACHINES": "64", **environ}
        self._process: Forked | subprocess.Popen[bytes] | None = None
        self._admin = Admin(data_dir)
        self.http = httpx.Client(timeout=30, trust_env=False, auth=self._admin, verify=NO_AUTHORITIES)

    def start(self) -> None:
        self._process = self.spawn()
        wait_for(self._answers, 60, "the supervisor to be ready")

    def spawn(self) -> Forked | subprocess.Popen[bytes]:
        """A fork, but of another checkout."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        (self.data_dir / "server.json").unlink(missing_ok=True)
        options = ["serve", "--data-dir", str(self.data_dir), "--port", str(self.port), *self.started_with]
        log_file = self.data_dir / "serve.log"
        if self.sources is None:
            return Forked(self.module, options, self.environ, log_file, first=self.first)
        command = [sys.executable, "-m", self.module, *options]
        with log_file.open("ab") as log:
            return subprocess.Popen(command, env=self.environ, cwd=self.sources, stdout=log, stderr=log)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        try:
            return self.http.get(f"{self.url}/readyz").status_code == 200
        except (httpx.TransportError, OSError, ValueError):
            return False

    @property
    def url(self) -> str:
        return str(json.loads((self.data_dir / "server.json").read_text())["url"])

    @property
    def token(self) -> str:
        """The admin's."""
        return self._admin.token()

    def for_cli(self) -> dict[str, str]:
        """The variables by which a `spot` command finds this supervisor and is let in."""
        return {"SPOT_URL": self.url, "SPOT_TOKEN": self.token}

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        return (self.data_dir / "serve.log").read_text()[-4000:]

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Send the signal and reap; the exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(60)

    def call(self, method: str, path: str, body: object = None) -> Any:
        """The JSON of a successful answer; AssertionError for any other."""
        answer = self.http.request(method, self.url + path, json=body)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def submit(self, run_id: str, **spec: object) -> Any:
        return self.call("POST", "/v1/runs", {"run_id": run_id, "spec": spec})

    def run(self, run_id: str) -> Any:
        return self.call("GET", f"/v1/runs/{run_id}")

    def wait_status(self, run_id: str, *statuses: str, deadline_s: float = 90) -> Any:
        def reached() -> Any:
            run = self.run(run_id)
            return run if run["status"] in statuses else None

        return wait_for(reached, deadline_s, f"{run_id} to be {' or '.join(statuses)}")

    def close(self) -> None:
        """End the daemon and every machine that it has started."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(20)
        self.http.close()
        for pid in machine_pids(self.data_dir):
            kill_if_there(pid)


def machine_pids(data_dir: Path) -> list[int]:
    """Processes whose environment or arguments say that they belong to a machine of this data folder."""
    return naming(os.fsencode(str(data_dir / "machines")))


def kill_if_there(pid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


@contextmanager
def running(data_dir: Path, environ: Mapping[str, str] = QUICK) -> Iterator[Daemon]:
    """Its environment holds a canary, which must be nowhere in what it leaves."""
    value = canary()
    daemon = Daemon(data_dir, {CANARY_NAME: value, **environ})
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.close()
    settle(data_dir)
    assert files_with(data_dir, [value]) == []
