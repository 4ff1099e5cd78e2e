"""What the answers of a bucket mean: rules that the agent's own client and the supervisor's share.

Shared with the agent: Python 3.8, standard library only. Both speak the same JSON API, each with its own transport: the
agent with the standard library alone, the supervisor over the platform's client. What is one rule for both stands here:
which answers pass when asked again, which may have been carried out, what a resource says of its object, and how a
writer whose answer was lost finds out that what lies there is its own.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Mapping, Optional

from supervisor.contract.stores.promise import ABSENT, ObjectInfo

ITEM_FIELDS = "name,size,generation,updated,metadata"
NEVER = -1  # a condition that no object can meet
_BUSY = (408, 429)
_ARRIVED = re.compile(r"bytes=0-(\d+)")


def is_passing(status: int) -> bool:
    """Busy or broken: asking again may help. Everything else is an answer."""
    return status in _BUSY or status >= 500


def may_have_acted(status: int) -> bool:
    """A request that was refused for its pace was not carried out; of other passing troubles nobody knows."""
    return is_passing(status) and status != 429


def message_of(content: bytes) -> str:
    """The platform's own words in an answer other than success, as one line: JSON's error.message, else the text."""
    text = content.decode("utf-8", "replace")
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        text = str(json.loads(text)["error"]["message"])
    return " ".join(text.split())


def names_no_object(message: str) -> bool:
    """A 404 with this message is about the object for certain. Any other may be about the bucket: a listing tells the
    two apart, and an account need not be allowed to look at the bucket itself."""
    return message.startswith("No such object")


def condition_of(if_generation: Optional[str]) -> Optional[int]:
    """The generation that a bucket compares with; NEVER for a text that is no generation of its."""
    if if_generation is None:
        return None
    is_number = if_generation.isascii() and if_generation.isdigit() and len(if_generation) < 19
    return int(if_generation) if is_number else NEVER


def info_of(resource: Mapping[str, Any], key: str) -> ObjectInfo:
    """A resource in a store's words. Raises KeyError, TypeError, ValueError for one that lacks something."""
    return ObjectInfo(
        key,
        int(resource["size"]),
        str(int(resource["generation"])),
        epoch_s(resource["updated"]),
        dict(resource.get("metadata") or {}),
    )


def is_ours(info: ObjectInfo, metadata: Mapping[str, str], if_generation: Optional[str]) -> bool:
    """After a write whose answer was lost met a condition that does not hold any more, and the content there is what we
    sent: that write made it, when its metadata are ours too and it is newer than what we had seen."""
    return dict(info.metadata) == dict(metadata) and int(info.generation) > int(if_generation or ABSENT)


def epoch_s(text: str) -> float:
    """From RFC 3339 in UTC, such as 2026-11-21T23:55:02.123Z. ValueError."""
    if len(text) < 20:
        raise ValueError("not a time: %r" % text)
    digits = (text[20:].rstrip("Z") + "000000")[:6]
    return datetime.fromisoformat("%s.%s+00:00" % (text[:19], digits)).timestamp()


def server_time(date: Optional[str]) -> float:
    """The store's clock when it answered, by the header Date. ValueError where it does not tell."""
    try:
        return parsedate_to_datetime(date or "").timestamp()
    except (TypeError, IndexError):
        raise ValueError("the answer has no date") from None


def arrived(sent: str) -> int:
    """How many bytes of an upload the store has, by the header Range of a 308; none at all means that nothing has."""
    match = _ARRIVED.fullmatch(sent)
    return int(match.group(1)) + 1 if match else 0
