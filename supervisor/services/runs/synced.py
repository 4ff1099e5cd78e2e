"""Code of a living run that is changed by deltas (contract/bundle.py), so that a folder and the machine stay in step.

Each delta is checked against all files of the revision before: it names exactly their contents, and what comes of it is
a bundle again. One upload is one revision, so the last one wins; a client that does not know the newest revision is
refused and looks again. Many deltas are merged into one. Nothing is kept for a file: the contents of the newest
revisions are in memory, and are read again from the store.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
import tempfile
from collections.abc import Hashable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, NamedTuple, cast

from typing_extensions import TypedDict

from supervisor.contract import runfiles
from supervisor.contract.bundle import DELTA, LINK, BundleRefused, Delta, Member, Opened, Tree, encode_delta, read_delta
from supervisor.contract.runfiles import Orders, StoredDelta, Synced
from supervisor.domain.attempt import Attempt
from supervisor.domain.bundle_index import crlf_problem, holds_crlf
from supervisor.domain.callers import Caller
from supervisor.domain.errors import CodeRefused, NotSupportedHere, SyncConflict, Unavailable
from supervisor.domain.events import Event, EventKind
from supervisor.domain.run import Run
from supervisor.ports.objectstore import ObjectMissing, ObjectStore
from supervisor.services.parts import Parts
from supervisor.services.runs.changing import find_run
from supervisor.services.runs.code import absent
from supervisor.services.runs.orders import change_orders, read_orders, refuse_unreachable
from supervisor.wording.figures import plural

MERGED_FROM = 48  # deltas
ATTEMPTS_SHOWN = 50  # the newest
REPORT_BYTES = 1 << 18  # an agent writes less; a training may write anything
NO_REPORT: tuple[int, int, tuple[str, ...]] = (0, 0, ())
_PIECE_BYTES = 1 << 18


class File(NamedTuple):
    """`content`: as in a delta's list."""

    content: str
    size: int
    executable: bool


class FileOfTree(TypedDict):
    """`content`: the SHA-256 of a file; `link:` and the target of a link."""

    path: str
    content: str
    size: int
    executable: bool


class CodeTree(TypedDict):
    """All files of the newest revision. `tree`: the SHA-256 of the list."""

    run_id: str
    code: str
    revision: int
    tree: str
    files: list[FileOfTree]


class AttemptCode(TypedDict):
    """`code`: the bundle. `began`: the revision with which its command was started. `revision`: the newest one that its
    machine has applied. `kept`: files that the machine had changed itself, under their new names."""

    attempt: int
    code: str | None
    began: int
    revision: int
    kept: list[str]


class RunCode(TypedDict):
    """`code`: the bundle of the spec. `revision`: how often it was changed since; the next attempt starts from it.
    `git`: the commit of the folder that the newest revision came from; "" = not known."""

    run_id: str
    code: str
    revision: int
    tree: str
    git: str
    attempts: list[AttemptCode]


def show_synced(parts: Parts, run_id: str) -> RunCode:
    """Raises NotFound, NotSupportedHere, StoreUnavailable, Unavailable."""
    run = find_run(parts, run_id)
    synced = _synced(read_orders(parts.objects, run_id)[0], run)
    attempts = [attempt for attempt in parts.store.attempts(run.key) if attempt.code][-ATTEMPTS_SHOWN:]
    infos = (info for page in parts.objects.pages(runfiles.synced(run_id)) for info in page.objects)
    reported = {info.key: info.generation for info in infos if info.size <= REPORT_BYTES}
    return {
        "run_id": run_id,
        "code": synced.code,
        "revision": synced.revision,
        "tree": synced.tree,
        "git": synced.git,
        "attempts": [_attempt_code(parts.objects, run_id, attempt, reported) for attempt in attempts],
    }


def _attempt_code(objects: ObjectStore, run_id: str, attempt: Attempt, reported: Mapping[str, str]) -> AttemptCode:
    key = runfiles.applied(run_id, attempt.number)
    began, revision, kept = _report(cast(Hashable, objects), key, reported[key]) if key in reported else NO_REPORT
    return {"attempt": attempt.number, "code": attempt.code, "began": began, "revision": revision, "kept": [*kept]}


