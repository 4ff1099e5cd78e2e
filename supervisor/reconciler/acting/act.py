"""Carry out decided actions after their commit: in which thread, under which lease, and never twice at once.

Each action is named by (run, launch, kind, machine). While an action of that name is in progress, a repeat is dropped.
Kinds that may take long have threads of their own: a hundred launches must not delay the release of a machine that
bills. With several providers each has its own threads, so that one that hangs blocks no other. Every worker checks the
lease's monotonic deadline immediately before the call. What fails unclearly is logged and derived again by the next
tick. What an action does stands in `launches` and `endings`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import get_args

from supervisor.contract.baton import BatonRefused
from supervisor.contract.drill import DrillOrder
from supervisor.domain.actions import (
    Action,
    AskAgentToStop,
    CloseBaton,
    ForgetHome,
    KeepEvidence,
    Launch,
    MarkHolderGone,
    OrderDrill,
    PinImage,
    PublishCheckpoint,
    RaiseNext,
    ReadMeter,
    Release,
    StopMeter,
    SwitchOff,
)
from supervisor.domain.machines import Placement
from supervisor.domain.run import Run
from supervisor.ports.clock import Clock, Wake
from supervisor.ports.objectstore import Homes, ObjectStore, StoreUnavailable
from supervisor.ports.opening import Publish
from supervisor.ports.provider import LaunchPending, Provider, ProviderUnavailable
from supervisor.ports.store import Lease, Store, StoreDown
from supervisor.reconciler.acting import batonwork
from supervisor.reconciler.acting.endings import Endings
from supervisor.reconciler.acting.launches import Launcher, Paces
from supervisor.reconciler.fleet import keeper_of
from supervisor.reconciler.outcomes import Outcomes
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import metrics

log = logging.getLogger(__name__)

EVIDENCE_THREADS, PIN_THREADS, METER_THREADS, PUBLISH_THREADS = 2, 4, 4, 2  # METER_THREADS: of verbs, and of reads
DONE_KEPT = 50_000
# Kinds that may take long have threads of their own; all others share theirs. When a thousand attempts end at once,
# their evidence must not delay the launches that follow. Reads of bills must not delay the verbs.
_KINDS: Mapping[type, str] = {
    Launch: "launch", PinImage: "pin", KeepEvidence: "evidence", StopMeter: "verb", ReadMeter: "meter",
    PublishCheckpoint: "publish",
}  # fmt: skip
UNCLEAR = (StoreUnavailable, ProviderUnavailable, StoreDown, BatonRefused, ValueError)


def _threads(count: int, name: str) -> Executor:
    return ThreadPoolExecutor(count, thread_name_prefix=name)


@dataclass
class Actor:
    store: Store
    objects: ObjectStore
    providers: Mapping[str, Provider]
    outcomes: Outcomes
    clock: Clock
    wake: Wake
    paces: Paces
    forget_beats: Callable[[str], None]
    threads: int = 8
    launch_threads: int = 8
    executor: Executor | None = None  # where actions run; None = bounded threads of our own
    leading: Callable[[], Lease | None] | None = None  # the current lease; None = it is not renewed
    pool: Callable[[int, str], Executor] = _threads  # (threads, name)
    paces_of: Mapping[str, Paces] = field(default_factory=dict)  # provider -> where they are not `paces`
    homes: Homes | None = None  # None: all machines work with our own object store
    publishers: Mapping[str, Publish] = field(default_factory=dict)  # provider -> where its schedulers look at it
    bad_nodes: Callable[[Placement], tuple[str, ...]] = lambda place: ()  # those that a launch there must avoid
    _pools: dict[str, Executor] = field(default_factory=dict)
    _in_progress: set[tuple[object, ...]] = field(default_factory=set)
    _done_once: set[tuple[object, ...]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        for kind in get_args(Action):
            metrics.ACTIONS.add(kind.__name__, "failed", by=0)
        self._launcher = Launcher(
            store=self.store,
            objects=self.objects,
            providers=self.providers,
            outcomes=self.outcomes,
            clock=self.clock,
            paces=self.paces,
            leads=self._leads,
            paces_of=self.paces_of,
            homes=self.homes,
            avoid=self._avoided,
        )
        self._endings = Endings(
            self.store, self.objects, self.providers, self.outcomes, self.clock, forget_beats=self.forget_beats
        )

    def _avoided(self, place: Placement) -> tuple[str, ...]:
        """`bad_nodes` is set after this object is made."""
        return self.bad_nodes(place)

    def submit(self, run: Run | None, action: Action, lease: Lease) -> None:
        name = _name(run, action)
        with self._lock:
            if name in self._in_progress:
                return
            self._in_progress.add(name)
        self._executor(run, action).submit(self._work, name, run, action, lease, self.clock.monotonic())

    def _executor(self, run: Run | None, action: Action) -> Executor:
        """One pool for each kind of action; with several providers one for each kind and provider."""
        if self.executor is not None:
            return self.executor
        kind = _KINDS.get(type(action), "act")
        provider = _provider_called(run, action) if len(self.providers) > 1 else ""
        name = f"{kind} {provider}".rstrip()
        if name not in self._pools:
            sizes = {
                "act": self.threads,
                "launch": self.launch_threads,
                "pin": PIN_THREADS,
                "evidence": EVIDENCE_THREADS,
                "verb": METER_THREADS,
                "meter": METER_THREADS,
                "publish": PUBLISH_THREADS,
            }
            own_launches = kind == "launch" and provider in self.providers
            size = self.providers[provider].traits.launches_at_once if own_launches else sizes[kind]
            self._pools[name] = self.pool(size, name)
        return self._pools[name]

    @property
    def pending(self) -> int:
        """How many are in progress or wait in a queue."""
        return len(self._in_progress)

    def idle(self) -> bool:
        with self._lock:
            return not self._in_progress

    def close(self) -> None:
        """Queued actions are dropped (they are derived again); those in progress get the time that they need."""
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)

    def _work(
        self, name: tuple[object, ...], run: Run | None, action: Action, lease: Lease, submitted_at: float
    ) -> None:
        outcome = "failed"
        try:
            if not self._leads(lease):
                outcome = "not_leading"
                return
            waited_s = self.clock.monotonic() - submitted_at
            if isinstance(action, StopMeter) and waited_s > action.within_s:
                raise ValueError(f"it waited {waited_s:.0f} s, so its readings are too old; it is derived again")
            self._carry_out(run, action, lease)
            outcome = "done"
        except UNCLEAR as error:
            outcome = "unclear"
            # A platform that looks for capacity takes its time: each tick reports it, and nothing is wrong.
            log.log(
                logging.INFO if isinstance(error, LaunchPending) else logging.WARNING,
                "action not done",
                extra={telemetry.ACTION: name[2], telemetry.RUN_ID: run and run.run_id, telemetry.ERROR: str(error)},
            )
        except Exception:
            log.exception("action failed", extra={telemetry.ACTION: name[2], telemetry.RUN_ID: run and run.run_id})
        finally:
            metrics.ACTIONS.add(type(action).__name__, outcome)
            decides = not isinstance(action, PublishCheckpoint)  # nothing waits for that one
            if self._is_first_success(name, decides and outcome == "done"):
                self.wake.set()

    def _is_first_success(self, name: tuple[object, ...], done: bool) -> bool:
        """Only the first success requests a tick at once: a release that has no effect must not spin the loop."""
        with self._lock:
            self._in_progress.discard(name)
            if not done or name in self._done_once:
                return False
            if len(self._done_once) > DONE_KEPT:
                self._done_once.clear()
            self._done_once.add(name)
            return True

    def _leads(self, lease: Lease) -> bool:
        """Still the leader of that epoch. The lease is renewed in between: a tick, or a queue of actions, that takes
        longer than one lease lasts would otherwise do nothing at all."""
        now = lease if self.leading is None else self.leading()
        return now is not None and now.epoch == lease.epoch and self.clock.monotonic() < now.deadline

    def _carry_out(self, run: Run | None, action: Action, lease: Lease) -> None:
        if isinstance(action, Release):
            self._endings.release(run, action)
            return
        assert run is not None
        match action:
            case Launch() | RaiseNext():
                self._launcher.carry_out(run, action, lease)
            case PinImage():
                self._launcher.pin(run, action)
            case MarkHolderGone():
                batonwork.mark_holder_gone(self.objects, run.run_id, action.launch_id)
            case OrderDrill():
                batonwork.order_drill(self.objects, run.run_id, DrillOrder(action.launch_id, action.number))
            case CloseBaton():
                batonwork.close(self.objects, run, action.reason, self.store.supervisor_id)
            case ForgetHome():
                self._forget_home(run)
            case SwitchOff():
                keeper_of(self.providers, action.ref.provider).stop(action.ref)
            case PublishCheckpoint():
                self.publishers[action.ref.provider](action.ref, action.checkpoint_at, action.unsaved_s)
            case _:
                self._endings.carry_out(run, action)

    def _forget_home(self, run: Run) -> None:
        """By the row as it is now: a later attempt may have begun."""
        row = self.store.find(run.run_id)
        if self.homes is not None and row is not None and row.given_up:
            busy = None if row.open_try is None else row.open_try.placement
            self.homes.write_off(run.run_id, row.given_up, busy)


def _provider_called(run: Run | None, action: Action) -> str:
    """ "" = this action calls none."""
    match action:
        case Release() | AskAgentToStop() | StopMeter() | ReadMeter() | PublishCheckpoint() | SwitchOff():
            return action.ref.provider
        case Launch():
            return action.try_.placement.provider
        case PinImage() if run is not None:
            return run.provider
    return ""


def _name(run: Run | None, action: Action) -> tuple[object, ...]:
    """(run key, launch id, kind, machine or what else distinguishes two actions of one kind)."""
    launch_id = run.try_.launch_id if run is not None and run.try_ is not None else ""
    subject = ""
    match action:
        case Release() | AskAgentToStop() | ReadMeter() | PublishCheckpoint() | SwitchOff():
            subject = action.ref.name
        case StopMeter():
            subject = f"{action.ref.name} {action.verb}"
        case KeepEvidence():
            subject = action.launch_id
        case Launch():  # a race makes two at once
            subject = action.try_.launch_id
        case PinImage():
            subject = action.pinned_for
    return (run.key if run is not None else 0, launch_id, type(action).__name__, subject)
