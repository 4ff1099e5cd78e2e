"""Where the data of runs is, for `same_region` and for the price of reading it from another region.

The name of a registry says where it is. A bucket must be asked once, in the background or while a user waits. A bucket
never moves, so the result is kept. A submit sends no request: it uses what is known.
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
    """`describe`: the bucket's own description; StoreUnavailable where it cannot be read. Threads may share it."""

    def __init__(self, config: GceConfig, describe: Callable[[], Mapping[str, Any]]) -> None:
        self._config, self._describe = config, describe
        self._lock = threading.Lock()
        self._location: Location | None = None  # of the bucket; None = unknown
        self._trouble = "it has not been read yet"
        self._learning = False

    @property
    def bucket(self) -> str:
        """gs://BUCKET, without a prefix."""
        return "/".join(self._config.store_url.split("/", 3)[:3])

    def learn(self) -> None:
        """Read the bucket's location if it is unknown. Takes seconds; raises nothing."""
        if self._location is not None:
            return
        try:
            location = locations.of_bucket(self._describe())
            trouble = "" if location is not None else "its description has no known location"
        except StoreUnavailable as error:
            location, trouble = None, str(error)
        with self._lock:
            self._location, self._trouble = location, trouble

    def learn_soon(self) -> None:
        """The same in the background, one thread at a time. Returns at once."""
        with self._lock:
            if self._learning or self._location is not None:
                return
            self._learning = True
        threading.Thread(target=self._learn_once, name="data places", daemon=True).start()

    def of_bucket(self) -> Location:
        """Raises ProviderUnavailable where it is unknown."""
        if self._location is None:
            raise ProviderUnavailable(f"the location of {self.bucket} is unknown: {self._trouble}")
        return self._location

    def places(self, regions: Sequence[str], image: str, ask: bool) -> tuple[DataPlace, ...]:
        """As Platform.data_places. A registry whose name does not say where it is is left out."""
        if ask:
            self.learn()
        else:
            self.learn_soon()
        located = [(f"the bucket {self.bucket}", self.of_bucket())]
        registry = registry_of(image)
        if registry is not None:
            located.append((f"the image registry {registry[0]}", registry[1]))
        return tuple(
            DataPlace(what, location.name, tuple(region for region in regions if location.covers(region)))
            for what, location in located
        )

    def _learn_once(self) -> None:
        try:
            self.learn()
        finally:
            with self._lock:
                self._learning = False


def registry_of(image: str) -> tuple[str, Location] | None:
    """(host, location) of an image's registry. None: there is no image, or the host does not say where it is."""
    if not image:
        return None
    try:
        host = parse(image).host
    except ImageMissing:
        return None
    location = locations.of_image(host)
    return None if location is None else (host, location)
