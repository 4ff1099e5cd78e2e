"""The demo on Google Cloud: the same training, the same five disasters, on rented machines that boot.

    python -m examples.demo_cloud

The supervisor, Google's clients, the start-up script, the agent and the training are real; Google itself is the tests'
stand-in on loopback, and every exchange with it is compared with Google's own description of its API. The last line is
the same JSON object as that of `python -m examples.demo`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from examples.demo import RUN_ID, SETTINGS, Demo, main
from examples.demo_api import Api
from examples.demo_disasters import Disasters
from examples.demo_processes import Processes, ProcessFailed
from tests.cloud.cloud import ZONES, Cloud

# Seconds of the stand-in for actions that take Google a minute.
DURATIONS = {"create_s": 1.0, "delete_s": 1.0, "stop_s": 1.0, "fail_s": 0.5, "queue_s": 0.2}
STEPS, STEP_DELAY_S, CHECKPOINT_EVERY = 650, 0.04, 25
ACPI_S = 30.0  # between a spot VM's notice and its end


class CloudProcesses(Processes):
    """The cloud runs in this process; its machines are processes in the folder."""

    def __init__(self, settings: dict[str, str]) -> None:
        super().__init__(settings)
        self.cloud = self._open = Cloud(self.folder / "vms")
        for name, value in DURATIONS.items():
            setattr(self.cloud.compute, name, value)
        self.add_settings(self.cloud.environment())

    def machine_dir(self, machine: str) -> Path:
        return Path(self.cloud.machines.of(machine).machine)

    def close(self) -> int:
        """Raises ProcessFailed, the first time, when Google's description does not allow an exchange or a machine does
        not end."""
        self.end_own()
        cloud, self._open = self._open, None
        try:
            if cloud is not None:
                cloud.close()
        except AssertionError as error:
            raise ProcessFailed(str(error)) from None
        return super().close()


class CloudDisasters(Disasters):
    """The same disasters, caused by the cloud itself."""

    processes: CloudProcesses
    # Google has a record of every machine's end, and it decides.
    machine_dies = "2/5 the host under the machine fails, without notice"
    died_of = "host_error"

    def _strike(self, what: str, **how: float) -> float:
        cloud, machine = self.processes.cloud, str(self.update().attempts[-1]["machine"])
        compute, at = cloud.compute, time.monotonic()
        if what == "preempt":
            compute.preempt(machine, notice=how["notice_s"] > 0)
        elif what == "kill":
            compute.host_error(machine)
        elif (training := self.processes.training_process(machine)) is not None:
            with suppress(ProcessLookupError):
                os.kill(training.pid, signal.SIGSTOP)
        return at

    def _empty(self, zone: str) -> None:
        self.processes.cloud.compute.stock_out(zone)


class CloudDemo(Demo):
    title = "Spot Supervisor on Google Cloud (a stand-in): a real training, five disasters, the same model, bit for bit"
    zones = ZONES
    # Beats go to the bucket only, as they do by default.
    settings = {name: value for name, value in SETTINGS.items() if not name.startswith("SPOT_LOCAL")} | {
        "SPOT_BEAT_STORE_S": "1",
        "SPOT_SILENCE_S": "12",
    }
    arguments = (
        "--steps", str(STEPS), "--step-delay-s", str(STEP_DELAY_S), "--checkpoint-every", str(CHECKPOINT_EVERY),
    )  # fmt: skip

    processes: CloudProcesses

    def make_processes(self) -> CloudProcesses:
        return CloudProcesses(self.settings)

    def make_disasters(self) -> CloudDisasters:
        api = Api(self.processes.url, self.processes.token)
        return CloudDisasters(api, self.processes, self.screen, RUN_ID, self.zones, notice_s=ACPI_S)

    def spec(self) -> dict[str, object]:
        return {**super().spec(), "image": self.processes.cloud.image()}


if __name__ == "__main__":
    sys.exit(main(CloudDemo))
