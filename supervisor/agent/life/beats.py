"""The two ways of a beat, each with a step that its thread repeats: pushed to the supervisor, stored as an object.

The stored beat is written if-generation-match of the agent's own last one: another generation means that somebody
else wrote or deleted it, so the baton is looked at. With each stored beat the agent also reads the .stop marker and
the baton: that is how it learns of a stop, a newer attempt and a closed run where no supervisor reaches it.
"""

from __future__ import annotations

import logging
from typing import Callable, Optional

from supervisor.agent.life.claim import left_word, superseded, superseding
from supervisor.agent.machine.job import Job
from supervisor.agent.store.batonio import BatonKeeper, BatonUnreadable
from supervisor.agent.store.push import Answer, Pusher, PushFailed
from supervisor.agent.store.reach import Reach, Store, fresh_marker
from supervisor.agent.watch.attention import Attention
from supervisor.agent.watch.situation import Situation
from supervisor.contract import baton as rules
from supervisor.contract import heartbeat, runfiles
from supervisor.contract.stores.errors import ABSENT, ObjectMissing, PreconditionFailed, StoreUnavailable

_log = logging.getLogger("agent")


class PushedBeats:
    """`follow` is told with each answer whether somebody reads the log."""

    def __init__(
        self,
        job: Job,
        situation: Situation,
        attention: Attention,
        *,
        reach: Reach,
        follow: Callable[[bool], None],
        authorities: Optional[str] = None,
    ) -> None:
        self._pace_s = job.beat_push_s
        self._silent = job.server_file is None and job.server_url is None
        self._situation = situation
        self._attention = attention
        self._reach = reach
        self._follow = follow
        self._pusher = Pusher(job.server_file, job.run_id, job.server_url, authorities)
        self._failing = False

    def step(self) -> float:
        """Push once; seconds until the next one."""
        if self._silent:
            return 3600.0
        try:
            answer = self._pusher.push(self._situation.beat())
        except PushFailed as error:
            if not self._failing:
                _log.warning("beats do not reach the supervisor: %s", error)
            self._failing = True
            return self._pace_s
        if self._failing:
            _log.info("beats reach the supervisor again")
        self._failing = False
        self._reach.answered()
        return self._heed(answer)

    def _heed(self, answer: Answer) -> float:
        if answer.stop and self._attention.ending is None:
            self._attention.ask(heartbeat.STOPPED)
        self._follow(answer.follow_logs)
        return self._pace_s if answer.next_s is None else answer.next_s


class StoredBeats:
    """Only a holder stores beats."""

    def __init__(
        self,
        job: Job,
        machine_id: str,
        store: Store,
        *,
        keeper: BatonKeeper,
        situation: Situation,
        attention: Attention,
    ) -> None:
        self._job = job
        self._machine_id = machine_id
        self._store = store
        self._keeper = keeper
        self._situation = situation
        self._attention = attention
        self._key = runfiles.beat(job.run_id)
        self._generation: Optional[str] = None  # of our own last beat; None = not known
        self._boot_beat_left = job.sequence_from > 0  # only a start-up script counts before its agent

    def step(self) -> float:
        """Look around and store one beat; seconds until the next one."""
        try:
            if self._may_write():
                self._look()
            if self._may_write():
                self.put()
        except StoreUnavailable as error:
            unreadable = isinstance(error, BatonUnreadable)
            self._situation.note("store", str(error) if unreadable else "the object store does not answer")
            _log.warning("beat not stored: %s", error)
        else:
            self._situation.note("store", "")
            if self._boot_beat_left and self._generation is not None:
                self._boot_beat_left = False
                self._remove_boot_beat()
        return self._job.beat_store_s

    def put(self) -> None:
        """Store a beat, unless the baton says that we may not. Raises StoreUnavailable."""
        for _ in range(3):
            if self._generation is None:
                self._generation = self._present()
            text = heartbeat.encode_within(self._situation.beat(), heartbeat.MAX_STORED_BYTES)
            try:
                info = self._store.put(self._key, text, self._generation, {"beat": text.decode()})
            except PreconditionFailed:
                self._generation = None
                if not self._holds():
                    return
            else:
                self._generation = info.generation
                return

    def _remove_boot_beat(self) -> None:
        """What our own start-up script said is over; a newer machine's may lie there already. Whatever stays is
        removed with the run's other beats."""
        key = runfiles.boot_beat(self._job.run_id)
        try:
            raw, info = self._store.get(key)
            if superseding(heartbeat.parse(raw).launch_id, self._job.launch_id):
                return
            self._store.delete(key, info.generation)
        except (ObjectMissing, PreconditionFailed, StoreUnavailable, heartbeat.BeatRejected):
            _log.info("the boot beat stays where it is")

    def _look(self) -> None:
        baton = self._keeper.read()
        marker = fresh_marker(self._store, self._job.run_id, self._job.stop_consumed, baton.stop_consumed)
        if marker is not None:
            self._situation.tell(stop_generation=marker)
            if self._attention.ending is None:
                self._attention.ask(heartbeat.STOPPED)
        if self._judge(baton) and superseded(baton, self._job.launch_id) and self._attention.ending is None:
            self._attention.ask(heartbeat.SUPERSEDED)

    def _holds(self) -> bool:
        return self._judge(self._keeper.read())

    def _judge(self, baton: rules.Baton) -> bool:
        verdict = rules.standing(baton, self._job.launch_id, self._machine_id, 0.0)
        if verdict != rules.MINE:
            self._attention.ask(left_word(verdict), may_write=False)
        return verdict == rules.MINE

    def _may_write(self) -> bool:
        ending = self._attention.ending
        return ending is None or ending.may_write

    def _present(self) -> str:
        try:
            return self._store.stat(self._key).generation
        except ObjectMissing:
            return ABSENT
