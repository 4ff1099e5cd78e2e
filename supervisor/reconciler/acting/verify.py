"""The results that `done` names, compared with what the store really holds: size and sha256 of every file."""

from __future__ import annotations

import hashlib

from supervisor.contract.baton import Done, FileEntry
from supervisor.domain.manifest import manifest_sha256
from supervisor.domain.observation import Verification
from supervisor.ports.objectstore import ObjectMissing, ObjectStore


def verify(objects: ObjectStore, done: Done) -> Verification:
    """Raises StoreUnavailable when the store gives no clear answer: then nothing is known, and it is tried again."""
    problems = [
        problem for entry in done.results if (problem := _problem(objects, done.prefix + entry.name, entry))
    ]
    return Verification(done.launch_id, manifest_sha256(done.results), done.results, tuple(problems))


def _problem(objects: ObjectStore, key: str, entry: FileEntry) -> str | None:
    digest, size = hashlib.sha256(), 0
    try:
        for block in objects.read(key):
            digest.update(block)
            size += len(block)
    except ObjectMissing:
        return f"{entry.name} is missing"
    if size != entry.size:
        return f"{entry.name} has {size} bytes, {entry.size} were written"
    if digest.hexdigest() != entry.sha256:
        return f"{entry.name} has another sha256 than was written"
    return None
