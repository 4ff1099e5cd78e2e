"""The two ways of a beat, each with a step that its thread repeats: pushed to the supervisor, stored as an object.

Pushed: to the supervisor's url, with its answer (RULES section 4). The url is the job's, or stands in a file that the
supervisor writes anew at each start; the file is read again after every push that failed.

Stored: written if-generation-match of the agent's own last one. Another generation means that somebody else wrote or
deleted it, so the baton is looked at. With each stored beat the agent also reads the .stop marker and the baton: so it
learns of a stop, a newer attempt and a closed run where no supervisor reaches it.
"""

from __future__ import annotations

import json
import logging
import math
from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional, Tuple
from urllib.parse import quote, urlsplit

from supervisor.agent.machine.folder import Job
from supervisor.agent.store.reach import (
    BatonKeeper,
    BatonUnreadable,
    Reach,
    fresh_marker,
    left_word,
    superseded,
    superseding,
)
from supervisor.agent.store.site import Site, Unreachable
from supervisor.agent.watch.ends import Attention
from supervisor.agent.watch.situation import Situation
from supervisor.contract import baton as rules
from supervisor.contract import heartbeat, runfiles
from supervisor.contract.heartbeat import Beat
from supervisor.contract.stores.promise import ABSENT, ObjectMissing, ObjectStore, PreconditionFailed, StoreUnavailable

TIMEOUT_S = 5.0
NEXT_MIN_S, NEXT_MAX_S = 0.1, 300.0
_log = logging.getLogger("agent")


class PushFailed(Exception):
    """No supervisor took this beat; the text says why. The store has it or will have it."""


@dataclass(frozen=True)
class Answer:
    """`next_s`: seconds until the next push, None = our own pace."""

    next_s: Optional[float]
    stop: bool
    follow_logs: bool


class Pusher:
    """Used by one thread at a time."""

    def __init__(
        self,
        server_file: Optional[str],
        run_id: str,
        server_url: Optional[str] = None,
        authorities: Optional[str] = None,
    ) -> None:
        """`server_url` counts where it is given; `authorities` as those of a Site."""
        self._server_file, self._server_url = server_file, server_url
        self._authorities = authorities
        self._path = "/v1/runs/%s/heartbeat" % quote(run_id, safe="")
        self._url: Optional[str] = None  # as the file names it
        self._sites: Dict[str, Site] = {}  # the one that was pushed to last, by its url

    def push(self, beat: Beat) -> Answer:
        """Raises PushFailed."""
        try:
            status, body = self._post(heartbeat.encode_within(beat, heartbeat.MAX_BYTES))
            if status != 200:
                raise PushFailed("the supervisor answered %d" % status)
            return _answer(json.loads(body))
        except Unreachable as error:
            self._url = None
            raise PushFailed(str(error)) from None
        except (OSError, ValueError, RecursionError) as error:
            self._url = None
            raise PushFailed("%s: %s" % (type(error).__name__, error)) from None
        except PushFailed:
            self._url = None
            raise

    def _post(self, body: bytes) -> Tuple[int, bytes]:
        url = self._read_url()
        if url not in self._sites:
            self._sites = {url: Site(url, TIMEOUT_S, self._authorities)}
        # A connection is not kept: the supervisor closes idle ones sooner than the next beat comes.
        headers = {"Content-Type": "application/json", "Connection": "close"}
        answer = self._sites[url].call("POST", urlsplit(url).path.rstrip("/") + self._path, body, headers)
        return answer.status, answer.body

    def _read_url(self) -> str:
        if self._server_url is not None:
            return self._server_url
        if self._url is None:
            if self._server_file is None:
                raise PushFailed("this machine has no way to the supervisor")
            with open(self._server_file, encoding="utf-8") as source:
                data = json.load(source)
            url = data.get("url") if isinstance(data, dict) else None
            if not isinstance(url, str) or urlsplit(url).scheme not in {"http", "https"}:
                raise PushFailed("%s names no url" % self._server_file)
            self._url = url
        return self._url


def _answer(data: Any) -> Answer:
    if not isinstance(data, dict):
        raise ValueError("the answer is no object")
    next_s = data.get("next_s")
    if not isinstance(next_s, (int, float)) or isinstance(next_s, bool) or not math.isfinite(next_s):
        next_s = None
    else:
        next_s = min(max(float(next_s), NEXT_MIN_S), NEXT_MAX_S)
    return Answer(next_s, data.get("stop") is True, data.get("follow_logs") is True)


class PushedBeats:
    """`follow` is told with each answer whether somebody reads the log."""

    _failing = False  # the last push

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
        self._situation, self._attention, self._reach = situation, attention, reach
        self._follow = follow
        self._pusher = Pusher(job.server_file, job.run_id, job.server_url, authorities)

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

    _generation: Optional[str] = None  # of our own last beat; None = not known

    def __init__(
        self,
        job: Job,
        machine_id: str,
        store: ObjectStore,
        *,
        keeper: BatonKeeper,
        situation: Situation,
        attention: Attention,
    ) -> None:
        self._job, self._machine_id, self._store, self._keeper = job, machine_id, store, keeper
        self._situation, self._attention = situation, attention
        self._key = runfiles.beat(job.run_id)
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
