"""Deleting checkpoints that the baton does not name any more: the only code of the agent that deletes checkpoints.

The order is always: upload, read back, move the baton (it names what is kept), delete, then report in the beat. A
deleted checkpoint was named once and is not named now, in a baton that we have written or read as its holder. A dropped
prefix never comes back, so a lost response or an old read harms nothing. What cannot be deleted now stays known, and
the next save tries again. What a dead holder left behind is deleted by the next holder at its start. Checkpoints of
attempts after our own are never deleted: they may be uploads in flight of an agent that started while we were frozen.

Entries called best* below a prefix that is not `best-...` were written by agents that did not name them in the baton. A
kept entry and a partial upload look the same there, so they stay until a purge.
"""

from __future__ import annotations

import logging
import re
from typing import Callable, Dict, Iterable, List, Set, Tuple

from supervisor.agent.checkpoints.folder import BEST
from supervisor.contract import baton as rules
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton, Keep
from supervisor.contract.heartbeat import MAX_PRUNED, Pruned
from supervisor.contract.stores.promise import ObjectStore, StoreUnavailable

UNNAMED = "the baton does not name it"
_PREFIX = re.compile(r"(?:best-)?([0-9]{1,15})-a([0-9]+)(?:\.[0-9]+)?/")
_log = logging.getLogger("agent")


class Pruner:
    """Used by one thread at a time. `report` gets the beat's new account of the removed checkpoints."""

    def __init__(
        self, store: ObjectStore, run_id: str, attempt: int, keep: Keep, report: Callable[[Pruned], None]
    ) -> None:
        self.store = store
        self._folder, self._attempt = runfiles.checkpoints(run_id), attempt
        self.keep = keep
        self._report = report
        self._pruned = Pruned(0)
        self._known_files: Dict[str, Tuple[List[str], str]] = {}  # prefix -> (its keys, why it would be removed)

    def clean(self, baton: Baton) -> List[str]:
        """Delete what earlier holders left behind; returns the prefixes in use. `baton`: as its holder has read it."""
        named = self._learn(baton)
        prefixes: Dict[str, List[str]] = {}
        try:
            for page in self.store.pages(self._folder):
                for info in page.objects:
                    name, _, rest = info.key[len(self._folder) :].partition("/")
                    prefix = "%s%s/" % (self._folder, name)
                    written_by_older = rest.startswith(BEST) and not name.startswith(BEST)
                    newer = _origin(name + "/")[1] > self._attempt
                    if prefix not in named and not written_by_older and not newer:
                        prefixes.setdefault(prefix, []).append(info.key)
        except StoreUnavailable as error:
            _log.warning("leftover checkpoints stay for now: %s", error)
            return list(named)
        self._known_files.update({prefix: (keys, UNNAMED) for prefix, keys in prefixes.items()})
        self._remove(prefixes)
        return [*named, *prefixes]

    def prune(self, baton: Baton) -> None:
        """Delete checkpoints that are not in `baton` any more, which its holder has just written or read."""
        named = self._learn(baton)
        self._remove([prefix for prefix in self._known_files if prefix not in named])

    def discard(self, prefix: str, names: Iterable[str]) -> None:
        """Delete an upload that did not verify: its prefix is new, so no baton has ever named it. It is not reported:
        it was never a checkpoint, and the beat's message says why."""
        self._delete([prefix + name for name in names])

    def _learn(self, baton: Baton) -> Set[str]:
        keep = self.keep
        why_milestone = "keep_every %d" % keep.every if keep.every else "no keep_every"
        if len(baton.kept) >= rules.MILESTONES_KEPT:
            why_milestone = "more than %d milestones" % rules.MILESTONES_KEPT
        reasons = (
            (rules.pointers(baton), "keep_last %d" % max(rules.NEWEST_KEPT, keep.last)),
            (baton.kept, why_milestone),
            (baton.best, "keep_best %d" % keep.best),
        )
        for pointers, why in reasons:
            for pointer in pointers:
                keys = [pointer.prefix + entry.name for entry in pointer.files]
                self._known_files[pointer.prefix] = (keys, why)
        return {pointer.prefix for pointer in rules.pointers(baton)}

    def _remove(self, prefixes: Iterable[str]) -> None:
        removed = []
        for step, prefix in sorted((_origin(prefix[len(self._folder) :])[0], prefix) for prefix in prefixes):
            keys, why = self._known_files[prefix]
            if not self._delete(keys):
                break
            del self._known_files[prefix]
            _log.info("%s removed: %s", prefix, why)
            if step >= 0:
                removed.append((step, why))
        if removed:
            last = (*self._pruned.last, *removed)[-MAX_PRUNED:]
            self._pruned = Pruned(self._pruned.count + len(removed), last)
            self._report(self._pruned)

    def _delete(self, keys: List[str]) -> bool:
        for key in keys:
            try:
                self.store.delete(key)
            except ValueError:
                continue  # a name that no object can have
            except StoreUnavailable as error:
                _log.warning("old checkpoint files stay for now: %s", error)
                return False
        return True


def _origin(prefix: str) -> Tuple[int, int]:
    """(step, attempt) of a prefix below the checkpoint folder; (-1, 0) for a prefix that our agents do not write."""
    match = _PREFIX.fullmatch(prefix)
    return (-1, 0) if match is None else (int(match.group(1)), int(match.group(2)))
