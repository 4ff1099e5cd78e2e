"""The agent's zipapp in the object store, where every machine fetches it: named by its content, uploaded once."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path

from supervisor.contract import runfiles
from supervisor.ports.objectstore import ABSENT, ObjectStore, PreconditionFailed, StoreUnavailable
from supervisor.ports.provider import LaunchRejected, ProviderUnavailable
from supervisor.providers.gce.machines.instance import Parcel, startup_script

LOOK_AGAIN_S = 3600.0  # somebody may have emptied the bucket meanwhile


class ParcelPost:
    """`agent`: the zipapp of this version."""

    def __init__(self, objects: ObjectStore, agent: Path | None, monotonic: Callable[[], float]) -> None:
        self._objects, self._agent, self._monotonic = objects, agent, monotonic
        self._lock = threading.Lock()
        self._made: tuple[Parcel, float] | None = None  # and when it was last known to be in the store

    def ready(self) -> Parcel:
        """What machines are started with; it is in the store now. LaunchRejected, ProviderUnavailable."""
        with self._lock:
            made = self._made
        if made is not None and self._monotonic() - made[1] < LOOK_AGAIN_S:
            return made[0]
        try:
            if self._agent is None:
                raise LaunchRejected("this installation has no agent; `make agent` builds it")
            data = self._agent.read_bytes()
            script = startup_script()
        except OSError as error:
            raise LaunchRejected(f"this installation is not complete: {error}") from error
        parcel = Parcel(script, hashlib.sha256(data).hexdigest())
        try:
            self._objects.put(runfiles.agent(parcel.agent_sha256), data, if_generation=ABSENT)
        except PreconditionFailed:
            pass  # it is there
        except StoreUnavailable as error:
            raise ProviderUnavailable(f"the agent cannot be put into the store: {error}") from error
        with self._lock:
            self._made = (parcel, self._monotonic())
        return parcel
