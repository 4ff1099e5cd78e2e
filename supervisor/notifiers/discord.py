"""Announcements as one message of a Discord webhook, whose empty `allowed_mentions` lets nothing in it ping anybody."""

from __future__ import annotations

import json
from collections.abc import Sequence
from urllib.parse import quote

from supervisor.notifiers.chat import account, counted, sentence, sign, urgent
from supervisor.ports.notifier import Notification

CONTENT_MAX = 1900  # Discord takes 2000 characters, and counts some as two
EMBED_MAX = 3800  # of 4096
LINE_MIN = 60
RUN_ID_MAX = 63


def body(batch: Sequence[Notification], run_page: str = "") -> str:
    """The JSON of one message for one or more announcements, in their order, but what needs a person first.
    `run_page`: where the page of a run lies, before its id; "" = there is none to link to."""
    quiet: dict[str, object] = {"allowed_mentions": {"parse": []}}
    if len(batch) == 1:
        one = batch[0]
        facts = " \N{MIDDLE DOT} ".join([*account(one), *link(run_page, one.run_id)])
        text = f"{sign(one)} {sentence(one, CONTENT_MAX - len(facts) - 30)}"
        return json.dumps({"content": _plain(f"{text}\n{facts}" if facts else text), **quiet})
    limit = max(LINE_MIN, EMBED_MAX // len(batch) - 1)
    lines: list[str] = []
    room = EMBED_MAX
    for one in sorted(batch, key=lambda one: not urgent(one)):
        line = f"{sign(one)} {sentence(one, limit - len(sign(one)) - 1)}"
        room -= len(line) + 1
        if room < 0:
            lines.append(f"and {len(batch) - len(lines)} more")
            break
        lines.append(line)
    embed = {"description": _plain("\n".join(lines))}
    return json.dumps({"content": _plain(counted(batch))[:CONTENT_MAX], "embeds": [embed], **quiet})


def link(run_page: str, run_id: str) -> list[str]:
    """In angle brackets Discord shows an address as it is, without a picture of where it leads."""
    linked = run_page and 0 < len(run_id) <= RUN_ID_MAX
    return [f"<{run_page}{quote(run_id, safe='')}>"] if linked else []


def _plain(text: str) -> str:
    """Without lone surrogates, which no UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode()
