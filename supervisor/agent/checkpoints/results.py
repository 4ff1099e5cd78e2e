"""The results on their way to the store: every plain file, read back and compared before anybody says `done`.

Which files a run promised is judged by the supervisor (RULES section 2). Left out is only what a link names outside the
folder; `refused` says so. Attempts write to the same names, so each write is conditional on what lay there when the
baton was last seen to be ours: an agent that was frozen meanwhile overwrites nothing of a later one.
"""

from __future__ import annotations

import fnmatch
from typing import Callable, Dict, Iterable, Optional, Tuple, Union

from supervisor.agent.checkpoints.resultsfolder import LeadsOut, ResultsFolder
from supervisor.agent.machine.job import ResultCheck
from supervisor.agent.machine.masking import NOTHING, Masker
from supervisor.agent.store.patience import Patience
from supervisor.agent.store.reach import Store
from supervisor.agent.store.transfer import TRIES, Mismatch, hash_file, nothing, upload_file
from supervisor.contract import runfiles
from supervisor.contract.baton import FileEntry
from supervisor.contract.stores.errors import ABSENT, PreconditionFailed, StoreFull


class Unverified(Exception):
    """Some files could not be uploaded and read back; the text names the first of them."""


class ResultsUploader:
    """Uploads one folder below one prefix. What was verified once is not uploaded again. A file whose name holds the
    value of a secret is stored under its masked name; a name that no object can have is escaped (`renamed`).

    `fence` raises BatonRefused, which passes."""

    def __init__(
        self,
        store: Store,
        folder: ResultsFolder,
        prefix: str,
        *,
        patience: Patience,
        masker: Masker = NOTHING,
        fence: Callable[[], None] = nothing,
    ) -> None:
        self._store = store
        self._folder = folder
        self._prefix = prefix
        self._masker = masker
        self._patience = patience
        self._fence = fence
        self._there: Optional[Dict[str, str]] = None  # key -> generation, as of the last look at the baton
        self._verified: Dict[str, FileEntry] = {}
        self.refused: Dict[str, str] = {}  # name in the store -> why it is not there
        self.renamed: Dict[str, str] = {}  # name here -> name in the store

    def upload(self, tell: Callable[[int, int], None] = lambda done, of: None) -> Tuple[FileEntry, ...]:
        """All files, in order of name. Raises Unverified, GaveUp; waits while the store does not answer."""
        self.refused = {}
        names = self._names()
        trouble: Optional[str] = None
        failed = 0
        for number, name in enumerate(names):
            tell(number, len(names))
            try:
                self._one(name, names[name])
            except LeadsOut as error:
                self.refused[names[name]] = str(error)
            except (Mismatch, ValueError, OSError, StoreFull) as error:
                failed += 1
                trouble = trouble or "%s: %s" % (names[name], error)
        if trouble is not None:
            raise Unverified("%d of %d files could not be saved; %s" % (failed, len(names), trouble))
        return tuple(self._verified[name] for name in names if names[name] not in self.refused)

    def _names(self) -> Dict[str, str]:
        """Name here -> name in the store, no two of them the same. A folder that the training took away holds no
        results; one that cannot be read may hold some."""
        try:
            names = self._folder.listing().files
        except NotADirectoryError:
            raise Unverified(
                "the results folder %s is not a folder any more, or a link, which is not followed"
                % self._folder.path
            ) from None
        except OSError as error:
            raise Unverified(
                "the results folder %s cannot be read: %s" % (self._folder.path, error)
            ) from None
        stored = {name: runfiles.storable(self._masker.text(name)) for name in names}
        self.renamed = {name: stored[name] for name in names if stored[name] != self._masker.text(name)}
        taken: Dict[str, str] = {}
        for name in sorted(names, key=lambda name: (name in self.renamed, name)):
            number, plain = 1, stored[name]
            while name in self.renamed and stored[name] in taken:
                number += 1
                stored[name] = self.renamed[name] = "%s~%d" % (plain, number)
            taken.setdefault(stored[name], name)
        self._owners = taken
        return stored

    def _one(self, name: str, kept: str) -> None:
        if self._owners[kept] != name:
            raise ValueError("without secrets it has the name of another file")
        with self._folder.opened(name) as (path, _):
            if name in self._verified and self._verified[name] == hash_file(path, kept):
                return
            for left in reversed(range(TRIES)):
                found = self._patience.insist("uploading results", lambda: self._try(path, kept))
                if isinstance(found, FileEntry):
                    self._verified[name] = found
                    return
                if isinstance(found, StoreFull) or left == 0:
                    raise found
                self._there = None  # somebody wrote it since: look again whose turn it is

    def _try(self, path: str, kept: str) -> Union[FileEntry, StoreFull, Mismatch]:
        """Raises Mismatch, StoreUnavailable, OSError, ValueError, BatonRefused, GaveUp."""
        if self._there is None:
            there = {
                info.key: info.generation for page in self._store.pages(self._prefix) for info in page.objects
            }
            self._fence()  # after the look: whoever comes next writes another generation
            self._there = there
        key = self._prefix + kept
        try:
            found, self._there[key] = upload_file(
                self._store,
                self._prefix,
                path,
                name=kept,
                between=self._check,
                if_generation=self._there.get(key, ABSENT),
            )
            return found
        except StoreFull as error:  # an answer, not an outage: a person must make room
            return error
        except PreconditionFailed:
            return Mismatch("%s was written by another attempt meanwhile" % kept)

    def _check(self) -> None:
        self._patience.check("uploading results")


def results_there(rules: Iterable[ResultCheck], folder: ResultsFolder) -> bool:
    """Every declared result has its files; some file is there where none is declared."""
    try:
        names = folder.listing().files
    except OSError:
        return False
    wanted = [(rule.path, rule.min_count) for rule in rules] or [("*", 1)]
    return all(len(fnmatch.filter(names, path)) >= least for path, least in wanted)
