"""Entity tags of runs (RFC 9110, sections 8.8.3 and 13.1): `"VERSION-DIGEST"`.

The version is the row's: it moves with every change of the run, and a PATCH is made only to the one that its sender has
seen. The digest is of what is shown: beats, ages and costs move that without changing the row. So `If-None-Match`
compares the whole tag, and `If-Match` the version in it. Nothing here knows a request.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

MOST = 64  # tags in one header; more are not looked at
_TAG = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')
_BETWEEN = re.compile(r"[ \t]*(?:,[ \t]*)+")
_VERSION = re.compile(r"([0-9]{1,18})-[0-9a-f]{16}\Z")


@dataclass(frozen=True, slots=True)
class Tag:
    """`opaque`: what stands between the quotes."""

    opaque: str
    weak: bool = False

    @property
    def version(self) -> int | None:
        """None: not a tag of a run."""
        found = _VERSION.match(self.opaque)
        return int(found.group(1)) if found else None


@dataclass(frozen=True, slots=True)
class Tags:
    """`anything`: the header said `*`."""

    tags: tuple[Tag, ...] = ()
    anything: bool = False


def make(version: int, shown: str) -> str:
    """The tag of a run's row version and the text of the answer that shows it."""
    return f'"{version}-{hashlib.sha256(shown.encode()).hexdigest()[:16]}"'


def of(shown: str) -> str:
    """The same, from the text of the run alone: an answer that was kept comes as text."""
    return make(json.loads(shown)["version"], shown)


def parse(lines: Sequence[str]) -> Tags | None:
    """The lines of one If-Match or If-None-Match header: a list of tags, or `*` alone. None: neither of them."""
    text = ", ".join(lines).strip(" \t")
    if text == "*":
        return Tags(anything=True)
    found: list[Tag] = []
    at = 0
    while at < len(text) and len(found) < MOST:
        match = _TAG.match(text, at)
        if match is None:
            return None
        found.append(Tag(match.group(2), match.group(1) is not None))
        at = match.end()
        if at < len(text):
            comma = _BETWEEN.match(text, at)
            if comma is None:
                return None
            at = comma.end()
    return Tags(tuple(found)) if found else None


def is_known(lines: Sequence[str], tag: str) -> bool:
    """`If-None-Match`: the client has what `tag` stands for. Compared weakly, as RFC 9110 asks: a proxy that packs an
    answer weakens its tag. What cannot be read as tags is no condition."""
    wanted = parse(lines)
    if wanted is None:
        return False
    return wanted.anything or any(one.opaque == tag[1:-1] for one in wanted.tags)


def versions(wanted: Tags) -> frozenset[int] | None:
    """`If-Match`: the versions that may be changed; None = any. Compared strongly: a weak tag never matches."""
    if wanted.anything:
        return None
    return frozenset(tag.version for tag in wanted.tags if not tag.weak and tag.version is not None)
