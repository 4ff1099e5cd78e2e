"""Code bundles: an upload is verified before it is stored, and a submit relies on the stored index alone.

The bundle is written first, its index after it. An index without its bundle means a damaged store. A bundle without its
index is not used by anything and is written again. Two simultaneous uploads write the same content.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from typing_extensions import TypedDict

from supervisor.contract import runfiles
from supervisor.contract.bundle import BundleRefused, Opened
from supervisor.domain.bundle_index import BundleIndex, crlf_problem, holds_crlf, unfit
from supervisor.domain.callers import Caller
from supervisor.domain.errors import CodeNotFound, CodeRefused, SpotError, Unavailable
from supervisor.domain.events import Event, EventKind
from supervisor.ports.objectstore import ObjectMissing, ObjectStore, StoreUnavailable
from supervisor.services.parts import Parts
from supervisor.services.runs.policy import Spec, providers_of
from supervisor.wording.figures import plural

_PIECE_BYTES = 1 << 18


class CodeShown(TypedDict):
    """`size_bytes`: of its files. `stored_bytes`: of the gzip in the object store."""

    sha256: str
    files: int
    size_bytes: int
    stored_bytes: int


def keep(parts: Parts, sha256: str, path: Path, caller: Caller) -> tuple[CodeShown, bool]:
    """Store the gzip at `path` as the bundle of this name. Returns (the bundle, whether it was stored just now). Raises
    CodeRefused, StoreUnavailable, StoreDown."""
    index = _find(parts.objects, sha256)
    if index is not None:
        return shown(index), False
    index = _verified(sha256, path)
    stored = parts.objects.put_file(runfiles.code(sha256), path)
    index = replace(index, stored_bytes=stored.size)
    # Before the index, which makes the bundle known: if this request is interrupted here, a repeat adds the event too.
    parts.store.add_events(None, [_event(index, caller)], parts.clock.now())
    parts.objects.put(runfiles.code_index(sha256), index.encode())
    return shown(index), True


def _event(index: BundleIndex, caller: Caller) -> Event:
    files = plural(len(index.members), "file")
    text = f"Code {index.sha256[:12]} stored by {caller.actor}: {files}, {index.stored_bytes} bytes."
    return caller.event(EventKind.CODE_STORED, text, shown(index))


def show(parts: Parts, sha256: str) -> CodeShown:
    """Raises CodeNotFound, StoreUnavailable."""
    index = _find(parts.objects, sha256)
    if index is None:
        raise absent(sha256)
    return shown(index)


def shown(index: BundleIndex) -> CodeShown:
    return {
        "sha256": index.sha256,
        "files": len(index.members),
        "size_bytes": index.size,
        "stored_bytes": index.stored_bytes,
    }


def refusal(parts: Parts, spec: Spec) -> SpotError | None:
    """Why a run of this spec cannot start: CodeNotFound, CodeRefused, Unavailable. None: it can start, or it has no
    code. Reads the bundle's index; call it outside of transactions."""
    sha256 = spec.get("code")
    if sha256 is None:
        return None
    try:
        index = _find(parts.objects, sha256)
    except StoreUnavailable:
        text = "The object store cannot be read now, so the code was not checked; nothing was stored. Retry."
        return Unavailable(text, {"part": "object store"})
    if index is None:
        return absent(sha256)
    too_large = _too_large(parts, spec, index)
    if too_large is not None:
        return too_large
    misfit = unfit(spec["command"], spec.get("workdir", ""), index)
    if misfit is None:
        return None
    return CodeRefused(misfit.text, {"code": sha256}, [(f"#/spec/{misfit.field}", misfit.reason)])


def _too_large(parts: Parts, spec: Spec, index: BundleIndex) -> CodeRefused | None:
    """For the machines of one of the run's providers."""
    for name in providers_of(spec, parts):
        most = parts.traits(name).code_max_bytes
        if most is not None and index.stored_bytes > most:
            text = (
                f"The code bundle has {index.stored_bytes:,} bytes, and the machines of {name} take {most:,} at most. "
                "Leave files out with .spotignore, or let the training read them as an input."
            )
            details = {"code": index.sha256, "bytes": index.stored_bytes, "max_bytes": most}
            return CodeRefused(text, details, [("#/spec/code", "is too large for this provider")])
    return None


def absent(sha256: str) -> CodeNotFound:
    text = f"The code bundle {sha256[:12]} is not stored. "
    text += "PUT it to /v1/code/SHA256 first, as spot submit --code DIR does."
    return CodeNotFound(text, {"code": sha256}, [("#/spec/code", "is not stored")])


def _find(objects: ObjectStore, sha256: str) -> BundleIndex | None:
    """The index of an intact bundle; None = the bundle must be stored (again)."""
    try:
        index = BundleIndex.decode(objects.get(runfiles.code_index(sha256))[0])
        whole = objects.stat(runfiles.code(sha256)).size == index.stored_bytes
    except (ObjectMissing, ValueError):
        return None
    return index if whole and index.sha256 == sha256 else None


def _verified(sha256: str, path: Path) -> BundleIndex:
    """The index of the archive at `path`. Raises CodeRefused."""
    try:
        with path.open("rb") as source:
            opened = Opened(iter(partial(source.read, _PIECE_BYTES), b""))
            broken = [m.path for m, content in opened.files() if m.path.endswith(".sh") and holds_crlf(content)]
    except BundleRefused as error:
        raise CodeRefused(f"The bundle is refused: {error}.", {"code": sha256}) from None
    if opened.sha256 != sha256:
        text = f"The tar has the sha256 {opened.sha256}, which is not the one in the URL. Nothing was stored."
        raise CodeRefused(text, {"code": sha256, "found": opened.sha256})
    if not opened.tree.members:
        raise CodeRefused("The bundle is refused: it contains no file.", {"code": sha256})
    if broken:
        raise CodeRefused(crlf_problem(broken), {"code": sha256, "files": broken[:20]})
    return BundleIndex.of(sha256, opened.tree.members.values())
