"""Carry out what was decided, after its commit, in bounded threads. Never decides.

Each action is named by (run, launch, action, machine): while one of that name is under way, a repeat is dropped. Kinds
that may take long have threads of their own: a hundred launches do not keep a machine billing that is to go. With
several providers each has threads of its own for what it is asked, so that one that hangs fills no other's. Every
worker checks the lease's monotonic deadline, and before a Launch the stop state, immediately before the call. What an
action learns goes to `outcomes`; what fails unclearly is logged and derived again by the next tick.

The results that `done` names, compared with what the store really holds: size and sha256 of every file.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import get_args

from supervisor.contract import runfiles
from supervisor.contract.baton import BatonRefused, Done, FileEntry
from supervisor.contract.identifiers import parse_launch_id
from supervisor.contract.runfiles import manifest_sha256
from supervisor.domain.actions import (
    Action,
    AskAgentToStop,
    CloseBaton,
    Finalise,
    KeepEvidence,
    Launch,
    MarkHolderGone,
    PinImage,
    Release,
    VerifyResults,
    WriteStopMarker,
)
from supervisor.domain.observation import Verification
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.clock import Clock, Wake
from supervisor.ports.objectstore import ObjectMissing, ObjectStore, StoreUnavailable
from supervisor.ports.provider import LaunchPending, NotSupported, Provider, ProviderUnavailable
from supervisor.ports.store import Lease, Store, StoreDown
from supervisor.reconciler.acting import batonwork, evidence
from supervisor.reconciler.acting.jobs import Paces
from supervisor.reconciler.acting.launches import Launcher
from supervisor.reconciler.acting.outcomes import Outcomes
from supervisor.reconciler.acting.records import write_records
from supervisor.reconciler.fleet import provider_of
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import metrics


def verify(objects: ObjectStore, done: Done) -> Verification:
    """Raises StoreUnavailable when the store gives no clear answer: then nothing is known, and it is tried again."""
    problems = [problem for entry in done.results if (problem := _problem(objects, done.prefix + entry.name, entry))]
    return Verification(done.launch_id, manifest_sha256(done.results), done.results, tuple(problems))


def _problem(objects: ObjectStore, key: str, entry: FileEntry) -> str | None:
    digest, size = hashlib.sha256(), 0
    try:
        for block in objects.read(key):
            digest.update(block)
            size += len(block)
    except ObjectMissing:
        return f"{entry.name} is missing"
    if size != entry.size:
        return f"{entry.name} has {size} bytes, {entry.size} were written"
    if digest.hexdigest() != entry.sha256:
        return f"{entry.name} has another sha256 than was written"
    return None


log = logging.getLogger(__name__)

EVIDENCE_THREADS, PIN_THREADS = 2, 4
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
    leading: Callable[[], Lease | None] | None = None  # the lease as it is now; None = nobody renews it
    pool: Callable[[int, str], Executor] = _threads  # (how many at once, whose)
    paces_of: Mapping[str, Paces] = field(default_factory=dict)  # provider -> where they are not `paces`
    _under_way: set[tuple[object, ...]] = field(default_factory=set)
    _done_once: set[tuple[object, ...]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._pool = self._threads(self.threads, "act")
        # When a thousand attempts end at once, their evidence must not stand before the launches that follow.
        self._apart: Mapping[type, Executor] = {
            KeepEvidence: self._threads(EVIDENCE_THREADS, "evidence"),
            Launch: self._threads(self.launch_threads, "launch"),
            PinImage: self._threads(PIN_THREADS, "pin"),
        }
        several = self.providers if len(self.providers) > 1 else {}
        self._of_provider: Mapping[str, Mapping[type, Executor]] = {
            name: self._own_threads(name, provider) for name, provider in several.items()
        }
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
        )

    def _threads(self, count: int, name: str) -> Executor:
        return self.executor or self.pool(count, name)

    def _own_threads(self, name: str, provider: Provider) -> Mapping[type, Executor]:
        act = self._threads(self.threads, f"act {name}")
        launches = self._threads(provider.traits.launches_at_once, f"launch {name}")
        pins = self._threads(PIN_THREADS, f"pin {name}")
        return {Launch: launches, PinImage: pins, Release: act, AskAgentToStop: act}

    def submit(self, run: Run | None, action: Action, lease: Lease) -> None:
        name = _name(run, action)
        with self._lock:
            if name in self._under_way:
                return
            self._under_way.add(name)
        own = self._of_provider.get(_asked_of(run, action), {})
        executor = own.get(type(action)) or self._apart.get(type(action), self._pool)
        executor.submit(self._work, name, run, action, lease)

    @property
    def pending(self) -> int:
        """How many are under way or stand in line."""
        return len(self._under_way)

    def idle(self) -> bool:
        with self._lock:
            return not self._under_way

    def close(self) -> None:
        """Queued actions are dropped (they are derived again); those under way are given the time they need."""
        of_providers = [pool for own in self._of_provider.values() for pool in own.values()]
        for pool in dict.fromkeys((*of_providers, *self._apart.values(), self._pool)):
            pool.shutdown(wait=True, cancel_futures=True)

    def _work(self, name: tuple[object, ...], run: Run | None, action: Action, lease: Lease) -> None:
        done, outcome = False, "failed"
        try:
            if not self._leads(lease):
                outcome = "not_leading"
                return
            self._carry_out(run, action, lease)
            done, outcome = True, "done"
        except UNCLEAR as error:
            outcome = "unclear"
            # A platform that looks for room takes its time: that is told at each tick, and nothing is wrong.
            log.log(
                logging.INFO if isinstance(error, LaunchPending) else logging.WARNING,
                "action not done",
                extra={telemetry.ACTION: name[2], telemetry.RUN_ID: run and run.run_id, telemetry.ERROR: str(error)},
            )
        except Exception:
            log.exception("action failed", extra={telemetry.ACTION: name[2], telemetry.RUN_ID: run and run.run_id})
        finally:
            metrics.ACTIONS.add(type(action).__name__, outcome)
            with self._lock:
                self._under_way.discard(name)
                first = done and name not in self._done_once
                if first:
                    if len(self._done_once) > 50_000:
                        self._done_once.clear()
                    self._done_once.add(name)
            if first:  # only the first success looks again at once: a release that has no effect must not spin the loop
                self.wake.set()

    def _leads(self, lease: Lease) -> bool:
        """Still the leader of that epoch. The lease was renewed meanwhile: a tick, or a queue of actions, that takes
        longer than one lease lasts would else do nothing at all."""
        now = lease if self.leading is None else self.leading()
        return now is not None and now.epoch == lease.epoch and self.clock.monotonic() < now.deadline

    def _carry_out(self, run: Run | None, action: Action, lease: Lease) -> None:
        if isinstance(action, Release):
            return self._release(run, action)
        assert run is not None
        match action:
            case Launch():
                self._launcher.launch(run, action, lease)
            case PinImage():
                self._launcher.pin(run, action)
            case MarkHolderGone():
                batonwork.mark_holder_gone(self.objects, run.run_id, action.launch_id)
            case AskAgentToStop() | WriteStopMarker():
                self._stop(run, action)
            case CloseBaton():
                batonwork.close(self.objects, run, action.reason, self.store.supervisor_id)
            case KeepEvidence():
                self._keep_evidence(run, action)
            case VerifyResults():
                self.outcomes.verified(run.key, verify(self.objects, action.done))
            case Finalise():
                self._finalise(run, action)
        return None

    # --- the rest -------------------------------------------------------------------------------------------------

    def _stop(self, run: Run, action: AskAgentToStop | WriteStopMarker) -> None:
        if isinstance(action, WriteStopMarker):
            self._write_stop(run, action)
        else:
            self._ask_to_stop(run, action)

    def _ask_to_stop(self, run: Run, action: AskAgentToStop) -> None:
        try:
            provider_of(self.providers, action.ref.provider).ask_to_stop(action.ref)
        except NotSupported:
            return  # the .stop marker and the push's answer say the same

    def _write_stop(self, run: Run, action: WriteStopMarker) -> None:
        """Not when a resume came first: this marker would be a new one, and stop the new generation."""
        row = self.store.find(run.run_id)
        if row is not None and row.generation == run.generation:
            batonwork.write_stop(self.objects, run.run_id, action.actor)

    def _release(self, run: Run | None, action: Release) -> None:
        provider = provider_of(self.providers, action.ref.provider)
        if run is not None:
            self._mark_before_release(run)
            self._keep_console(run, provider, action)
            evidence.try_to_keep(self.objects, self.store, run, action, self.clock.monotonic)
        log.info(
            "release",
            extra={
                telemetry.ACTION: "release",
                telemetry.RUN_ID: run and run.run_id,
                telemetry.MACHINE: action.ref.name,
                telemetry.REASON: action.reason,
            },
        )
        provider.release(action.ref)
        metrics.MACHINES_RELEASED.add(action.ref.provider)

    def _mark_before_release(self, run: Run) -> None:
        """A stop that meets a start, or whose grace is short, comes here before the marker was asked for; who looks
        into the folder must never find the machine gone and no reason. A store that is down keeps no machine."""
        if run.stop is None or run.status != Status.STOPPING:
            return
        try:
            self._write_stop(run, WriteStopMarker(run.stop.actor))
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not keep a machine billing
            named = {telemetry.ACTION: "stop", telemetry.RUN_ID: run.run_id, telemetry.ERROR: str(error)}
            log.warning("stop marker not written", extra=named)

    def _keep_evidence(self, run: Run, action: KeepEvidence) -> None:
        attempt = evidence.attempt_of(self.store, run, action.launch_id)
        if attempt is not None:
            evidence.keep(self.objects, run, attempt, self.clock.monotonic)

    def _keep_console(self, run: Run, provider: Provider, action: Release) -> None:
        """Best effort: a console that cannot be read or kept does not keep a machine billing."""
        try:
            tail = provider.console(action.ref)
            if tail:
                attempt = parse_launch_id(action.launch_id)[1]
                self.objects.put(runfiles.console(run.run_id, attempt), tail)
        except UNCLEAR as error:
            log.warning(
                "console not kept",
                extra={telemetry.ACTION: "console", telemetry.RUN_ID: run.run_id, telemetry.ERROR: str(error)},
            )

    def _finalise(self, run: Run, action: Finalise) -> None:
        try:
            ours = batonwork.close(self.objects, run, action.reason, self.store.supervisor_id)
        except BatonRefused:
            raise
        except ValueError:
            ours = True  # torn: it stays as it is for a person to mend, and nobody can claim it
        if not ours:
            return
        write_records(self.objects, self.store, run)
        evidence.keep_missing(self.objects, self.store, run, self.clock.monotonic)
        self.objects.delete(runfiles.beat(run.run_id))
        self.objects.delete(runfiles.boot_beat(run.run_id))
        self.forget_beats(run.run_id)
        self.outcomes.finalised(run.key)


def _asked_of(run: Run | None, action: Action) -> str:
    """The provider that this action asks; "" = none."""
    match action:
        case Release() | AskAgentToStop():
            return action.ref.provider
        case Launch():
            return action.try_.placement.provider
        case PinImage() if run is not None:
            return run.provider
    return ""


def _name(run: Run | None, action: Action) -> tuple[object, ...]:
    launch_id = run.try_.launch_id if run is not None and run.try_ is not None else ""
    named = action.launch_id if isinstance(action, KeepEvidence) else ""
    named = action.pinned_for if isinstance(action, PinImage) else named
    machine = action.ref.name if isinstance(action, Release | AskAgentToStop) else named
    return (run.key if run is not None else 0, launch_id, type(action).__name__, machine)
