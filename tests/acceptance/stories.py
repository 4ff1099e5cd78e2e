"""What the stories share: a supervisor, trainings that go on until their gate opens, and the questions that every
story asks at its end: is everything still readable, is nothing lost, is no process left."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx

from supervisor.contract import runfiles
from tests.acceptance.daemon import QUICK, Daemon, running
from tests.cloud.vm_processes import naming
from tests.waiting import wait_for

T = TypeVar("T")
TRAINING = Path(__file__).with_name("training.py")
# A zone that had no room is asked again soon; a stop is answered soon.
STORY = {**QUICK, "SPOT_COOLDOWN_MIN_S": "0.5", "SPOT_COOLDOWN_MAX_S": "1", "SPOT_BEAT_STORE_S": "1"}
DONE = ("completed", "partial", "failed", "stopped")


class Stories:
    """`folder` holds the gates of the trainings and a note of each of their lives."""

    def __init__(self, daemon: Daemon, folder: Path, objects: Path | None = None) -> None:
        self.daemon = daemon
        self.folder = folder
        self.objects = objects or daemon.data_dir / "objects"

    # --- what people do -----------------------------------------------------------------------------------------------

    def train(self, run_id: str, *flags: str, **spec: object) -> Any:
        """Submit a training that goes on until `open_gate`."""
        command = [sys.executable, "-S", str(TRAINING), str(self.gate(run_id)), *flags]
        return self.daemon.submit(run_id, command=command, **spec)

    def gate(self, run_id: str) -> Path:
        return self.folder / f"{run_id}.gate"

    def open_gate(self, run_id: str) -> None:
        self.gate(run_id).touch()

    def completes(self, run_id: str) -> Any:
        """Let it end; the completed run, with nothing left behind."""
        self.open_gate(run_id)
        run = self.wait(run_id, *DONE)
        assert run["status"] == "completed", (run, self.told(run_id))
        assert run["cause"] == "finished"
        self.nothing_is_left(run_id)
        return run

    def post(self, path: str, body: object = None) -> httpx.Response:
        """Any answer."""
        return self.daemon.http.post(self.daemon.url + path, json=body)

    def get(self, path: str) -> Any:
        return self.daemon.call("GET", path)

    def looks_again(self, after: str) -> None:
        """The supervisor has looked at everything since: a run that was submitted just now has come to its end."""
        self.daemon.submit(f"after-{after}", command="true")
        self.wait(f"after-{after}", "completed")

    # --- what people see ----------------------------------------------------------------------------------------------

    def wait(self, run_id: str, *statuses: str) -> Any:
        """The run once it has one of these statuses."""

        def reached() -> Any:
            run = self.daemon.run(run_id)
            return run if run["status"] in statuses else None

        return self.until(reached, 90, f"{run_id} to be {' or '.join(statuses)}")

    def until(self, condition: Callable[[], T], deadline_s: float, what: str) -> T:
        """`wait_for`, which tells what the supervisor and the runs say when it was in vain."""
        try:
            return wait_for(condition, deadline_s, what)
        except AssertionError as error:
            runs = "\n".join(f"{run['run_id']}: {run['status_text']}" for run in self.get("/v1/runs")["runs"])
            raise AssertionError(f"{error}\n{runs}\n{self.daemon.log()}") from None

    def trains(self, run_id: str, beyond: int = 0) -> Any:
        """The run once its live attempt has reported a step above `beyond`."""

        def stepping() -> Any:
            run = self.daemon.run(run_id)
            assert run["status"] not in DONE, (run, self.told(run_id))
            step = (run["progress"] or {}).get("step")
            fresh = run["status"] == "running" and run["beat"] is not None
            return run if fresh and step is not None and step > beyond else None

        return self.until(stepping, 90, f"{run_id} to step beyond {beyond}")

    def saved(self, run_id: str, at_least: int = 1) -> int:
        """The newest checkpoint that the store holds and the baton names, once there is one of this step or later."""

        def pointed() -> int | None:
            made = (self.objects / runfiles.baton(run_id)).exists()
            pointer = self.baton(run_id)["checkpoint"] if made else None
            return pointer["step"] if pointer is not None and pointer["step"] >= at_least else None

        step = self.until(pointed, 90, f"a checkpoint of {run_id}")
        assert step is not None
        return step

    def baton(self, run_id: str) -> Any:
        return json.loads((self.objects / runfiles.baton(run_id)).read_text())

    def lives(self, run_id: str) -> list[tuple[int, int]]:
        """(attempt, step it began at) of each life of the training."""
        path = Path(f"{self.gate(run_id)}.lives")
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(attempt), int(step)) for attempt, step in (line.split() for line in lines)]

    def events(self, run_id: str, kind: str = "") -> list[Any]:
        found = self.get(f"/v1/runs/{run_id}/events?limit=500")["events"]
        return [event for event in found if not kind or event["kind"] == kind]

    def told(self, run_id: str, kind: str = "") -> list[str]:
        """The sentences of its history."""
        return [event["text"] for event in self.events(run_id, kind)]

    def attempts(self, run_id: str) -> list[Any]:
        found: list[Any] = self.get(f"/v1/runs/{run_id}/attempts")["attempts"]
        return found

    def ended(self, run_id: str, number: int = 1) -> Any:
        """The attempt of this number once it is over."""

        def over() -> Any:
            found = [one for one in self.attempts(run_id) if one["number"] == number and one["cause"]]
            return found[0] if found else None

        return self.until(over, 90, f"attempt {number} of {run_id} to end")

    def log(self, run_id: str, attempt: int = 1) -> str:
        answer = self.get(f"/v1/runs/{run_id}/logs?attempt={attempt}&limit=1048576")
        return str(answer["text"])

    # --- the machine --------------------------------------------------------------------------------------------------

    def machine(self, run_id: str) -> Path:
        """The folder of the newest machine of this run."""
        return self.daemon.data_dir / "machines" / str(self.attempts(run_id)[-1]["machine"])

    def agent_pid(self, run_id: str) -> int:
        return int(json.loads((self.machine(run_id) / "agent.json").read_text())["pid"])

    def training_pids(self, run_id: str) -> list[int]:
        """Those that run the training's script; helpers of the agent's that come and go are left out."""
        found = [pid for pid in pids_of(self.machine(run_id).name) if pid != self.agent_pid(run_id)]
        return [pid for pid in found if b"training.py" in process_file(pid, "cmdline")]

    # --- at the end of every story ------------------------------------------------------------------------------------

    def nothing_is_left(self, run_id: str) -> None:
        """Its machines are gone, its processes too, its beat is deleted; and every door still answers."""
        names = [attempt["machine"] for attempt in self.attempts(run_id)]
        self.until(lambda: not any(pids_of(name) for name in names), 60, f"the processes of {run_id} to be gone")
        gone = lambda: all(one["gone_at"] for one in self.attempts(run_id))  # noqa: E731
        self.until(gone, 60, f"the machines of {run_id} to be known gone")
        beat = self.objects / runfiles.beat(run_id)
        self.until(lambda: not beat.exists(), 60, f"the beat of {run_id} to be deleted")
        self.everything_answers(run_id)

    def everything_answers(self, *run_ids: str) -> None:
        """Every GET is 200; ready again, that is, at the next tick."""
        ready = self.daemon.url + "/readyz"
        self.until(lambda: self.daemon.http.get(ready).status_code == 200, 60, "the supervisor to be ready")
        paths = ["/livez", "/v1/runs", "/v1/events", "/v1/doctor"]
        for run_id in run_ids:
            paths += [f"/v1/runs/{run_id}{end}" for end in ("", "/attempts", "/events", "/logs")]
        for path in paths:
            self.get(path)


def pids_of(machine: str) -> list[int]:
    """Live processes whose environment or arguments name this machine's folder."""
    return naming(f"machines/{machine}".encode())


@contextmanager
def stories(folder: Path, environ: Mapping[str, str] = STORY) -> Iterator[Stories]:
    """A supervisor of its own, and what it needs for stories."""
    with running(folder / "data", environ) as daemon:
        yield Stories(daemon, folder)


def process_file(pid: int, name: str) -> bytes:
    """A file of /proc; empty for a process that is gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""
