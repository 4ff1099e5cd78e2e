"""Reading and changing the baton: compare-and-set around the pure functions of contract/baton.py.

A lost answer is no error: the next look finds the change already made, the pure function then gives back what it was
given, and nothing is written twice. A baton that is torn or missing is unreadable: nobody decides anything on it.
"""

from __future__ import annotations

from typing import Callable, Tuple

from supervisor.agent.store.reach import Store
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton, decode, encode
from supervisor.contract.stores.errors import ObjectMissing, PreconditionFailed, StoreUnavailable

_ROUNDS = (
    20  # supervisor and agents change it a few times an hour; more rounds than this mean something is wrong
)


class BatonUnreadable(StoreUnavailable):
    """The store answers, but its baton is missing or torn; the text is for the beat."""


class BatonKeeper:
    """The baton of one run. Errors of every method: StoreUnavailable, of which BatonUnreadable is one."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store = store
        self._key = runfiles.baton(run_id)

    def read(self) -> Baton:
        return self._read()[0]

    def change(self, step: Callable[[Baton], Baton]) -> Baton:
        """The baton after `step`, which is called anew on each fresh look and raises BatonRefused to give up."""
        for _ in range(_ROUNDS):
            before, generation = self._read()
            after = step(before)
            if after == before:
                return before
            try:
                self._store.put(self._key, encode(after), if_generation=generation)
            except PreconditionFailed:
                continue
            return after
        raise StoreUnavailable("%s changes faster than it can be changed" % self._key)

    def _read(self) -> Tuple[Baton, str]:
        try:
            raw, info = self._store.get(self._key)
            return decode(raw), info.generation
        except ObjectMissing:
            raise BatonUnreadable("%s is not there" % self._key) from None
        except ValueError as error:
            raise BatonUnreadable("%s cannot be understood: %s" % (self._key, error)) from None
