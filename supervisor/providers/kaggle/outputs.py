"""The output of a session without the internet, as Kaggle has it: objects by their places in an archive.

A list without an index is a lost output, and so are an index or an archive of another size or launch; anything that
could not be read is read again. What is taken of it into the run's store is in objectstores/outputs.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from supervisor.contract import baton as batons
from supervisor.contract import heartbeat, parcel, runfiles
from supervisor.contract.baton import Baton
from supervisor.contract.heartbeat import BeatRejected
from supervisor.contract.identifiers import parse_launch_id
from supervisor.contract.parcel import Index, Packed
from supervisor.ports.objectstore import (
    MAX_PAGE,
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    OutputLost,
    Page,
    StoreUnavailable,
)
from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.kaggle.api import Api
from supervisor.providers.kaggle.kernels import Label, slug_of


@dataclass
class Output:
    """ObjectReader of ports/objectstore.py: the objects of one output, by their places in its archive."""

    api: Api
    address: str
    index: Index
    url: str  # for people

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        packed = self._packed(key)
        count = packed.size - offset if length is None else min(length, packed.size - offset)
        if count <= 0:
            return
        try:
            _, pieces = self.api.part(self.address, packed.offset + offset, count)
            yield from pieces
        except ProviderUnavailable as error:
            raise StoreUnavailable(str(error)) from error

    def stat(self, key: str) -> ObjectInfo:
        return _info(self._packed(key))

    def pages(self, prefix: str, page_size: int = MAX_PAGE) -> Iterator[Page]:
        yield Page(tuple(_info(each) for each in self.index.objects if each.key.startswith(prefix)), 0.0)

    @cached_property
    def _by_key(self) -> Mapping[str, Packed]:
        return self.index.by_key()

    def _packed(self, key: str) -> Packed:
        packed = self._by_key.get(key)
        if packed is None:
            raise ObjectMissing(key)
        return packed


def open_output(api: Api, label: Label) -> Output:
    """Of the version of this label. Raises OutputLost, ProviderUnavailable."""
    slug = slug_of(label.name)
    files = api.outputs(slug, label.push)
    if parcel.INDEX not in files or parcel.ARCHIVE not in files:
        raise OutputLost("the version has left no output of a session")
    index = _index(api, files[parcel.INDEX], label)
    size, pieces = api.part(files[parcel.ARCHIVE], 0, 1) if index.size else (index.size, iter(()))
    list(pieces)
    if size is not None and size != index.size:
        raise OutputLost(f"the archive has {size} bytes, and its index names {index.size}")
    return Output(api, files[parcel.ARCHIVE], index, f"the output of {slug}")


def _index(api: Api, address: str, label: Label) -> Index:
    size, pieces = api.part(address, 0, 1)
    list(pieces)
    if size is None:
        raise ProviderUnavailable("the size of the output's index is not said")
    if size > parcel.MAX_INDEX_BYTES:
        raise OutputLost("the index of the output is larger than one can be")
    _, pieces = api.part(address, 0, size)
    try:
        index = parcel.decode_index(b"".join(pieces))
    except ValueError as error:
        raise OutputLost(f"the index of the output cannot be used: {error}") from None
    if (index.run_id, index.launch_id) != (label.run_id, label.launch_id):
        raise OutputLost(f"the output is of launch {index.launch_id} of {index.run_id}")
    return index


def read_baton(objects: ObjectStore, run_id: str) -> tuple[Baton, ObjectInfo] | None:
    """None = there is none. Raises StoreUnavailable: also for a torn one."""
    try:
        raw, info = objects.get(runfiles.baton(run_id))
        return batons.decode(raw), info
    except ObjectMissing:
        return None
    except ValueError as error:
        raise StoreUnavailable(f"the baton of {run_id} cannot be read") from error


def is_here(objects: ObjectStore, label: Label) -> bool:
    """The final beat of this launch is in the store, which is written after everything else."""
    with suppress(ObjectMissing, BeatRejected):
        beat = heartbeat.parse(objects.get(runfiles.beat(label.run_id))[0])
        return beat.launch_id == label.launch_id and parcel.is_final(beat)
    return False


def newest_first(labels: Mapping[str, Label]) -> list[str]:
    """Slugs, by their launches."""
    return sorted(labels, key=lambda slug: parse_launch_id(labels[slug].launch_id), reverse=True)


def _info(packed: Packed) -> ObjectInfo:
    return ObjectInfo(packed.key, packed.size, packed.sha256, 0.0, packed.metadata)
