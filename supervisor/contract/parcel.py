"""What a session without a network begins with, and what it leaves: a parcel in its source, and an output of two files.

The parcel is one JSON object in the source: the job without any credential, the baton as it was at the launch, and the
objects that the agent needs (its code). The output is one archive, which is nothing but the contents of objects one
after the other, and an index that says which object begins where, with its size and SHA-256. So a reader takes any
object by its place, and no name in an archive can lead out of a folder. The index is written last: without it there is
no output.

Shared with the agent: Python 3.8, standard library only. Nothing here touches a file.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Dict, Mapping, NamedTuple, Tuple

from supervisor.contract import heartbeat
from supervisor.contract.baton import Baton, FileEntry, Pointer
from supervisor.contract.heartbeat import Beat

ARCHIVE, INDEX = "spot-output.bin", "spot-output.json"
MAX_INDEX_BYTES = 16 << 20
MAX_BYTES = 19 * 10**9  # of an archive; the platform keeps 20 GB


class Parcel(NamedTuple):
    """`job`: of job.json, without store_url. `baton`: its bytes. `objects`: key -> content."""

    job: Mapping[str, Any]
    baton: bytes
    objects: Mapping[str, bytes]


class Packed(NamedTuple):
    """One object, at `offset` in the archive. `metadata`: of the object."""

    key: str
    offset: int
    size: int
    sha256: str
    metadata: Mapping[str, str]


class Index(NamedTuple):
    """`left_out`: objects that the archive had no room for."""

    run_id: str
    launch_id: str
    objects: Tuple[Packed, ...]
    left_out: int = 0

    @property
    def size(self) -> int:
        """Of the whole archive, in bytes."""
        return sum(each.size for each in self.objects)

    def by_key(self) -> Dict[str, Packed]:
        return {each.key: each for each in self.objects}

    def has(self, pointer: Pointer) -> bool:
        """Every file of this checkpoint, with its content."""
        contents = {(each.key, each.size, each.sha256) for each in self.objects}
        return all((pointer.prefix + file.name, file.size, file.sha256) in contents for file in pointer.files)


def entry_of(packed: Packed) -> FileEntry:
    return FileEntry(packed.key, packed.size, packed.sha256)


def encode_parcel(parcel: Parcel) -> bytes:
    objects = {key: base64.b64encode(content).decode() for key, content in parcel.objects.items()}
    baton = base64.b64encode(parcel.baton).decode()
    return json.dumps({"version": 1, "job": dict(parcel.job), "baton": baton, "objects": objects}).encode()


def decode_parcel(raw: bytes) -> Parcel:
    """ValueError."""
    try:
        data = json.loads(raw)
        if data["version"] != 1 or not isinstance(data["job"], dict):
            raise ValueError("a parcel of another version")
        objects = {str(key): base64.b64decode(text, validate=True) for key, text in data["objects"].items()}
        return Parcel(data["job"], base64.b64decode(data["baton"], validate=True), objects)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("not a parcel: %s" % error) from None


def encode_index(index: Index) -> bytes:
    objects = [[each.key, each.size, each.sha256, dict(each.metadata)] for each in index.objects]
    values = {"version": 1, "run_id": index.run_id, "launch_id": index.launch_id, "objects": objects}
    return json.dumps({**values, "left_out": index.left_out}).encode()


def decode_index(raw: bytes) -> Index:
    """ValueError for anything that a session of ours does not write: an object that is there twice, a size below 0, or
    more than an output may have."""
    try:
        data = json.loads(raw)
        if data["version"] != 1:
            raise ValueError("an index of another version")
        offset, packed, keys = 0, [], set()
        for key, size, sha256, metadata in data["objects"]:
            texts = (key, sha256, *metadata.keys(), *metadata.values())
            if not all(isinstance(text, str) for text in texts) or type(size) is not int or size < 0 or key in keys:
                raise ValueError("not an object of an index: %r" % (key,))
            key.encode()  # a lone surrogate is no name of an object
            keys.add(key)
            packed.append(Packed(key, offset, size, sha256, metadata))
            offset += size
        if offset > MAX_BYTES:
            raise ValueError("its objects have %d bytes, more than an output may have" % offset)
        return Index(str(data["run_id"]), str(data["launch_id"]), tuple(packed), int(data.get("left_out") or 0))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("not an index: %s" % error) from None


def waits_for(baton: Baton, supervisor_id: str, launch_id: str) -> bool:
    """The run waits for this launch: what it has left may be written."""
    if baton.closed is not None or baton.supervisor_id != supervisor_id:
        return False
    return baton.next is not None and baton.next.launch_id == launch_id


def is_final(beat: Beat) -> bool:
    """The last word of an agent."""
    return beat.phase == heartbeat.FINISHED or beat.left is not None
