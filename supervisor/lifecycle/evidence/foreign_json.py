"""JSON from a machine on which somebody's training runs: any bytes may stand there.

What is believed can be written down again and told over the API: it has a sane depth, and no figure that JSON has no
word for (1e999 is read as infinity).
"""

from __future__ import annotations

import json
from typing import Any

DEPTH = 12


def read_object(raw: bytes, max_bytes: int, depth: int = DEPTH) -> dict[str, Any] | None:
    """None for what no agent of ours writes: torn, too large, too deep, or no JSON object."""
    if len(raw) > max_bytes:
        return None
    try:
        found = json.loads(raw)
        json.dumps(found, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and not _deeper(found, depth) else None


def _deeper(value: object, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inside = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper(item, levels - 1) for item in inside)
