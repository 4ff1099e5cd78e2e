"""The work on bases that become images: read what a base depends on, decide, write the row, then act.

One process of a database does it, in every poll interval, and only while a base is not settled. A row that another
process changed meanwhile is decided again next time. Nothing here fails a tick.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field, replace

from supervisor.contract import runfiles
from supervisor.contract.identifiers import request_id
from supervisor.domain.bases import Base, BaseStatus, ImageSeen
from supervisor.domain.events import Event, EventKind
from supervisor.domain.observation import NOT_READ, Absent, Part, Seen, Unknown
from supervisor.domain.run import Run
from supervisor.lifecycle.bases import Report, Situation, Step, failed, next_step
from supervisor.ports.objectstore import ObjectMissing, StoreUnavailable
from supervisor.ports.provider import DiskImages, ImageRefused, ImageRequest, ProviderUnavailable
from supervisor.ports.store import StoreDown
from supervisor.services.bases.requests import KEEP_S, user_of
from supervisor.services.parts import Parts
from supervisor.services.runs.changing import Action, change
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BaseWork:
    """For one thread at a time. `released`: settled bases whose machines need no more look."""

    parts: Parts
    released: set[str] = field(default_factory=set)

    def run(self, now: float) -> None:
        """Raises StoreDown. No other error ends the loop, or keeps the work on the next base from being done."""
        for base in self.parts.store.bases.all():
            try:
                if base.settled:
                    self._release_once(base, now)
                else:
                    self._work(base, now)
            except StoreDown:
                raise
            except Exception:
                log.exception("no work on base %s", base.name, extra={telemetry.ACTION: "base"})

    def _work(self, base: Base, now: float) -> None:
        images = self.parts.images.get(base.provider)
        if images is None and base.image is not None and not base.image.gone:
            return  # its provider is not in the settings now: its image cannot be read
        step = next_step(base, self._situation(base, images, now))
        self._carry_out(base, step, images, now)

    def _carry_out(self, base: Base, step: Step, images: DiskImages | None, now: float) -> None:
        if step.base is not None and self.parts.store.bases.change(step.base, step.event, now) is None:
            return  # changed meanwhile: decided again next time
        try:
            if step.request and images is not None:
                self._request(base, images, now)
            if step.delete and images is not None and base.image is not None:
                images.delete(base.image.name, base.image.request_id)
            if step.release and base.run_id:
                self._release(base)
        except ProviderUnavailable as error:
            extra = {telemetry.ACTION: "base", telemetry.ERROR: str(error)}
            log.warning("base %s waits", base.name, extra=extra)

    def _situation(self, base: Base, images: DiskImages | None, now: float) -> Situation:
        store = self.parts.store
        run = store.find(base.run_id) if base.status == BaseStatus.PREPARING and base.run_id else None
        return Situation(
            now=now,
            prefix=self.parts.knobs.machine_prefix,
            supervisor_id=store.supervisor_id,
            request_id=request_id(store.supervisor_id, f"base {base.name}", 1, 1, 1),
            run=run,
            report=NOT_READ if run is None else self._report(run),
            image=self._image(base, images),
            used_by=user_of(self.parts, base) if base.status == BaseStatus.DELETING else "",
        )

    def _report(self, run: Run) -> Part[Report]:
        if run.attempt is None:
            return Absent()
        try:
            raw, _ = self.parts.objects.get(runfiles.prepared(run.run_id, run.attempt.number))
            return Seen(Report(str(json.loads(raw)["launch_id"])))
        except ObjectMissing:
            return Absent()
        except StoreUnavailable as error:
            return Unknown(str(error))
        except (ValueError, KeyError, TypeError):
            return Unknown("the report of the machine cannot be read", torn=True)

    def _image(self, base: Base, images: DiskImages | None) -> Part[ImageSeen]:
        if base.image is None or base.image.gone or images is None:
            return NOT_READ
        try:
            image = images.find(base.image.name, self.parts.store.supervisor_id, base.name)
        except ProviderUnavailable as error:
            return Unknown(str(error))
        return Absent() if image is None else Seen(image)

    def _request(self, base: Base, images: DiskImages, now: float) -> None:
        image = base.image
        assert image is not None
        family = image.name.removesuffix(base.name) + base.family
        wish = ImageRequest(
            name=image.name,
            request_id=image.request_id,
            family=family,
            zone=image.zone,
            disk=image.disk,
            base=base.name,
            supervisor_id=self.parts.store.supervisor_id,
        )
        try:
            images.request(wish)
        except ImageRefused as error:
            step = failed(base, f"the platform made no image: {error}", now)
            self._carry_out(base, step, None, now)

    def _release_once(self, base: Base, now: float) -> None:
        """A process that ended between the row and its release has left the machine, which stays for KEEP_S at most."""
        if base.run_id and base.name not in self.released and now - base.since < KEEP_S:
            self._release(base)
        self.released.add(base.name)

    def _release(self, base: Base) -> None:
        """The machine that is kept for the image goes now; one that is gone already changes nothing."""
        if self.parts.store.find(base.run_id) is None:
            return  # it was never submitted

        def update(run: Run, now: float) -> tuple[Run, Event] | None:
            if not run.terminal or run.kept_until is None or run.kept_until <= now:
                return None
            note = f"base {base.name} needs it no more"
            retiring = tuple(replace(item, until=min(item.until, now), note=note) for item in run.retiring)
            event = Event(EventKind.BASE, f"Its machine is released: {note}.", data={"base": base.name})
            return replace(run, retiring=retiring, kept_until=None), event

        change(self.parts, base.run_id, Action(update, "its machine stays until its own limit"))
