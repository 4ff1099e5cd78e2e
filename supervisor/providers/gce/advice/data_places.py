"""Where the data of runs lies, for `same_region` and for what reading it from elsewhere costs.

A registry tells it in its name. A bucket must be asked: once, in the background or for a person who waits, and a bucket
never moves, so the answer is kept. A submit asks nobody: it takes what is known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from supervisor.images.registry import parse
from supervisor.ports.objectstore import StoreUnavailable
from supervisor.ports.platform import DataPlace
from supervisor.ports.provider import ImageMissing, ProviderUnavailable
from supervisor.providers.gce.config import GceConfig
from supervisor.providers.gce.prices import locations
from supervisor.providers.gce.prices.locations import Location


class DataPlaces:
    """`describe`: the bucket's own description; StoreUnavailable where it cannot be read. Threads may ask at once."""

    def __init__(self, config: GceConfig, describe: Callable[[], Mapping[str, Any]]) -> None:
        self._config, self._describe = config, describe
        self._lock = threading.Lock()
        self._found: Location | None = None
        self._trouble = "it has not been read yet"
        self._asking = False

    @property
    def bucket(self) -> str:
        """gs://BUCKET, without a folder in it."""
        return "/".join(self._config.store_url.split("/", 3)[:3])

    def learn(self) -> None:
        """Ask the bucket, if it is not known yet. Seconds; raises nothing."""
        if self._found is not None:
            return
        try:
            found = locations.of_bucket(self._describe())
            trouble = "" if found is not None else "its description names no place that is known"
        except StoreUnavailable as error:
            found, trouble = None, str(error)
        with self._lock:
            self._found, self._trouble = found, trouble

    def learn_soon(self) -> None:
        """The same in the background, one at a time. Returns at once."""
        with self._lock:
            if self._asking or self._found is not None:
                return
            self._asking = True
        threading.Thread(target=self._learn_once, name="data places", daemon=True).start()

    def of_bucket(self) -> Location:
        """Raises ProviderUnavailable where it is not known."""
        if self._found is None:
            raise ProviderUnavailable(f"where {self.bucket} lies is not known: {self._trouble}")
        return self._found

    def told(self, regions: Sequence[str], image: str, ask: bool) -> tuple[DataPlace, ...]:
        """As Platform.data_places. Of the registry nothing where its name does not tell."""
        if ask:
            self.learn()
        elif self._found is None:
            self.learn_soon()
        found = [(f"the bucket {self.bucket}", self.of_bucket())]
        registry = registry_of(image)
        if registry is not None:
            found.append((f"the image registry {registry[0]}", registry[1]))
        return tuple(
            DataPlace(what, place.name, tuple(region for region in regions if place.covers(region)))
            for what, place in found
        )

    def _learn_once(self) -> None:
        try:
            self.learn()
        finally:
            with self._lock:
                self._asking = False


def registry_of(image: str) -> tuple[str, Location] | None:
    """(host, place) of an image's registry. None: there is no image, or its name does not tell."""
    if not image:
        return None
    try:
        host = parse(image).host
    except ImageMissing:
        return None
    place = locations.of_image(host)
    return None if place is None else (host, place)
