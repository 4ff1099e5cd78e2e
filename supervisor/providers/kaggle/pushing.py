"""One push: the notebook of a launch with its ticket, the flags of its session, and what a refusal says for certain."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.contract.notebook import cell
from supervisor.ports.claims import Claims
from supervisor.ports.provider import LaunchFailed, LaunchRejected, LaunchRequest, NoCapacity, ProviderUnavailable
from supervisor.providers.kaggle.api import Api, KaggleError, Push
from supervisor.providers.kaggle.hours import WeeklyHours
from supervisor.providers.kaggle.kernels import Label, notebook, slug_of
from supervisor.providers.kaggle.settings import GPU, TPU, KaggleSettings, accelerator_of

SETTLED_S = 90.0  # how long a push without a clear response may still make its notebook
UNCLEAR_KEPT_S = 3600.0
TICKET_S = 2 * 86_400.0  # a session may be queued for long, and its ticket is good for one claim of a living launch


@dataclass(frozen=True, slots=True)
class Origin:
    """Where sessions come from. `agent()`: the archive. `url`: where they reach the supervisor."""

    agent: Callable[[], Path]
    url: str


class Pusher:
    """Safe to use from every thread."""

    def __init__(
        self, api: Api, s: KaggleSettings, origin: Origin, claims: Claims | None, now: Callable[[], float]
    ) -> None:
        self._api, self._settings, self._origin, self._claims, self._now = api, s, origin, claims, now
        self._lock = threading.Lock()
        self._unclear: dict[str, float] = {}  # machine name -> until when an earlier push may still appear

    def push(self, request: LaunchRequest, number: int, hours: WeeklyHours) -> tuple[int, Label]:
        """(id of the notebook, its label). `number`: of the version. Raises LaunchFailed, ProviderUnavailable."""
        if self._claims is None:
            raise LaunchRejected("claims are known to the supervisor's own process alone")
        now = self._now()
        label = replace(self._label(request), pushed_at=now, push=number)
        push = self._push(label, self._claims.ticket(request, now + TICKET_S))
        try:
            kernel_id, refusal = self._api.push(push)
        except KaggleError as error:
            raise _refused(error.message, hours) from None
        except ProviderUnavailable:
            self._note_unclear(request.name)
            raise
        if refusal:
            raise _refused(refusal, hours)
        if not kernel_id:
            self._note_unclear(request.name)
            raise ProviderUnavailable(f"Kaggle has accepted {push.slug}, and does not say its id")
        return kernel_id, label

    def preview(self, request: LaunchRequest) -> Push:
        """What a launch would push, with a word in place of the ticket."""
        return self._push(self._label(request), "TICKET")

    def wait_until_clear(self, request: LaunchRequest, *, is_new: bool) -> None:
        """An earlier push may still appear; of one by another process nobody knows when it was. `is_new`: there is no
        notebook of that name. Raises ProviderUnavailable."""
        now = self._now()
        with self._lock:
            self._unclear = {name: until for name, until in self._unclear.items() if until + UNCLEAR_KEPT_S > now}
            if request.repeated and is_new:
                self._unclear.setdefault(request.name, now + SETTLED_S)
            if now < self._unclear.get(request.name, -math.inf):
                raise ProviderUnavailable(f"{request.name} was pushed before, and may still appear")

    def _note_unclear(self, name: str) -> None:
        with self._lock:
            self._unclear[name] = self._now() + SETTLED_S

    @staticmethod
    def _label(request: LaunchRequest) -> Label:
        place = request.placement
        names = (request.name, place.zone, place.shape)
        return Label(*names, request.supervisor_id, request.run_id, request.launch_id, pushed_at=0.0)

    def _push(self, label: Label, ticket: str) -> Push:
        s, origin, accelerator = self._settings, self._origin, accelerator_of(self._settings, label.shape)
        assert accelerator is not None  # the shape is one of the offers
        sha256 = hashlib.sha256(origin.agent().read_bytes()).hexdigest()
        source = cell(origin.url, ticket, sha256, f"a session of {label.run_id}")
        return Push(
            slug=slug_of(label.name),
            source=notebook(label, source),
            machine_shape=accelerator.machine_shape,
            gpu=accelerator.zone == GPU,
            tpu=accelerator.zone == TPU,
            timeout_s=int(s.kaggle_session_cap_s),
            image=s.kaggle_image,
        )


def _refused(words: str, hours: WeeklyHours) -> LaunchFailed:
    """Kaggle's refusal, by its words: it has no codes."""
    lower = words.lower()
    if "session count" in lower:
        return NoCapacity(f"Kaggle starts no more sessions of this account now: {words}")
    if "quota" in lower:
        return hours.refused(words)
    return LaunchRejected(f"Kaggle refuses the notebook: {words}")
