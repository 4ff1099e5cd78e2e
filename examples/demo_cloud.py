"""The demo on Google Cloud: the same training, the same five disasters, on machines that are rented and boot.

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
from examples.demo_house import House, HouseFailed
from examples.demo_story import Story
from tests.cloud.cloud import ZONES, Cloud

# Seconds that Google takes for what takes it a minute in truth.
DURATIONS = {"create_s": 1.0, "delete_s": 1.0, "stop_s": 1.0, "fail_s": 0.5, "queue_s": 0.2}
STEPS, STEP_DELAY_S, CHECKPOINT_EVERY = 650, 0.04, 25
ACPI_S = 30.0  # what a spot VM has between its notice and the cut


class CloudHouse(House):
    """The cloud lives in this process; its machines are processes in the folder."""

    def __init__(self, settings: dict[str, str]) -> None:
        super().__init__(settings)
        self.cloud = self._open = Cloud(self.folder / "vms")
        for name, value in DURATIONS.items():
            setattr(self.cloud.compute, name, value)
        self.settle(self.cloud.environment())

    def machine_dir(self, machine: str) -> Path:
        return Path(self.cloud.machines.of(machine).machine)

    def close(self) -> int:
        """Raises HouseFailed, the first time, where an exchange was none of Google's or a machine would not end."""
        self.end_own()
        cloud, self._open = self._open, None
        try:
            if cloud is not None:
                cloud.close()
        except AssertionError as error:
            raise HouseFailed(str(error)) from None
        return super().close()


class CloudStory(Story):
    """The same disasters, brought about by the cloud itself."""

    house: CloudHouse
    # Google has a record of every machine's end, and it decides.
    machine_dies = "2/5 the host under the machine fails, without notice"
    died_of = "host_error"

    def _strike(self, what: str, **how: float) -> float:
        cloud, machine = self.house.cloud, str(self.look().attempts[-1]["machine"])
        compute, at = cloud.compute, time.monotonic()
        if what == "preempt":
            compute.preempt(machine, notice=how["notice_s"] > 0)
        elif what == "kill":
            compute.host_error(machine)
        elif (training := self.house.training_process(machine)) is not None:
            with suppress(ProcessLookupError):
                os.kill(training.pid, signal.SIGSTOP)
        return at

    def _empty(self, zone: str) -> None:
        self.house.cloud.compute.stock_out(zone)


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

    house: CloudHouse

    def build(self) -> CloudHouse:
        return CloudHouse(self.settings)

    def tale(self) -> CloudStory:
        api = Api(self.house.url, self.house.token)
        return CloudStory(api, self.house, self.screen, RUN_ID, self.zones, notice_s=ACPI_S)

    def spec(self) -> dict[str, object]:
        return {**super().spec(), "image": self.house.cloud.image()}


if __name__ == "__main__":
    sys.exit(main(CloudDemo))
