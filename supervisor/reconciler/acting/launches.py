"""A launch: look up the content of the image, raise the baton, build the request, call the provider.

The order is fixed. The tick commits the row of the try, then the baton's `next` is raised, then the nonce's hash is
stored, then the run is brought to where its machine works, then the provider is called. Immediately before the call
the stop state and the lease are read again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from supervisor.contract import runfiles
from supervisor.contract.baton import Next
from supervisor.contract.identifiers import nonce_hash, parse_launch_id, request_id
from supervisor.contract.saving import factor_of
from supervisor.domain.actions import Launch, PinImage, RaiseNext
from supervisor.domain.attempt import Try, refusal_detail
from supervisor.domain.bases import Base, BaseStatus, steps
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Placement
from supervisor.domain.observation import Absent, CreateFailed, Pinned, Seen, Sent, Unknown
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.living.drilling import asked_notice_s
from supervisor.ports.clock import Clock
from supervisor.ports.objectstore import Homes, ObjectStore
from supervisor.ports.provider import (
    ImageHidden,
    ImageMissing,
    LaunchFailed,
    LaunchRequest,
    Provider,
    ProviderUnavailable,
)
from supervisor.ports.store import Lease, Store
from supervisor.reconciler.acting import batonwork
from supervisor.reconciler.fleet import keeper_of, provider_of
from supervisor.reconciler.observing.readers import read_baton, read_stop
from supervisor.reconciler.outcomes import Outcomes

JOB_VERSION = 1
# Of the time until a stall is judged: then the agent makes a thread dump, so that it is stored before the end.
STALL_DUMP_SHARE = 0.6
UNSENT_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Paces:
    """Settings that the agent gets unchanged, under these names. `server_file`: the file with our address; None = the
    store is its only way."""

    store_url: str
    server_file: str | None
    beat_push_s: float
    beat_store_s: float
    log_chunk_s: float
    cut_off_s: float
    rest_s: float
    upload_reserve_s: float
    results_save_max_mb: int = 256
    poll_interval_s: float = 30.0  # not for the agent: a stall is judged by the supervisor's polls


@dataclass(frozen=True)
class Launcher:
    """`leads`: still the leader of that lease's epoch."""

    store: Store
    objects: ObjectStore
    providers: Mapping[str, Provider]
    outcomes: Outcomes
    clock: Clock
    paces: Paces
    leads: Callable[[Lease], bool]
    paces_of: Mapping[str, Paces]
    homes: Homes | None = None  # None: all machines work with our own object store
    avoid: Callable[[Placement], tuple[str, ...]] = lambda place: ()  # nodes that no run may use
    # (run key, launch id) of calls that cannot have been made yet, because this process made their nonce.
    unsent: set[tuple[int, str]] = field(default_factory=set)

    def carry_out(self, run: Run, action: Launch | RaiseNext, lease: Lease) -> None:
        if isinstance(action, RaiseNext):
            self._raise_winner(run, action, lease)
        else:
            self.launch(run, action, lease)

    def launch(self, run: Run, action: Launch, lease: Lease) -> None:
        try_ = action.try_
        if not self._is_current(run, action):
            return
        is_rival = run.open_rival is not None and run.open_rival.launch_id == try_.launch_id
        nonce, first = self._raise_rival(run, action) if is_rival else self._raise(run, action)
        # The beats of a rival do not count before it has won, so their nonce is not known before.
        if not is_rival and not self.store.set_nonce_hash(run.key, try_.launch_id, nonce_hash(nonce), lease):
            return  # the lease or the try is not ours any more
        spec = self.store.spec(run.key)
        base = self.store.bases.find(run.policy.base) if run.policy.base else None
        if run.policy.base and (base is None or base.status != BaseStatus.READY):
            text = f"the base {run.policy.base} does not exist any more"
            refused = CreateFailed(try_.launch_id, Cause.LAUNCH_REJECTED, text, of_run=True)
            self.outcomes.create_failed(run.key, refused)
            return
        paces = self.paces_of.get(try_.placement.provider, self.paces)
        request = whole_request(run, try_, spec, base, nonce=nonce, supervisor_id=self.store.supervisor_id, paces=paces)
        request = replace(request, avoid=self.avoid(try_.placement))
        store_url = None if is_rival else self._settle(run, action, spec)
        if not self.leads(lease) or not self._is_current(run, action, first):
            return
        if store_url is not None:
            request = replace(request, job={**request.job, "store_url": store_url})
        request = replace(request, repeated=not first)
        self.unsent.discard((run.key, try_.launch_id))
        try:
            if try_.on is not None:
                keeper_of(self.providers, try_.placement.provider).start(request, try_.on.ref)
            else:
                provider_of(self.providers, try_.placement.provider).launch(request)
        except LaunchFailed as error:
            text = refusal_detail(error.code, str(error))
            self.outcomes.create_failed(
                run.key, CreateFailed(try_.launch_id, error.cause, text, error.of_run, error.scope)
            )

    def _raise(self, run: Run, action: Launch) -> tuple[str, bool]:
        """(the nonce of this try, whether no create call of it can have been made before)."""
        try_ = action.try_
        nonce, new = batonwork.raise_next(
            self.objects, run, try_.launch_id, action.holder_gone, self.store.supervisor_id, beside=try_.beside
        )
        if new:
            if len(self.unsent) > UNSENT_KEPT:
                self.unsent.clear()  # they count as repeated then
            self.unsent.update((run.key, call.launch_id) for call in (try_, run.open_rival) if call is not None)
        return nonce, (run.key, try_.launch_id) in self.unsent

    def _raise_rival(self, run: Run, action: Launch) -> tuple[str, bool]:
        """The same for the second request of a race: the baton names the first."""
        rival = action.try_
        assert run.open_try is not None
        nonce, _ = self._raise(run, replace(action, try_=run.open_try))
        return batonwork.rival_nonce(nonce, rival.launch_id), (run.key, rival.launch_id) in self.unsent

    def _raise_winner(self, run: Run, action: RaiseNext, lease: Lease) -> None:
        """From here on the agent of the second machine may claim, that of the first may not, and its beats count."""
        try_ = action.try_
        nonce, _ = batonwork.raise_next(
            self.objects, run, try_.launch_id, action.holder_gone, self.store.supervisor_id, beside=try_.beside
        )
        self.store.set_nonce_hash(run.key, try_.launch_id, nonce_hash(nonce), lease)

    def _settle(self, run: Run, action: Launch, spec: Mapping[str, Any]) -> str | None:
        """The store that the machine works with; None = our own. It may take long, where files are sent to a host."""
        if self.homes is None:
            return None
        try_, code = action.try_, spec.get("code")
        return self.homes.settle(
            run.run_id,
            try_.launch_id,
            try_.placement,
            holder_gone=action.holder_gone,
            needs=() if code is None else (runfiles.code(code),),
            note=lambda: self.outcomes.sent(run.key, Sent(try_.launch_id, self.clock.now())),
        )

    def _is_current(self, run: Run, action: Launch, first: bool = False) -> bool:
        """The stop state immediately before the call: database, then marker. Where this try was never raised before
        (the baton proves it, or `first`: this call has raised it), no create call can have been made, and the try ends
        definitely."""
        row = self.store.find(run.run_id)
        current = row is not None and row.status == Status.LAUNCHING and row.stop is None
        calls = () if row is None else (row.open_try, row.open_rival)
        current = current and any(call is not None and call.launch_id == action.try_.launch_id for call in calls)
        if current:
            marker = read_stop(self.objects, run.run_id)
            if isinstance(marker, Absent) or (isinstance(marker, Seen) and marker.value == run.stop_consumed):
                return True
            if isinstance(marker, Unknown):
                return False  # stopped or not: the next tick reads it again
            self.outcomes.stop_found(run.key, marker.value)
        if first or self._never_raised(run, action):
            text = "stopped before the machine was requested"
            failed = CreateFailed(action.try_.launch_id, Cause.LAUNCH_REJECTED, text)
            self.outcomes.create_failed(run.key, failed)
        return False

    def _never_raised(self, run: Run, action: Launch) -> bool:
        baton = read_baton(self.objects, run.run_id)
        return isinstance(baton, Absent) or (isinstance(baton, Seen) and not _raised(baton.value.next, action))

    def pin(self, run: Run, action: PinImage) -> None:
        digest = problem = detail = ""
        try:
            digest = self._image_provider(run).pin(action.image)
        except ImageMissing as error:
            problem, detail = "missing", str(error)
        except ImageHidden as error:
            problem, detail = "hidden", str(error)
        except ProviderUnavailable as error:
            problem, detail = "unavailable", str(error)
        self.outcomes.pinned(run.key, Pinned(action.pinned_for, digest, problem, detail, self.clock.now()))

    def _image_provider(self, run: Run) -> Provider:
        """The first of the run's providers that runs images: a tag names the same content for all of them. Raises
        ProviderUnavailable."""
        own = [self.providers[name] for name in run.providers if name in self.providers]
        runs_images = next((provider for provider in own if provider.traits.images), None)
        return runs_images or provider_of(self.providers, run.provider)


