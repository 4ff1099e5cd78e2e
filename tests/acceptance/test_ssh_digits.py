"""A training on a host by SSH, over a reboot of the host: the same weights as without interruption, bit for bit.

With a folder that supervisor and host share, and with a host that knows no store of the supervisor (relay).
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.contract import runfiles
from tests import forked
from tests.acceptance.cloud_story import DIGITS, training, twin
from tests.acceptance.daemon import QUICK, Daemon
from tests.acceptance.stories import DONE
from tests.providers import crontab
from tests.providers.local_machines import end_processes_of
from tests.providers.sshd import Sshd, write_client_files
from tests.providers.test_ssh_stories import OTHER_BOOT, mounts
from tests.waiting import wait_for

MACHINES = ".spot-machines"
# Each poll is a command on the host, that of a relay several, and each command a process.
POLL_S = {"direct": "1", "relay": "2"}


class Lab:
    """A supervisor with hosts by SSH; `host` is the first. `store`: "direct" = they share a folder."""

    def __init__(
        self,
        folder: Path,
        database: str | None = None,
        store: str = "direct",
        aliases: tuple[str, ...] = ("gpu1",),
        path: str = "",
        **more: str,
    ) -> None:
        """`path`: PATH of the hosts, where it is another one. `more`: variables of the supervisor."""
        self.folder, self.store = folder, store
        options = {"SetEnv": f"PATH={path}"} if path else {}
        self.hosts = [Sshd(alias, folder / alias, dict(options)) for alias in aliases]
        self.host = self.hosts[0]
        for host in self.hosts:
            host.make()
            host.start()
        config, known = write_client_files(folder, self.hosts)
        self.objects = folder / "objects"
        environ = {
            **QUICK,
            "SPOT_PROVIDER": "ssh",
            "SPOT_SSH_HOSTS": ",".join(aliases),
            "SPOT_SSH_CONFIG": str(config),
            "SPOT_SSH_KNOWN_HOSTS": str(known),
            "SPOT_SSH_PYTHON": sys.executable,
            "SPOT_STORE_URL": f"file://{self.objects}",
            "SPOT_SSH_STORE": store,
            "SPOT_BEAT_STORE_S": "1",
            "SPOT_POLL_INTERVAL_S": POLL_S[store],
            **({"SPOT_DATABASE_URL": database} if database else {}),
            **more,
        }
        self.daemon = Daemon(folder / "data", environ)
        self.daemon.start()

    def spot(self, *words: str, folder: Path = DIGITS) -> str:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SPOT_")}
        environ |= {**self.daemon.for_cli(), "NO_COLOR": "1"}
        answer = forked.spot(*words, environ=environ, folder=folder, timeout_s=90)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        return answer.stdout

    def until(self, run_id: str, holds: Any, what: str) -> Any:
        def look() -> Any:
            run = self.daemon.run(run_id)
            assert run["status"] not in DONE or holds(run), (run["status_text"], self.told(run_id))
            return run if holds(run) else None

        try:
            return wait_for(look, 120, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.told(run_id)}") from None

    def told(self, run_id: str) -> str:
        events = self.daemon.call("GET", f"/v1/runs/{run_id}/events?limit=200")["events"]
        return "\n".join([*(event["text"] for event in events), self.daemon.log()])

    def machine_pids(self) -> list[int]:
        """The processes of all machines of this host."""
        marker = b"SPOT_MACHINE_DIR=" + os.fsencode(self.host.home / MACHINES)
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if marker in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def close(self) -> None:
        self.daemon.close()
        for host in self.hosts:
            end_processes_of(host.home / MACHINES)
            host.stop()


# The stories below and of test_ssh_relay.py have a relay with SQLite; no database knows where the files of a run are.
@pytest.fixture(params=["sqlite-direct", "postgres-relay"])
def lab(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lab]:
    kind, store = request.param.split("-")
    database = request.getfixturevalue("postgres_database") if kind == "postgres" else None
    lab = Lab(tmp_path, database, store)
    yield lab
    lab.close()


def test_the_weights_are_the_same_over_a_reboot_of_the_host(lab: Lab, tmp_path: Path) -> None:
    boot = tmp_path / "boot_id"
    boot.write_text("11111111-2222-3333-4444-555555555555\n")
    result = ("--result", "weights.npz", "--", *training(tmp_path / "gate"))
    lab.spot("submit", "--run-id", "digits", "--code", ".", *result)
    lab.until("digits", lambda run: (run["checkpoint_step"] or 0) >= 10, "a checkpoint of digits")
    with mounts(OTHER_BOOT, str(boot)) as wrapper:
        lab.host.end_all()
        lab.host.wrapper = wrapper
        lab.host.start()
        (tmp_path / "gate").touch()
        run = lab.until("digits", lambda run: run["status"] == "completed", "digits to complete")
    attempts = lab.daemon.call("GET", "/v1/runs/digits/attempts")["attempts"]
    assert [attempt["cause"] for attempt in attempts] == ["host_rebooted", "finished"]
    assert {attempt["placement"]["zone"] for attempt in attempts} == {"gpu1"}
    assert run["status_text"].startswith("Completed"), run["status_text"]
    gates = lab.daemon.call("GET", "/v1/runs/digits/gates")["gates"]
    assert [gate["gate"] for gate in gates if gate["state"] == "stopped"] == []
    states = {item["check"]: item["state"] for gate in gates for item in gate["verdicts"]}
    measured = ("checkpoint_tier", "host_key", "key_login", "keepalive", "reachable", "store_access")
    assert {states[check] for check in measured} == {"pass"}
    weights = lab.objects / runfiles.results("digits", 1) / "weights.npz"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == twin()
    assert lab.spot("pull", "digits", folder=tmp_path).strip().endswith("errors 0")
    wait_for(lambda: not lab.machine_pids(), 60, "the machine to be gone")
    jobs = [json.loads(path.read_text()) for path in (lab.host.home / MACHINES).glob("**/job.json")]
    assert {job["store_url"].startswith(f"file://{lab.host.home}/") for job in jobs} == {lab.store == "relay"}
    wait_for(lambda: not list((lab.host.home / MACHINES).glob("stays/*")), 60, "the folder of the run to be gone")


def test_a_host_goes_on_by_itself_after_a_reboot_while_the_supervisor_is_away(tmp_path: Path) -> None:
    boot = tmp_path / "boot_id"
    boot.write_text("11111111-2222-3333-4444-555555555555\n")
    lab = Lab(tmp_path, None, "relay", path=crontab.make_crontab(tmp_path / "bin"))
    home = lab.host.home
    try:
        result = ("--result", "weights.npz", "--on-reboot", "relaunch", "--", *training(tmp_path / "gate"))
        lab.spot("submit", "--run-id", "digits", "--code", ".", *result)
        lab.until("digits", lambda run: (run["checkpoint_step"] or 0) >= 10, "a checkpoint of digits")
        lab.daemon.kill()
        with mounts(OTHER_BOOT, str(boot)) as wrapper:
            _shut_down(lab)
            lab.host.end_all()
            (tmp_path / "gate").touch()
            crontab.after_a_reboot(home, wrapper)
            wait_for(lambda: _is_done(home), 120, "the training to end on its host")
            lab.host.wrapper = wrapper
            lab.host.start()
            lab.daemon.start()
            lab.until("digits", lambda run: run["status"] == "completed", "digits to complete")
        attempts = lab.daemon.call("GET", "/v1/runs/digits/attempts")["attempts"]
        assert [attempt["cause"] for attempt in attempts] == ["finished"]
        events = lab.daemon.call("GET", "/v1/runs/digits/events?limit=200")["events"]
        assert [event["kind"] for event in events].count("agent_restarted") == 1
        weights = lab.objects / runfiles.results("digits", 1) / "weights.npz"
        assert hashlib.sha256(weights.read_bytes()).hexdigest() == twin()
        wait_for(lambda: not crontab.lines(home), 60, "the line of the host to be gone")
    finally:
        lab.close()


def _shut_down(lab: Lab) -> None:
    """As an orderly reboot begins: each process gets TERM, so the agent saves a checkpoint and leaves the baton."""
    (path,) = (lab.host.home / MACHINES / "machines").glob("*/agent.json")
    os.kill(json.loads(path.read_text())["pid"], signal.SIGTERM)
    wait_for(lambda: (path.parent / "left.json").exists() and not lab.machine_pids(), 60, "the agent to leave")


def _is_done(home: Path) -> bool:
    """The baton in the run's folder on the host says so."""
    batons = list((home / MACHINES).glob("stays/*/store/runs/digits/baton.json"))
    return len(batons) == 1 and json.loads(batons[0].read_text())["done"] is not None
