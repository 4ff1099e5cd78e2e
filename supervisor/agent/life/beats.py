"""The two ways of a beat, each the step of a thread: pushed to the supervisor, stored as an object.

Pushed: to the supervisor's url, which responds with the pace (RULES section 4). The url is the job's, or is in a file
that the supervisor writes at each start; the file is read again after every failed push.

Stored: written if-generation-match of the agent's own last beat. Another generation means that another process wrote or
deleted it, so the agent reads the baton. With each stored beat the agent also reads the .stop marker and the baton: so
it learns about a stop, a newer attempt and a closed run even without contact to a supervisor. It looks for orders then
too, rarely where a supervisor responds, because the response names new ones.

In a bucket each stored beat costs money. A supervisor that has read the pushed beats of this launch says in its
response for how long stored ones may rest (`Rest`).
"""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Tuple
from urllib.parse import quote, urlsplit

from supervisor.agent.machine.job import Job
from supervisor.agent.store.access import (
    BatonKeeper,
    BatonUnreadable,
    Contact,
    is_newer,
    left_reason,
    new_stop_marker,
    superseded,
)
from supervisor.agent.store.httpclient import HttpClient, Request, Unreachable
from supervisor.agent.watch.beat_state import IN_TRAINING, BeatState
from supervisor.agent.watch.ends import EndReasons
from supervisor.contract import baton as rules
from supervisor.contract import heartbeat, runfiles
from supervisor.contract.heartbeat import Beat, is_number
from supervisor.contract.stores.promise import ABSENT, ObjectMissing, ObjectStore, PreconditionFailed, StoreUnavailable

if TYPE_CHECKING:
    from supervisor.agent.store.door.client import DoorPass

TIMEOUT_S = 5.0
NEXT_MIN_S, NEXT_MAX_S = 0.1, 300.0
NEVER_S = 3600.0
RESTING_STEPS = 3.0  # so often in the time of a stored beat an agent that rests sees whether it still may
GRANT_BEATS = 1 - 1 / RESTING_STEPS  # an acknowledgment that is older grants nothing: then a beat is stored in time
NAMED_S, ORDERS_S = 600.0, 300.0  # a supervisor that responded so lately names new orders: a look is due this rarely
_log = logging.getLogger("agent")


class PushFailed(Exception):
    """No supervisor took this beat; the text says why. The store has it or will have it."""


