"""Results as working state: saved with each checkpoint and at each end, brought back with the checkpoint.

A save uploads the contents that the store does not have yet, each under a new key, then a manifest that names them all;
the baton's pointer names the manifest together with the checkpoint. What no manifest of the baton names is deleted
after the baton has moved, as with checkpoints (pruning.py): keys are never used again, and nothing of launches after
our own is touched, so that an agent that was frozen for an hour harms nobody.

A file that cannot be saved never holds up a checkpoint. It is left out, the manifest says why and keeps the content
that the store had of it before, and the beat says that it waits for the end.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from dataclasses import replace
from typing import Callable, Dict, List, Mapping, Optional, Set, Tuple, TypeVar

from supervisor.agent.checkpoints.folder import is_plain
from supervisor.agent.checkpoints.moments import Moment, Signature, Taken, Taker, signature_of, why
from supervisor.agent.machine.masking import NOTHING, Masker
from supervisor.agent.store.reach import TRIES, GaveUp, Mismatch, Patience, download, hash_file, hash_start, upload
from supervisor.contract import baton as rules
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton, FileEntry
from supervisor.contract.identifiers import parse_launch_id
from supervisor.contract.runfiles import LeftOut, SavedFile, SavedResults, decode_saved, encode_saved
from supervisor.contract.stores.promise import ObjectMissing, ObjectStore, StoreFull, StoreUnavailable

T = TypeVar("T")
NO_TIME = "no time was left before the end of the machine"
LOST_NAMED = 20
_log = logging.getLogger("agent")


class ResultsSaver:
    """Used by one thread at a time. `patience` waits as long as anything may be written, `hurry` leaves time to move
    the baton. `lost`: files of earlier attempts that could not be saved or brought back, with the reason. `_older`: the
    content of such a file at an earlier save, where that was brought back instead."""

    def __init__(
        self,
        store: ObjectStore,
        place: Tuple[str, str, str],  # (run id, launch id, folder for downloads)
        taker: Taker,
        *,
        patience: Patience,
        hurry: Patience,
        note: Callable[[str], None] = lambda text: None,
        masker: Masker = NOTHING,
    ) -> None:
        self._store = store
        self._run_id, self._launch_id, self._incoming = place
        self._taker = taker
        self._patience, self._hurry = patience, hurry
        self._note = note
        self._masker = masker
        self._number = 0
        self._keys: Set[str] = set()  # everything that is known to lie in the store
        self._manifests: Dict[str, SavedResults] = {}  # by key
        self._by_content: Dict[Tuple[str, int], str] = {}
        self._newest: Optional[FileEntry] = None
        self.lost: Dict[str, str] = {}
        self._older: Dict[str, SavedFile] = {}

    # --- saving ---------------------------------------------------------------------------------------------------

    def save(self, moment: Moment, step: Optional[int]) -> Optional[FileEntry]:
        """The manifest of this moment, verified in the store; None where there are no results. Raises GaveUp,
        Mismatch, StoreFull (the manifest)."""
        older = {} if self._newest is None else _by_name(self._manifests[self._newest.name])
        files: Dict[str, SavedFile] = {}
        left_out = list(moment.left_out)
        signatures = dict(self._taker.saved)
        for taken in moment.files:
            name = self._masker.text(taken.name)
            if name in files:
                left_out.append(LeftOut(name, "without secrets it has the name of another file"))
                continue
            try:
                files[name], signature = self._one(taken, name)
            except GaveUp:
                left_out.append(LeftOut(taken.name, NO_TIME))
            except (Mismatch, ValueError, OSError, StoreFull) as error:
                left_out.append(LeftOut(taken.name, why(error) if isinstance(error, OSError) else str(error)))
            else:
                if signature is not None:
                    signatures[taken.name] = (signature, files[name])
        left_out = [LeftOut(self._masker.text(left.name), left.why) for left in left_out]
        self._tell(left_out)
        there = {*files, *(left.name for left in left_out)}
        for left in left_out:
            if left.name in older:
                files[left.name] = older[left.name]
        left_out += [
            LeftOut(name, reason)
            for name, reason in self.lost.items()
            if name not in there or (name in files and self._goes_on_from_older(name))
        ]
        present = {taken.name for taken in moment.files}
        self._taker.saved = {name: row for name, row in signatures.items() if name in present}
        return self._manifest(
            SavedResults(
                parse_launch_id(self._launch_id)[1],
                step,
                tuple(files[name] for name in sorted(files)),
                tuple(self._masker.text(name) for name in moment.folders),
                tuple(sorted(left_out, key=lambda left: left.name)),
            )
        )

    def keep_last(self, baton: Baton, step: Optional[int]) -> Optional[FileEntry]:
        """The manifest of the results as they are now, when nobody writes any more; None where `baton` names them
        already, or there are none. Raises what `save` raises."""
        manifest = self.save(self._taker.at_rest(), step)
        named = rules.saved_results(baton)
        return None if manifest is None or manifest in named[:1] else manifest

    def _one(self, taken: Taken, name: str) -> Tuple[SavedFile, Optional[Signature]]:
        """In the store and verified. Raises GaveUp, Mismatch, ValueError, OSError, StoreFull."""
        if taken.saved is not None and taken.saved.key in self._keys:
            return taken.saved, taken.signature
        if taken.copy:
            return self._upload(name, taken.copy, FileEntry(name, taken.size, taken.sha256)), taken.signature
        with self._taker.folder.opened(taken.name) as (path, signature):
            entry = hash_file(path, name, self._check)
            saved = self._upload(name, path, entry)
            return saved, signature if signature_of(os.stat(path)) == signature else None

    def _upload(self, name: str, path: str, entry: FileEntry) -> SavedFile:
        content = (entry.sha256, entry.size)
        if content not in self._by_content:
            self._by_content[content] = self._put(path, entry)
        return SavedFile(name, entry.size, entry.sha256, self._by_content[content])

    def _manifest(self, saved: SavedResults) -> Optional[FileEntry]:
        if not (saved.files or saved.folders or saved.left_out):
            self._newest = None
            return None
        if self._newest is not None:
            before = self._manifests[self._newest.name]
            if replace(saved, attempt=before.attempt, step=before.step) == before:
                return self._newest
        raw, key = encode_saved(saved), self._new_key("manifest.json")

        def deed() -> None:
            self._store.put(key, raw)
            if self._store.get(key)[0] != raw:
                raise Mismatch("%s differs after its upload" % key)

        _tried(lambda: self._patience.insist("saving results", deed))
        self._manifests[key] = saved
        self._newest = FileEntry(key, len(raw), hashlib.sha256(raw).hexdigest())
        return self._newest

    def _put(self, path: str, entry: FileEntry) -> str:
        """The new key of the content at `path`."""
        key = self._new_key(entry.sha256)

        def deed() -> Optional[StoreFull]:
            try:
                upload(self._store, "", path, replace(entry, name=key), self._check)
            except StoreFull as error:  # an answer, not an outage: the checkpoint need not wait for it
                return error
            return None

        full = _tried(lambda: self._hurry.insist("saving results", deed))
        if full is not None:
            raise full
        return key

    def _check(self) -> None:
        self._hurry.check("saving results")

    def _new_key(self, what: str) -> str:
        self._number += 1
        key = runfiles.saved_result(self._run_id, self._launch_id, self._number, what)
        self._keys.add(key)
        return key

    def _tell(self, left_out: List[LeftOut]) -> None:
        text = ""
        if left_out:
            first = "%s: %s" % (runfiles.storable(left_out[0].name), left_out[0].why)
            count = "1 file" if len(left_out) == 1 else "%d files" % len(left_out)
            text = "%s of results will be saved at the end only; %s" % (count, first)
        self._note(text)

    # --- bringing back --------------------------------------------------------------------------------------------

    def restore(self, entry: Optional[FileEntry]) -> None:
        """Make the results folder what it was at that moment; None: empty. A file that cannot be brought back is
        `lost`: the checkpoint counts all the same. Raises GaveUp, OSError (this disk)."""
        folder = self._taker.folder
        folder.empty()
        saved = None if entry is None else self._read(entry)
        if entry is None or saved is None:
            return
        self._newest = entry
        self.lost = {left.name: left.why for left in saved.left_out}
        back: Dict[str, Tuple[Signature, SavedFile]] = {}
        for file in saved.files:
            path = os.path.join(folder.path, file.name)
            try:
                self._fetch(file, path)
            except Mismatch as error:
                _log.warning("results: %s was not restored: %s", file.name, error)
                self.lost[file.name] = str(error)
            else:
                back[file.name] = (signature_of(os.stat(path)), file)
        for name in saved.folders:
            if is_plain(name):
                os.makedirs(os.path.join(folder.path, name), exist_ok=True)
        shutil.rmtree(self._incoming, ignore_errors=True)
        self._older = {name: file for name, (_, file) in back.items() if name in self.lost}
        self._taker.saved = back
        self._keys.update(file.key for _, file in back.values())
        self._by_content.update({(file.sha256, file.size): file.key for _, file in back.values()})
        if self.lost:
            name, reason = next(iter(self.lost.items()))
            self._note("%d of the results were not brought back; %s: %s" % (len(self.lost), name, reason))

    def _read(self, entry: FileEntry) -> Optional[SavedResults]:
        """None: it is not there, or not what was written."""
        path = os.path.join(self._incoming, "manifest.json")
        try:
            self._download(entry, path)
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
        half = os.path.join(self._incoming, "file")
        self._download(FileEntry(file.key, file.size, file.sha256), half)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.rename(half, path)

    def _download(self, entry: FileEntry, path: str) -> None:
        def between() -> None:
            self._patience.check("restoring results")

        self._patience.insist("restoring results", lambda: download(self._store, "", path, entry, between))

    def lost_among(self, files: Tuple[FileEntry, ...], refused: Mapping[str, str]) -> Tuple[str, ...]:
        """What the run has written to its results and is not among `files`, each as a phrase with the reason."""
        there = {entry.name for entry in files}
        lost = "lost with an earlier machine (%s)"
        missing = {
            runfiles.storable(name): lost % reason
            for name, reason in self.lost.items()
            if runfiles.storable(name) not in there or self._goes_on_from_older(name)
        }
        missing.update((name, reason) for name, reason in refused.items() if name not in there)
        phrases = [
            "results: %s" % reason if name == "." else "results %s: %s" % (name, reason)
            for name, reason in sorted(missing.items())
        ]
        more = len(phrases) - LOST_NAMED
        return (*phrases[:LOST_NAMED], *(("%d more results are lost, too" % more,) if more > 0 else ()))

    def _goes_on_from_older(self, name: str) -> bool:
        """Nothing was written to this file since an older content of it was brought back, or only behind that: what it
        held in between is missing. An empty content says nothing: the file may have been written anew."""
        older = self._older.get(name)
        if older is None or older.size == 0:
            return False
        try:
            with self._taker.folder.opened(name) as (path, _):
                return hash_start(path, older.size) == older.sha256
        except OSError:
            return False

    # --- deleting -------------------------------------------------------------------------------------------------

    def clean(self, baton: Baton) -> None:
        """Learn what lies in the store, and delete what earlier holders left behind. `baton`: as its holder has read
        it. A failure is no matter: it is tried again at the next save."""
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
        """Delete what no manifest of `baton` names, which was written or read just now by its holder."""
        named: Set[str] = set()
        for entry in rules.saved_results(baton):
            saved = self._named(entry)
            if saved is None:
                return  # nobody knows what it names: everything stays
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
                return SavedResults(0, None, ())  # nobody can restore by it
            except (StoreUnavailable, ValueError) as error:
                _log.warning("old results stay for now: %s: %s", entry.name, error)
                return None
        return self._manifests[entry.name]


def _tried(deed: Callable[[], T]) -> T:
    """Once more when what arrived was not what was sent. Raises Mismatch, and what `deed` raises."""
    for _ in range(TRIES - 1):
        try:
            return deed()
        except Mismatch as error:
            _log.warning("results: %s; trying again", error)
    return deed()


def _by_name(saved: SavedResults) -> Dict[str, SavedFile]:
    return {file.name: file for file in saved.files}
