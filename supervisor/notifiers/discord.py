"""Announcements as one message in Discord."""

from __future__ import annotations

import json
from collections.abc import Sequence

from supervisor.ports.notifier import Notification

TEXT_MAX = 1900  # Discord takes 2000 characters of content


def body(batch: Sequence[Notification]) -> str:
    """JSON of a message that pings nobody."""
    lines = [f"{one.run_id}: {one.text}" if one.run_id else one.text for one in batch]
    return json.dumps({"content": "\n".join(lines)[:TEXT_MAX], "allowed_mentions": {"parse": []}})
