"""The output of a session without a network becomes the work of its run, as far as it proves itself.

Nothing is written unless the baton's `next` is still this launch, and the baton itself by compare-and-set: a run that
goes on elsewhere keeps what it has. Contents come before the baton that names them, and the final beat comes last: it
says that everything is here, so a repeat after a kill at any point finishes what was begun. Contents are taken by the
copies that hosts use (copying.py): by size and SHA-256, only under keys that an agent of this run writes, and a part
that was cut off goes on at its byte.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from supervisor.contract import baton as batons
from supervisor.contract import heartbeat, parcel, runfiles
from supervisor.contract.baton import Baton
from supervisor.contract.heartbeat import Beat, BeatRejected
from supervisor.contract.parcel import waits_for
from supervisor.objectstores.copying import Copier, Damaged, fetch, held
from supervisor.ports.objectstore import (
    LeftBy,
    LeftOutput,
    NotWaitedFor,
    ObjectMissing,
    ObjectStore,
    OutputLost,
    PreconditionFailed,
    StoreUnavailable,
)

SMALL_BYTES = 1 << 20  # of a baton or a beat
RECORDS = ("logs/", "instances/")  # below a run's folder


def take(objects: ObjectStore, output: LeftOutput, by: LeftBy, parts: Path) -> None:
    """Everything of this output that proves itself. `parts`: a folder for transfers that were cut off. Safe to repeat.
    Raises NotWaitedFor, OutputLost, StoreUnavailable."""
    try:
        raw, info = objects.get(runfiles.baton(by.run_id))
        own = batons.decode(raw)
    except ObjectMissing:
        raise NotWaitedFor(by.launch_id) from None
    except ValueError as error:
        raise StoreUnavailable(f"the baton of {by.run_id} cannot be read") from error
    if not waits_for(own, by.supervisor_id, by.launch_id):
        raise NotWaitedFor(by.launch_id)
    there, beat = _decoded(output, by), _beat(output, by)
    _compare(own, there, by)
    needs = {runfiles.metrics(by.run_id, beat.attempt)}
    copier = Copier(output, objects, by.run_id, parts / by.run_id, None, needs)
    try:
        _copy_records(output, copier, by, needs)
        fetch(copier, there)
    except Damaged as error:
        raise OutputLost(str(error)) from error
    after = _merged(own, held(copier, there))
    try:
        objects.put(runfiles.baton(by.run_id), batons.encode(after), info.generation)
    except PreconditionFailed:
        raise StoreUnavailable(f"the baton of {by.run_id} changed while the output was written") from None
    assert own.next is not None
    final = beat._replace(nonce=own.next.nonce)
    text = heartbeat.encode_within(final, heartbeat.MAX_STORED_BYTES)
    objects.put(runfiles.beat(by.run_id), text, metadata={"beat": text.decode()})


def _small(output: LeftOutput, key: str) -> bytes:
    """A baton or a beat."""
    packed = output.index.by_key().get(key)
    if packed is None or packed.size > SMALL_BYTES:
        raise OutputLost(f"it has no {key} that can be read")
    content = b"".join(output.read(key))
    if hashlib.sha256(content).hexdigest() != packed.sha256:
        raise OutputLost(f"{key} in it has another SHA-256 than its index says")
    return content


def _decoded(output: LeftOutput, by: LeftBy) -> Baton:
    try:
        return batons.decode(_small(output, runfiles.baton(by.run_id)))
    except ValueError as error:
        raise OutputLost("the baton in it is torn") from error


def _beat(output: LeftOutput, by: LeftBy) -> Beat:
    try:
        beat = heartbeat.parse(_small(output, runfiles.beat(by.run_id)))
    except BeatRejected as error:
        raise OutputLost(f"the beat in it cannot be used: {error}") from error
    if (beat.run_id, beat.launch_id) != (by.run_id, by.launch_id) or not parcel.is_final(beat):
        raise OutputLost("the last beat in it is not the final one of this launch")
    return beat


def _compare(own: Baton, there: Baton, by: LeftBy) -> None:
    """The baton that this launch began with, and what its agent has made of it: the holder is its agent, or as before.
    Raises OutputLost."""
    same = (there.supervisor_id, there.generation, there.closed) == (own.supervisor_id, own.generation, None)
    is_ours = there.next is not None and there.next.launch_id == by.launch_id
    holder = there.holder
    by_us = holder is not None and (holder.launch_id, holder.machine_id) == (by.launch_id, by.machine_id)
    if not (same and is_ours and (by_us or holder == own.holder)):
        raise OutputLost("the baton in it is not the one that this launch began with")
    if there.done is not None and there.done.launch_id != by.launch_id:
        raise OutputLost("the finished work in it is another launch's")


def _copy_records(output: LeftOutput, copier: Copier, by: LeftBy, needs: set[str]) -> None:
    """Logs and records, each compared with the index. No name is used before all are checked."""
    begins = tuple(runfiles.folder(by.run_id) + name for name in RECORDS)
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
