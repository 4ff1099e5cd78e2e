"""Two supervisors on one PostgreSQL database and one object store, each with its own data folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.daemon import QUICK, Daemon, machine_pids
from tests.waiting import wait_for

LEASE_TTL_S = 8.0
# Trains until the file of its end is there: nothing here depends on how long anything takes.
SCRIPT = (
    'echo "$$ $SPOT_ATTEMPT" >> {lives}; i=0; while [ ! -e {end} ]; do i=$((i+1)); '
    'echo "{{\\"step\\": $i}}" >> "$SPOT_PROGRESS_FILE"; sleep 0.2; done; echo done > "$SPOT_RESULTS_DIR/out.txt"'
)


@dataclass(frozen=True)
class Training:
    """A command that trains until it is told to finish; `folder` keeps what it tells of itself."""

    folder: Path
    run_id: str

    def submit(self, to: Daemon) -> None:
        to.submit(self.run_id, command=self.command)

    @property
    def command(self) -> str:
        return SCRIPT.format(lives=self._lives, end=self._end)

    def finish(self) -> None:
        self._end.touch()

    @property
    def lives(self) -> int:
        """How often the command was started."""
        return len(self._lives.read_text().splitlines()) if self._lives.exists() else 0

    @property
    def _lives(self) -> Path:
        return self.folder / f"{self.run_id}.lives"

    @property
    def _end(self) -> Path:
        return self.folder / f"{self.run_id}.end"


@dataclass
class Pair:
    folder: Path
    one: Daemon
    two: Daemon

    def start(self, run_id: str, at: Daemon) -> Training:
        """Submit at one of them, wait until it trains; the other one tells the same."""
        training = Training(self.folder, run_id)
        training.submit(at)
        for daemon in (self.one, self.two):
            daemon.wait_status(run_id, "running")
        return training


def environment(database: str, store: Path, **more: str) -> dict[str, str]:
    return {**QUICK, "SPOT_DATABASE_URL": database, "SPOT_STORE_URL": store.as_uri(), **more}


@contextlib.contextmanager
def pair(folder: Path, database: str, same_machines: bool, **more: str) -> Iterator[Pair]:
    """`same_machines`: both see the same machines, as two replicas see those of a cloud; so they are of one cell."""
    (folder / "objects").mkdir()
    environ = environment(database, folder / "objects", **more)
    if same_machines:
        link_machines(folder / "one", folder / "two")
    daemons = Pair(folder, Daemon(folder / "one", environ), Daemon(folder / "two", environ))
    try:
        daemons.one.start()
        leading(daemons.one)
        daemons.two.start()
        yield daemons
    finally:
        daemons.two.close()
        daemons.one.close()


def link_machines(one: Path, two: Path) -> None:
    """The two data folders share their machines."""
    for folder in (one, two):
        folder.mkdir(parents=True)
    for part in ("machines", "local"):
        (one / part).mkdir()
        (two / part).symlink_to(one / part)


def checks(daemon: Daemon) -> Mapping[str, str]:
    """name -> fact of the readiness checks; empty while it does not answer."""
    answer = daemon.http.get(f"{daemon.url}/readyz", params={"verbose": ""})
    return {check["name"]: check["fact"] for check in answer.json()["checks"]}


def leads(daemon: Daemon) -> bool:
    return checks(daemon)["lease"] == "held by this process"


def leading(daemon: Daemon, deadline_s: float = LEASE_TTL_S + 52.0) -> None:
    """Wait until it leads and has looked once."""
    wait_for(lambda: leads(daemon) and "ago" in checks(daemon)["tick"], deadline_s, "it to lead")


def finding(daemon: Daemon, name: str) -> Any:
    """One finding of the doctor."""
    return next(check for check in daemon.call("GET", "/v1/doctor")["checks"] if check["name"] == name)


def agents(daemon: Daemon) -> set[int]:
    """The agents of its machines: each leads its session; what it has started comes and goes."""
    return {pid for pid in machine_pids(daemon.data_dir) if _session(pid) == pid}


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0
