"""How common frameworks lay out a checkpoint folder: what of it is a checkpoint, and when one is whole.

They write in place, so no rename says that a checkpoint is complete. But each has a file that it writes last, and some
mark a folder while they fill it. Read in the sources of these packages, and seen in tests/frameworks:

- Transformers' Trainer fills `checkpoint-N/`, its last file is `trainer_state.json`. A save that TERM asked for (JIT)
  has the marker file until it is whole. The Trainer's `save_model` puts the model's files beside these folders.
- Keras' BackupAndRestore overwrites `latest.weights.h5`, then `training_metadata.json`.
- Ray Train writes a folder per checkpoint, then `checkpoint_manager_snapshot.json` beside them.

A process that is killed in the middle of a save leaves half a file. Formats that know their own length show it.
"""

from __future__ import annotations

import os
import re
from typing import Iterable, List, Optional, Sequence, Tuple

from supervisor.agent.machine.folder import open_plain

LAST_FILES = frozenset({"trainer_state.json", "training_metadata.json", "checkpoint_manager_snapshot.json"})
MARKER = "checkpoint-is-incomplete.txt"
# Trackers write these beside the checkpoints for as long as the training runs.
_TRACKERS = frozenset({"runs", "wandb", "mlruns", "lightning_logs", "tensorboard"})
_OF_TRAINER = re.compile(r"checkpoint-[0-9]+\Z")
_TRAINERS_FILES = ("trainer_state.json", "training_args.bin")
_HEADER_BYTES = 8 << 20  # of a safetensors file; a larger one is not judged
_ZIP_END_BYTES = 22 + 65535  # a zip's last record and the longest comment behind it
_TAIL_BYTES = 256
_OFFSETS = re.compile(rb'"data_offsets"\s*:\s*\[\s*[0-9]+\s*,\s*([0-9]{1,18})\s*\]')

Row = Tuple[str, int, int, int]  # as in folder.py: name, inode, bytes, mtime ns


def checkpoints_of(folder: str, names: Iterable[str]) -> List[str]:
    """Without what lies beside checkpoints. In a folder of Transformers' Trainer only its own folders count: a model's
    last file, taken for a checkpoint, would let the next attempt begin from zero."""
    kept = [name for name in names if name not in _TRACKERS]
    if not any(name in _TRAINERS_FILES or _OF_TRAINER.match(name) for name in kept):
        return kept  # at nearly all of many calls
    if any(name in _TRAINERS_FILES or _is_trainers(os.path.join(folder, name)) for name in kept):
        return [name for name in kept if _OF_TRAINER.match(name) or name.startswith("best")]
    return kept


def _is_trainers(path: str) -> bool:
    return bool(_OF_TRAINER.match(os.path.basename(path))) and any(
        os.path.exists(os.path.join(path, name)) for name in (*_TRAINERS_FILES, MARKER)
    )


def is_sealed(rows: Sequence[Row]) -> bool:
    """The entry is a folder whose last file is there and is the newest one: nothing was written after it."""
    newest_ns = max(row[3] for row in rows)
    names = {row[0].partition("/")[2]: row for row in rows}
    return MARKER not in names and any(name in names and names[name][3] == newest_ns for name in LAST_FILES)


def why_unfinished(folder: str, rows: Sequence[Row], contents: bool) -> str:
    """Why this entry must not be taken; "" = no reason is seen. `contents`: look into its files too."""
    names = {row[0].partition("/")[2] for row in rows}
    if MARKER in names:
        return "it has the marker %s" % MARKER
    if "training_args.bin" in names and "trainer_state.json" not in names:
        return "trainer_state.json is missing"
    for name, _, size, _ in rows if contents else ():
        if is_torn(os.path.join(folder, name), size):
            return "%s is cut off" % name
    return ""


def is_torn(path: str, size: int) -> bool:
    """Its own format says that a part is missing. False for other formats, and where it cannot be read."""
    try:
        source = open_plain(path)
        if source is None:
            return False
        with source:
            head = source.read(64)
            if path.endswith(".json"):
                source.seek(max(0, size - _TAIL_BYTES))
                return _json_is_cut(head, source.read(_TAIL_BYTES))
            if head.startswith(b"PK\x03\x04"):  # torch.save, npz, .keras
                source.seek(max(0, size - _ZIP_END_BYTES))
                return _zip_is_cut(source.read(_ZIP_END_BYTES))
            if head.startswith(b"\x89HDF\r\n\x1a\n"):
                end = _hdf5_end(head)
                return end is not None and end > size
            if path.endswith(".safetensors"):
                length = int.from_bytes(head[:8], "little")
                source.seek(8)
                return _safetensors_is_cut(length, source.read(min(length, _HEADER_BYTES)), size)
    except OSError:
        pass
    return False


def _json_is_cut(head: bytes, tail: bytes) -> bool:
    begin, end = head.lstrip()[:1], tail.rstrip()[-1:]
    return not begin or (begin == b"{" and end != b"}") or (begin == b"[" and end != b"]")


def _zip_is_cut(tail: bytes) -> bool:
    """Its last record has 22 bytes and a comment, whose length it ends with."""
    at = tail.rfind(b"PK\x05\x06")
    return at < 0 or at + 22 + int.from_bytes(tail[at + 20 : at + 22], "little") > len(tail)


def _hdf5_end(head: bytes) -> Optional[int]:
    """The end of the file as its superblock says (HDF5 file format, "Format Signature and Superblock")."""
    version = head[8]
    size, at = (head[13], 24) if version < 2 else (head[9], 12)
    if version > 3 or size != 8:
        return None
    at += 2 * size + (4 if version == 1 else 0)
    return int.from_bytes(head[at : at + size], "little")


def _safetensors_is_cut(length: int, header: bytes, size: int) -> bool:
    """Its first 8 bytes are the header's length, and the header names the last byte of each tensor."""
    if length > _HEADER_BYTES:
        return length + 8 > size
    ends = [int(end) for end in _OFFSETS.findall(header)]
    return len(header) < length or 8 + length + max(ends, default=0) > size
