"""A real supervisor on the tests' cloud, with machines that boot: what the end-to-end stories share.

`python -m supervisor serve` in a process of its own, Google's clients, HTTP, the start-up script, the agent and the
training of examples/digits are real; only Google is a stand-in.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from supervisor.contract import runfiles
from tests import forked
from tests.acceptance.daemon import QUICK, Daemon
from tests.cloud.cloud import BUCKET, Cloud
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits"
PACED = Path(__file__).with_name("paced.py")
# Two minutes, unless its gate opens.
STEPS = ("--steps", "600", "--checkpoint-every", "10", "--step-delay-s", "0.2")
PACE = {**QUICK, "SPOT_BEAT_STORE_S": "1", "SPOT_COOLDOWN_MIN_S": "1", "SPOT_COOLDOWN_MAX_S": "2"}
# Seconds that Google takes for what takes it a minute.
DURATIONS = {"create_s": 0.5, "delete_s": 0.5, "stop_s": 0.5, "fail_s": 0.3, "queue_s": 0.1}
ENDED = ("completed", "partial", "failed", "stopped")
LONG_S = 120.0


class CloudStory:
    def __init__(self, cloud: Cloud, daemon: Daemon, folder: Path) -> None:
        self.cloud, self.daemon, self.folder = cloud, daemon, folder

    # --- what people do -----------------------------------------------------------------------------------------------

    def submit(self, run_id: str, *steps: str, providers: Sequence[str] = ()) -> None:
        """examples/digits as a code bundle, in an image of the registry. It trains on until `open_gate`."""
        self.spot(
            "submit", "--run-id", run_id, "--code", ".", "--image", self.cloud.image("train:1"),
            *(f"--provider={name}" for name in providers),
            "--result", "weights.npz", "--", *training(self.gate(run_id), *steps),
        )  # fmt: skip

    def gate(self, run_id: str) -> Path:
        return self.folder / f"{run_id}.gate"

    def open_gate(self, run_id: str) -> None:
        self.gate(run_id).touch()

    def spot(self, *words: str, folder: Path = DIGITS) -> str:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SPOT_")}
        environ |= {**self.daemon.for_cli(), "NO_COLOR": "1"}
        answer = forked.spot(*words, environ=environ, folder=folder, timeout_s=90)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        return answer.stdout

    # --- what is seen -------------------------------------------------------------------------------------------------

    def until(self, run_id: str, holds: Callable[[Any], Any], what: str) -> Any:
        """The run once it holds; what everybody says when it does not."""

        def look() -> Any:
            run = self.daemon.run(run_id)
            return run if holds(run) else None

        try:
            return wait_for(look, LONG_S, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.told(run_id)}") from None

    def told(self, run_id: str) -> str:
        events = self.daemon.call("GET", f"/v1/runs/{run_id}/events?limit=200")["events"]
        serials = [f"--- {vm.name}\n{vm.serial()[-3000:]}" for vm in self.cloud.machines.vms]
        return "\n".join([*(event["text"] for event in events), *serials, self.daemon.log()])

    def trains(self, run_id: str) -> Any:
        """It steps, and a checkpoint of it is in the store."""

        def holds(run: Any) -> bool:
            assert run["status"] not in ENDED, self.told(run_id)
            return run["status"] == "running" and (run["checkpoint_step"] or 0) >= 10

        return self.until(run_id, holds, f"{run_id} to train")

    def completed(self, run_id: str) -> Any:
        """Let it end."""
        self.open_gate(run_id)
        run = self.until(run_id, lambda run: run["status"] in ENDED, f"{run_id} to end")
        assert run["status"] == "completed", self.told(run_id)
        gone = lambda _: all(one["gone_at"] for one in self.attempts(run_id))  # noqa: E731
        self.until(run_id, gone, f"the machines of {run_id} to be gone")
        return self.daemon.run(run_id)

    def attempts(self, run_id: str) -> list[Any]:
        found: list[Any] = self.daemon.call("GET", f"/v1/runs/{run_id}/attempts")["attempts"]
        return found

    def vm(self, run_id: str) -> Any:
        """The running machine of the newest attempt."""
        return self.cloud.machines.of(self.attempts(run_id)[-1]["machine"])

    def inserts(self) -> int:
        """How many machines were asked for so far."""
        return self.cloud.compute.count("POST", "/instances$")

    def weights(self, run_id: str) -> str:
        """sha256 of the verified result."""
        found = self.cloud.storage.find(BUCKET, runfiles.results(run_id, 1) + "weights.npz")
        assert found is not None
        return hashlib.sha256(found.data).hexdigest()

    def json_of(self, key: str) -> Any:
        found = self.cloud.storage.find(BUCKET, key)
        assert found is not None, f"{key} is not in {self.cloud.storage.names(BUCKET)}"
        return json.loads(found.data)


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def training(gate: Path, *steps: str) -> list[str]:
    """The command of a training that ends when its gate is open."""
    return [sys.executable, str(PACED), str(gate), "train.py", *(steps or STEPS)]


@cache
def twin() -> str:
    """sha256 of the weights of the same training, left alone. It is trained once in each worker."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "train.py", *STEPS, "--step-delay-s", "0", "--out", folder]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SPOT_")}
        subprocess.run(command, cwd=DIGITS, env=environ, check=True, stdout=subprocess.DEVNULL, timeout=60)
        return hashlib.sha256(Path(folder, "results", "weights.npz").read_bytes()).hexdigest()


@contextmanager
def cloud_story(
    folder: Path, environ: Mapping[str, str | None] | None = None, public: bool = False
) -> Iterator[CloudStory]:
    """`environ`: settings beside those of the tests, None = without this one; `public`: machines are told where the
    supervisor listens. At the end no process and no wrong exchange is left."""
    cloud = Cloud(folder / "vms")
    daemon = None
    try:
        for name, value in DURATIONS.items():
            setattr(cloud.compute, name, value)
        port = free_port() if public else 0
        address = {"SPOT_PUBLIC_URL": f"http://127.0.0.1:{port}"} if public else {}
        settings = {**PACE, **cloud.environment(), **address, **(environ or {})}
        given = {name: value for name, value in settings.items() if value is not None}
        daemon = Daemon(folder / "data", given)
        daemon.port = port
        daemon.start()
        yield CloudStory(cloud, daemon, folder)
    finally:
        if daemon is not None:
            daemon.close()
        cloud.close()
