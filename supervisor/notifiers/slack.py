"""Announcements as one message in Slack."""

from __future__ import annotations

import json
from collections.abc import Sequence

from supervisor.ports.notifier import Notification

TEXT_MAX = 1900


def body(batch: Sequence[Notification]) -> str:
    """JSON. `&`, `<` and `>` are escaped, so that a run's name forms no mention."""
    lines = [f"{one.run_id}: {one.text}" if one.run_id else one.text for one in batch]
    text = "\n".join(lines)[:TEXT_MAX]
    return json.dumps({"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")})