def _hazard(run: Run, try_: Try) -> float:
    """How much likelier a preemption is than usual, by what happened to this run so far; 0 where there are none."""
    if not try_.placement.spot:
        return 0.0
    counters = run.counters
    hours = max(0.0, try_.requested_at - run.created_at) / 3600.0
    return factor_of(counters.preemptions, counters.attempts, hours)


def _raised(next_: Next | None, action: Launch) -> bool:
    return next_ is not None and parse_launch_id(next_.launch_id) >= parse_launch_id(action.try_.may_claim_after)


def _job(
    run: Run, try_: Try, spec: Mapping[str, Any], *, nonce: str, supervisor_id: str, paces: Paces
) -> Mapping[str, Any]:
    """What the agent gets as job.json (docs/training-contract.md)."""
    return {
        "version": JOB_VERSION,
        "run_id": run.run_id,
        "generation": run.generation,
        "attempt": try_.attempt,
        "launch_id": try_.launch_id,
        "nonce": nonce,
        "supervisor_id": supervisor_id,
        "command": spec["command"],
        "workdir": spec.get("workdir"),
        "env": spec.get("env") or {},
        "code": spec.get("code"),
        "image_digest": run.image.digest or None,
        "conda_env": spec.get("conda_env"),
        "venv": spec.get("venv"),
        "secrets": sorted(spec.get("secrets") or {}),
        "tracker_url": spec.get("tracker_url"),
        "tracker_id": tracker_id(supervisor_id, run),
        "group": spec.get("group"),
        "checkpoints": spec.get("checkpoints") or {},
        "results": spec.get("results") or [],
        "stage": spec.get("stage") or [],
        "scratch": spec.get("scratch") or [],
        "on_reboot": spec.get("on_reboot"),
        "results_generation": run.generation,
        "retry": spec.get("retry") or {"exit_codes": [], "log_patterns": []},
        "machine_max_s": run.policy.limits.machine_max_s,
        "stop_grace_s": run.policy.stop_grace_s,
        "stop_consumed": run.stop_consumed,
        "stall_dump_s": STALL_DUMP_SHARE * run.policy.stall.polls * paces.poll_interval_s,
        "first_dump_s": STALL_DUMP_SHARE * run.policy.stall.first_progress_s if run.reported else None,
        "hang": run.policy.stall.hang,
        "quiet_s": run.policy.stall.quiet_s,
        "watch": spec.get("watch") or {},
        "hazard": round(_hazard(run, try_), 3),
        "on_resume_ignored": run.policy.on_resume_ignored,
        "steps_from_zero": run.from_zero,
        "keep_machine": run.policy.keep.machine,
        "stays_after_success": run.policy.on_success != "release" or run.policy.require_pull,
        "stays_after_failure": run.policy.on_failure != "release",
        **{name: value for name, value in asdict(paces).items() if name != "poll_interval_s"},
    }


