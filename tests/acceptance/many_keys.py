"""Many clients that send the same submits with the same keys, side by side, while their supervisor is killed.

Eight requests with one key begin together. Whoever loses the connection, or is told to come again, sends the same once
more, as a careful client does; so every one of the eight has an answer in the end.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tests.acceptance.daemon import QUICK, Daemon
from tests.waiting import wait_for

SIDE_BY_SIDE = 8
FULL_UP = {
    **QUICK,
    "SPOT_LOCAL_CAPACITY": "local-a=0,local-b=0,local-c=0",  # what is submitted waits, and starts no process
    "SPOT_POLL_INTERVAL_S": "2",
}
COME_AGAIN = (409, 429, 503)


@dataclass
class Answers:
    """Of every key: the runs that were answered, and how many answers were no replay. `cut_off`: requests that were
    under way when the supervisor died."""

    runs: dict[str, Counter[str]] = field(default_factory=dict)
    fresh: Counter[str] = field(default_factory=Counter)
    cut_off: int = 0
    done: float = 0.0  # keys


class Crowd:
    def __init__(self, daemon: Daemon, keys: int) -> None:
        self.daemon, self.keys = daemon, keys
        self.answers = Answers({f"key-{number}": Counter() for number in range(keys)})
        self._lock = threading.Lock()
        self._together = threading.Barrier(SIDE_BY_SIDE, timeout=120)
        self._port = int(daemon.url.rpartition(":")[2])
        self._headers = {"Authorization": f"Bearer {daemon.token}", "Content-Type": "application/json"}

    def submit_all(self, kills: int, start_again: Callable[[], None]) -> Answers:
        """With so many kills, each at a moment when requests are under way."""
        marks = sorted(random.sample(range(1, self.keys), kills))
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            clients = [pool.submit(self._client) for _ in range(SIDE_BY_SIDE)]
            try:
                for mark in marks:
                    wait_for(lambda: self.answers.done >= mark or any(one.done() for one in clients), 120)  # noqa: B023
                    self.daemon.kill()
                    start_again()
            except BaseException:
                self._together.abort()
                raise
        for one in clients:
            one.result()
        return self.answers

    def _client(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            for key in self.answers.runs:
                self._together.wait()
                self._submit(connection, key)
        except BaseException:
            self._together.abort()
            raise
        finally:
            connection.close()

    def _submit(self, connection: http.client.HTTPConnection, key: str) -> None:
        answer = wait_for(lambda: self._try(connection, key), 60, f"an answer to {key}")
        assert answer is not None
        told, replayed = answer
        with self._lock:
            self.answers.runs[key][told["run_id"]] += 1
            self.answers.fresh[key] += not replayed
            self.answers.done += 1 / SIDE_BY_SIDE

    def _try(self, connection: http.client.HTTPConnection, key: str) -> tuple[Any, bool] | None:
        body = json.dumps({"spec": {"command": ["true"], "labels": {"key": key}}})
        try:
            connection.request("POST", "/v1/runs", body, {**self._headers, "Idempotency-Key": key})
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()  # opened again by the next request
            with self._lock:
                self.answers.cut_off += not isinstance(error, ConnectionRefusedError)
            return None
        if answer.status in COME_AGAIN:
            return None
        assert answer.status == 201, text
        return json.loads(text), answer.getheader("Idempotency-Replayed") == "true"


def carry_out(daemon: Daemon, keys: int, kills: int) -> Answers:
    """Start it, submit with so many keys, kill it so often in the midst, judge."""
    daemon.start()
    daemon.port = int(daemon.url.rpartition(":")[2])  # the same when it is started again
    answers = Crowd(daemon, keys).submit_all(kills, daemon.start)
    assert answers.cut_off >= kills
    judge(answers, stored(daemon))
    return answers


def stored(daemon: Daemon) -> int:
    """How many runs there are."""
    counts: dict[str, int] = daemon.call("GET", "/v1/runs?page_size=1")["summary"]["counts"]
    return sum(counts.values())


def judge(answers: Answers, runs: int) -> None:
    """One run for each key, whoever asked and however often."""
    several = {key: dict(found) for key, found in answers.runs.items() if len(found) != 1}
    assert several == {}, f"{len(several)} keys have several runs"
    assert all(sum(found.values()) == SIDE_BY_SIDE for found in answers.runs.values())
    assert len({run_id for found in answers.runs.values() for run_id in found}) == len(answers.runs)
    assert runs == len(answers.runs)
    assert max(answers.fresh.values()) <= 1
