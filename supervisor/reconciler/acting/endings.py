"""Actions at the end of an attempt or a run: stop its agent, verify its results, release its machine, clean up.

All are safe to repeat. Nothing here keeps a machine billing: what cannot be stored before a release is logged.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from supervisor.contract import runfiles
from supervisor.contract.baton import BatonRefused, Done, FileEntry
from supervisor.contract.identifiers import parse_launch_id
from supervisor.contract.runfiles import manifest_sha256
from supervisor.domain.actions import (
    AskAgentToStop,
    Finalise,
    KeepEvidence,
    ReadMeter,
    Release,
    StopMeter,
    VerifyResults,
    WriteStopMarker,
)
from supervisor.domain.observation import MeterReport, Seen, Verification
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.ending.retiring import lost_launches
from supervisor.ports.clock import Clock
from supervisor.ports.objectstore import ObjectMissing, ObjectStore
from supervisor.ports.provider import MeterFailed, Meters, NotSupported, Provider, ProviderUnavailable
from supervisor.ports.store import Store
from supervisor.reconciler.acting import batonwork, records
from supervisor.reconciler.fleet import provider_of
from supervisor.reconciler.outcomes import Outcomes
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import metrics

log = logging.getLogger(__name__)

Ending = AskAgentToStop | WriteStopMarker | VerifyResults | KeepEvidence | StopMeter | ReadMeter | Finalise


@dataclass(frozen=True)
class Endings:
    store: Store
    objects: ObjectStore
    providers: Mapping[str, Provider]
    outcomes: Outcomes
    clock: Clock
    forget_beats: Callable[[str], None]

    def carry_out(self, run: Run, action: Ending) -> None:
        match action:
            case AskAgentToStop():
                self._ask_to_stop(action)
            case WriteStopMarker():
                self._write_stop(run, action.actor)
            case VerifyResults():
                self.outcomes.verified(run.key, verify(self.objects, action.done))
            case KeepEvidence():
                self._keep_evidence(run, action.launch_id)
            case StopMeter():
                self._stop_meter(run, action)
            case ReadMeter():
                self._read_meter(run, action)
            case Finalise():
                self._finalise(run, action)

    def _ask_to_stop(self, action: AskAgentToStop) -> None:
        try:
            provider_of(self.providers, action.ref.provider).ask_to_stop(action.ref)
        except NotSupported:
            return  # the .stop marker and the response to a push request the same

    def _stop_meter(self, run: Run, action: StopMeter) -> None:
        """What fails is reported, and the decision that reads the report spaces the tries."""
        last = self.outcomes.of(run.key).verb
        if isinstance(last, Seen) and last.value.good and (last.value.machine, last.value.verb) == _names(action):
            approval = run.approved_end
            if approval is not None and last.value.at >= approval.at:
                return  # done; the tick that derived this action had not seen the report yet
        fields = {telemetry.RUN_ID: run.run_id, telemetry.MACHINE: action.ref.name, telemetry.REASON: action.verb}
        log.info("stop of a meter: %s", "; ".join(action.readings), extra={telemetry.ACTION: "stop_meter", **fields})
        try:
            good, text = True, self._meters(action).stop(action.ref, action.verb, run.run_id)
        except (ProviderUnavailable, MeterFailed) as error:
            good, text = False, str(error)
        self.outcomes.verb_tried(run.key, MeterReport(*_names(action), good, text, self.clock.now(), action.readings))

    def _read_meter(self, run: Run, action: ReadMeter) -> None:
        """Could not read is not stopped."""
        try:
            runs, text = self._meters(action).read(action.ref, action.verb)
        except (ProviderUnavailable, MeterFailed) as error:
            runs, text = True, f"it cannot be read: {error}"
        self.outcomes.meter_read(run.key, MeterReport(*_names(action), not runs, text, self.clock.now()))

    def _meters(self, action: StopMeter | ReadMeter) -> Meters:
        meters = provider_of(self.providers, action.ref.provider).meters
        if meters is None:
            raise ProviderUnavailable(f"{action.ref.provider} cannot stop the bill of {action.ref.zone} any more")
        return meters

    def _write_stop(self, run: Run, actor: str) -> None:
        """Not when a resume came first: this marker would be a new one, and stop the new generation."""
        row = self.store.find(run.run_id)
        if row is not None and row.generation == run.generation:
            batonwork.write_stop(self.objects, run.run_id, actor)

    def _keep_evidence(self, run: Run, launch_id: str, release: tuple[str, ...] = ()) -> None:
        attempt = records.attempt_of(self.store, run, launch_id)
        if attempt is not None:
            records.keep_evidence(self.objects, run, attempt, self.clock.monotonic, release)

    def release(self, run: Run | None, action: Release) -> None:
        provider = provider_of(self.providers, action.ref.provider)
        if run is not None:
            self._mark_before_release(run)
        if run is not None and action.launch_id not in lost_launches(run):  # it has the attempt number of the winner
            _try(partial(self._keep_console, run, provider, action), run, "console", "console not kept")
            keep = partial(self._keep_evidence, run, action.launch_id, action.readings)
            _try(keep, run, "evidence", "evidence not kept before the release")
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
        """A stop that meets a start, or whose grace is short, comes here before the marker was requested. A reader of
        the run's folder must never find the machine gone without a reason."""
        stop = run.stop
        if stop is not None and run.status == Status.STOPPING:
            _try(partial(self._write_stop, run, stop.actor), run, "stop", "stop marker not written")

    def _keep_console(self, run: Run, provider: Provider, action: Release) -> None:
        tail = provider.console(action.ref)
        if tail:
            self.objects.put(runfiles.console(run.run_id, parse_launch_id(action.launch_id)[1]), tail)

    def _finalise(self, run: Run, action: Finalise) -> None:
        try:
            ours = batonwork.close(self.objects, run, action.reason, self.store.supervisor_id)
        except BatonRefused:
            raise
        except ValueError:
            ours = True  # torn: it stays as it is for a person to fix, and nobody can claim it
        if not ours:
            return
        records.write_records(self.objects, self.store, run)
        records.keep_missing_evidence(self.objects, self.store, run, self.clock.monotonic)
        self.objects.delete(runfiles.beat(run.run_id))
        self.objects.delete(runfiles.boot_beat(run.run_id))
        self.forget_beats(run.run_id)
        self.outcomes.finalised(run.key)


def _names(action: StopMeter | ReadMeter) -> tuple[str, str]:
    return action.ref.name, action.verb


def _try(act: Callable[[], None], run: Run, name: str, failed: str) -> None:
    """Before a release, which goes on whatever happens here."""
    try:
        act()
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not keep a machine billing
        named = {telemetry.ACTION: name, telemetry.RUN_ID: run.run_id, telemetry.ERROR: str(error)}
        log.warning(failed, extra=named)


def verify(objects: ObjectStore, done: Done) -> Verification:
    """The results that `done` names, compared with the store: size and sha256 of every file. Raises StoreUnavailable
    when the store gives no clear answer: then nothing is known, and the next tick retries."""
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