@lru_cache(maxsize=256)  # a client that waits looks twice in a second, and ended attempts report no more
def _report(store: Hashable, key: str, generation: str) -> tuple[int, int, tuple[str, ...]]:
    """(began, revision, kept). What is no report of our agent counts as none. Raises StoreUnavailable."""
    with suppress(ObjectMissing, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        report = json.loads(cast(ObjectStore, store).get(key)[0])
        kept = tuple(str(path).encode("utf-8", "replace").decode() for path in report["kept"])
        return int(report["began"]), int(report["revision"]), kept
    return NO_REPORT


def show_tree(parts: Parts, run_id: str) -> CodeTree:
    """Raises what `show_synced` raises, CodeNotFound."""
    synced = _synced(read_orders(parts.objects, run_id)[0], find_run(parts, run_id))
    files = _files_of(parts.objects, synced)
    return {
        "run_id": run_id,
        "code": synced.code,
        "revision": synced.revision,
        "tree": _hash_of(files),
        "files": [cast(FileOfTree, {"path": path, **file._asdict()}) for path, file in sorted(files.items())],
    }


def sync(parts: Parts, run_id: str, revision: int, path: Path, *, git: str, caller: Caller) -> Orders:
    """Make the delta at `path` the next revision of the run's code. A repeat changes nothing. Raises NotFound,
    RunEnded, NotSupportedHere, SyncConflict (its revision is not the next one), CodeRefused, StoreUnavailable,
    Unavailable."""
    run = find_run(parts, run_id)
    refuse_unreachable(parts, run)
    orders = read_orders(parts.objects, run_id)[0]
    before = _synced(orders, run)
    with path.open("rb") as source:
        opened = Opened(iter(partial(source.read, _PIECE_BYTES), b""))
        if _is_repeat(opened, before, revision):
            return orders
        _refuse_old(run_id, before, revision)
        source.seek(0)
        opened = Opened(iter(partial(source.read, _PIECE_BYTES), b""))
        files, delta = _changed(opened, _files_of(parts.objects, before))
    key = runfiles.delta(run_id, revision, opened.sha256)
    stored = parts.objects.put_file(key, path)
    row = StoredDelta(revision, revision, key, opened.sha256, stored.size)
    after = before._replace(revision=revision, tree=_hash_of(files), git=git)

    def step(orders: Orders) -> Orders:
        present = _synced(orders, run)  # its deltas may have been merged meanwhile
        _refuse_old(run_id, present, revision)
        return orders._replace(synced=after._replace(deltas=(*present.deltas, row)))

    step(read_orders(parts.objects, run_id)[0])  # a refusal is no event: others may have synced during the upload
    parts.store.add_events(run.key, [_synced_event(run, after, delta, caller)], parts.clock.now())
    orders = change_orders(parts.objects, run_id, step)
    if orders.synced is not None and len(orders.synced.deltas) >= MERGED_FROM:
        orders = _merge(parts, run_id, orders.synced)
    return orders


def _synced(orders: Orders, run: Run) -> Synced:
    """Of the present bundle: a resume with other code begins anew."""
    if run.policy.code is None:
        text = f"{run.run_id} has no code bundle, so there is nothing to keep in step: its command runs in a folder "
        raise NotSupportedHere(f"{text}of the machine. Submit it with --code DIR.", {"run_id": run.run_id})
    synced = orders.synced
    return synced if synced is not None and synced.code == run.policy.code else Synced(run.policy.code)


def _is_repeat(opened: Opened, before: Synced, revision: int) -> bool:
    if revision != before.revision or not before.deltas:
        return False
    with suppress(BundleRefused):
        for _, content in opened.files():
            for _ in content:
                pass
    return opened.sha256 == before.deltas[-1].sha256


def _refuse_old(run_id: str, before: Synced, revision: int) -> None:
    if revision != before.revision + 1:
        text = f"The code of {run_id} is at revision {before.revision} now, so {revision} is not the next one. "
        raise SyncConflict(f"{text}Read it again.", {"run_id": run_id, "revision": before.revision})


def _changed(opened: Opened, before: Mapping[str, File]) -> tuple[dict[str, File], Delta]:
    """The files after the delta. Raises CodeRefused."""
    after = dict(before)
    try:
        delta, files = read_delta(opened)
        for path, contents in {**delta.changed, **delta.removed}.items():
            present = (before[path].content,) if path in before else ()
            if contents != present or (path in delta.removed and not present):
                raise BundleRefused(f"the delta does not begin with the present content of {path!r}")
        for path in delta.removed:
            del after[path]
        broken = []
        for member, content in files:
            after[member.path], has_crlf = _file(member, content)
            broken += [member.path] if has_crlf else []
        tree = Tree()
        for path, file in after.items():
            tree.add(Member(path, file.size, file.executable, _target(file)))
    except BundleRefused as error:
        raise CodeRefused(f"The delta is refused: {error}.", {}) from None
    if broken:
        raise CodeRefused(crlf_problem(broken), {"files": broken[:20]})
    return after, delta


def _file(member: Member, content: Iterator[bytes]) -> tuple[File, bool]:
    """(the file, whether it is a shell script with Windows line ends)."""
    if member.link is not None:
        return File(LINK + member.link, 0, False), False
    digest = hashlib.sha256()

    def hashed() -> Iterator[bytes]:
        for piece in content:
            digest.update(piece)
            yield piece

    has_crlf = holds_crlf(hashed()) and member.path.endswith(".sh")
    return File(digest.hexdigest(), member.size, member.executable), has_crlf


def _target(file: File) -> str | None:
    return file.content.removeprefix(LINK) if file.content.startswith(LINK) else None


def _files_of(objects: ObjectStore, synced: Synced) -> Mapping[str, File]:
    """Raises CodeNotFound, StoreUnavailable, Unavailable."""
    try:
        return _files(cast(Hashable, objects), synced.code, tuple(delta.key for delta in synced.deltas))
    except ObjectMissing:
        raise absent(synced.code) from None
    except BundleRefused as error:
        text = f"The code {synced.code[:12]} in the object store is damaged: {error}."
        raise Unavailable(text, {"code": synced.code}) from None


@lru_cache(maxsize=4)  # up to 20,000 files each
def _files(store: Hashable, code: str, deltas: tuple[str, ...]) -> Mapping[str, File]:
    objects = cast(ObjectStore, store)
    if not deltas:
        opened = Opened(objects.read(runfiles.code(code)))
        return {member.path: _file(member, content)[0] for member, content in opened.files()}
    files = dict(_files(store, code, deltas[:-1]))
    delta, changed = read_delta(Opened(objects.read(deltas[-1])))
    for path in delta.removed:
        files.pop(path, None)
    for member, content in changed:
        files[member.path] = _file(member, content)[0]
    return files


def _hash_of(files: Mapping[str, File]) -> str:
    rows = (f"{path}\0{file.content}\0{int(file.executable)}\n" for path, file in sorted(files.items()))
    return hashlib.sha256("".join(rows).encode("utf-8", "surrogateescape")).hexdigest()


def _synced_event(run: Run, after: Synced, delta: Delta, caller: Caller) -> Event:
    counts = f"{plural(len(delta.changed), 'file')} changed, {len(delta.removed)} removed"
    text = f"Code changed by {caller.actor} to revision {after.revision}: {counts}."
    data = {
        "code": after.code, "revision": after.revision, "tree": after.tree, "git": after.git,
        "changed": len(delta.changed), "removed": len(delta.removed),
    }  # fmt: skip
    return caller.event(EventKind.CODE_SYNCED, text, data)


# --- merging ----------------------------------------------------------------------------------------------------------


def _merge(parts: Parts, run_id: str, synced: Synced) -> Orders:
    """One delta instead of all: an agent at any revision in between may apply it. The old ones are deleted afterwards;
    an agent that misses one of them reads the orders again."""
    with tempfile.TemporaryFile() as file:
        sha256 = _write_merged(parts.objects, synced, file)
        file.flush()
        key = runfiles.delta(run_id, synced.revision, sha256)
        stored = parts.objects.put_file(key, f"/proc/self/fd/{file.fileno()}")
    row = StoredDelta(synced.deltas[0].first, synced.revision, key, sha256, stored.size)

    def step(orders: Orders) -> Orders:
        present = orders.synced
        if present is None or present.deltas[: len(synced.deltas)] != synced.deltas:
            return orders
        return orders._replace(synced=present._replace(deltas=(row, *present.deltas[len(synced.deltas) :])))

    orders = change_orders(parts.objects, run_id, step)
    for delta in synced.deltas:
        if orders.synced is not None and delta not in orders.synced.deltas:
            parts.objects.delete(delta.key)
    return orders


def _write_merged(objects: ObjectStore, synced: Synced, target: IO[bytes]) -> str:
    """The sha256 of the tar."""
    contents: dict[str, tuple[str, ...]] = {}
    newest: dict[str, str] = {}  # path -> key of the delta with its newest content; "" = removed
    for delta in synced.deltas:
        listed, _ = read_delta(Opened(objects.read(delta.key)))
        for path, before in {**listed.removed, **listed.changed}.items():
            contents[path] = tuple(dict.fromkeys((*contents.get(path, ()), *before)))
            newest[path] = delta.key if path in listed.changed else ""
    changed = {path: before for path, before in contents.items() if newest[path]}
    removed = {path: before for path, before in contents.items() if not newest[path]}
    hashed = _Hashed(gzip.GzipFile(fileobj=target, mode="wb", compresslevel=1, mtime=0))
    with tarfile.open(fileobj=hashed, mode="w|", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
        raw = encode_delta(Delta(changed, removed))
        _add(archive, Member(DELTA, len(raw)), iter((raw,)))
        for delta in synced.deltas:
            _, files = read_delta(Opened(objects.read(delta.key)))
            for member, content in files:
                if newest[member.path] == delta.key:
                    _add(archive, member, content)
    hashed.close()
    return hashed.digest.hexdigest()


def _add(archive: tarfile.TarFile, member: Member, content: Iterator[bytes]) -> None:
    info = tarfile.TarInfo(member.path)
    info.size, info.mode = member.size, 0o755 if member.executable else 0o644
    if member.link is not None:
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, member.link, 0o777
    with tempfile.SpooledTemporaryFile(1 << 20) as spool:
        for piece in content:
            spool.write(piece)
        spool.seek(0)
        archive.addfile(info, None if member.link is not None else spool)


class _Hashed:
    def __init__(self, target: gzip.GzipFile) -> None:
        self._target, self.digest = target, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return self._target.write(data)

    def close(self) -> None:
        self._target.close()
