"""The object store that the settings name, opened by the scheme of its address: a folder, or one that is remote.

A folder is made only where no run can have anything in it yet: an empty mount point is not an empty store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from supervisor.domain.errors import SettingsRefused
from supervisor.domain.findings import OK, Finding
from supervisor.objectstores.filesystem import FilesystemStore
from supervisor.objectstores.reading import open_remote
from supervisor.ports.objectstore import ObjectReader, ObjectStore, StoreUnavailable
from supervisor.ports.store import RunFilter, Store
from supervisor.settings.loading import Settings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OpenedStore:
    """`impatient(patience_s)`: the same store once more, for a person who waits; `close` closes it, too. `warm` loads
    what is slow to load, and raises nothing."""

    objects: ObjectStore
    impatient: Callable[[float], ObjectStore]
    warm: Callable[[], None] = lambda: None
    close: Callable[[], None] = lambda: None


def open_store(settings: Settings, store: Store | None) -> OpenedStore:
    """`store`: the database, None = a folder is left as it is. Raises SettingsRefused."""
    if _is_folder(settings):
        folder = _folder(settings, store)
        return OpenedStore(folder, lambda patience_s: folder)
    opened = contextlib.ExitStack()
    remote = opened.enter_context(contextlib.closing(_refusing(open_remote, settings.store_url)))

    def impatient(patience_s: float) -> ObjectStore:
        again = partial(open_remote, patience_s=patience_s)
        return opened.enter_context(contextlib.closing(_refusing(again, settings.store_url)))

    def warm() -> None:
        with contextlib.suppress(StoreUnavailable):  # the first use says it
            remote.warm()

    return OpenedStore(remote, impatient, warm, opened.close)


def _is_folder(settings: Settings) -> bool:
    return settings.store_url.startswith("file:")


def _folder(settings: Settings, store: Store | None) -> FilesystemStore:
    objects = _refusing(FilesystemStore.at, settings.store_url)
    if store is None:
        return objects
    if settings.origins["store_url"] == "default" or not store.page(RunFilter(), None, 1).runs:
        if objects.folder.parent == settings.data_dir:
            # Logs and results of runs: private, whatever the data folder's mode. The store says what is wrong.
            with contextlib.suppress(OSError):
                objects.folder.mkdir(mode=0o700)
        return FilesystemStore.create(objects.folder)
    return objects


@contextlib.contextmanager
def stored_objects(settings: Settings) -> Iterator[ObjectReader | None]:
    """The object store alone, to be read before anything else is opened; None = its folder is not
    there yet, or empty. Raises SettingsRefused."""
    if _is_folder(settings):
        objects = _refusing(FilesystemStore.at, settings.store_url)
        yield objects if objects.folder.is_dir() and any(objects.folder.iterdir()) else None
        return
    with contextlib.closing(_refusing(open_remote, settings.store_url)) as remote:
        yield remote


def store_beside(settings: Settings) -> tuple[ObjectStore | None, tuple[Finding, ...]]:
    """The folder of a supervisor that may not have started yet; None with the line that says so. Raises
    SettingsRefused."""
    objects = _refusing(FilesystemStore.at, settings.store_url)
    if objects.folder.exists():
        return objects, ()
    fact = f"{objects.url} is not there yet: the first `spot serve` makes it"
    return None, (Finding("objects", OK, fact),)


def _refusing(at: Callable[[str], T], url: str) -> T:
    try:
        return at(url)
    except (ValueError, ImportError) as error:
        raise SettingsRefused(f"store_url: {error}", {"store_url": url}) from None
