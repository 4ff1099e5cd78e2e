"""Before a machine, and the machine: what its image names is asked for, the baton is raised, the provider is called.

The order is fixed: the row of the try is committed (by the tick), the baton's `next` is raised, the nonce's hash is
stored, then the provider is called; and immediately before the call the stop state and the lease are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from supervisor.contract.identifiers import nonce_hash, parse_launch_id
from supervisor.domain.actions import Launch, PinImage
from supervisor.domain.causes import Cause
from supervisor.domain.observation import Absent, CreateFailed, Pinned, Seen, Unknown
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.clock import Clock
from supervisor.ports.objectstore import ObjectStore
from supervisor.ports.provider import ImageHidden, ImageMissing, LaunchFailed, Provider, ProviderUnavailable
from supervisor.ports.store import Lease, Store
from supervisor.reconciler.acting import batonwork
from supervisor.reconciler.acting.jobs import Paces, launch_request
from supervisor.reconciler.acting.outcomes import Outcomes
from supervisor.reconciler.fleet import provider_of
from supervisor.reconciler.observing.readers import read_baton, read_stop


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

    def launch(self, run: Run, action: Launch, lease: Lease) -> None:
        try_ = action.try_
        if not self._still_wanted(run, action):
            return
        nonce, first = batonwork.raise_next(
            self.objects, run, try_.launch_id, action.holder_gone, self.store.supervisor_id
        )
        if not self.store.set_nonce_hash(run.key, try_.launch_id, nonce_hash(nonce), lease):
            return  # the lease or the try is no longer ours
        request = launch_request(
            run,
            try_,
            self.store.spec(run.key),
            nonce=nonce,
            supervisor_id=self.store.supervisor_id,
            paces=self.paces_of.get(try_.placement.provider, self.paces),
        )
        if not self.leads(lease) or not self._still_wanted(run, action, first):
            return
        try:
            provider_of(self.providers, try_.placement.provider).launch(replace(request, repeated=not first))
        except LaunchFailed as error:
            self.outcomes.create_failed(
                run.key, CreateFailed(try_.launch_id, error.cause, str(error), error.of_run, error.scope)
            )

    def _still_wanted(self, run: Run, action: Launch, first: bool = False) -> bool:
        """The stop state immediately before the call: database, then marker. Where this try was never raised before
        (the baton proves it, or `first`: we have just done so), no create call can have been made, and the try ends
        for good."""
        row = self.store.find(run.run_id)
        wanted = row is not None and row.status == Status.LAUNCHING and row.stop is None
        wanted = wanted and row is not None and row.try_ is not None and row.try_.launch_id == action.try_.launch_id
        if wanted:
            marker = read_stop(self.objects, run.run_id)
            if isinstance(marker, Absent) or (isinstance(marker, Seen) and marker.value == run.stop_consumed):
                return True
            if isinstance(marker, Unknown):
                return False  # wanted or not: the next tick asks again
            self.outcomes.stop_found(run.key, marker.value)
        if first or self._never_raised(run, action):
            failed = CreateFailed(
                action.try_.launch_id, Cause.LAUNCH_REJECTED, "stopped before the machine was asked for"
            )
            self.outcomes.create_failed(run.key, failed)
        return False

    def _never_raised(self, run: Run, action: Launch) -> bool:
        baton = read_baton(self.objects, run.run_id)
        return isinstance(baton, Absent) or (isinstance(baton, Seen) and not _raised(baton.value.next, action))

    def _runs_images(self, run: Run) -> Provider:
        """The first of the run's providers that runs images: a tag names the same content for all of them. Raises
        ProviderUnavailable."""
        own = [self.providers[name] for name in run.providers if name in self.providers]
        runs_images = next((provider for provider in own if provider.traits.images), None)
        return runs_images or provider_of(self.providers, run.provider)

    def pin(self, run: Run, action: PinImage) -> None:
        digest = problem = detail = ""
        try:
            digest = self._runs_images(run).pin(action.image)
        except ImageMissing as error:
            problem, detail = "missing", str(error)
        except ImageHidden as error:
            problem, detail = "hidden", str(error)
        except ProviderUnavailable as error:
            problem, detail = "unavailable", str(error)
        self.outcomes.pinned(run.key, Pinned(action.pinned_for, digest, problem, detail, self.clock.now()))


def _raised(next_try: object, action: Launch) -> bool:
    launch = getattr(next_try, "launch_id", None)
    return launch is not None and parse_launch_id(launch) >= parse_launch_id(action.try_.launch_id)
