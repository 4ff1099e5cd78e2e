"""The schedule of the process: a tick in every poll interval, earlier after a wake and after clock steps, and upkeep.

The scheduler lives in memory, with an executor of its own for the tick: a job store shared by two processes runs ticks
twice, and a busy pool skips them. It stops for the length of a backward step of the wall clock (a 20 s step means 20 s
without a tick), so a watcher compares wall and monotonic time every second and moves the job's next run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from supervisor.ports.clock import Clock, Wake
from supervisor.ports.store import Store, StoreDown
from supervisor.reconciler.leader import Leader
from supervisor.reconciler.system_clock import CLOCK_STEP_S
from supervisor.reconciler.tick import Tick
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import metrics

log = logging.getLogger(__name__)

WATCH_S = 1.0
BETWEEN_WAKES_S = 0.05
RESTS = 2.0  # times the length of a tick without one after it: ten thousand runs wake the loop all the time
ASKED_RESTS = 9.0  # the same for the CPU of single runs' decisions in between: at most a tenth of a core
PRUNE_S = 3600.0
PATROL_S = 60.0
CHORES_S = 0.5  # at least
PRUNE_PAGE = 1000


@dataclass
class LoopStatus:
    """What health checks and metrics may show of the loop."""

    started_at: float
    last_tick_at: float | None = None  # monotonic
    last_tick_s: float | None = None
    lag_s: float = 0.0  # how late the last tick began, counted from the one before
    ticks: int = 0
    error: str = ""


@dataclass
class Loop:
    tick: Tick
    leader: Leader
    store: Store
    clock: Clock
    wake: Wake
    poll_interval_s: float
    after_tick: Callable[[], None] = lambda: None
    housekeeper: Leader | None = None  # of retention, for the whole database; None = this cell's leader does it
    patrol: Callable[[float], object] = lambda now: None  # called by the housekeeper; may raise StoreDown
    chores: Callable[[float], object] = lambda now: None  # the same in every poll interval; may send requests
    status: LoopStatus = field(init=False)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _between: threading.Lock = field(default_factory=threading.Lock)  # held while a tick runs

    def __post_init__(self) -> None:
        self._leaders = [self.leader] if self.housekeeper is None else [self.leader, self.housekeeper]
        self.status = LoopStatus(self.clock.monotonic())
        self.tick.actor.leading = self.leader.lease
        logging.getLogger("apscheduler").setLevel(logging.WARNING)
        executors = {"default": ThreadPoolExecutor(1), "tick": ThreadPoolExecutor(1)}
        defaults = {"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        self._scheduler = BackgroundScheduler(executors=executors, job_defaults=defaults, timezone=UTC)
        self._watcher = threading.Thread(target=self._watch, name="watch", daemon=True)

    def start(self) -> None:
        for leader in self._leaders:
            leader.start()
        every, at_once = "interval", self._wall()
        add = self._scheduler.add_job
        add(self._tick_once, every, id="tick", executor="tick", seconds=self.poll_interval_s, next_run_time=at_once)
        add(self._prune, every, id="prune", seconds=PRUNE_S)
        add(self._patrol, every, id="patrol", seconds=PATROL_S)
        add(self._do_chores, every, id="chores", seconds=max(CHORES_S, self.poll_interval_s))
        self._scheduler.start()
        self._watcher.start()

    def stop(self) -> None:
        """No new tick; the running one and its actions end; runs are untouched."""
        self._stopping.set()
        self.wake.set()
        self._watcher.join(timeout=2 * WATCH_S)
        # The scheduler's own shutdown keeps its locks while it waits for the running tick, and a tick that moves the
        # next one would wait for them for ever. After this no tick does that any more.
        with self._between:
            pass
        self._scheduler.shutdown(wait=True)
        self.tick.actor.close()
        self.tick.readers.close()
        self.tick.sampler.close()
        for leader in self._leaders:
            leader.stop()

    def _wall(self) -> datetime:
        """As the scheduler reads it."""
        return datetime.fromtimestamp(self.clock.wall(), UTC)

    # --- the tick -----------------------------------------------------------------------------------------------------

    def _tick_once(self) -> None:
        lease = self.leader.lease()
        if lease is None:
            return
        with self._between:
            if self._stopping.is_set():
                return
            began = self.clock.monotonic()
            self.status.lag_s = self._lag_s(began)
            try:
                due = self.tick.run(lease)
                self.status.error = ""
            except StoreDown as error:
                metrics.TICKS_FAILED.add()
                due, self.status.error = None, str(error)
                log.error("tick not done", extra={telemetry.ACTION: "tick", telemetry.ERROR: str(error)})
            self.status.last_tick_at = self.clock.monotonic()
            self.status.last_tick_s = self.status.last_tick_at - began
            self.status.ticks += 1
            metrics.TICK_S.observe(self.status.last_tick_s)
            self.after_tick()
            if due is not None:
                self._tick_within(max(due - self.clock.now(), self._rest_s()))

    def _lag_s(self, began: float) -> float:
        if self.status.last_tick_at is None or self.status.last_tick_s is None:
            return 0.0
        due = self.status.last_tick_at - self.status.last_tick_s + self.poll_interval_s
        return max(0.0, began - due)

    def _rest_s(self) -> float:
        """How much longer to leave the processor to API requests before an early tick."""
        if self.status.last_tick_at is None or self.status.last_tick_s is None:
            return 0.0
        return self.status.last_tick_at + RESTS * self.status.last_tick_s - self.clock.monotonic()

    def _tick_within(self, seconds: float) -> None:
        """Move the next tick forward, never back."""
        job = self._scheduler.get_job("tick")
        at = self._wall() + timedelta(seconds=max(0.0, seconds))
        if job is not None and (job.next_run_time is None or at < job.next_run_time):
            self._scheduler.modify_job("tick", next_run_time=at)

    # --- the watcher --------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Early ticks after a wake, and the scheduler's blindness after a backward step."""
        offset_s = self.clock.wall() - self.clock.monotonic()
        while not self._stopping.is_set():
            woken = self.wake.wait(WATCH_S)
            offset_before, offset_s = offset_s, self.clock.wall() - self.clock.monotonic()
            try:
                self._watch_once(woken, offset_s - offset_before)
            except Exception:  # the watcher is what helps a blind scheduler: it must survive its own errors
                log.exception("watch failed", extra={telemetry.ACTION: "watch"})

    def _watch_once(self, woken: bool, step_s: float) -> None:
        if abs(step_s) > CLOCK_STEP_S:
            log.warning("the clock stepped", extra={telemetry.ACTION: "watch", telemetry.STEP_S: step_s})
            self._reset_jobs()
        elif woken and not self._stopping.is_set():
            with self._between:  # a job that becomes due while it runs would be skipped
                cpu_s = self._decide_asked() if self._rest_s() > 0.0 else 0.0
                self._tick_within(self._rest_s())
            self._stopping.wait(max(BETWEEN_WAKES_S, ASKED_RESTS * cpu_s))

    def _decide_asked(self) -> float:
        """The early tick has to rest: the runs that asked for it are decided now. The CPU seconds that it took: a
        wait for the disk takes nothing from the API."""
        lease, began_s = self.leader.lease(), time.thread_time()
        if lease is not None:
            try:
                due = self.tick.run_asked(lease)
            except StoreDown as error:
                log.error("runs not decided", extra={telemetry.ACTION: "wake", telemetry.ERROR: str(error)})
            except Exception:  # the tick that follows must not be missed
                log.exception("runs not decided", extra={telemetry.ACTION: "wake"})
            else:
                if due is not None:
                    self._tick_within(max(due - self.clock.now(), self._rest_s()))
        return time.thread_time() - began_s

    def _reset_jobs(self) -> None:
        for job in self._scheduler.get_jobs():
            self._scheduler.modify_job(job.id, next_run_time=self._wall())

    # --- upkeep of the database, in one process of all ----------------------------------------------------------------

    def _prune(self) -> None:
        try:
            while self._is_housekeeper() and self.store.prune(self.clock.now(), PRUNE_PAGE) == PRUNE_PAGE:
                continue
        except StoreDown as error:
            log.error("nothing pruned", extra={telemetry.ACTION: "prune", telemetry.ERROR: str(error)})

    def _patrol(self) -> None:
        self._keep_house("patrol", self.patrol)

    def _do_chores(self) -> None:
        self._keep_house("chores", self.chores)

    def _keep_house(self, name: str, work: Callable[[float], object]) -> None:
        if not self._is_housekeeper():
            return
        try:
            work(self.clock.now())
        except StoreDown as error:
            log.error("no %s", name, extra={telemetry.ACTION: name, telemetry.ERROR: str(error)})

    def _is_housekeeper(self) -> bool:
        return self._leaders[-1].lease() is not None
