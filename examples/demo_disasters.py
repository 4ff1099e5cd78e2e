"""The five disasters: each happens while the run is training, and the demo waits until it trains again.

Nothing depends on timing: every step waits for a state in the API, or in a file of the training. The deadlines are
generous and only end a wait that has become pointless.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from examples.demo_api import Api, Json, NoResponse, Refused, View
from examples.demo_processes import Process, Processes
from examples.demo_screen import Screen

CHECK_S = 0.2
WITHIN_S = 45.0  # for one thing to happen
FINISH_WITHIN_S = 120.0
NOTICE_S = 3.0
STEPS_BEFORE_NEXT = 40  # steps of an attempt before its disaster, so that each can lose some
STEPS_ALONE = 40  # steps of the training without a supervisor
SHOWN_EVERY_S = 10.0  # the sentence is shown again after this time, even without a change
DISASTERS = (
    "1/5 preemption with {notice_s:.0f} s notice",
    "2/5 kill -9 of the whole machine, without notice and without a record",
    "3/5 the training freezes (SIGSTOP): its beats go on, its steps do not",
    "4/5 zone {zone} runs out of capacity, and the machine is preempted without notice",
    "5/5 kill -9 of the supervisor itself",
)
LOSSES = ("preempted",)  # they count against the zone
# The events that are shown: the others are in `spot events`. The end of an attempt also says what follows.
SHOWN_KINDS = ("attempt_ended", "try_failed", "results_verified")
FIRST_STALL_POLL = 2  # one poll without progress is not a stall yet
TERMINAL = ("completed", "partial", "failed", "stopped")


class DemoFailed(Exception):
    """An expectation did not come true."""


@dataclass
class Disasters:
    """One run's way through the disasters. `view`: its last state."""

    api: Api
    processes: Processes
    screen: Screen
    run_id: str
    zones: Sequence[str]
    notice_s: float = NOTICE_S
    survived: bool | None = None
    pulled: int | None = None
    # The second disaster, and the cause that it must have.
    machine_dies: ClassVar[str] = DISASTERS[1]
    died_of: ClassVar[str] = "orphaned"
    view: View | None = None
    _after: int = 0
    _state: tuple[object, ...] = ()
    _shown_at: float = field(default_factory=time.monotonic)

    # --- watching ------------------------------------------------------------------------------------------------

    def update(self) -> View:
        """Read the run once, and show what is new."""
        view, news = self.api.view(self.run_id), self.api.events(self.run_id, self._after)
        if news:
            view = self.api.view(self.run_id)  # not older than its events
        self.view = view
        for event in news:
            self._after = event["id"]
            if event["kind"] in SHOWN_KINDS:
                self.screen.event(event["text"])
        stalls = view.status == "running" and view.run["stall"]["polls"] >= FIRST_STALL_POLL
        state = (view.number, stalls, view.status in TERMINAL)
        changed = state != self._state and (stalls or view.status in TERMINAL)
        is_due = view.status == "running" and time.monotonic() - self._shown_at > SHOWN_EVERY_S
        self._state = state
        if changed or is_due:
            self._shown_at = time.monotonic()
            self.screen.sentence(view.status, view.run["status_text"])
        return view

    def until(
        self, what: str, holds: Callable[[View], bool], within_s: float = WITHIN_S, after_end: bool = False
    ) -> View:
        """Read until it holds. Raises DemoFailed when it takes too long, or the run is over (unless `after_end`)."""
        give_up_at = time.monotonic() + within_s
        while True:
            view = self.update()
            if holds(view):
                return view
            if view.status in TERMINAL and not after_end:
                raise DemoFailed(f"waited for {what}, but the run is over: {view.status}")
            if time.monotonic() > give_up_at:
                raise DemoFailed(f"waited {within_s:.0f} s for {what}; the run is {view.status}")
            time.sleep(CHECK_S)

    def attempt_with_progress(self) -> Json:
        """The live attempt, once it has trained for a while and saved a checkpoint of its own."""

        def holds(view: View) -> bool:
            live, kept = view.live, view.run["checkpoint_step"] or 0
            started = 0 if live is None else live["step_from"] or 0
            return live is not None and kept > started and live["step_last"] >= started + STEPS_BEFORE_NEXT

        return dict(self.until("a training with a checkpoint of its own", holds).attempts[-1])

    def wait_for_next_attempt(self, since: float, lost: Json) -> None:
        """Wait for the attempt after `lost` to train, and show the figures. `since`: monotonic time of the disaster."""
        view = self.until("training to go on", lambda view: view.live is not None and view.number > lost["number"])
        took_s, new, old = time.monotonic() - since, view.attempts[-1], view.attempts[lost["number"] - 1]
        self.screen.figures(
            f"ended as {old['cause']}; training again after {took_s:.1f} s in {new['placement']['zone']}, "
            f"from step {new['step_from'] or 0:,}; steps lost: {old['steps_lost']:,}"
        )

    # --- the disasters -------------------------------------------------------------------------------------------

    def preempt_with_notice(self) -> None:
        live = self.attempt_with_progress()
        self.screen.disaster(DISASTERS[0].format(notice_s=self.notice_s))
        since = self._strike("preempt", notice_s=self.notice_s)
        self.wait_for_next_attempt(since, live)

    def kill_machine(self) -> None:
        live = self.attempt_with_progress()
        self.screen.disaster(self.machine_dies)
        since = self._strike("kill")
        self.wait_for_next_attempt(since, live)

    def freeze_training(self) -> None:
        live = self.attempt_with_progress()
        self.screen.disaster(DISASTERS[2])
        since = self._strike("freeze")
        self.wait_for_next_attempt(since, live)

    def run_out_of_capacity(self) -> None:
        """The zone that would be tried next: not the lost one, and of the others the one that has lost the fewest
        machines."""
        live = self.attempt_with_progress()
        attempts = self.view.attempts if self.view is not None else []
        lost = [attempt["placement"]["zone"] for attempt in attempts if attempt["cause"] in LOSSES]
        others = [zone for zone in self.zones if zone != live["placement"]["zone"]]
        following = min(others, key=lost.count)
        self.screen.disaster(DISASTERS[3].format(zone=following))
        self._empty(following)
        since = self._strike("preempt", notice_s=0.0)
        self.wait_for_next_attempt(since, live)

    def kill_supervisor(self) -> None:
        """Without a supervisor only files of the training are read."""
        machine = self.attempt_with_progress()["machine"]
        before, first_step = self._live_process(machine), self.processes.training_step(machine) or 0
        self.screen.disaster(DISASTERS[4])
        since = time.monotonic()
        self.processes.kill_supervisor()
        step = self._steps_alone(machine, first_step)
        self.screen.event(f"no supervisor: training goes on from step {first_step:,} to {step:,} by itself")
        pid = self.processes.start_supervisor(self.is_ready)
        self.screen.event(f"a new supervisor (pid {pid}) is ready on the same data folder")
        attempt = self.until(
            "the new supervisor to see steps of its own",
            lambda view: view.live is not None and view.live["step_last"] > step,
        ).attempts[-1]
        after = self._live_process(machine)
        self.survived = after == before and attempt["machine"] == machine
        self.screen.figures(
            f"seen again after {time.monotonic() - since:.1f} s at step {attempt['step_last']:,}; "
            + _process_text(before, after, self.survived)
        )

    def finish(self) -> None:
        """Until the last machine is certainly gone."""
        self.screen.plain("")
        self.until("the end of the training", lambda view: view.status in TERMINAL, FINISH_WITHIN_S)
        self.until("every machine to be gone", lambda view: all(a["gone_at"] for a in view.attempts), after_end=True)

    def is_ready(self) -> bool:
        try:
            return bool(self.api.call("GET", "/readyz").get("ready"))
        except (NoResponse, Refused):
            return False

    # --- parts of them ---------------------------------------------------------------------------------------------

    def _strike(self, what: str, **how: float) -> float:
        """Cause the disaster; returns when that was, monotonic."""
        at = time.monotonic()
        self.api.post(f"/v1/dev/{what}", {"run_id": self.run_id, **how})
        return at

    def _empty(self, zone: str) -> None:
        self.api.post("/v1/dev/stockout", {"zones": [zone]})

    def _live_process(self, machine: str) -> Process:
        process = self.processes.training_process(machine)
        if process is None:
            self.survived = False
            raise DemoFailed(f"there is no training process on {machine}")
        return process

    def _steps_alone(self, machine: str, first_step: int) -> int:
        give_up_at = time.monotonic() + WITHIN_S
        while (step := self.processes.training_step(machine) or 0) < first_step + STEPS_ALONE:
            if time.monotonic() > give_up_at:
                raise DemoFailed(f"without a supervisor the training made no progress from step {step:,}")
            time.sleep(CHECK_S)
        return step


def _process_text(before: Process, after: Process, same: bool) -> str:
    if same:
        return f"the training is the same process as before: pid {after.pid}, start tick {after.start_ticks}"
    return f"the training is another process: {before} before, {after} now"
