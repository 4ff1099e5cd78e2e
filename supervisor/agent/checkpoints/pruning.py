"""Deleting checkpoints that the baton does not name any more: the only thing here that deletes a run's files.

The order is always: upload, read back, the baton moved (it names what is kept), then deleted, then told by the beat.
What is deleted was named once and is not named now, in a baton that we have written or read as its holder; a prefix
that was dropped never comes back, so a lost answer or a late look harms nothing. What cannot be deleted now stays
known and is tried again at the next save; what a dead holder left behind is deleted by the next one at its start. Of
attempts after our own nothing is deleted: an agent that was frozen while it began would take their uploads in flight.

Entries called best* below a prefix that is not `best-...` were written by agents that did not name them in the baton.
Nobody can tell a kept one from a half-made one, so they stay until a purge.
"""

from __future__ import annotations

import logging
import re
from typing import Callable, Dict, Iterable, List, Set, Tuple

from supervisor.contract import baton as rules
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton, Keep
from supervisor.contract.heartbeat import MAX_PRUNED, Pruned
from supervisor.contract.stores.promise import ObjectStore, StoreUnavailable

BEST = "best"
UNNAMED = "the baton does not name it"
_PREFIX = re.compile(r"(?:best-)?([0-9]{1,15})-a([0-9]+)(?:\.[0-9]+)?/")
_log = logging.getLogger("agent")


class Pruner:
    """Used by one thread at a time. `tell` gets the beat's new account of what was removed."""

    def __init__(
        self, store: ObjectStore, run_id: str, attempt: int, keep: Keep, tell: Callable[[Pruned], None]
    ) -> None:
        self.store = store
        self._folder, self._attempt = runfiles.checkpoints(run_id), attempt
        self.keep = keep
        self._tell = tell
        self._account = Pruned(0)
        self._known: Dict[str, Tuple[List[str], str]] = {}  # prefix -> (its keys, why it would go)

    def clean(self, baton: Baton) -> List[str]:
        """Delete what earlier holders left behind; the prefixes that are taken. `baton`: as its holder has read it."""
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
        self._known.update({prefix: (keys, UNNAMED) for prefix, keys in prefixes.items()})
        self._remove(prefixes)
        return [*named, *prefixes]

    def prune(self, baton: Baton) -> None:
        """Delete what was named once and is not in `baton`, which was written or read just now by its holder."""
        named = self._learn(baton)
        self._remove([prefix for prefix in self._known if prefix not in named])

    def discard(self, prefix: str, names: Iterable[str]) -> None:
        """An upload that did not verify: its prefix is new, so no baton has ever named it. Not told: it was never a
        checkpoint, and the beat's message says why it is none."""
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
                self._known[pointer.prefix] = (keys, why)
        return {pointer.prefix for pointer in rules.pointers(baton)}

    def _remove(self, prefixes: Iterable[str]) -> None:
        removed = []
        for step, prefix in sorted((_origin(prefix[len(self._folder) :])[0], prefix) for prefix in prefixes):
            keys, why = self._known[prefix]
            if not self._delete(keys):
                break
            del self._known[prefix]
            _log.info("%s removed: %s", prefix, why)
            if step >= 0:
                removed.append((step, why))
        if removed:
            last = (*self._account.last, *removed)[-MAX_PRUNED:]
            self._account = Pruned(self._account.count + len(removed), last)
            self._tell(self._account)

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
    """(step, attempt) of a prefix below the checkpoint folder; (-1, 0) for one that no agent of ours writes."""
    match = _PREFIX.fullmatch(prefix)
    return (-1, 0) if match is None else (int(match.group(1)), int(match.group(2)))
