"""An agent and its training, simulated in virtual time on the real baton and the real heartbeat.

It boots, claims, restores, trains at a steady rate, saves every `checkpoint` steps, sends beats, follows stop, notice,
closed and superseded, and writes `done` after its results are stored: RULES sections 1 and 7. The stage calls `act`
when `due`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache

from supervisor.agent.store.access import left_reason
from supervisor.contract import baton as rules
from supervisor.contract import heartbeat, signs
from supervisor.contract.baton import BatonRefused
from supervisor.contract.heartbeat import Exit
from supervisor.contract.signs import THROTTLED, Hang, OddMetric, Signs, Slow
from supervisor.contract.stores.promise import StoreUnavailable
from supervisor.ports.provider import LaunchRequest
from tests.scenarios.sim_beats import BeatSender
from tests.scenarios.sim_files import Files
from tests.scenarios.sim_plan import NEVER, RETRY_S, Plan, Reach

BEFORE_TRAINING = ("booting", "claiming", "restoring")
LEAVING = ("saving", "finishing", "over")

_encoded = lru_cache(maxsize=1000)(signs.encode)  # most beats say the same


@dataclass
class SimAgent:
    """`up_at`: monotonic seconds at which its machine is up. `silent`: it reaches neither supervisor nor store. `mute`:
    its beats do not arrive, its files do. `dead`: the agent's process is gone, the machine is up. `hung`: no more
    steps. `long_phase`: its beats report this phase, and it makes no steps."""

    request: LaunchRequest
    machine_id: str
    up_at: float
    plan: Plan
    reach: Reach
    silent: bool = False
    mute: bool = False
    dead: bool = False
    hung: bool = False
    long_phase: str = ""
    hangs_at: str = ""  # the place that its beats report; "" = they report no hang
    moves: tuple[str, ...] | None = None  # what still moves, by its beats
    repaired: tuple[int, int] | None = None  # files and bytes that it removes after a full disk
    odd: tuple[OddMetric, ...] = ()  # metrics that are not finite, or that jumped, by its beats
    slow: tuple[Slow, ...] = ()  # what makes it slow, by its beats
    disk_free_pct: float | None = None  # None = its beats do not include the disk
    early_notice_s: float | None = None  # of a preemption that the platform's listing does not show yet
    state: str = "booting"
    phase: str = heartbeat.BOOT
    leaving: str | None = None  # why it leaves; its beats say `left` when the last save is over
    left: str | None = None
    exit: Exit | None = None
    note: str = ""
    rejected: int | None = None  # the checkpoint that did not verify
    step_from: int | None = None
    step: int = 0
    saved: int = 0
    pointed: int | None = None
    training_at: float = NEVER
    due: float = 0.0
    files: Files = field(init=False)
    sender: BeatSender = field(init=False)
    _until: float = 0.0
    _waits_since: float | None = None

    def __post_init__(self) -> None:
        self.job = self.request.job
        self.run_id, self.launch_id = self.request.run_id, self.request.launch_id
        self.attempt = int(self.job["attempt"])
        self.files = Files(self.reach.objects, self.run_id, self.launch_id, self.machine_id)
        self.sender = BeatSender(self, self.up_at)
        self._until = self.up_at + self.plan.boot
        self.due = self.up_at

    # --- read by the sender and the stage -----------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        return self.state == "over"

    @property
    def restored(self) -> bool:
        return self.training_at < NEVER

    @property
    def shown_phase(self) -> str:
        return self.long_phase or self.phase

    def notice_s(self) -> float | None:
        own = self.reach.machine()
        if own is not None and own.taken_at is not None and own.machine.record is not None:
            return own.machine.record.notice_s
        return self.early_notice_s

    def progress(self) -> int:
        """The current step."""
        if self.state == "training" and not self.hung and not self.long_phase:
            made = math.floor(self.plan.rate * (self.reach.monotonic() - self.training_at) + 1e-6)
            self.step = max(self.step, min((self.step_from or 0) + made, self.plan.steps))
        return self.step

    def turn_odd(self, metric: str, kind: str) -> None:
        """Another metric that is odd from this step on."""
        step = self.progress()
        value = 99.0 if kind == signs.SPIKE else None
        before_step = None if kind == signs.SPIKE else step - 1
        self.odd = (*self.odd, OddMetric(metric, kind, step, 60.0, 2.31, before_step, value))

    def signs(self) -> str:
        """What its beats say of a step that does not come, and of its metrics."""
        hang = Hang(self.hangs_at, 75.0, self.step if self.plan.reports else None) if self.hangs_at else None
        notes: tuple[tuple[str, float], ...] = ()
        if self.plan.ignores and self.restored and self.step_from:
            notes = (("checkpoint.opened", 0), ("step.first_after_restore", 1), ("step.from", self.step_from))
        return _encoded(
            Signs(hang=hang, moves=self.moves, repaired=self.repaired, metrics=self.odd, notes=notes, slow=self.slow)
        )

    def throttle(self, share: float) -> None:
        """It trains at this share of its planned pace from now on, and its beats say so; 1 = as planned."""
        self.progress()
        pace = self.plan.rate if not self.slow else self.plan.rate / (self.slow[0].figures[1] or 1.0)
        self.plan = replace(self.plan, rate=pace * share)
        self.slow = (Slow(THROTTLED, (64.0, share, 88.0)),) if share < 1 else ()
        self.go_on()

    def go_on(
        self, hung: bool = False, long_phase: str = "", hangs_at: str = "", moves: tuple[str, ...] | None = None
    ) -> None:
        """Change its behavior. Steps that it did not make meanwhile are not added."""
        self.progress()
        self.hung, self.long_phase, self.hangs_at = hung, long_phase, hangs_at
        self.moves = None if moves is None else tuple(signal for signal in moves if signal != "still")
        if self.state == "training":
            self.training_at = self.reach.monotonic() - (self.step - (self.step_from or 0)) / self.plan.rate
        self.due = self.reach.monotonic()

    # --- time -----------------------------------------------------------------------------------------------------

    def act(self) -> None:
        """Do everything that is due, then set the next `due`."""
        now = self.reach.monotonic()
        if now < self.up_at and not self.over:
            self.due = self.up_at
            return
        if self.over or self.dead or not self.plan.starts or self.reach.machine() is None:
            self.due = NEVER
            return
        self._check_signals(now)
        for _ in range(len(BEFORE_TRAINING) + len(LEAVING) + 2):
            before = self.state
            getattr(self, "_" + self.state)(now)
            self.sender.send(now)  # a beat for each change of phase, also where a phase takes no time
            if self.state == before:
                break
        if self.over:
            self._leave_machine()
        self.due = NEVER if self.over else max(now + 0.01, min(self._until, self.sender.due))

    # --- one method for each state --------------------------------------------------------------------------------

    def _booting(self, now: float) -> None:
        if now >= self._until:
            self.state = "claiming"

    def _claiming(self, now: float) -> None:
        self._until = now + RETRY_S
        try:
            baton = self.files.keeper.read()
            waited_s = 0.0 if self._waits_since is None else now - self._waits_since
            verdict = rules.standing(baton, self.launch_id, self.machine_id, waited_s)
            if verdict in (rules.OVER, rules.OUTDATED):
                self.stand_down(left_reason(verdict))
                return
            if verdict == rules.WAIT:
                self._waits_since = now if self._waits_since is None else self._waits_since
                self.note = "waiting for the previous machine to leave"
                return
            self.files.keeper.change(rules.claim, waited_s)
        except (StoreUnavailable, BatonRefused):
            return
        self.note, self.sender.contact_at, self.sender.store_at = "", now, now
        self.state, self.phase, self._until = "restoring", heartbeat.RESTORE, now + self.plan.restore

    def _restoring(self, now: float) -> None:
        if now < self._until:
            return
        try:
            self.step_from = self.files.restore(self._reject)
        except StoreUnavailable:
            self._until = now + RETRY_S
            return
        except BatonRefused:
            self.stand_down(heartbeat.SUPERSEDED)
            return
        self.step = self.saved = self.step_from or 0
        self.pointed, self.training_at = self.step_from, now
        self.state, self.phase = "training", heartbeat.TRAINING
        if self.plan.ignores and self.step_from and self.job["on_resume_ignored"] == "stop":
            self.left, self.exit = heartbeat.RESUME_IGNORED, Exit(None, 9, True, ran_s=2.0)
            self.phase, self.state = heartbeat.FINISHED, "over"

    def _reject(self, step: int) -> None:
        self.note, self.rejected = "it differs from its sha256", step

    def _training(self, now: float) -> None:
        step = self.progress()
        how, every = self.plan.exits, self.plan.checkpoint
        newest = step - step % every if every else 0
        saved = newest <= self.saved or self._save(newest)
        if how is not None and now >= self.training_at + how[1]:
            self.exit, self.phase, self.state = how[0], heartbeat.FINISHED, "over"
        elif step >= self.plan.steps:
            self.state, self.phase, self._until = "finishing", heartbeat.FINISHING, now + self.plan.finish
        elif not saved:
            self._until = now + RETRY_S
        else:
            self._until = min(self._next_mark(every), NEVER if how is None else self.training_at + how[1])

    def _next_mark(self, every: int) -> float:
        """The time of its next save or of its end."""
        if self.hung or self.long_phase:
            return NEVER
        mark = min(self.plan.steps, self.saved - self.saved % every + every) if every else self.plan.steps
        return self.training_at + (mark - (self.step_from or 0)) / self.plan.rate

    def _finishing(self, now: float) -> None:
        if now < self._until:
            return
        self._until = now + RETRY_S
        if not self.plan.uploads:  # a person decides; it keeps retrying
            self.note, self.phase = ("1 of 1 files could not be saved; model.bin: 403 Forbidden", heartbeat.FINISHED)
            self.exit = Exit(0, None, False, ran_s=now - self.training_at)
            return
        step, total = (self.step, self.plan.steps) if self.plan.reports else (None, None)
        try:
            self.files.finish(int(self.job["results_generation"]), self.plan.results, step, total)
        except StoreUnavailable:
            return
        except BatonRefused:
            self.stand_down(heartbeat.CLOSED)
            return
        self.note, self.exit = "", Exit(0, None, False, ran_s=now - self.training_at)
        self.phase, self.state = heartbeat.FINISHED, "over"

    def _saving(self, now: float) -> None:
        """The last save before it leaves; it writes nothing afterwards."""
        if now < self._until:
            return
        if self._save(self.step) or self.leaving == heartbeat.CUT_OFF:
            if not self.over:
                self.left, self.exit = self.leaving, Exit(None, 15, True, ran_s=now - self.training_at)
                self.phase, self.state = heartbeat.FINISHED, "over"
        else:
            self._until = now + RETRY_S

    def _over(self, now: float) -> None:
        self._until = NEVER

    def _save(self, step: int) -> bool:
        """False = the store did not respond."""
        stops = {name for name, wants in (self.job.get("watch") or {}).items() if wants.get("nan") == "stop"}
        if any(odd.name in stops and odd.kind != signs.SPIKE and step >= odd.step for odd in self.odd):
            return True  # held back
        if not self.silent and self.plan.checkpoint and step > (self.pointed or 0):
            try:
                self.files.save(step, self.attempt)
            except StoreUnavailable:
                return False
            except BatonRefused:
                self.stand_down(heartbeat.SUPERSEDED)
                return True
            self.pointed = step
        self.saved = max(self.saved, step)
        return True

    # --- leaving --------------------------------------------------------------------------------------------------

    def _check_signals(self, now: float) -> None:
        own = self.reach.machine()
        if own is not None and own.asked_to_stop:
            self.leave(heartbeat.STOPPED)
        if self.notice_s() is not None:
            self.leave(heartbeat.NOTICED)
        if now - self.up_at >= float(self.job["machine_max_s"]):
            self.leave(heartbeat.EXPIRED)
        if now - self.sender.contact_at >= float(self.job["cut_off_s"]):
            self.leave(heartbeat.CUT_OFF)

    def leave(self, left: str) -> None:
        """Send TERM to the training, save, leave. The first reason counts."""
        if self.leaving is not None or self.state in LEAVING:
            return
        self.leaving = left
        if self.state in BEFORE_TRAINING:
            self.left, self.phase, self.state = left, heartbeat.FINISHED, "over"
            return
        self.progress()
        self.state, self._until = "saving", self.reach.monotonic() + self.plan.save
        self.due = min(self.due, self._until)

    def stand_down(self, left: str) -> None:
        """The baton is not ours (any more): stop and write nothing."""
        if not self.over:
            self.left, self.phase, self.state = left, heartbeat.FINISHED, "over"
        self.sender.store_at = NEVER

    def _leave_machine(self) -> None:
        """The last write, and the end of the machine as the plan says."""
        if self.sender.store_at < NEVER and not self.silent:
            try:
                self.files.leave()
            except (StoreUnavailable, BatonRefused):
                self.note = "left without a word in the baton"
        if self.left != heartbeat.NOTICED:
            self.reach.leave_machine(self.plan.after)
