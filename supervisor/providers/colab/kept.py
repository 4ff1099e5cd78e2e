"""The launches of Colab, kept in the object store: one small object each, from the launch to the release.

A session has no name and no label of ours, and a pasted cell leaves nothing at all before it claims. So what a machine
is called and what it was asked for stands here, where every replica of the supervisor reads it, with one listing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from supervisor.ports.objectstore import (
    ABSENT,
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    PreconditionFailed,
    StoreUnavailable,
)
from supervisor.ports.provider import LaunchRejected, LaunchRequest, ProviderUnavailable

PREFIX = "sessions"


@dataclass(frozen=True, slots=True)
class Kept:
    """`way`: its zone. Times in epoch seconds. `started_at`: when the client had started its notebook, 0 = not yet.
    `generation`: of the object."""

    name: str
    way: str
    shape: str
    spot: bool
    supervisor_id: str
    run_id: str
    launch_id: str
    asked_at: float
    started_at: float = 0.0
    generation: str = ABSENT

    @property
    def key(self) -> tuple[str, str]:
        """Of its claim."""
        return self.run_id, self.launch_id

    @property
    def values(self) -> dict[str, str]:
        return {
            "way": self.way,
            "shape": self.shape,
            "spot": "yes" if self.spot else "no",
            "supervisor_id": self.supervisor_id,
            "run_id": self.run_id,
            "launch_id": self.launch_id,
            "asked_at": repr(self.asked_at),
            "started_at": repr(self.started_at),
        }


def of_request(request: LaunchRequest, now: float) -> Kept:
    place = request.placement
    return Kept(
        name=request.name,
        way=place.zone,
        shape=place.shape,
        spot=place.spot,
        supervisor_id=request.supervisor_id,
        run_id=request.run_id,
        launch_id=request.launch_id,
        asked_at=now,
    )


class Launches:
    """Of one provider. Every method raises ProviderUnavailable."""

    def __init__(self, objects: ObjectStore, provider: str) -> None:
        self._objects, self._prefix = objects, f"{PREFIX}/{provider}/"

    def all(self) -> dict[str, Kept]:
        """By name."""
        with _in_words_of_the_port():
            infos = [info for page in self._objects.pages(self._prefix) for info in page.objects]
        each = (self._read(info) for info in infos)
        return {kept.name: kept for kept in each if kept is not None}

    def find(self, name: str) -> Kept | None:
        with _in_words_of_the_port():
            try:
                return self._read(self._objects.stat(self._prefix + name))
            except ObjectMissing:
                return None

    def keep(self, wanted: Kept) -> Kept:
        """This launch's, as it is kept already or from now on. Raises LaunchRejected for another launch's name."""
        existing = self.find(wanted.name)
        if existing is None:
            with _in_words_of_the_port():
                try:
                    info = self._objects.put(self._prefix + wanted.name, b"", ABSENT, wanted.values)
                    return replace(wanted, generation=info.generation)
                except PreconditionFailed:
                    existing = self.find(wanted.name)
        if existing is None:
            raise ProviderUnavailable(f"{wanted.name} was released while it was requested")
        if (existing.supervisor_id, existing.launch_id) != (wanted.supervisor_id, wanted.launch_id):
            owner = f"launch {existing.launch_id} of run {existing.run_id}"
            raise LaunchRejected(f"session {wanted.name} already exists, of {owner}")
        return existing

    def note_start(self, kept: Kept, now: float) -> Kept:
        """Its notebook runs. A launch that was released meanwhile stays released."""
        started = replace(kept, started_at=now)
        with _in_words_of_the_port():
            try:
                info = self._objects.put(self._prefix + kept.name, b"", kept.generation, started.values)
            except PreconditionFailed:
                raise ProviderUnavailable(f"{kept.name} was changed or released while its session began") from None
        return replace(started, generation=info.generation)

    def forget(self, kept: Kept) -> None:
        with _in_words_of_the_port():
            try:
                self._objects.delete(self._prefix + kept.name, kept.generation)
            except PreconditionFailed:
                raise ProviderUnavailable(f"{kept.name} was changed while it was released") from None

    def _read(self, info: ObjectInfo) -> Kept | None:
        """None: the object is not one of ours."""
        values: Mapping[str, str] = info.metadata
        try:
            return Kept(
                name=info.key.removeprefix(self._prefix),
                way=values["way"],
                shape=values["shape"],
                spot=values["spot"] == "yes",
                supervisor_id=values["supervisor_id"],
                run_id=values["run_id"],
                launch_id=values["launch_id"],
                asked_at=float(values["asked_at"]),
                started_at=float(values["started_at"]),
                generation=info.generation,
            )
        except (KeyError, ValueError):
            return None


@contextmanager
def _in_words_of_the_port() -> Iterator[None]:
    try:
        yield
    except StoreUnavailable as error:
        raise ProviderUnavailable(f"the launches cannot be read or written in the object store: {error}") from error
