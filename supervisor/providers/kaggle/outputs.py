"""The output of a session without the internet: read from Kaggle, verified, and written into the store of its run.

Nothing is written unless the baton's `next` is still this launch, and the baton itself by compare-and-set: a run that
goes on elsewhere keeps what it has. Contents come before the baton that names them, and the final beat comes last: it
says that everything is here, so a repeat after a kill at any point finishes what was begun. Contents are taken by the
copies that hosts use (objectstores/copying.py): by size and SHA-256, only under keys that an agent of this run writes,
and a part that was cut off goes on at its byte.

A list without an index, or a content that differs, is a lost output; anything that could not be read is read again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.contract import baton as batons
from supervisor.contract import heartbeat, parcel, runfiles
from supervisor.contract.baton import Baton
from supervisor.contract.heartbeat import Beat, BeatRejected
from supervisor.contract.identifiers import parse_launch_id
from supervisor.contract.parcel import Index, Packed
from supervisor.objectstores.copying import Copier, Damaged, fetch, held
from supervisor.ports.objectstore import (
    MAX_PAGE,
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    Page,
    PreconditionFailed,
    StoreUnavailable,
)
from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.kaggle.api import Api
from supervisor.providers.kaggle.kernels import Label, slug_of

SMALL_BYTES = 1 << 20  # of a baton or a beat
RECORDS = ("logs/", "instances/")  # below a run's folder


class OutputLost(Exception):
    """There is no output of this session that can be used; the text says why."""


class NotNext(Exception):
    """The run does not wait for this launch: nothing of it is written."""


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

    def small(self, key: str) -> bytes:
        """A baton or a beat. Raises OutputLost, StoreUnavailable."""
        packed = self.index.by_key().get(key)
        if packed is None or packed.size > SMALL_BYTES:
            raise OutputLost(f"it has no {key} that can be read")
        content = b"".join(self.read(key))
        if hashlib.sha256(content).hexdigest() != packed.sha256:
            raise OutputLost(f"{key} in it has another SHA-256 than its index says")
        return content

    def _packed(self, key: str) -> Packed:
        packed = self.index.by_key().get(key)
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
    if size is None or size > parcel.MAX_INDEX_BYTES:
        raise OutputLost("the index of the output is larger than one can be, or its size is not said")
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


def is_waited_for(baton: Baton | None, label: Label) -> bool:
    """The run waits for this launch, and something may be written."""
    if baton is None or baton.closed is not None or baton.supervisor_id != label.supervisor_id:
        return False
    return baton.next is not None and baton.next.launch_id == label.launch_id


def is_here(objects: ObjectStore, label: Label) -> bool:
    """The final beat of this launch is in the store, which is written after everything else."""
    with suppress(ObjectMissing, BeatRejected):
        beat = heartbeat.parse(objects.get(runfiles.beat(label.run_id))[0])
        return beat.launch_id == label.launch_id and _is_final(beat)
    return False


def write(objects: ObjectStore, output: Output, label: Label, parts: Path) -> None:
    """Everything of this output that proves itself. Safe to repeat. Raises NotNext, OutputLost, StoreUnavailable."""
    read = read_baton(objects, label.run_id)
    if read is None or not is_waited_for(read[0], label):
        raise NotNext(label.launch_id)
    own, info = read
    there, beat = _decoded(output, label), _beat(output, label)
    _compare(own, there, label)
    needs = {runfiles.metrics(label.run_id, beat.attempt)}
    copier = Copier(output, objects, label.run_id, parts / label.run_id, None, needs)
    try:
        _copy_records(output, copier, label, needs)
        fetch(copier, there)
    except Damaged as error:
        raise OutputLost(str(error)) from error
    except ObjectMissing as error:
        raise OutputLost(f"it has no {error}") from error
    after = _merged(own, held(copier, there))
    try:
        if after != own:
            objects.put(runfiles.baton(label.run_id), batons.encode(after), info.generation)
    except PreconditionFailed:
        raise StoreUnavailable(f"the baton of {label.run_id} changed while the output was written") from None
    assert own.next is not None
    final = replace(beat, nonce=own.next.nonce)
    text = heartbeat.encode_within(final, heartbeat.MAX_STORED_BYTES)
    objects.put(runfiles.beat(label.run_id), text, metadata={"beat": text.decode()})


def _decoded(output: Output, label: Label) -> Baton:
    try:
        return batons.decode(output.small(runfiles.baton(label.run_id)))
    except ValueError as error:
        raise OutputLost("the baton in it is torn") from error


def _beat(output: Output, label: Label) -> Beat:
    try:
        beat = heartbeat.parse(output.small(runfiles.beat(label.run_id)))
    except BeatRejected as error:
        raise OutputLost(f"the beat in it cannot be used: {error}") from error
    if (beat.run_id, beat.launch_id) != (label.run_id, label.launch_id) or not _is_final(beat):
        raise OutputLost("the last beat in it is not the final one of this launch")
    return beat


def _is_final(beat: Beat) -> bool:
    return beat.phase == heartbeat.FINISHED or beat.left is not None


def _compare(own: Baton, there: Baton, label: Label) -> None:
    """The baton that this launch began with, and what its agent has made of it: the holder is its agent, or as before.
    Raises OutputLost."""
    same = (there.supervisor_id, there.generation, there.closed) == (own.supervisor_id, own.generation, None)
    is_ours = there.next is not None and there.next.launch_id == label.launch_id
    holder = there.holder
    by_us = holder is not None and (holder.launch_id, holder.machine_id) == (label.launch_id, slug_of(label.name))
    if not (same and is_ours and (by_us or holder == own.holder)):
        raise OutputLost("the baton in it is not the one that this launch began with")
    if there.done is not None and there.done.launch_id != label.launch_id:
        raise OutputLost("the finished work in it is another launch's")


def _copy_records(output: Output, copier: Copier, label: Label, needs: set[str]) -> None:
    """Logs and records, each compared with the index. No name is used before all are checked."""
    begins = tuple(runfiles.folder(label.run_id) + name for name in RECORDS)
    copier.carry(
        parcel.entry_of(packed)
        for packed in output.index.objects
        if packed.key.startswith(begins) or packed.key in needs
    )


def _merged(own: Baton, there: Baton) -> Baton:
    """What the agent has changed, in our baton: `next`, a close and the orders are the supervisor's. Where no
    checkpoint in the output is whole, those that are here already go on."""
    after = own._replace(
        holder=there.holder,
        checkpoint=there.checkpoint,
        previous=there.previous,
        kept=there.kept,
        best=there.best,
        done=there.done,
        last=there.last,
    )
    if own.checkpoint is not None and after.checkpoint is None:
        return after._replace(checkpoint=own.checkpoint, previous=own.previous)
    return after


def newest_first(labels: Mapping[str, Label]) -> list[str]:
    """Slugs, by their launches."""
    return sorted(labels, key=lambda slug: parse_launch_id(labels[slug].launch_id), reverse=True)


def _info(packed: Packed) -> ObjectInfo:
    return ObjectInfo(packed.key, packed.size, packed.sha256, 0.0, packed.metadata)
