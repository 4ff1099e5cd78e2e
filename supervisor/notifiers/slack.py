"""Announcements as one message of a Slack webhook: blocks, and the same as plain text for notifications and readers.

Slack understands `<!channel>`, `<@U1>` and `<http://…|text>` wherever they stand: with & < > escaped none of them can
be formed by a name or a text, and `verbatim` keeps it from finding more by itself. A message has at most 50 blocks, a
section 3000 characters and a header 150.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from supervisor.notifiers.chat import account, counted, sentence, sign, urgent
from supervisor.ports.notifier import Notification

BLOCKS_MAX, SECTION_MAX, HEADER_MAX = 50, 3000, 150
TEXT_MAX = 3000  # of the plain text
RUN_ID_MAX = 63
LINE_MAX = 600  # of one announcement among many
DOT = " \N{MIDDLE DOT} "
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def body(batch: Sequence[Notification], run_page: str = "") -> str:
    """The JSON of one message for one or more announcements, in their order, but what needs a person first.
    `run_page`: where the page of a run lies, before its id; "" = there is none to link to."""
    if len(batch) == 1:
        return json.dumps(_single(batch[0], run_page))
    ordered = sorted(batch, key=lambda one: not urgent(one))
    lines = [escaped(f"{sign(one)} {sentence(one, LINE_MAX)}", LINE_MAX) for one in ordered]
    sections = _gathered(lines, SECTION_MAX)
    shown, left = sections[: BLOCKS_MAX - 2], sections[BLOCKS_MAX - 2 :]
    more = sum(text.count("\n") + 1 for text in left)
    head = counted(batch)
    blocks = [{"type": "header", "text": {"type": "plain_text", "text": _within(list(head), HEADER_MAX)}}]
    blocks += [_section(text) for text in [*shown, *([f"and {more} more"] if more else [])]]
    return json.dumps({"text": escaped(head, TEXT_MAX), "blocks": blocks})


def escaped(text: str, limit: int) -> str:
    """At most `limit` characters when it is escaped, never cut within an escape; lone surrogates, which no UTF-8 can
    hold, become question marks."""
    safe = text.encode("utf-8", "replace").decode()
    return _within([_ESCAPES.get(char, char) for char in safe], limit)


def _within(pieces: Sequence[str], limit: int) -> str:
    if sum(map(_units, pieces)) <= limit:
        return "".join(pieces)
    kept, room = [], limit - 1
    for piece in pieces:
        room -= _units(piece)
        if room < 0:
            break
        kept.append(piece)
    return "".join(kept) + "…"


def _units(text: str) -> int:
    """As Slack's own language counts characters: two for those beyond the first 65,536."""
    return sum(2 if ord(char) > 0xFFFF else 1 for char in text)


def _single(one: Notification, run_page: str) -> dict[str, Any]:
    text = f"{sign(one)} {sentence(one, SECTION_MAX)}"
    facts = [escaped(fact, 200) for fact in account(one)]
    if run_page and 0 < len(one.run_id) <= RUN_ID_MAX:
        facts.append(f"<{escaped(run_page, 1000)}{quote(one.run_id, safe='')}|open run>")
    blocks: list[dict[str, Any]] = [_section(escaped(text, SECTION_MAX))]
    if facts:
        blocks.append({"type": "context", "elements": [_mrkdwn(DOT.join(facts))]})
    return {"text": escaped(text, TEXT_MAX), "blocks": blocks}


def _gathered(lines: Sequence[str], limit: int) -> list[str]:
    """As few texts of at most `limit` characters as hold all lines, in their order."""
    found: list[str] = []
    size = 0
    for line in lines:
        more = _units(line) + 1
        if found and size + more <= limit:
            found[-1] += "\n" + line
            size += more
        else:
            found.append(line)
            size = more - 1
    return found


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": _mrkdwn(text)}


def _mrkdwn(text: str) -> dict[str, Any]:
    return {"type": "mrkdwn", "text": text, "verbatim": True}
