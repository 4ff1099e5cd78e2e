"""A real training, five disasters, and in the end the same model as without any of them, bit for bit.

    python -m examples.demo

All its files are in a temporary folder, and all its processes are ended, whatever happens. The exit code is 0 only if
the API and the files show what the demo promises. At a terminal it ends with the commands to type next; elsewhere its
last line is one JSON object with those values.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from types import FrameType

from examples.demo_api import Api, NoResponse, Refused
from examples.demo_disasters import DemoFailed, Disasters
from examples.demo_processes import CODE, ROOT, TRAINING, Processes, ProcessFailed
from examples.demo_screen import Screen
from examples.demo_verdict import Facts, problems, summary

RUN_ID = "digits-demo"
ZONES = ("local-a", "local-b", "local-c")
STEPS, STEP_DELAY_S, CHECKPOINT_EVERY = 800, 0.04, 25
ARGUMENTS = (
    "--steps", str(STEPS), "--step-delay-s", str(STEP_DELAY_S), "--checkpoint-every", str(CHECKPOINT_EVERY),
)  # fmt: skip
STALL_POLLS = 5
SPOT_USD, ON_DEMAND_USD = 1.20, 3.60  # per hour; made up
# Short periods for people who watch; with a store beat every 5 s, 30 s of silence are six missing beats.
SETTINGS = {
    "SPOT_POLL_INTERVAL": "1",
    "SPOT_BEAT_PUSH_S": "1",
    "SPOT_BEAT_STORE_S": "5",
    "SPOT_SILENCE_S": "30",
    "SPOT_RECOVERY_BACKOFF_S": "1",
    "SPOT_LOCAL_ZONES": ",".join(ZONES),
    "SPOT_LOCAL_MACHINES": "4",  # an old machine and its successor, on any computer
    "SPOT_LOCAL_PRICES": f"cpu={SPOT_USD:.2f}/{ON_DEMAND_USD:.2f}",
}
TWIN_WITHIN_S = 90.0
INTERRUPTED = 130
NEXT = (". .venv/bin/activate && spot up", "spot submit --run-id my-run --code . --watch -- python train.py")


class Interrupted(Exception):
    """The user wants the demo to end."""


class Demo:
    """`disasters`: what happens, on which machines. Another place is another subclass (demo_cloud.py)."""

    title = "Spot Supervisor: a real training, five disasters, and in the end the same model, bit for bit"
    settings = SETTINGS
    zones = ZONES
    arguments = ARGUMENTS

    def __init__(self) -> None:
        self.screen = Screen()
        self.processes = self.make_processes()
        self.disasters = self.make_disasters()

    def make_processes(self) -> Processes:
        return Processes(self.settings)

    def make_disasters(self) -> Disasters:
        return Disasters(Api(self.processes.url, self.processes.token), self.processes, self.screen, RUN_ID, self.zones)

    def spec(self) -> dict[str, object]:
        """The spec for `spot submit`. The training travels as a copy of its folder."""
        return {
            "run_id": RUN_ID,
            "code": str(CODE),
            "command": [sys.executable, TRAINING.name, *self.arguments],
            "results": [{"path": "weights.npz"}, {"path": "metrics.json"}],
            "stall": {"polls": STALL_POLLS},
        }

    def run(self) -> int:
        try:
            return self.show()
        except Interrupted as error:
            _end(self.processes)
            self.processes.remove()
            self.screen.problem(f"{error}: every process of the demo has ended")
            return INTERRUPTED
        finally:
            _end(self.processes)

    def show(self) -> int:
        """The demo from its first line to its last; its exit code."""
        failure: str | None = None
        left_behind, began = 0, time.monotonic()
        try:
            self.show_settings()
            self.play()
            left_behind = _end(self.processes)
        except (DemoFailed, ProcessFailed, NoResponse, Refused) as error:
            failure = str(error)
        facts = _facts(self.disasters, left_behind)
        missing = [failure] if failure else problems(facts)
        if missing:
            _show_problems(self.screen, self.disasters, missing)
        else:
            self.processes.remove()
            self.screen.title(f"weights with five disasters: {facts.weights_sha256}")
            self.screen.title(f"weights without any: {facts.uninterrupted_sha256}")
            took_s = time.monotonic() - began
            self.screen.title(f"the same, bit for bit; the whole demo took {took_s:.0f} s")
        if missing or not self.screen.person:
            print(json.dumps(summary(facts)), flush=True)
        else:
            show_next_commands(self.screen)
        return 1 if missing else 0

    def show_settings(self) -> None:
        self.screen.title(self.title)
        self.screen.detail(
            f"POLL_INTERVAL {self.settings['SPOT_POLL_INTERVAL']} s, beat_push_s {self.settings['SPOT_BEAT_PUSH_S']}, "
            f"beat_store_s {self.settings['SPOT_BEAT_STORE_S']}, silence_s {self.settings['SPOT_SILENCE_S']}, "
            f"stall.polls {STALL_POLLS}, recovery_backoff_s {self.settings['SPOT_RECOVERY_BACKOFF_S']}"
        )
        self.screen.detail(
            f"zones {', '.join(self.zones)}; a machine costs ${SPOT_USD:.2f} per hour, ${ON_DEMAND_USD:.2f} on demand"
        )
        self.screen.detail(f"all files are in {self.processes.folder}")

    def play(self) -> None:
        disasters, processes, screen = self.disasters, self.processes, self.screen
        began = time.monotonic()
        pid = processes.start_supervisor(disasters.is_ready)
        screen.title(f"supervisor ready after {time.monotonic() - began:.1f} s at {processes.url()} (pid {pid})")
        self.submit()
        processes.start_twin(self.arguments)
        screen.detail("its twin, the same command, trains beside it without a supervisor and without disasters")
        disasters.preempt_with_notice()
        disasters.kill_machine()
        disasters.freeze_training()
        disasters.run_out_of_capacity()
        disasters.kill_supervisor()
        disasters.finish()
        processes.wait_for_twin(TWIN_WITHIN_S)
        for words in (("show", RUN_ID), ("pull", RUN_ID)):
            screen.plain("")
            screen.title(f"$ spot {' '.join(words)}")
            code, lines = processes.spot(*words, folder=ROOT if words[0] == "show" else processes.folder)
            if code:
                raise DemoFailed(f"spot {words[0]} ended with exit code {code}")
        disasters.pulled = _proven(lines)
        screen.plain("")

    def submit(self) -> None:
        file = self.processes.folder / "digits.yaml"
        file.write_text(json.dumps(self.spec(), indent=1), encoding="utf-8")
        self.screen.title(f"$ spot submit {file.name}: examples/digits/train.py {' '.join(self.arguments)}")
        code, _ = self.processes.spot("submit", str(file))
        if code:
            raise DemoFailed(f"spot submit ended with exit code {code}")


def show_next_commands(screen: Screen) -> None:
    screen.plain("\nYour own training, in the folder of train.py:")
    for command in NEXT:
        screen.plain(f"  {command}")


def main(demo: Callable[[], Demo] = Demo) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    subprocess.run([sys.executable, "-m", "tools.build_agent"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return demo().run()


def _proven(lines: list[str]) -> int | None:
    """How many files a pull verifies by its last line; None when it verifies nothing."""
    match = re.fullmatch(r"OK (\d+)/\1, errors 0", lines[-1]) if lines else None
    return int(match.group(1)) if match else None


def _facts(disasters: Disasters, left_behind: int) -> Facts:
    view, processes = disasters.view, disasters.processes
    if view is None:
        return Facts(RUN_ID)
    return Facts(
        RUN_ID,
        view.run,
        tuple(view.attempts),
        processes.weights_sha256(RUN_ID),
        processes.twin_sha256(),
        disasters.survived,
        disasters.pulled,
        left_behind,
        ("preempted", disasters.died_of, "stalled"),
    )


def _show_problems(screen: Screen, disasters: Disasters, missing: list[str]) -> None:
    screen.plain("")
    for text in missing:
        screen.problem(f"FAILED: {text}")
    if disasters.view is not None:
        screen.detail(f"the run's last sentence: {disasters.view.run['status_text']}")
    screen.detail(f"all files are kept in {disasters.processes.folder}; the end of the supervisor's log:")
    for line in disasters.processes.log_tail():
        screen.plain("    " + line)


def _end(processes: Processes) -> int:
    """End everything, undisturbed by further signals; returns how many processes of machines were still running."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return processes.close()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted(signal.Signals(number).name)


if __name__ == "__main__":
    sys.exit(main())
