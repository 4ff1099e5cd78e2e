"""Bringing back the newest checkpoint that a pointer names and that verifies.

A checkpoint that does not verify is dropped from the baton and the one before it is used, after the last of the newest
ones the milestones from the newest down; the beat says so. A store
that does not answer is waited for: a training that starts from zero because a read failed loses everything.
"""

from __future__ import annotations

import logging
import os
import shutil
from functools import partial
from typing import Callable, Optional, Tuple

from supervisor.agent.store.batonio import BatonKeeper
from supervisor.agent.store.patience import Patience
from supervisor.agent.store.reach import Store
from supervisor.agent.store.transfer import Mismatch, download
from supervisor.contract import baton as rules
from supervisor.contract.baton import Baton, FileEntry, Pointer

INCOMING = ".incoming"  # below the checkpoint folder; a leading dot is never taken for a checkpoint
_log = logging.getLogger("agent")


class Restorer:
    """Restores into `folder`. `reject` gets each step that does not verify, with a short text for the beat."""

    def __init__(
        self,
        store: Store,
        keeper: BatonKeeper,
        holder: Tuple[str, str],  # (launch id, machine id)
        *,
        folder: str,
        patience: Patience,
        reject: Callable[[int, str], None],
    ) -> None:
        self._store = store
        self._keeper = keeper
        self._holder = holder
        self._folder = folder
        self._patience = patience
        self._reject = reject

    def restore(self, baton: Baton) -> Optional[Pointer]:
        """The checkpoint that now lies in the folder, None when the baton names none that verifies.

        Raises GaveUp, BatonRefused, OSError (this machine's disk).
        """
        while baton.checkpoint is not None:
            pointer = baton.checkpoint
            try:
                self._fetch(pointer)
            except Mismatch as error:
                _log.warning("checkpoint %d rejected: %s", pointer.step, error)
                milestone = None if baton.previous or not baton.kept else baton.kept[0].step
                then = "" if milestone is None else "; milestone %d is tried" % milestone
                self._reject(pointer.step, "checkpoint %d rejected: %s%s" % (pointer.step, error, then))
                baton = self._patience.insist(
                    "dropping a checkpoint", partial(self._keeper.change, partial(self._drop, pointer))
                )
            else:
                return pointer
        return None

    def _drop(self, rejected: Pointer, baton: Baton) -> Baton:
        """Only the one that was rejected: when an answer was lost the next one must not go too."""
        return rules.drop_checkpoint(baton, *self._holder) if baton.checkpoint == rejected else baton

    def _fetch(self, pointer: Pointer) -> None:
        """Everything verified first, then each top entry by one rename."""
        incoming = os.path.join(self._folder, INCOMING)
        shutil.rmtree(incoming, ignore_errors=True)
        os.makedirs(incoming)
        try:
            for entry in pointer.files:
                self._fetch_file(pointer.prefix, entry, incoming)
            for name in os.listdir(incoming):
                target = os.path.join(self._folder, name)
                if os.path.isdir(target):
                    shutil.rmtree(target)
                os.rename(os.path.join(incoming, name), target)
        finally:
            shutil.rmtree(incoming, ignore_errors=True)

    def _fetch_file(self, prefix: str, entry: FileEntry, folder: str) -> None:
        if not is_plain(entry.name):
            raise Mismatch("%r is not a path inside the checkpoint folder" % entry.name)
        path = os.path.join(folder, entry.name)

        def between() -> None:
            self._patience.check("restoring")

        self._patience.insist("restoring", lambda: download(self._store, prefix, path, entry, between))


def is_plain(name: str) -> bool:
    """True for a relative path that stays below its folder and that is not hidden."""
    parts = name.split("/")
    return bool(name) and "\x00" not in name and not any(part in {"", ".", ".."} for part in parts)
