"""Results as working state: saved with each checkpoint and at the end of each attempt, restored with the checkpoint.

A save uploads the contents that the store does not have yet, each under a new key, then a manifest that names them all;
the baton's pointer names the manifest together with the checkpoint. A content that no manifest of the baton names is
deleted after the baton has moved, as checkpoints are (pruning.py). Keys are never used again, and objects of launches
after our own stay untouched, so an agent that was frozen for an hour harms nothing.

A file that cannot be saved never delays a checkpoint. It is left out, the manifest says why and keeps the earlier
content if the store has one, and the beat says that the file waits for the end.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from typing import Callable, Dict, List, Mapping, Optional, Set, Tuple

from supervisor.agent.checkpoints.snapshots import Signature, Snapshot, SnapshotFile, SnapshotTaker, signature_of, why
from supervisor.agent.machine.masking import NOTHING, Masker
from supervisor.agent.store.access import GaveUp, Mismatch, Retrier, Transfer, hash_file, retry_mismatch
from supervisor.contract import baton as rules
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton, FileEntry
from supervisor.contract.identifiers import parse_launch_id
from supervisor.contract.runfiles import LeftOut, SavedFile, SavedResults, decode_saved, encode_saved
from supervisor.contract.stores.promise import ObjectMissing, ObjectStore, StoreFull, StoreUnavailable

NO_TIME = "no time was left before the end of the machine"
LOST_NAMED = 20
_log = logging.getLogger("agent")


class ResultsSaver:
    """Used by one thread at a time. `retrier` waits as long as anything may be written, `hurry` leaves time to move the
    baton. `lost`: files of earlier attempts that could not be saved or restored, with the reason. `_older`: the earlier
    content of such a file, if that was restored instead."""

    def __init__(
        self,
        store: ObjectStore,
        place: Tuple[str, str, str],  # (run id, launch id, folder for downloads)
        taker: SnapshotTaker,
        *,
        retrier: Retrier,
        hurry: Retrier,
        note: Callable[[str], None] = lambda text: None,
        masker: Masker = NOTHING,
    ) -> None:
        self._store = store
        self._run_id, self._launch_id, self._incoming = place
        self._taker = taker
        self._retrier = retrier
        self._uploads = Transfer(store, hurry, "saving results")
        self._downloads = Transfer(store, retrier, "restoring results")
        self._note = note
        self._masker = masker
        self._number = 0
        self._keys: Set[str] = set()  # every known key in the store
        self._manifests: Dict[str, SavedResults] = {}  # by key
        self._by_content: Dict[Tuple[str, int], str] = {}
        self._newest: Optional[FileEntry] = None
        self.lost: Dict[str, str] = {}
        self._older: Dict[str, SavedFile] = {}

    # --- saving ---------------------------------------------------------------------------------------------------

    def save(self, snapshot: Snapshot, step: Optional[int]) -> Optional[FileEntry]:
        """The manifest of this snapshot, verified in the store; None where there are no results. Raises GaveUp,
        Mismatch (the manifest)."""
        files, left_out = self._store_files(snapshot)
        self._note_left_out(left_out)
        seen = {*files, *(left.name for left in left_out)}
        if self._newest is not None:
            older = {file.name: file for file in self._manifests[self._newest.name].files}
            files.update({left.name: older[left.name] for left in left_out if left.name in older})
        left_out += [
            LeftOut(name, reason)
            for name, reason in self.lost.items()
            if name not in seen or (name in files and self._continues_older(name))
        ]
        return self._manifest(
            SavedResults(
                parse_launch_id(self._launch_id)[1],
                step,
                tuple(files[name] for name in sorted(files)),
                tuple(self._masker.text(name) for name in snapshot.folders),
                tuple(sorted(left_out, key=lambda left: left.name)),
            )
        )

    def keep_last(self, baton: Baton, step: Optional[int]) -> Optional[FileEntry]:
        """The manifest of the present results, when no process writes any more; None where `baton` names them already,
        or there are none. Raises what `save` raises."""
        manifest = self.save(self._taker.without_copies(), step)
        named = rules.saved_results(baton)
        return None if manifest is None or manifest in named[:1] else manifest

    def _store_files(self, snapshot: Snapshot) -> Tuple[Dict[str, SavedFile], List[LeftOut]]:
        """The files that are now in the store, by their masked name, and the others."""
        files: Dict[str, SavedFile] = {}
        left_out = list(snapshot.left_out)
        signatures = {
            file.name: self._taker.saved[file.name] for file in snapshot.files if file.name in self._taker.saved
        }
        for file in snapshot.files:
            name = self._masker.text(file.name)
            try:
                if name in files:
                    raise ValueError("without secrets it has the name of another file")
                files[name], signature = self._store_file(file, name)
            except GaveUp:
                left_out.append(LeftOut(file.name, NO_TIME))
            except (Mismatch, ValueError, OSError, StoreFull) as error:
                left_out.append(LeftOut(file.name, why(error) if isinstance(error, OSError) else str(error)))
            else:
                if signature is not None:
                    signatures[file.name] = (signature, files[name])
        self._taker.saved = signatures
        return files, [LeftOut(self._masker.text(left.name), left.why) for left in left_out]

    def _store_file(self, file: SnapshotFile, name: str) -> Tuple[SavedFile, Optional[Signature]]:
        """In the store and verified. Raises GaveUp, Mismatch, ValueError, OSError, StoreFull."""
        if file.saved is not None and file.saved.key in self._keys:
            return file.saved, file.signature
        if file.copy:
            return self._upload(file.copy, FileEntry(name, file.size, file.sha256)), file.signature
        with self._taker.folder.opened(file.name) as (path, signature):
            saved = self._upload(path, hash_file(path, name, self._uploads.check))
            return saved, signature if signature_of(os.stat(path)) == signature else None

    def _upload(self, path: str, entry: FileEntry) -> SavedFile:
        content = (entry.sha256, entry.size)
        if content not in self._by_content:
            key = self._new_key(entry.sha256)
            # A full store is final here: the checkpoint must not wait for free space.
            self._uploads.upload("", path, entry._replace(name=key), final=(StoreFull,))
            self._by_content[content] = key
        return SavedFile(entry.name, entry.size, entry.sha256, self._by_content[content])

    def _manifest(self, saved: SavedResults) -> Optional[FileEntry]:
        if not (saved.files or saved.folders or saved.left_out):
            self._newest = None
            return None
        if self._newest is not None:
            before = self._manifests[self._newest.name]
            if saved._replace(attempt=before.attempt, step=before.step) == before:
                return self._newest
        raw, key = encode_saved(saved), self._new_key("manifest.json")

        def put() -> None:
            self._store.put(key, raw)
            if self._store.get(key)[0] != raw:
                raise Mismatch("%s differs after its upload" % key)

        retry_mismatch(lambda: self._retrier.call("saving results", put))
        self._manifests[key] = saved
        self._newest = FileEntry(key, len(raw), hashlib.sha256(raw).hexdigest())
        return self._newest

    def _new_key(self, what: str) -> str:
        self._number += 1
        key = runfiles.saved_result(self._run_id, self._launch_id, self._number, what)
        self._keys.add(key)
        return key

    def _note_left_out(self, left_out: List[LeftOut]) -> None:
        text = ""
        if left_out:
            first = "%s: %s" % (runfiles.storable(left_out[0].name), left_out[0].why)
            count = "1 file" if len(left_out) == 1 else "%d files" % len(left_out)
            text = "%s of results will be saved at the end only; %s" % (count, first)
        self._note(text)

    # --- restoring ------------------------------------------------------------------------------------------------

    def restore(self, entry: Optional[FileEntry]) -> None:
        """Make the results folder what it was at that moment; None: empty. A file that cannot be restored is `lost`:
        the checkpoint counts all the same. Raises GaveUp, OSError (this disk)."""
        folder = self._taker.folder
        folder.empty()
        saved = None if entry is None else self._read(entry)
        if entry is None or saved is None:
            return
        self._newest = entry
        self.lost = {left.name: left.why for left in saved.left_out}
        restored: Dict[str, Tuple[Signature, SavedFile]] = {}
        for file in saved.files:
            path = os.path.join(folder.path, file.name)
            try:
                self._fetch(file, path)
            except Mismatch as error:
                _log.warning("results: %s was not restored: %s", file.name, error)
                self.lost[file.name] = str(error)
            else:
                restored[file.name] = (signature_of(os.stat(path)), file)
        for name in saved.folders:
            if is_plain(name):
                os.makedirs(os.path.join(folder.path, name), exist_ok=True)
        shutil.rmtree(self._incoming, ignore_errors=True)
        self._older = {name: file for name, (_, file) in restored.items() if name in self.lost}
        self._taker.saved = restored
        for _, file in restored.values():
            self._keys.add(file.key)
            self._by_content[file.sha256, file.size] = file.key
        if self.lost:
            name, reason = next(iter(self.lost.items()))
            self._note("%d of the results were not brought back; %s: %s" % (len(self.lost), name, reason))

    def keep(self, aside: str) -> None:
        """Move what is `lost` back from `aside`, where the folder was before it was restored on the same machine: a
        file that is too large to be saved is not lost there. OSError."""
        for name in list(self.lost):
            source, target = os.path.join(aside, name), os.path.join(self._taker.folder.path, name)
            if is_plain(name) and os.path.isfile(source):
                os.makedirs(os.path.dirname(target), exist_ok=True)
                os.replace(source, target)
                del self.lost[name]
                self._older.pop(name, None)
                self._taker.saved = {other: kept for other, kept in self._taker.saved.items() if other != name}

    def _read(self, entry: FileEntry) -> Optional[SavedResults]:
        """None: it is missing, or differs from what was written."""
        path = os.path.join(self._incoming, "manifest.json")
        try:
            self._downloads.download("", path, entry)
            with open(path, "rb") as source:
                saved = self._manifests[entry.name] = decode_saved(source.read())
        except (Mismatch, ValueError) as error:
            _log.warning("results: %s cannot be read: %s", entry.name, error)
            self.lost = {".": "the list of what was saved cannot be read: %s" % error}
            self._note("the results begin anew; %s" % self.lost["."])
            return None
        return saved

    def _fetch(self, file: SavedFile, path: str) -> None:
        if not is_plain(file.name):
            raise Mismatch("%r is not a path inside the results folder" % file.name)
        partial = os.path.join(self._incoming, "file")
        self._downloads.download("", partial, FileEntry(file.key, file.size, file.sha256))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.rename(partial, path)

    def lost_among(self, files: Tuple[FileEntry, ...], refused: Mapping[str, str]) -> Tuple[str, ...]:
        """Results that the run has written and that are not in `files`, each as a phrase with the reason."""
        there = {entry.name for entry in files}
        missing = {
            runfiles.storable(name): "lost with an earlier machine (%s)" % reason
            for name, reason in self.lost.items()
            if runfiles.storable(name) not in there or self._continues_older(name)
        }
        missing.update((name, reason) for name, reason in refused.items() if name not in there)
        phrases = [
            "results: %s" % reason if name == "." else "results %s: %s" % (name, reason)
            for name, reason in sorted(missing.items())
        ]
        more = len(phrases) - LOST_NAMED
        return (*phrases[:LOST_NAMED], *(("%d more results are lost, too" % more,) if more > 0 else ()))

    def _continues_older(self, name: str) -> bool:
        """An older content of this file was restored, and the file still begins with it: the content in between is
        missing. False for an empty older content, because the file may have been written from its beginning again."""
        older = self._older.get(name)
        if older is None or older.size == 0:
            return False
        try:
            with self._taker.folder.opened(name) as (path, _):
                return hash_file(path, name, max_bytes=older.size).sha256 == older.sha256
        except OSError:
            return False

    # --- deleting -------------------------------------------------------------------------------------------------

    def clean(self, baton: Baton) -> None:
        """List what is in the store, and delete what earlier holders left behind. `baton`: as its holder has read it.
        After a failure the next save tries again."""
        own = parse_launch_id(self._launch_id)
        try:
            for page in self._store.pages(runfiles.saved_results(self._run_id)):
                for info in page.objects:
                    launch = runfiles.launch_of_saved(self._run_id, info.key)
                    if launch is None or parse_launch_id(launch[0]) > own:
                        continue
                    self._keys.add(info.key)
                    if launch[0] == self._launch_id:
                        self._number = max(self._number, launch[1])
        except StoreUnavailable as error:
            _log.warning("leftover results stay for now: %s", error)
            return
        self.prune(baton)

    def prune(self, baton: Baton) -> None:
        """Delete what no manifest of `baton` names, which its holder has just written or read."""
        named: Set[str] = set()
        for entry in rules.saved_results(baton):
            saved = self._named(entry)
            if saved is None:
                return  # what it names is unknown: everything stays
            named.add(entry.name)
            named.update(file.key for file in saved.files)
        for key in sorted(self._keys - named):
            try:
                self._store.delete(key)
            except StoreUnavailable as error:
                _log.warning("old results stay for now: %s", error)
                break
            self._keys.discard(key)
            self._manifests.pop(key, None)
        self._by_content = {content: key for content, key in self._by_content.items() if key in self._keys}

    def _named(self, entry: FileEntry) -> Optional[SavedResults]:
        if entry.name not in self._manifests:
            try:
                self._manifests[entry.name] = decode_saved(self._store.get(entry.name)[0])
            except ObjectMissing:
                return SavedResults(0, None, ())  # no restore can use it
            except (StoreUnavailable, ValueError) as error:
                _log.warning("old results stay for now: %s: %s", entry.name, error)
                return None
        return self._manifests[entry.name]


def is_plain(name: str) -> bool:
    """True for a relative path that stays below its folder."""
    parts = name.split("/")
    return bool(name) and "\x00" not in name and not any(part in {"", ".", ".."} for part in parts)
