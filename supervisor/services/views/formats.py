"""The small values of a response: times, money, cursors, and the JSON text of the whole.

Times are RFC 3339 in UTC with a Z, to the millisecond. A cursor is opaque, signed, and bound to the filter that it was
made with. Its key is derived from the secret of the database, so it outlives a restart and is worthless for any other
database. It hides nothing; the signature only keeps clients from building cursors of their own.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, overload

from pydantic import AfterValidator, Field

from supervisor.domain.errors import CursorInvalid
from supervisor.ports.store import RunFilter

Json = dict[str, Any]
Time = Annotated[str, AfterValidator(datetime.fromisoformat), Field(json_schema_extra={"format": "date-time"})]
_MAC_BYTES = 12
_CURSOR = re.compile(r"[A-Za-z0-9_-]{16,64}\Z")


def dumps(value: object) -> str:
    """JSON text. Raises ValueError for NaN and Infinity, which JSON does not have."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


@lru_cache(maxsize=8192)  # a list that is read again and again shows the same times of the same runs
def time_text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def maybe_time(at: float | None) -> str | None:
    return None if at is None else time_text(at)


@overload
def usd(amount: float) -> float: ...
@overload
def usd(amount: float | None) -> float | None: ...
def usd(amount: float | None) -> float | None:
    return None if amount is None else round(amount, 6)


def make_cursor(secret: str, before_key: int, where: RunFilter) -> str:
    payload = str(before_key).encode()
    return _base64(_mac(secret, payload, where) + payload)


def read_cursor(secret: str, cursor: str, where: RunFilter) -> int:
    """The `before_key` in it. Raises CursorInvalid when it was changed, or belongs to another filter or database."""
    if _CURSOR.match(cursor) and len(cursor) % 4 != 1:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        mac, payload = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if hmac.compare_digest(mac, _mac(secret, payload, where)) and _base64(raw) == cursor:
            return int(payload)
    raise CursorInvalid("This cursor is not one of ours, or was made for another filter. Begin without a cursor.")


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _mac(secret: str, payload: bytes, where: RunFilter) -> bytes:
    key = hashlib.sha256(b"cursor:" + secret.encode()).digest()
    return hmac.new(key, payload + b"\0" + repr(where).encode(), "sha256").digest()[:_MAC_BYTES]
