"""Cursors: opaque to clients, signed, and bound to the filter they were made with.

The key is derived from the database's secret, which was made with it: a cursor outlives a restart and is worth nothing
anywhere else. It hides nothing; the signature only keeps clients from building cursors of their own.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re

from supervisor.domain.errors import CursorInvalid
from supervisor.ports.store import RunFilter

_MAC_BYTES = 12
_CURSOR = re.compile(r"[A-Za-z0-9_-]{16,64}\Z")


def make(secret: str, before_key: int, where: RunFilter) -> str:
    payload = str(before_key).encode()
    return _text(_mac(secret, payload, where) + payload)


def read(secret: str, cursor: str, where: RunFilter) -> int:
    """The `before_key` in it. Raises CursorInvalid when it was changed, or belongs to another filter or database."""
    if _CURSOR.match(cursor) and len(cursor) % 4 != 1:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        mac, payload = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if hmac.compare_digest(mac, _mac(secret, payload, where)) and _text(raw) == cursor:
            return int(payload)
    raise CursorInvalid("This cursor is not one of ours, or was made for another filter. Begin without a cursor.")


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _mac(secret: str, payload: bytes, where: RunFilter) -> bytes:
    text = repr(where)
    key = hashlib.sha256(b"cursor:" + secret.encode()).digest()
    return hmac.new(key, payload + b"\0" + text.encode(), "sha256").digest()[:_MAC_BYTES]
