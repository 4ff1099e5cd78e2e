"""One push: the notebook of a launch with its ticket, the flags of its session, and what a refusal says for certain."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.contract.notebook import cell, cell_apart
from supervisor.contract.parcel import Parcel, encode_parcel
from supervisor.ports.claims import Claims
from supervisor.ports.provider import LaunchFailed, LaunchRejected, LaunchRequest, NoCapacity, ProviderUnavailable
from supervisor.providers.kaggle.api import Api, KaggleError, Push
from supervisor.providers.kaggle.hours import WeeklyHours
from supervisor.providers.kaggle.kernels import Label, notebook, slug_of
from supervisor.providers.kaggle.settings import GPU, TPU, KaggleSettings, accelerator_of

SETTLED_S = 90.0  # how long a push without a clear response may still make its notebook
UNCLEAR_KEPT_S = 3600.0
TICKET_S = 2 * 86_400.0  # a session may be queued for long, and its ticket is good for one claim of a living launch


INPUTS, WORKING = "/kaggle/input", "/kaggle/working"
SOURCE_MAX_BYTES = 1 << 20  # Kaggle documents no limit


@dataclass(frozen=True, slots=True)
class Apart:
    """What a session without the internet begins with. `inputs`: notebooks whose output it sees."""

    parcel: Parcel
    inputs: tuple[str, ...]


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

    def push(self, request: LaunchRequest, number: int, hours: WeeklyHours, apart: Apart | None) -> tuple[int, Label]:
        """(id of the notebook, its label). `number`: of the version. `apart`: what a session without the internet
        begins with. Raises LaunchFailed, ProviderUnavailable."""
        now = self._now()
        label = replace(self._label(request), pushed_at=now, push=number)
        if apart is not None:
            push = self._push_apart(label, apart)
        elif self._claims is None:
            raise LaunchRejected("claims are known to the supervisor's own process alone")
        else:
            push = self._push(label, self._cell(label, self._claims.ticket(request, now + TICKET_S)))
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
        label = self._label(request)
        if label.apart:
            return self._push(label, "# the agent, the job, the baton and the code, as text")
        return self._push(label, self._cell(label, "TICKET"))

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

    def _label(self, request: LaunchRequest) -> Label:
        place = request.placement
        names = (request.name, place.zone, place.shape)
        ids = (request.supervisor_id, request.run_id, request.launch_id)
        return Label(*names, *ids, pushed_at=0.0, apart=not self._settings.kaggle_internet)

    def _cell(self, label: Label, ticket: str) -> str:
        sha256 = hashlib.sha256(self._origin.agent().read_bytes()).hexdigest()
        return cell(self._origin.url, ticket, sha256, f"a session of {label.run_id}")

    def _push_apart(self, label: Label, apart: Apart) -> Push:
        """Raises LaunchRejected."""
        title = f"a session of {label.run_id} without the internet"
        agent, packed = self._origin.agent().read_bytes(), encode_parcel(apart.parcel)
        source = cell_apart(agent, packed, inputs=INPUTS, output=WORKING, title=title)
        push = replace(self._push(label, source), inputs=apart.inputs)
        if len(push.source) > SOURCE_MAX_BYTES:
            raise LaunchRejected(
                f"the source of the notebook would have {len(push.source):,} bytes, and the most here is "
                f"{SOURCE_MAX_BYTES:,}: make the code bundle smaller (.spotignore), or set kaggle_internet = true"
            )
        return push

    def _push(self, label: Label, source: str) -> Push:
        s, accelerator = self._settings, accelerator_of(self._settings, label.shape)
        assert accelerator is not None  # the shape is one of the offers
        return Push(
            slug=slug_of(label.name),
            source=notebook(label, source),
            machine_shape=accelerator.machine_shape,
            gpu=accelerator.zone == GPU,
            tpu=accelerator.zone == TPU,
            timeout_s=int(s.kaggle_session_cap_s),
            image=s.kaggle_image,
            internet=s.kaggle_internet,
        )


def _refused(words: str, hours: WeeklyHours) -> LaunchFailed:
    """Kaggle's refusal, by its words: it has no codes."""
    lower = words.lower()
    if "session count" in lower:
        return NoCapacity(f"Kaggle starts no more sessions of this account now: {words}")
    if "quota" in lower:
        return hours.refused(words)
    return LaunchRejected(f"Kaggle refuses the notebook: {words}")
