"""A session without a network: its store is a folder made from the parcel, and its work is the output of its version.

What the newest checkpoint needs comes from the output of an earlier session, which the platform shows as an input. The
agent then works with that folder as with any other store, and verifies what it restores. When it has ended, everything
of the run that is in the folder is packed into one archive, and then its index is written. What counts most is packed
first: should the archive have no room, older checkpoints are left out.

The parcel has no credential. So the job has no nonce, and the baton none either: the supervisor puts it in when it
has verified the output.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from supervisor.agent.machine.folder import open_own
from supervisor.agent.machine.processes import boot_id
from supervisor.agent.notebook.claiming import Refused, no_start
from supervisor.contract import baton as batons
from supervisor.contract import heartbeat, parcel, runfiles
from supervisor.contract.baton import Baton, Pointer
from supervisor.contract.parcel import Index, Packed, Parcel
from supervisor.contract.stores import durable
from supervisor.contract.stores.folder import FolderStore
from supervisor.contract.stores.promise import ABSENT, ObjectInfo, PreconditionFailed, StoreUnavailable

MOST_FOLDERS = 4  # how deep an input may lie below the folder of inputs
_CHUNK_BYTES = 1 << 20


def job_of(path: str, folder: str, inputs: str) -> Dict[str, Any]:
    """job.json of the parcel at `path`; its store is made in `folder`. Safe to repeat. Raises Refused, OSError."""
    try:
        given = parcel.decode_parcel(_content(path))
        store = FolderStore.create(_store_folder(folder))
        _fill(store, given, inputs)
    except (ValueError, KeyError, StoreUnavailable) as error:
        raise Refused("what this session began with cannot be used: %s" % error) from None
    job = {"version": 1, "name": "notebook", **given.job, "shows_beats": True, "store_url": store.url}
    return {name: value for name, value in job.items() if name not in ("server_url", "server_file", "nonce")}


def report(job: Mapping[str, Any], folder: str, problem: str) -> None:
    """The beat that says why this session leaves, into its store."""
    beat = no_start(job, boot_id(), problem)
    text = heartbeat.encode_within(beat, heartbeat.MAX_STORED_BYTES)
    with suppress(StoreUnavailable):  # then the supervisor knows that there is no beat
        FolderStore(_store_folder(folder)).put(runfiles.beat(beat.run_id), text, None, {"beat": text.decode()})


def pack(job: Mapping[str, Any], folder: str, output: str, most_bytes: int = parcel.MAX_BYTES) -> Index:
    """Everything of the run in its store, in two files. Raises OSError, StoreUnavailable: then there is no index."""
    store, run_id = FolderStore(_store_folder(folder)), str(job["run_id"])
    os.makedirs(output, exist_ok=True)
    archive, packed, left_out = os.path.join(output, parcel.ARCHIVE), [], 0  # type: Tuple[str, List[Packed], int]
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(output, parcel.INDEX))
    with open(archive, "wb", opener=open_own) as target:
        for info in _in_order(store, run_id):
            offset = target.tell()
            if offset + info.size > most_bytes:
                left_out += 1
                continue
            digest = hashlib.sha256()
            for chunk in store.read(info.key):
                digest.update(chunk)
                target.write(chunk)
            size = target.tell() - offset
            packed.append(Packed(info.key, offset, size, digest.hexdigest(), dict(info.metadata)))
        target.flush()
        os.fsync(target.fileno())
    index = Index(run_id, str(job["launch_id"]), tuple(packed), left_out)
    durable.replace_file(output, os.path.join(output, parcel.INDEX), parcel.encode_index(index))
    return index


def _content(path: str) -> bytes:
    with open(path, "rb") as source:
        return source.read()


def _store_folder(folder: str) -> str:
    return os.path.join(folder, "store")


# --- the beginning ----------------------------------------------------------------------------------------------------


def _fill(store: FolderStore, given: Parcel, inputs: str) -> None:
    """The baton comes last: with it, everything is there. Raises Refused, OSError, ValueError, StoreUnavailable."""
    run_id, baton = str(given.job["run_id"]), batons.decode(given.baton)
    with suppress(FileNotFoundError):
        if os.path.getsize(os.path.join(store.root, runfiles.baton(run_id))):
            return
    for key, content in given.objects.items():
        store.put(key, content)
    if baton.checkpoint is not None:
        _bring(store, run_id, baton, baton.checkpoint, inputs)
    with suppress(PreconditionFailed):
        store.put(runfiles.baton(run_id), given.baton, ABSENT)


def _bring(store: FolderStore, run_id: str, baton: Baton, newest: Pointer, inputs: str) -> None:
    """What an agent may restore: the newest checkpoint, the one before it, and the results."""
    output = next((each for each in _outputs(inputs) if each[1].run_id == run_id and each[1].has(newest)), None)
    if output is None:
        raise Refused("no input has the checkpoint of step %d, which this session was to go on from" % newest.step)
    folder, index = output
    wanted = {
        pointer.prefix + file.name
        for pointer in (newest, *(baton.previous[:1] or baton.kept[:1]))
        for file in pointer.files
    }
    results = runfiles.folder(run_id) + "results/"
    with open(os.path.join(folder, parcel.ARCHIVE), "rb") as archive:
        for packed in index.objects:
            if packed.key in wanted or packed.key.startswith(results):
                _put_part(store, archive, packed)


def _put_part(store: FolderStore, archive: Any, packed: Packed) -> None:
    """Its content is compared with its hash when it is restored."""
    part = os.path.join(store.root, "..", "part")
    archive.seek(packed.offset)
    left = packed.size
    with open(part, "wb", opener=open_own) as target:
        while left:
            chunk = archive.read(min(left, _CHUNK_BYTES))
            if not chunk:
                raise ValueError("the archive of an earlier session is too short")
            target.write(chunk)
            left -= len(chunk)
    store.put_file(packed.key, part)
    os.unlink(part)


def _outputs(inputs: str) -> Iterator[Tuple[str, Index]]:
    """The platform decides in which folder an output lies."""
    for folder, names, files in os.walk(inputs):
        if os.path.relpath(folder, inputs).count(os.sep) >= MOST_FOLDERS:
            del names[:]
        if parcel.INDEX in files and parcel.ARCHIVE in files:
            with suppress(ValueError):
                yield folder, parcel.decode_index(_content(os.path.join(folder, parcel.INDEX)))


# --- the end ----------------------------------------------------------------------------------------------------------


def _in_order(store: FolderStore, run_id: str) -> List[ObjectInfo]:
    """Baton, beat, logs and records; the results; the newest checkpoint; all others."""
    newest = _newest(store, run_id)
    checkpoints, results = runfiles.checkpoints(run_id), runfiles.folder(run_id) + "results/"
    listed = [
        info
        for prefix in (runfiles.folder(run_id), runfiles.beat(run_id))
        for page in store.pages(prefix)
        for info in page.objects
    ]

    def rank(info: ObjectInfo) -> int:
        if newest is not None and info.key.startswith(newest.prefix):
            return 2
        return 3 if info.key.startswith(checkpoints) else 1 if info.key.startswith(results) else 0

    return sorted(listed, key=rank)


def _newest(store: FolderStore, run_id: str) -> Optional[Pointer]:
    return batons.decode(store.get(runfiles.baton(run_id))[0]).checkpoint
