"""One write transaction as the use cases see it (ports/store.Transaction)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from supervisor.domain.events import Event
from supervisor.domain.run import Run
from supervisor.ports.store import Change, KeptAnswer
from supervisor.storage.engine.statements import Session
from supervisor.storage.rows import events, keys, runs


def apply_batch(session: Session, batch: runs.Batch, channels: Sequence[str], now: float) -> dict[int, Run]:
    """The runs that were hit, with their new version; of the others nothing is written, their events neither."""
    hit = batch.write(session)
    changes = {key: batch.changes[key] for key in hit}
    told = [events.told(change.after, hit[key], change.events) for key, change in changes.items()]
    events.add(session, told, channels, now)
    return {key: replace(change.after, version=change.before.version + 1) for key, change in changes.items()}


class SqlTransaction:
    """Lives as long as the block of `SqlStore.begin`."""

    def __init__(self, session: Session, channels: Sequence[str], now: float) -> None:
        self._session, self._channels, self._now = session, channels, now

    def find(self, run_id: str) -> Run | None:
        return runs.find(self._session, run_id)

    def spec(self, key: int) -> dict[str, Any]:
        return runs.spec_of(self._session, key)

    def active_of(self, owner: str, most: int) -> int:
        return runs.active_of(self._session, owner, most)

    def insert(
        self, run: Run, spec: Mapping[str, Any], labels: Mapping[str, str], new: Sequence[Event]
    ) -> Run:
        stored = runs.insert_run(self._session, run, spec, labels, len(new))
        events.add(self._session, [events.told(stored, 0, new)], self._channels, self._now)
        return stored

    def put_spec(self, run: Run, spec: Mapping[str, Any], labels: Mapping[str, str]) -> None:
        runs.put_spec(self._session, run, spec, labels)

    def apply(self, change: Change, now: float) -> Run | None:
        hit = apply_batch(self._session, runs.Batch([change]), self._channels, now)
        return hit.get(change.before.key)

    def take_key(self, scope: str, key: str, fingerprint: str, now: float) -> KeptAnswer | None:
        return keys.take(self._session, scope, key, fingerprint, now)

    def keep_answer(self, scope: str, key: str, answer: KeptAnswer) -> None:
        keys.keep(self._session, scope, key, answer)
