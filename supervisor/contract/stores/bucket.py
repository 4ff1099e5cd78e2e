"""What the responses of a bucket mean: rules that the agent's own client and the supervisor's client share.

Shared with the agent: Python 3.8, standard library only. Both use the same JSON API with different transports: the
agent the standard library alone, the supervisor the platform's client. The common rules are here: which responses to
retry, which requests may have been carried out, what a resource says about its object, and how a writer that got no
response recognizes its own object.
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
    """Busy or broken: a retry may help. Every other response is final."""
    return status in _BUSY or status >= 500


def may_have_acted(status: int) -> bool:
    """A request that was refused for its pace was not carried out; after other temporary errors it may have been."""
    return is_passing(status) and status != 429


def message_of(content: bytes) -> str:
    """The platform's own text in an error response, as one line: JSON's error.message, else the body."""
    text = content.decode("utf-8", "replace")
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        text = str(json.loads(text)["error"]["message"])
    return " ".join(text.split())


def names_no_object(message: str) -> bool:
    """A 404 with this message is certainly about the object. Any other may be about the bucket. A listing tells the two
    apart; the account may lack the right to read the bucket itself."""
    return message.startswith("No such object")


def condition_of(if_generation: Optional[str]) -> Optional[int]:
    """The generation that a bucket compares with; NEVER for a text that is not a generation of a bucket."""
    if if_generation is None:
        return None
    is_number = if_generation.isascii() and if_generation.isdigit() and len(if_generation) < 19
    return int(if_generation) if is_number else NEVER


def info_of(resource: Mapping[str, Any], key: str) -> ObjectInfo:
    """A resource as ObjectInfo. Raises KeyError, TypeError, ValueError for an incomplete one."""
    return ObjectInfo(
        key,
        int(resource["size"]),
        str(int(resource["generation"])),
        epoch_s(resource["updated"]),
        dict(resource.get("metadata") or {}),
    )


def is_ours(info: ObjectInfo, metadata: Mapping[str, str], if_generation: Optional[str]) -> bool:
    """For a write whose response was lost, whose condition no longer holds and whose content is there: True if that
    write made the object, because the metadata are ours too and the generation is newer than the last one we read."""
    return dict(info.metadata) == dict(metadata) and int(info.generation) > int(if_generation or ABSENT)


def epoch_s(text: str) -> float:
    """From RFC 3339 in UTC, such as 2026-11-21T23:55:02.123Z. ValueError."""
    if len(text) < 20:
        raise ValueError("not a time: %r" % text)
    digits = (text[20:].rstrip("Z") + "000000")[:6]
    return datetime.fromisoformat("%s.%s+00:00" % (text[:19], digits)).timestamp()


def server_time(date: Optional[str]) -> float:
    """The store's clock at the response, from the header Date. ValueError without a valid header."""
    try:
        return parsedate_to_datetime(date or "").timestamp()
    except (TypeError, IndexError):
        raise ValueError("the answer has no date") from None


def arrived(sent: str) -> int:
    """How many bytes of an upload the store has, from the header Range of a 308; no header means none."""
    match = _ARRIVED.fullmatch(sent)
    return int(match.group(1)) + 1 if match else 0
