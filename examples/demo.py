"""A real training, five disasters, and in the end the same model as without any of them, bit for bit.

    python -m examples.demo

Everything lives in a temporary folder and is ended again, whatever happens. The exit code is 0 only if the API and the
files show what the demo promises. At a terminal it ends in the commands to type next; elsewhere its last line is one
JSON object with those values.
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

from examples.demo_api import Api, NoAnswer, Refused
from examples.demo_house import CODE, ROOT, TRAINING, House, HouseFailed
from examples.demo_screen import Screen
from examples.demo_story import Story, StoryFailed
from examples.demo_verdict import Facts, problems, summary

RUN_ID = "digits-demo"
ZONES = ("local-a", "local-b", "local-c")
STEPS, STEP_DELAY_S, CHECKPOINT_EVERY = 800, 0.04, 25
ARGUMENTS = (
    "--steps", str(STEPS), "--step-delay-s", str(STEP_DELAY_S), "--checkpoint-every", str(CHECKPOINT_EVERY),
)  # fmt: skip
STALL_POLLS = 5
SPOT_USD, ON_DEMAND_USD = 1.20, 3.60  # per hour; made up
# Paces for people who look on; a store beat every 5 s makes 30 s of silence six missing beats.
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
    """Somebody wants the demo to end."""


class Demo:
    """`story` is what happens, on which machines. Another place is another subclass (demo_cloud.py)."""

    title = "Spot Supervisor: a real training, five disasters, and in the end the same model, bit for bit"
    settings = SETTINGS
    zones = ZONES
    arguments = ARGUMENTS

    def __init__(self) -> None:
        self.screen = Screen()
        self.house = self.build()
        self.story = self.tale()

    def build(self) -> House:
        return House(self.settings)

    def tale(self) -> Story:
        return Story(Api(self.house.url, self.house.token), self.house, self.screen, RUN_ID, self.zones)

    def spec(self) -> dict[str, object]:
        """What `spot submit` is given. The training travels as a copy of its folder."""
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
            _end(self.house)
            self.house.remove()
            self.screen.problem(f"{error}: everything that the demo had started is ended")
            return INTERRUPTED
        finally:
            _end(self.house)

    def show(self) -> int:
        """The demo from its first line to its last; its exit code."""
        trouble: str | None = None
        left_behind, began = 0, time.monotonic()
        try:
            self.tell_settings()
            self.play()
            left_behind = _end(self.house)
        except (StoryFailed, HouseFailed, NoAnswer, Refused) as error:
            trouble = str(error)
        facts = _facts(self.story, left_behind)
        found = [trouble] if trouble else problems(facts)
        if found:
            _tell_problems(self.screen, self.story, found)
        else:
            self.house.remove()
            self.screen.title(f"weights with five disasters: {facts.weights_sha256}")
            self.screen.title(f"weights without any: {facts.uninterrupted_sha256}")
            took_s = time.monotonic() - began
            self.screen.title(f"the same, bit for bit; the whole demo took {took_s:.0f} s")
        if found or not self.screen.person:
            print(json.dumps(summary(facts)), flush=True)
        else:
            tell_next(self.screen)
        return 1 if found else 0

    def tell_settings(self) -> None:
        self.screen.title(self.title)
        self.screen.detail(
            f"POLL_INTERVAL {self.settings['SPOT_POLL_INTERVAL']} s, beat_push_s {self.settings['SPOT_BEAT_PUSH_S']}, "
            f"beat_store_s {self.settings['SPOT_BEAT_STORE_S']}, silence_s {self.settings['SPOT_SILENCE_S']}, "
            f"stall.polls {STALL_POLLS}, recovery_backoff_s {self.settings['SPOT_RECOVERY_BACKOFF_S']}"
        )
        self.screen.detail(
            f"zones {', '.join(self.zones)}; a machine costs ${SPOT_USD:.2f} per hour, ${ON_DEMAND_USD:.2f} on demand"
        )
        self.screen.detail(f"everything lives in {self.house.folder}")

    def play(self) -> None:
        story, house, screen = self.story, self.house, self.screen
        began = time.monotonic()
        pid = house.start_supervisor(story.is_ready)
        screen.title(f"supervisor ready after {time.monotonic() - began:.1f} s at {house.url()} (pid {pid})")
        self.submit()
        house.start_twin(self.arguments)
        screen.detail("its twin, the same command, trains beside it without a supervisor and without disasters")
        story.preempt_with_notice()
        story.kill_machine()
        story.freeze_training()
        story.run_out_of_capacity()
        story.kill_supervisor()
        story.finish()
        house.wait_for_twin(TWIN_WITHIN_S)
        for words in (("show", RUN_ID), ("pull", RUN_ID)):
            screen.plain("")
            screen.title(f"$ spot {' '.join(words)}")
            code, lines = house.spot(*words, folder=ROOT if words[0] == "show" else house.folder)
            if code:
                raise StoryFailed(f"spot {words[0]} ended with exit code {code}")
        story.pulled = _proven(lines)
        screen.plain("")

    def submit(self) -> None:
        file = self.house.folder / "digits.yaml"
        file.write_text(json.dumps(self.spec(), indent=1), encoding="utf-8")
        self.screen.title(f"$ spot submit {file.name}: examples/digits/train.py {' '.join(self.arguments)}")
        code, _ = self.house.spot("submit", str(file))
        if code:
            raise StoryFailed(f"spot submit ended with exit code {code}")


def tell_next(screen: Screen) -> None:
    screen.plain("\nYour own training, in the folder of train.py:")
    for command in NEXT:
        screen.plain(f"  {command}")


def main(demo: Callable[[], Demo] = Demo) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    subprocess.run([sys.executable, "-m", "tools.build_agent"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return demo().run()


def _proven(lines: list[str]) -> int | None:
    """How many files a pull proves by its last line; None when it proves nothing."""
    found = re.fullmatch(r"OK (\d+)/\1, errors 0", lines[-1]) if lines else None
    return int(found.group(1)) if found else None


def _facts(story: Story, left_behind: int) -> Facts:
    view, house = story.view, story.house
    if view is None:
        return Facts(RUN_ID)
    return Facts(
        RUN_ID,
        view.run,
        tuple(view.attempts),
        house.weights_sha256(RUN_ID),
        house.twin_sha256(),
        story.survived,
        story.pulled,
        left_behind,
        ("preempted", story.died_of, "stalled"),
    )


def _tell_problems(screen: Screen, story: Story, found: list[str]) -> None:
    screen.plain("")
    for text in found:
        screen.problem(f"FAILED: {text}")
    if story.view is not None:
        screen.detail(f"the run's last sentence: {story.view.run['status_text']}")
    screen.detail(f"everything is kept in {story.house.folder}; the end of the supervisor's log:")
    for line in story.house.log_tail():
        screen.plain("    " + line)


def _end(house: House) -> int:
    """End everything, undisturbed by further signals; how many processes of machines were still there."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return house.close()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted(signal.Signals(number).name)


if __name__ == "__main__":
    sys.exit(main())
