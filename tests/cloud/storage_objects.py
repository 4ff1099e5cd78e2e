"""The objects of one fake bucket: generations, metagenerations, conditions and names in the order of their bytes.

Plain data without HTTP. A `Refusal` is a response other than success, in Google's words; what the JSON API says about
each condition: an insert of what is there with ifGenerationMatch=0 is 412, a read of what is not there is 404
whatever the condition, a read that the caller has already (ifGenerationNotMatch) is 304.
"""

from __future__ import annotations

import base64
import hashlib
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import google_crc32c

METADATA_BYTES = 8192  # of all custom keys and values of one object, by Google's quotas page
NAME_BYTES = 1024
_NONE: Mapping[str, str] = {}


@dataclass
class Refusal(Exception):
    """A response in Google's error form. `plain`: sent as a line of text, as for downloads."""

    status: int
    reason: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)
    domain: str = "global"


@dataclass(frozen=True)
class Stored:
    bucket: str
    name: str
    data: bytes
    generation: int  # microseconds of the store's clock, or one more than the last
    metageneration: int
    created: float
    updated: float
    content_type: str
    md5: str
    crc32c: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Conditions:
    """None = no condition. Generation 0 means "there is no object"."""

    generation_match: int | None = None
    generation_not_match: int | None = None
    metageneration_match: int | None = None
    metageneration_not_match: int | None = None

    def check(self, found: Stored | None) -> None:
        """For a write: Refusal 412 unless all of them hold."""
        generation = found.generation if found else 0
        metageneration = found.metageneration if found else 0
        held = (
            self.generation_match in {None, generation}
            and self.generation_not_match != generation
            and self.metageneration_match in {None, metageneration}
            and self.metageneration_not_match != metageneration
        )
        if not held:
            raise Refusal(412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")

    def check_read(self, found: Stored) -> None:
        """For a read: Refusal 304 for what the caller has already, 412 for the rest."""
        if self.generation_not_match == found.generation or self.metageneration_not_match == found.metageneration:
            raise Refusal(304, "notModified", "Not Modified")
        self.check(found)


class Bucket:
    """Not thread-safe: its owner holds a lock."""

    def __init__(self, name: str, created: float) -> None:
        self.name, self.created = name, created
        self.objects: dict[str, Stored] = {}
        self.facts: dict[str, Any] = {}  # of the bucket itself, where they differ from the usual
        self._sorted: list[bytes] = []
        self._last_generation = 0

    def get(self, name: str, generation: int | None = None) -> Stored:
        """The live object; Refusal 404 when there is none, or it is of another generation."""
        found = self.objects.get(name)
        if found is None or generation not in {None, found.generation}:
            raise Refusal(404, "notFound", f"No such object: {self.name}/{name}")
        return found

    def insert(
        self,
        name: str,
        data: bytes,
        now: float,
        conditions: Conditions,
        content_type: str = "application/octet-stream",
        metadata: Mapping[str, str] = _NONE,
    ) -> Stored:
        check_name(name)
        check_metadata(metadata)
        conditions.check(self.objects.get(name))
        self._last_generation = max(self._last_generation + 1, int(now * 1e6))
        if name not in self.objects:
            insort(self._sorted, name.encode())
        self.objects[name] = Stored(
            self.name, name, data, self._last_generation, 1, now, now, content_type, md5_of(data),
            crc32c_of(data), dict(metadata),
        )  # fmt: skip
        return self.objects[name]

    def patch(self, name: str, changes: Mapping[str, str | None] | None, now: float, conditions: Conditions) -> Stored:
        """New custom metadata: a key with the value None is removed, None for the whole removes all keys."""
        found = self.get(name)
        conditions.check(found)
        merged: dict[str, Any] = {} if changes is None else {**found.metadata, **changes}
        metadata = {key: value for key, value in merged.items() if value is not None}
        check_metadata(metadata)
        self.objects[name] = replace(found, metadata=metadata, metageneration=found.metageneration + 1, updated=now)
        return self.objects[name]

    def delete(self, name: str, conditions: Conditions, generation: int | None = None) -> None:
        conditions.check(self.get(name, generation))
        del self.objects[name]
        del self._sorted[bisect_left(self._sorted, name.encode())]

    def names(self, prefix: str, after: bytes = b"") -> Iterator[bytes]:
        """Names from `after` on that begin with `prefix`, in the order of their bytes."""
        wanted = prefix.encode()
        for at in range(bisect_left(self._sorted, max(wanted, after)), len(self._sorted)):
            if not self._sorted[at].startswith(wanted):
                return
            yield self._sorted[at]


def check_name(name: str) -> None:
    """Refusal 400 for a name that Cloud Storage does not take (its page on naming)."""
    if not 0 < len(name.encode("utf-8", "surrogatepass")) <= NAME_BYTES:
        raise Refusal(400, "invalid", "The specified object name is empty or too long.")
    if "\r" in name or "\n" in name or name in {".", ".."} or name.startswith(".well-known/acme-challenge/"):
        raise Refusal(400, "invalid", f"Disallowed object name: {name!r}")


def check_metadata(metadata: Mapping[str, str]) -> None:
    if not all(isinstance(value, str) for value in metadata.values()):
        raise Refusal(400, "invalid", "Custom metadata values are strings.")
    if sum(len(text.encode()) for pair in metadata.items() for text in pair) > METADATA_BYTES:
        raise Refusal(400, "metadataTooLarge", "The metadata for your object is too large.")


def md5_of(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def crc32c_of(data: bytes) -> str:
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()


def timestamp(moment: float) -> str:
    """RFC 3339 in milliseconds, as Google writes it."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