def whole_request(
    run: Run, try_: Try, spec: Mapping[str, Any], base: Base | None, *, nonce: str, supervisor_id: str, paces: Paces
) -> LaunchRequest:
    """Of a launch, of its preview, and of a claim of its machine. `base`: of the run."""
    request = launch_request(run, try_, spec, nonce=nonce, supervisor_id=supervisor_id, paces=paces)
    return prepared(request, run, spec, base)


def launch_request(
    run: Run, try_: Try, spec: Mapping[str, Any], *, nonce: str, supervisor_id: str, paces: Paces
) -> LaunchRequest:
    """The same request for every repeat of this try, because the nonce is read back from the baton."""
    job = _job(run, try_, spec, nonce=nonce, supervisor_id=supervisor_id, paces=paces)
    return LaunchRequest(
        name=try_.machine_name,
        request_id=request_id(supervisor_id, run.run_id, run.generation, try_.attempt, try_.number),
        placement=try_.placement,
        supervisor_id=supervisor_id,
        run_id=run.run_id,
        launch_id=try_.launch_id,
        machine_max_s=run.policy.limits.machine_max_s,
        job=job,
        image=run.image.digest or run.policy.image,
        secrets=spec.get("secrets") or {},
        checkpoint_s=run.files.checkpoint_s,
        notice_s=asked_notice_s(run) or 0.0,
        timed_out=run.counters.timed_out,
        out_of_memory=run.counters.out_of_memory,
        memory_bytes=run.counters.memory_bytes,
        waits_s=try_.waits_s,
        keep=run.policy.keep.machine,
    )


def tracker_id(supervisor_id: str, run: Run) -> str:
    """The same for all attempts and generations that go on in one training, and for no other run: runs of several
    supervisors may have one name and one project of a tracker."""
    digest = hashlib.sha256(f"{supervisor_id}/{run.run_id}".encode()).hexdigest()[:6]
    over = "" if run.fresh_generation == 1 else f"-g{run.fresh_generation}"
    return f"{run.run_id}-{digest}{over}"


def prepared(request: LaunchRequest, run: Run, spec: Mapping[str, Any], base: Base | None) -> LaunchRequest:
    """The request with what prepares its machine. `base`: of the run. A machine that begins with its image has it, and
    every other one does its script. The agent of a machine that becomes a base does not stay: its disk is cleaned."""
    image = base.image if base is not None and base.has_image and base.provider == request.placement.provider else None
    todo = steps(spec, run.image.digest, base if image is None else None)
    stays = request.job["stays_after_success"] and not run.policy.prepares
    setup = {"steps": todo, "limit_s": run.policy.stall.setup_s, "folder": None}
    return replace(
        request,
        job={**request.job, "setup": setup, "stays_after_success": stays},
        base=image.name if image is not None else "",
        base_disk_gb=image.disk_gb if image is not None else 0,
        prepares=run.policy.prepares,
    )
