"""The results on their way to the store: every plain file, read back and compared before anybody says `done`.

Which files a run promised is judged by the supervisor (RULES section 2); here nothing is left out.
"""

from __future__ import annotations

import os
from typing import Callable, Dict, Iterator, List, Optional, Tuple, Union

from supervisor.agent.masking import NOTHING, Masker
from supervisor.agent.patience import Patience
from supervisor.agent.reach import Store
from supervisor.agent.stores.errors import StoreFull
from supervisor.agent.transfer import Mismatch, hash_file, upload_file
from supervisor.domain.baton import FileEntry


class Unverified(Exception):
    """Some files could not be uploaded and read back; the text names the first of them."""


class ResultsUploader:
    """Uploads one folder below one prefix. What was verified once is not uploaded again. A file whose name holds the
    value of a secret is stored under its masked name."""

    def __init__(
        self, store: Store, folder: str, prefix: str, patience: Patience, masker: Masker = NOTHING
    ) -> None:
        self._store = store
        self._folder = folder
        self._prefix = prefix
        self._masker = masker
        self._patience = patience
        self._verified: Dict[str, FileEntry] = {}
        self._owners: Dict[str, str] = {}  # name in the store -> name here

    def upload(self, tell: Callable[[int, int], None] = lambda done, of: None) -> Tuple[FileEntry, ...]:
        """All files, in order of name. Raises Unverified, GaveUp; waits while the store does not answer."""
        names = self._names()
        trouble: Optional[str] = None
        failed = 0
        for number, name in enumerate(names):
            tell(number, len(names))
            try:
                self._one(name)
            except (Mismatch, ValueError, OSError, StoreFull) as error:
                failed += 1
                trouble = trouble or "%s: %s" % (name, error)
        if trouble is not None:
            raise Unverified("%d of %d files could not be saved; %s" % (failed, len(names), trouble))
        return tuple(self._verified[name] for name in names)

    def _names(self) -> List[str]:
        """A folder that the training took away holds no results; one that cannot be read may hold some."""
        try:
            return sorted(_files(self._folder, ""))
        except NotADirectoryError:
            raise Unverified("the results folder %s is not a folder any more" % self._folder) from None
        except OSError as error:
            if not os.path.lexists(self._folder):
                return []
            raise Unverified("the results folder %s cannot be read: %s" % (self._folder, error)) from None

    def _one(self, name: str) -> None:
        path = os.path.join(self._folder, name)
        if os.fsencode(name) != name.encode("utf-8", "replace"):
            raise ValueError("its name is not UTF-8")
        kept = self._masker.text(name)
        if self._owners.setdefault(kept, name) != name:
            raise ValueError("without secrets it has the name of another file")
        if name in self._verified and self._verified[name] == hash_file(path, kept):
            return

        def deed() -> Union[FileEntry, StoreFull]:
            try:
                return upload_file(
                    self._store, self._prefix, path, kept, lambda: self._patience.check("uploading results")
                )
            except StoreFull as error:  # an answer, not an outage: a person must make room
                return error

        found = self._patience.insist("uploading results", deed)
        if isinstance(found, StoreFull):
            raise found
        self._verified[name] = found


def _files(folder: str, below: str) -> Iterator[str]:
    """Names of all plain files, links to files included, relative to `folder`. OSError passes."""
    with os.scandir(os.path.join(folder, below)) as entries:
        for entry in entries:
            name = below + entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _files(folder, name + "/")
            elif entry.is_file():
                yield name
