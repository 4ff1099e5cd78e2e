"""Code bundles: what is received is proven before it is stored, and a submit relies on the stored list alone.

A bundle is written first, its list after it, so that a list without its bundle is a damaged store, and a bundle
without its list is one that nobody relies on: it is written again. Two uploads at once write the same content.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

from supervisor.contract import runfiles
from supervisor.contract.bundle import BundleRefused, Opened
from supervisor.domain.bundle_index import BundleIndex, crlf_problem, holds_crlf, unfit
from supervisor.domain.callers import Caller
from supervisor.domain.errors import CodeNotFound, CodeRefused, SpotError, Unavailable
from supervisor.domain.events import Event, EventKind
from supervisor.ports.objectstore import ObjectMissing, ObjectStore, StoreUnavailable
from supervisor.services.parts import Parts
from supervisor.services.runs.policy import Spec
from supervisor.services.views.run_view import Json
from supervisor.wording.figures import plural

_PIECE_BYTES = 1 << 18


def keep(parts: Parts, sha256: str, path: Path, caller: Caller) -> tuple[Json, bool]:
    """Store the gzip at `path` as the bundle of this name. (what it is, whether it was stored just now.) Raises
    CodeRefused, StoreUnavailable, StoreDown."""
    index = _find(parts.objects, sha256)
    if index is not None:
        return shown(index), False
    index = _proven(sha256, path)
    stored = parts.objects.put_file(runfiles.code(sha256), path)
    index = replace(index, stored_bytes=stored.size)
    # Before the list, which makes the bundle known: whoever repeats a request that was cut off here tells it, too.
    parts.store.add_events(None, [_event(index, caller)], parts.clock.now())
    parts.objects.put(runfiles.code_index(sha256), index.encode())
    return shown(index), True


def _event(index: BundleIndex, caller: Caller) -> Event:
    files = plural(len(index.members), "file")
    text = f"Code {index.sha256[:12]} stored by {caller.actor}: {files}, {index.stored_bytes} bytes."
    return caller.event(EventKind.CODE_STORED, text, shown(index))


def show(parts: Parts, sha256: str) -> Json:
    """Raises CodeNotFound, StoreUnavailable."""
    index = _find(parts.objects, sha256)
    if index is None:
        raise _absent(sha256)
    return shown(index)


def shown(index: BundleIndex) -> Json:
    return {
        "sha256": index.sha256,
        "files": len(index.members),
        "size_bytes": index.size,
        "stored_bytes": index.stored_bytes,
    }


def refusal(parts: Parts, spec: Spec) -> SpotError | None:
    """Why a run of this spec cannot begin: CodeNotFound, CodeRefused, Unavailable. None when it can, and where it
    brings no code. Reads the list of the bundle; called outside of transactions."""
    sha256 = spec.get("code")
    if sha256 is None:
        return None
    try:
        index = _find(parts.objects, sha256)
    except StoreUnavailable:
        text = "The object store cannot be read now, so the code was not checked; nothing was stored. Try again."
        return Unavailable(text, {"part": "object store"})
    return _absent(sha256) if index is None else _unfit(spec, index)


def _unfit(spec: Spec, index: BundleIndex) -> CodeRefused | None:
    misfit = unfit(spec["command"], spec.get("workdir", ""), index)
    if misfit is None:
        return None
    return CodeRefused(misfit.text, {"code": index.sha256}, [(f"#/spec/{misfit.field}", misfit.reason)])


def _absent(sha256: str) -> CodeNotFound:
    text = f"The code bundle {sha256[:12]} is not stored."
    advice = "PUT it to /v1/code/SHA256 first, as spot submit --code DIR does."
    return CodeNotFound(f"{text} {advice}", {"code": sha256}, [("#/spec/code", "is not stored")])


def _find(objects: ObjectStore, sha256: str) -> BundleIndex | None:
    """The list of a bundle that is there as it was stored; None when it must be stored (again)."""
    try:
        index = BundleIndex.decode(objects.get(runfiles.code_index(sha256))[0])
        whole = objects.stat(runfiles.code(sha256)).size == index.stored_bytes
    except (ObjectMissing, ValueError):
        return None
    return index if whole and index.sha256 == sha256 else None


def _proven(sha256: str, path: Path) -> BundleIndex:
    """The list of what is in the archive. Raises CodeRefused."""
    try:
        with path.open("rb") as source:
            opened = Opened(_pieces(source))
            broken = [m.path for m, content in opened.files() if m.path.endswith(".sh") and holds_crlf(content)]
    except BundleRefused as error:
        raise CodeRefused(f"The bundle is refused: {error}.", {"code": sha256}) from None
    if opened.sha256 != sha256:
        text = f"The tar inside has the sha256 {opened.sha256}, not the one of the address. Nothing was stored."
        raise CodeRefused(text, {"code": sha256, "found": opened.sha256})
    if not opened.tree.members:
        raise CodeRefused("The bundle is refused: there is no file in it.", {"code": sha256})
    if broken:
        raise CodeRefused(crlf_problem(broken), {"code": sha256, "files": broken[:20]})
    return BundleIndex.of(sha256, opened.tree.members.values())


def _pieces(source: IO[bytes]) -> Iterator[bytes]:
    while piece := source.read(_PIECE_BYTES):
        yield piece
