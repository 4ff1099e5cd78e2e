"""The tests' cloud as the child of a benchmark, with what a benchmark does to it in bulk.

    python -m tests.benchmarks.cloud_child

Thousands of machines and beats are put in without a request, what was asked for is counted, and the moments are kept
at which machines were asked for. Nobody watches the exchanges here: the tests do.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from supervisor.contract import heartbeat, runfiles
from supervisor.domain.machines import ATTEMPT_LABEL, LAUNCH_LABEL, RUN_LABEL, SUPERVISOR_LABEL
from tests.benchmarks import scene
from tests.cloud.__main__ import serve
from tests.cloud.cloud import BUCKET, ZONES, Cloud
from tests.cloud.web import Request, Response

MOVING = 2  # of so many runs one has a new beat at each look: stored each 60 s, looked at each 30
ENDED = 150  # machines of other people that each zone's operations tell of: more than a page of them
BOOTED = 50  # of so many runs one has left a beat of its boot
LONGEST_S = 60.0
_INSERT = re.compile(r"/zones/[^/]+/instances$")


class CrowdedCloud(Cloud):
    """Its controls take and give what JSON can say."""

    def __init__(self) -> None:
        # When machines of each run were asked for, on the monotonic clock: all processes of a computer share it.
        self.inserts: dict[str, list[float]] = {}
        super().__init__()
        self.compute.create_s = self.compute.delete_s = 0.5
        self._runs: list[tuple[str, str]] = []  # (name, machine id)
        self._ended = 0

    def _watch(self, service: str) -> Any:
        return self._note if service == "compute" else None

    def _note(self, request: Request, response: Response) -> None:
        if request.method == "POST" and _INSERT.search(request.path) and response.status == 200:
            at = time.monotonic()
            self.inserts.setdefault(request.json()["labels"][RUN_LABEL], []).append(at)

    # --- runs of a supervisor -----------------------------------------------------------------------------------------

    def machines_of_runs(self) -> list[dict[str, str]]:
        """Of each machine that is RUNNING: what its agent would know, and the machine's name."""
        return [
            {
                "name": vm.name,
                "machine_id": vm.id,
                "run_id": vm.metadata["spot-run-id"],
                "launch_id": vm.metadata["spot-launch-id"],
                "nonce": vm.metadata["spot-nonce"],
            }
            for vm in self.instances()
            if vm.status == "RUNNING"
        ]

    def insert_after(self, run_id: str, at: float) -> float:
        """When the first machine after that moment was asked for. TimeoutError."""
        end = time.monotonic() + LONGEST_S
        while time.monotonic() < end:
            found = [one for one in self.inserts.get(run_id, ()) if one > at]
            if found:
                return found[0]
            time.sleep(0.005)
        raise TimeoutError(f"no machine was asked for {run_id} again")

    # --- a crowd ------------------------------------------------------------------------------------------------------

    def crowd(self, supervisor_id: str, machine_names: Sequence[tuple[str, str]]) -> list[str]:
        """A machine, a beat and, of some, a beat of the boot for each (run, name of its machine); the machines' ids.
        Machines of other people stand beside them, and others of theirs have ended."""
        made = self.compute.fill(
            [_resource(at, run, name, supervisor_id) for at, (run, name) in enumerate(machine_names)]
        )
        self._runs = [(run, vm.id) for (run, _), vm in zip(machine_names, made, strict=True)]
        self.compute.fill([{"name": f"theirs-{n}", "zone": ZONES[0]} for n in range(7)])
        self.end_others(ENDED)
        for run, machine_id in self._runs[::BOOTED]:
            boot = scene.beat(run, 7)._replace(machine_id=machine_id, phase=heartbeat.DRIVER, step=None, telemetry="")
            self._write(runfiles.boot_beat(run), boot)
        self.move(1, every=1)
        return [vm.id for vm in made]

    def end_others(self, count: int) -> None:
        """So many machines of other people in each zone are preempted."""
        for zone in ZONES:
            self._ended += count
            given = [{"name": f"gone-{self._ended}-{n}", "zone": zone} for n in range(count)]
            for vm in self.compute.fill(given):
                with self.compute.lock:
                    self.compute.record("preempted", vm, "Instance was preempted.", self.clock())
                    self.compute.drop(vm)

    def move(self, number: int, every: int = MOVING) -> None:
        """Beat `number` of each `every`-th run, another share at each number."""
        for run, machine_id in self._runs[number % every :: every]:
            self._write(runfiles.beat(run), scene.beat(run, number)._replace(machine_id=machine_id))

    def _write(self, key: str, beat: heartbeat.Beat) -> None:
        raw = heartbeat.encode(beat)
        self.storage.put(BUCKET, key, raw, {"beat": raw.decode()})

    def asked(self) -> dict[str, int]:
        """Requests since the last time this was asked: to Compute Engine, for `.stop` markers, and all others to Cloud
        Storage; and of how much there is."""
        compute, self.compute.requests = self.compute.requests, []
        storage, self.storage.requests = self.storage.requests, []
        stops = sum(one.path.endswith("/.stop") for one in storage)
        return {
            "compute": len(compute),
            "storage": len(storage) - stops,
            "stops": stops,
            "machines": len(self.compute.instances),
            "beats": len(self.storage.names(BUCKET, runfiles.BEATS)),
            "zones": len(ZONES),
        }


def _resource(at: int, run: str, name: str, supervisor_id: str) -> dict[str, Any]:
    labels = {
        SUPERVISOR_LABEL: supervisor_id,
        RUN_LABEL: run,
        ATTEMPT_LABEL: "1",
        LAUNCH_LABEL: scene.LAUNCH.replace(".", "-"),
    }
    return {"name": name, "zone": ZONES[at % len(ZONES)], "labels": labels}


if __name__ == "__main__":
    serve(CrowdedCloud())
