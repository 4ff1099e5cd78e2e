"""What Cloud Storage's answers mean for a store: resources as ObjectInfo, errors in the store's words.

A 404 can mean the object or the bucket: the message tells them apart, and a machine's account need not be allowed to
look at the bucket itself.
"""

from __future__ import annotations

import base64
import calendar
import hashlib
import json
import sys
import time
from email.utils import parsedate_to_datetime
from typing import Any, Dict, List, Mapping

from supervisor.agent.store.googleapi import message_of, said
from supervisor.agent.store.site import Answer
from supervisor.contract.stores.errors import ObjectInfo, StoreUnavailable

_TRANSPORT = {"usedforsecurity": False} if sys.version_info >= (3, 9) else {}
FIELDS = "name,size,generation,updated,metadata,md5Hash"


def resource(answer: Answer, doing: str) -> Dict[str, Any]:
    """The JSON object of a successful answer. StoreUnavailable for anything else."""
    if answer.status != 200:
        raise refusal(answer, doing)
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise StoreUnavailable("%s: the answer cannot be understood" % doing)
    return found


def listed(found: Mapping[str, Any], doing: str) -> List[Dict[str, Any]]:
    """The resources of a page. StoreUnavailable for what is none."""
    items = found.get("items") or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise StoreUnavailable("%s: the answer cannot be understood" % doing)
    return items


def info(found: Mapping[str, Any], prefix: str, doing: str) -> ObjectInfo:
    """StoreUnavailable for a resource that lacks something."""
    try:
        return ObjectInfo(
            str(found["name"])[len(prefix) :],
            int(found["size"]),
            str(int(found["generation"])),
            epoch_s(found["updated"]),
            dict(found.get("metadata") or {}),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StoreUnavailable("%s: the answer cannot be understood: %s" % (doing, error)) from None


def refusal(answer: Answer, doing: str) -> StoreUnavailable:
    """For an answer that is neither what was asked for nor a clear "not there"."""
    if answer.status in (401, 403):
        return StoreUnavailable("%s: this machine's account may not (%s)" % (doing, said(answer)))
    if answer.status == 404:
        return StoreUnavailable("%s: there is no such bucket (%s)" % (doing, said(answer)))
    return StoreUnavailable("%s: %s" % (doing, said(answer)))


def names_no_object(answer: Answer) -> bool:
    """A 404 that is about the object for certain."""
    return message_of(answer).startswith("No such object")


def epoch_s(text: str) -> float:
    """From RFC 3339 in UTC, such as 2026-11-21T23:55:02.123Z. ValueError."""
    fraction = text[19:].rstrip("Z")
    return calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")) + float("0" + (fraction or ".0"))


def date_s(answer: Answer, doing: str) -> float:
    """The store's clock when it answered. StoreUnavailable where it does not tell."""
    try:
        return parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, TypeError, ValueError):
        raise StoreUnavailable("%s: the answer has no date" % doing) from None


def md5() -> Any:
    """A hash for transport, where FIPS allows no other use too. Pythons before 3.9 do not know the word for that."""
    return getattr(hashlib, "md5")(**_TRANSPORT)  # noqa: B009 - mypy knows no Python without the word


def as_base64(digest: Any) -> str:
    return base64.b64encode(digest.digest()).decode("ascii")


def md5_of(data: bytes) -> str:
    digest = md5()
    digest.update(data)
    return as_base64(digest)
