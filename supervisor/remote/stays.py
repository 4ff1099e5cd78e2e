"""Object stores on hosts, for runs whose machines cannot reach the supervisor's store (supervisor/host/stays.py).

Large contents travel in pieces, each one a call with a limit of time. A piece that does not arrive in time is ended;
the next ones are smaller, and the caller goes on at the byte that it has. The calls use connections of their own, so
a slow transfer delays no probe.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from supervisor.contract.stores.promise import StrPath
from supervisor.ports.objectstore import (
    MAX_PAGE,
    IsKnown,
    ObjectInfo,
    ObjectMissing,
    Page,
    PreconditionFailed,
    Stay,
    StayBeat,
    StoreFull,
    StoreUnavailable,
)
from supervisor.ports.provider import CapacityInUse, LaunchRejected, MachineMissing, NoCapacity, ProviderUnavailable
from supervisor.remote.connections import NotConnected
from supervisor.remote.hosts import Answer, Host

CALL_S, PIECE_S = 20.0, 45.0
FINISH_BYTES_PER_S = 10e6  # a host with a busy disk hashes and copies a whole file, with its last piece
UPLOADS = 2  # of one file in one call
LEAST_BYTES, FIRST_BYTES, MOST_BYTES = 64 << 10, 1 << 20, 8 << 20  # of a piece
NO_RESULT = (NotConnected, ProviderUnavailable, LaunchRejected, NoCapacity, CapacityInUse, MachineMissing)
OUTCOMES: Mapping[str, type[Exception]] = {"missing": ObjectMissing, "changed": PreconditionFailed, "full": StoreFull}


class HostRelay:
    """Relay of ports/objectstore.py. `hosts`: by place. `watch(note)`: note(place, probe) is called with each probe.
    `end()`: ends the calls of all hosts. `place_of(zone)`: where the store of this zone's machines is; by default each
    zone is a host."""

    def __init__(
        self,
        hosts: Mapping[str, Host],
        supervisor_id: str,
        watch: Callable[[Callable[[str, Answer], None]], None],
        end: Callable[[], None],
        place_of: Callable[[str], str] = lambda zone: zone,
    ) -> None:
        self.end, self.place_of = end, place_of
        self._hosts, self._supervisor_id, self._watch = hosts, supervisor_id, watch
        self._piece_bytes: dict[str, int] = {}  # by place

    def places(self) -> Sequence[str]:
        return tuple(self._hosts)

    def follow(self, note: Callable[[str, Sequence[StayBeat]], None]) -> None:
        def beats_of(place: str, probe: Answer) -> None:
            beats = []
            for row in probe["beats"]:
                with suppress(KeyError, TypeError, ValueError):  # no beat: a training can write anything there
                    if row["supervisor_id"] == self._supervisor_id and int(row["info"]["generation"]):
                        beats.append(StayBeat(row["stay"], row["run_id"], *_object(row)))
            note(place, beats)

        self._watch(beats_of)

    def stays(self, place: str) -> Sequence[Stay]:
        rows = self.call(place, "list", supervisor_id=self._supervisor_id)["stays"]
        return tuple(Stay(row["stay"], row["run_id"], row["busy"]) for row in rows)

    def make(self, place: str, stay: str, run_id: str) -> HostStore:
        answer = self.call(place, "make", stay=stay, supervisor_id=self._supervisor_id, run_id=run_id)
        return HostStore(self, place, stay, str(answer["url"]))

    def store(self, place: str, stay: str) -> HostStore:
        return HostStore(self, place, stay, f"{place}:{stay}")

    def forget(self, place: str, stay: str) -> None:
        self.call(place, "forget", stay=stay, supervisor_id=self._supervisor_id)

    def call(self, place: str, method: str, within_s: float = CALL_S, **values: object) -> Answer:
        host = self._hosts.get(place)
        if host is None:
            raise StoreUnavailable(f"{place} is not in the settings any more: add it again to reach its files")
        try:
            answer = host.call("stay", {"method": method, **values}, within_s)
        except NO_RESULT as error:
            raise StoreUnavailable(str(error)) from None
        outcome = answer["outcome"]
        if outcome:
            raise OUTCOMES.get(outcome, StoreUnavailable)(f"{place}: {answer['text']}")
        return answer

    def piece(self, place: str, method: str, within_s: float, /, **values: object) -> Answer:
        """A call with a piece of a content. Its size is halved for later ones when it fails, else it grows."""
        size = self.piece_bytes(place)
        try:
            answer = self.call(place, method, within_s, **values)
        except StoreUnavailable:
            self._piece_bytes[place] = max(LEAST_BYTES, size // 2)
            raise
        self._piece_bytes[place] = min(MOST_BYTES, size * 2)
        return answer

    def piece_bytes(self, place: str) -> int:
        return self._piece_bytes.get(place, FIRST_BYTES)


class HostStore:
    """StayStore of ports/objectstore.py."""

    def __init__(
        self, relay: HostRelay, place: str, stay: str, url: str, note: Callable[[], None] = lambda: None
    ) -> None:
        self._relay, self._place, self._stay, self.url, self._note = relay, place, stay, url, note

    def noting(self, note: Callable[[], None]) -> HostStore:
        return HostStore(self._relay, self._place, self._stay, self.url, note)

    def put(
        self, key: str, data: bytes, if_generation: str | None = None, metadata: Mapping[str, str] | None = None
    ) -> ObjectInfo:
        values = {"content": _text(data), "if_generation": if_generation, "metadata": dict(metadata or {})}
        answer = self._call("put", key=key, **values)
        self._note()
        return _info(answer["info"])

    def put_file(self, key: str, path: StrPath, if_generation: str | None = None) -> ObjectInfo:
        """Goes on where an earlier call with the same content was cut off. Without conditions only."""
        if if_generation is not None:
            raise ValueError("a file is sent to a host without a condition")
        with open(path, "rb") as source:
            sha256 = hashlib.file_digest(source, "sha256").hexdigest()
            size, uploads = source.tell(), 0
            values = {"stay": self._stay, "key": key, "size": size, "sha256": sha256}
            finish_s = PIECE_S + size / FINISH_BYTES_PER_S
            answer = self._relay.call(self._place, "receive", finish_s, offset=-1, content="", **values)
            while answer["info"] is None:
                offset = answer["received"]
                content = source.read(self._relay.piece_bytes(self._place)) if source.seek(offset) < size else b""
                is_last = offset + len(content) >= size
                uploads += is_last
                if uploads > UPLOADS:
                    raise StoreUnavailable(f"{self._place}: {key} arrived with another content, {UPLOADS} times")
                within_s = finish_s if is_last else PIECE_S
                piece = {"offset": offset, "content": _text(content), **values}
                answer = self._relay.piece(self._place, "receive", within_s, **piece)
                self._note()
            return _info(answer["info"])

    def get(self, key: str) -> tuple[bytes, ObjectInfo]:
        return _object(self._call("get", key=key))

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        left = length
        while left is None or left > 0:
            wanted = self._relay.piece_bytes(self._place)
            wanted = wanted if left is None else min(left, wanted)
            values = {"stay": self._stay, "key": key, "offset": offset, "max_bytes": wanted}
            answer = self._relay.piece(self._place, "read", PIECE_S, **values)
            piece = base64.b64decode(answer["content"])
            if len(piece) > wanted or hashlib.sha256(piece).hexdigest() != answer["sha256"]:
                raise StoreUnavailable(f"{self._place}: {key} arrived with another content")
            self._note()
            if piece:
                yield piece
            offset += len(piece)
            left = None if left is None else left - len(piece)
            if len(piece) < wanted:
                return

    def stat(self, key: str) -> ObjectInfo:
        return _info(self._call("stat", key=key)["info"])

    def pages(self, prefix: str, page_size: int = MAX_PAGE, is_known: IsKnown = None) -> Iterator[Page]:
        answer = self._call("pages", prefix=prefix)
        infos = [_info(values) for values in answer["objects"]]
        for begin in range(0, max(1, len(infos)), page_size):
            yield Page(tuple(infos[begin : begin + page_size]), float(answer["server_time"]))

    def delete(self, key: str, if_generation: str | None = None) -> bool:
        return bool(self._call("delete", key=key, if_generation=if_generation)["deleted"])

    def look(
        self, keys: Sequence[str], prefixes: Sequence[str], since: int
    ) -> tuple[Mapping[str, tuple[bytes, ObjectInfo]], tuple[ObjectInfo, ...]]:
        answer = self._call("look", keys=list(keys), prefixes=list(prefixes), since=since)
        objects = (_object(values) for values in answer["objects"])
        return {info.key: (data, info) for data, info in objects}, tuple(_info(values) for values in answer["changed"])

    def _call(self, method: str, **values: object) -> Answer:
        return self._relay.call(self._place, method, CALL_S, stay=self._stay, **values)


def _object(values: Mapping[str, Any]) -> tuple[bytes, ObjectInfo]:
    return base64.b64decode(values["content"]), _info(values["info"])


def _info(values: Mapping[str, Any]) -> ObjectInfo:
    return ObjectInfo(**values)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
