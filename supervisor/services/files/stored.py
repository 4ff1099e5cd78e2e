"""What the runs' files take in the object store, from one listing.

Bytes are counted by what they are for; what no row of a run owns is not counted. A listing that breaks off is worth
nothing: StoreUnavailable, never half a sum.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from supervisor.contract import runfiles
from supervisor.ports.objectstore import ObjectStore

KINDS = ("results", "checkpoints", "logs", "evidence", "other")
GIB = 1 << 30


@dataclass(slots=True)
class Stored:
    """Bytes and files of one run, or of several. `size`: kind -> bytes."""

    files: int = 0
    size: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))

    @property
    def total(self) -> int:
        return sum(self.size.values())

    def add(self, kind: str, size: int) -> None:
        self.files += 1
        self.size[kind] += size


def stored(objects: ObjectStore, run_ids: Sequence[str]) -> dict[str, Stored]:
    """run id -> what it has stored, for each of them. Raises StoreUnavailable."""
    found = {run_id: Stored() for run_id in run_ids}
    if not found:
        return found
    for page in objects.pages(_prefix(run_ids)):
        for info in page.objects:
            run_id, _, name = info.key[len(runfiles.RUNS) :].partition("/")
            if run_id in found:
                found[run_id].add(kind_of(name), info.size)
    return found


def code_size(objects: ObjectStore) -> int:
    """Bytes of the code bundles: shared by the runs that use them. Raises StoreUnavailable."""
    return sum(info.size for page in objects.pages(runfiles.CODE) for info in page.objects)


def kind_of(name: str) -> str:
    """`name`: below the run's folder."""
    first, _, rest = name.partition("/")
    if rest and first in KINDS:
        return first
    evidence = first == "instances" and name.endswith((".evidence.json", ".console.log"))
    return "evidence" if evidence else "other"


def _prefix(run_ids: Sequence[str]) -> str:
    """The narrowest listing that shows all of them."""
    if len(run_ids) == 1:
        return runfiles.folder(run_ids[0])
    shared = os.path.commonprefix(list(run_ids))  # noqa: RUF071 a listing compares characters too
    return runfiles.RUNS + shared