class Rest:
    """Whether stored beats may rest. A grant is young or it is none: a push that hangs, fails, or is acknowledged by a
    supervisor that does not lead, ends the rest. Safe to use from every thread."""

    def __init__(self, beat_store_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.on_end: Callable[[], None] = lambda: None  # the stored beat is due at once; must not block
        self.monotonic = monotonic
        self._valid_s = GRANT_BEATS * beat_store_s
        self._grant = (float("-inf"), 0.0)  # when it was given, and for how long a stored beat may stay the newest

    def acknowledged(self, store_s: Any) -> None:
        """After each push. `store_s`: of the response; None: it grants nothing, or there was none."""
        rested = self._grant[1] > 0.0
        granted_s = min(float(store_s), heartbeat.REST_MAX_S) if is_number(store_s) and store_s > 0 else 0.0
        self._grant = (self.monotonic(), granted_s)
        if rested and not granted_s:
            self.on_end()

    def allows(self, stored_at: float) -> bool:
        """A beat that was stored then may stay the newest one for now."""
        now, (granted_at, granted_s) = self.monotonic(), self._grant
        return now - granted_at < self._valid_s and now - stored_at < granted_s


class PushedBeats:
    """Used by one thread at a time. With each response `follow` is called: whether a user reads the log; and `ordered`:
    the number of the newest orders, None where the response has none."""

    _failing = False  # the last push
    _url: Optional[str] = None  # from the server file
    _client: Optional[HttpClient] = None

    def __init__(
        self,
        job: Job,
        beat_state: BeatState,
        end_reasons: EndReasons,
        *,
        contact: Contact,
        follow: Callable[[bool], None],
        ordered: Callable[[Any], None] = lambda number: None,
        authorities: Optional[str] = None,
        door_pass: Optional[DoorPass] = None,
    ) -> None:
        """`authorities`: as in HttpClient. `door_pass`: what is renewed with a push; None: there is no door."""
        self._job, self._authorities, self._door_pass = job, authorities, door_pass
        self._beat_state, self._end_reasons, self._contact = beat_state, end_reasons, contact
        self._follow, self._ordered = follow, ordered
        self.acknowledged: Callable[[Any], None] = lambda store_s: None  # after each push, as Rest wants it

    def step(self) -> float:
        """Push once; seconds until the next push."""
        if self._job.server_file is None and self._job.server_url is None:
            return NEVER_S
        try:
            response = self.push(self._beat_state.next_beat())
        except PushFailed as error:
            if not self._failing:
                _log.warning("beats do not reach the supervisor: %s", error)
            self._failing = True
            self.acknowledged(None)
            return self._job.beat_push_s
        if self._failing:
            _log.info("beats reach the supervisor again")
        self._failing = False
        self._contact.responded()
        if response.get("stop") is True and self._end_reasons.ending is None:
            self._end_reasons.add(heartbeat.STOPPED)
        self._follow(response.get("follow_logs") is True)
        self._ordered(response.get("orders"))
        self.acknowledged(response.get("store_s"))
        next_s: Any = response.get("next_s")
        return min(max(float(next_s), NEXT_MIN_S), NEXT_MAX_S) if is_number(next_s) else self._job.beat_push_s

    def push(self, beat: Beat) -> Dict[str, Any]:
        """The JSON object of the response. Raises PushFailed."""
        try:
            return self._push(heartbeat.encode_within(beat, heartbeat.MAX_BYTES))
        except (PushFailed, Unreachable) as error:
            self._url = None
            raise PushFailed(str(error)) from None
        except (OSError, ValueError, RecursionError) as error:
            self._url = None
            raise PushFailed("%s: %s" % (type(error).__name__, error)) from None

    def _push(self, body: bytes) -> Dict[str, Any]:
        url = urlsplit(self._server_url())
        base = "%s://%s" % (url.scheme, url.netloc)
        if self._client is None or self._client.url != base:
            self._client = HttpClient(base, TIMEOUT_S, self._authorities)
        path = "%s/v1/runs/%s/heartbeat" % (url.path.rstrip("/"), quote(self._job.run_id, safe=""))
        # A connection is not kept: the supervisor closes idle ones before the next beat comes.
        headers = {"Content-Type": "application/json", "Connection": "close"}
        if self._door_pass is not None and self._door_pass.due():
            path += "?pass=1"
        response = self._client.call(Request("POST", path, body, headers))
        if response.status != 200:
            raise PushFailed("the supervisor responded with %d" % response.status)
        data = json.loads(response.body)
        if not isinstance(data, dict):
            raise PushFailed("the response of the supervisor is no object")
        if self._door_pass is not None and "pass" in data:
            self._door_pass.take(data["pass"], response.headers.get("date"))
        return data

    def _server_url(self) -> str:
        if self._job.server_url is not None:
            return self._job.server_url
        if self._url is None:
            if self._job.server_file is None:
                raise PushFailed("this machine has no way to the supervisor")
            with open(self._job.server_file, encoding="utf-8") as source:
                data = json.load(source)
            url = data.get("url") if isinstance(data, dict) else None
            if not isinstance(url, str) or urlsplit(url).scheme not in {"http", "https"}:
                raise PushFailed("%s names no url" % self._job.server_file)
            self._url = url
        return self._url


class OrdersLook:
    """Whether the run's orders have changed. `carry_out` is called where they have; False: it is too early. Safe to use
    from every thread."""

    def __init__(
        self,
        store: ObjectStore,
        job: Job,
        carry_out: Callable[[], bool],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._key = store, runfiles.orders(job.run_id)
        self._carry_out, self._monotonic = carry_out, monotonic
        self._lock = threading.Lock()
        self._number, self._generation = 0, ABSENT  # of the newest orders that are carried out
        self._named_at = self._looked_at = float("-inf")

    def named(self, number: Any) -> None:
        """A supervisor has responded: the orders have this number, None: it does not know."""
        self._named_at = self._monotonic()
        with self._lock:
            if heartbeat.is_count(number) and number > self._number and self._carry_out():
                self._number = number

    def look(self) -> None:
        """In the store; rarely while a supervisor responds. Raises StoreUnavailable."""
        now = self._monotonic()
        if now - self._named_at < NAMED_S and now - self._looked_at < ORDERS_S:
            return
        self._looked_at = now
        try:
            generation = self._store.stat(self._key).generation
        except ObjectMissing:
            return
        with self._lock:
            if generation != self._generation and self._carry_out():
                self._generation = generation


class StoredBeats:
    """Only a holder stores beats."""

    _generation: Optional[str] = None  # of our own last beat; None = unknown
    _stored: Optional[Tuple[float, Tuple[Any, ...]]] = None  # when, and in which state; None = the next one is due
    _looked_at = float("-inf")  # at the marker
    _consumed: Optional[str] = None  # of the baton

    def __init__(
        self,
        job: Job,
        store: ObjectStore,
        *,
        keeper: BatonKeeper,
        beat_state: BeatState,
        end_reasons: EndReasons,
        orders: Optional[OrdersLook] = None,
        rest: Optional[Rest] = None,
    ) -> None:
        self.order_drill: Callable[[int], None] = lambda number: None  # gets the number of an order for this launch
        self._job, self._store, self._keeper, self._orders = job, store, keeper, orders
        self._beat_state, self._end_reasons = beat_state, end_reasons
        self._rest = Rest(job.beat_store_s) if rest is None else rest
        self.wake: Callable[[], None] = lambda: None  # the next step at once
        self._rest.on_end = self._rest_ended
        self._key = runfiles.beat(job.run_id)
        self._boot_beat_left = job.sequence_from > 0  # only a start-up script numbers beats before its agent

    def step(self) -> float:
        """Read baton and marker and store one beat, or rest; seconds until the next step."""
        if not self._may_rest():
            return self.step_now()
        if self._rest.monotonic() - self._looked_at >= heartbeat.glance_s(self._job.beat_store_s):
            self._glance()
        return self._job.beat_store_s / RESTING_STEPS

    def step_now(self) -> float:
        """The same without a rest."""
        self._stored = None
        try:
            if self._may_write():
                self._read_orders()
            if self._may_write():
                now, state = self._rest.monotonic(), self._state()
                self.put()
                if self._generation is not None:
                    self._stored = (now, state)
        except StoreUnavailable as error:
            unreadable = isinstance(error, BatonUnreadable)
            self._beat_state.note("store", str(error) if unreadable else "the object store does not answer")
            _log.warning("beat not stored: %s", error)
        else:
            self._beat_state.note("store", "")
            if self._boot_beat_left and self._generation is not None:
                self._boot_beat_left = False
                self._remove_boot_beat()
        return self._job.beat_store_s

    def _may_rest(self) -> bool:
        """The newest stored beat shows this training, the supervisor has the rest of it, and nothing ends."""
        if self._stored is None or self._boot_beat_left or self._end_reasons.ending is not None:
            return False
        stored_at, state = self._stored
        return state == self._state() and state[0] and self._rest.allows(stored_at)

    def _rest_ended(self) -> None:
        """At once, but no more often than without any rest: of two replicas, only one may grant."""
        stored = self._stored
        if stored is None or self._rest.monotonic() - stored[0] >= self._job.beat_store_s:
            self.wake()

    def _state(self) -> Tuple[Any, ...]:
        """What is stored at once when it changes. Checkpoints and evaluations are part of a training."""
        beat = self._beat_state.now
        return beat.phase in IN_TRAINING, beat.notice_s, beat.left, beat.stop_generation, beat.exit

    def _glance(self) -> None:
        """Look for what no supervisor may know yet: a marker, and orders."""
        self._looked_at = self._rest.monotonic()
        try:
            self._read_marker()
            if self._orders is not None and self._end_reasons.ending is None:
                self._orders.look()
        except StoreUnavailable:
            self._stored = None  # the next step says so

    def put(self) -> None:
        """Store a beat, unless the baton forbids it. Raises StoreUnavailable."""
        for _ in range(3):
            if self._generation is None:
                self._generation = self._present_generation()
            text = heartbeat.encode_within(self._beat_state.next_beat(), heartbeat.MAX_STORED_BYTES)
            try:
                info = self._store.put(self._key, text, self._generation, {"beat": text.decode()})
            except PreconditionFailed:
                self._generation = None
                if not self._is_holder(self._keeper.read()):
                    return
            else:
                self._generation = info.generation
                return

    def _remove_boot_beat(self) -> None:
        """The beat of our own start-up script is obsolete; the object may already belong to a newer machine. If it
        stays, it is removed with the run's other beats."""
        key = runfiles.boot_beat(self._job.run_id)
        try:
            raw, info = self._store.get(key)
            if is_newer(heartbeat.parse(raw).launch_id, self._job.launch_id):
                return
            self._store.delete(key, info.generation)
        except (ObjectMissing, PreconditionFailed, StoreUnavailable, heartbeat.BeatRejected):
            _log.info("the boot beat is not removed now")

    def _read_orders(self) -> None:
        baton = self._keeper.read()
        self._consumed, self._looked_at = baton.stop_consumed, self._rest.monotonic()
        self._read_marker()
        if baton.drill is not None and baton.drill.launch_id == self._job.launch_id:
            self.order_drill(baton.drill.number)
        if self._is_holder(baton) and superseded(baton, self._job.launch_id) and self._end_reasons.ending is None:
            self._end_reasons.add(heartbeat.SUPERSEDED)
        if self._orders is not None and self._end_reasons.ending is None:
            self._orders.look()

    def _read_marker(self) -> None:
        marker = new_stop_marker(self._store, self._job.run_id, self._job.stop_consumed, self._consumed)
        if marker is not None:
            self._beat_state.update(stop_generation=marker)
            if self._end_reasons.ending is None:
                self._end_reasons.add(heartbeat.STOPPED)

    def _is_holder(self, baton: rules.Baton) -> bool:
        verdict = self._keeper.standing(baton)
        if verdict != rules.MINE:
            self._end_reasons.add(left_reason(verdict), may_write=False)
        return verdict == rules.MINE

    def _may_write(self) -> bool:
        ending = self._end_reasons.ending
        return ending is None or ending.may_write

    def _present_generation(self) -> str:
        try:
            return self._store.stat(self._key).generation
        except ObjectMissing:
            return ABSENT
