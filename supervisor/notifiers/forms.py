"""The forms of an announcement: Standard Webhooks 1.0 for programs, Slack and Discord for people.

For programs: the body of a message and the headers that sign it. For people: a sign, a sentence that begins with the
run, and what it has cost. What runs, trainings and clouds say is somebody else's text: it stays on its line and within
its length, and each chat keeps it from being understood as more than text.

Slack understands `<!channel>`, `<@U1>` and `<http://…|text>` wherever they stand: with & < > escaped none of them can
be formed by a name or a text, and `verbatim` keeps it from finding more by itself. A message has at most 50 blocks, a
section 3000 characters and a header 150. Discord's empty `allowed_mentions` lets nothing in a message ping anybody.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from supervisor.domain.events import KINDS
from supervisor.domain.texts import visible, visible_in
from supervisor.ports.notifier import Notification
from supervisor.wording.figures import clip, ended, money_text

DONE, NOTED, WARNED, URGENT = ":white_check_mark:", ":information_source:", ":warning:", ":rotating_light:"
_SIGNS: Mapping[str, str] = {
    **dict.fromkeys(("completed", "recovered", "breaker_closed"), DONE),
    **dict.fromkeys(
        (
            "preempted", "stalled", "attempt_ended", "waiting", "budget_80", "partial", "checkpoint_rejected",
            "orphan_machine",
        ),
        WARNED,
    ),
}  # fmt: skip
# How a sentence goes on behind the name of its run; any other stands behind a colon.
_GOES_ON = {
    "Preempted ": "was preempted ",
    "Training ": "is training ",
    "Stalled ": "stalled ",
    "Stopped ": "was stopped ",
    "Resumed ": "was resumed ",
    "Waiting: ": "is waiting: ",
    "Needs you: ": "needs you: ",
    "Needs a person: ": "needs you: ",
    "Still waiting for you": "is still waiting for you",
}
_OVER = frozenset({"completed", "partial", "failed", "stopped", "giving_up", "budget_100", "results_unverified"})


def sign(notification: Notification) -> str:
    kind = KINDS.get(notification.kind)
    return _SIGNS.get(notification.kind, URGENT if kind is not None and kind.urgent else NOTED)


def urgent(notification: Notification) -> bool:
    kind = KINDS.get(notification.kind)
    return kind is not None and kind.urgent


def sentence(notification: Notification, limit: int) -> str:
    """One line of at most `limit` characters, beginning with the run, if it is about one."""
    text, run_id = _text(notification), clip(notification.run_id, 63)
    if not run_id:
        return ended(clip(text, limit - 1))
    for begins, goes_on in _GOES_ON.items():
        if text.startswith(begins):
            return ended(clip(f"{run_id} {goes_on}{text.removeprefix(begins)}", limit - 1))
    return ended(clip(f"{run_id}: {text}", limit - 1))


def _text(notification: Notification) -> str:
    """Where the run's own sentence is told, it says more than the event's; a quota keeps its call for a person."""
    full = notification.data.get("status_text")
    return full if isinstance(full, str) and full and notification.kind != "needs_person" else notification.text


def account(notification: Notification) -> list[str]:
    """What it has cost, which attempt it is, and whether anything is to be done; [] = not about a run."""
    data, found = notification.data, []
    if not notification.run_id:
        return []
    cost, budget, before = (_number(data, name) for name in ("cost_usd", "budget_usd", "budget_from_usd"))
    if cost is not None and (cost > 0 or data.get("cost_known", True)):
        spent = cost - (before or 0.0) if budget is not None else cost
        at_least = "" if data.get("cost_known", True) else "at least "
        of = "" if budget is None else f" of {money_text(budget)}"
        so_far = "Cost" if notification.kind in _OVER else "Cost so far"
        found.append(f"{so_far} {at_least}{money_text(max(0.0, spent))}{of}")
    attempt = _number(data, "attempt")
    if attempt:
        found.append(f"attempt {attempt:.0f}")
    if not urgent(notification):
        found.append("You need to do nothing")
    return found


def counted(batch: Sequence[Notification]) -> str:
    """'12 announcements: 9 preempted, 3 recovered', the most frequent first."""
    counts = Counter(one.kind for one in batch)
    parts = [f"{count} {clip(kind, 40).replace('_', ' ')}" for kind, count in counts.most_common()]
    return f"{len(batch)} announcements: {', '.join(parts)}"


def _number(data: Mapping[str, object], name: str) -> float | None:
    value = data.get(name)
    fits = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12
    return float(value) if fits else None  # type: ignore[arg-type]


BODY_BYTES = 20_000  # Standard Webhooks asks for less than 20 KB
TEXT_MAX = 1900
BASE64 = "whsec_"  # what a secret begins with that goes on in base64


def standard_body(notification: Notification) -> str:
    """JSON text; details that would make it too large are left out."""
    told = json.dumps(_message(notification, dict(notification.data)))
    return told if len(told.encode()) < BODY_BYTES else json.dumps(_message(notification, {}))


def standard_headers(message_id: str, text: str, secrets: Sequence[str], at: float) -> dict[str, str]:
    """`at`: epoch seconds of this try; verifiers refuse what is older than 5 minutes. Each secret signs; without one
    nothing is signed. Raises ValueError for a `whsec_` that is not base64."""
    moment = datetime.fromtimestamp(int(at), UTC)
    told = {"webhook-id": message_id, "webhook-timestamp": str(int(at))}
    signers = [signer(secret) for secret in secrets]
    if signers:
        told["webhook-signature"] = " ".join(
            one.sign(msg_id=message_id, timestamp=moment, data=text) for one in signers
        )
    return told


def signer(secret: str) -> Any:
    """`whsec_…` as Standard Webhooks writes it; any other text is the key itself, in UTF-8. Raises ValueError."""
    from standardwebhooks import Webhook
    from standardwebhooks.webhooks import EmptyWebhookSecretError

    try:
        return Webhook(secret if secret.startswith(BASE64) else secret.encode())
    except (ValueError, EmptyWebhookSecretError):
        raise ValueError("a secret that begins with whsec_ goes on in base64") from None


def _named(notification: Notification) -> str:
    """Names the run by itself: receivers show this field alone."""
    run_id, text = notification.run_id, notification.text
    return text if not run_id or run_id in text else f"{run_id}: {text}"


def _message(notification: Notification, details: dict[str, object]) -> dict[str, object]:
    at = datetime.fromtimestamp(notification.at, UTC).isoformat(timespec="milliseconds")
    return {
        "type": f"run.{notification.kind}" if notification.run_id else f"supervisor.{notification.kind}",
        "timestamp": at.replace("+00:00", "Z"),
        "data": {
            "run_id": notification.run_id or None,
            "kind": notification.kind,
            "text": visible(_named(notification))[:TEXT_MAX],
            "sequence": notification.sequence,
            "event_id": notification.event_id,
            "details": visible_in(details),
        },
    }


BLOCKS_MAX, SECTION_MAX, HEADER_MAX = 50, 3000, 150
SLACK_TEXT_MAX = 3000  # of the plain text
RUN_ID_MAX = 63
LINE_MAX = 600  # of one announcement among many
DOT = " \N{MIDDLE DOT} "
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def slack_body(batch: Sequence[Notification], run_page: str = "") -> str:
    """The JSON of one message for one or more announcements, in their order, but what needs a person first.
    `run_page`: where the page of a run lies, before its id; "" = there is none to link to."""
    if len(batch) == 1:
        return json.dumps(_slack_single(batch[0], run_page))
    ordered = sorted(batch, key=lambda one: not urgent(one))
    lines = [escaped(f"{sign(one)} {sentence(one, LINE_MAX)}", LINE_MAX) for one in ordered]
    sections = _gathered(lines, SECTION_MAX)
    shown, left = sections[: BLOCKS_MAX - 2], sections[BLOCKS_MAX - 2 :]
    more = sum(text.count("\n") + 1 for text in left)
    head = counted(batch)
    blocks = [{"type": "header", "text": {"type": "plain_text", "text": _within(list(head), HEADER_MAX)}}]
    blocks += [_section(text) for text in [*shown, *([f"and {more} more"] if more else [])]]
    return json.dumps({"text": escaped(head, SLACK_TEXT_MAX), "blocks": blocks})


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


def _slack_single(one: Notification, run_page: str) -> dict[str, Any]:
    text = f"{sign(one)} {sentence(one, SECTION_MAX)}"
    facts = [escaped(fact, 200) for fact in account(one)]
    if run_page and 0 < len(one.run_id) <= RUN_ID_MAX:
        facts.append(f"<{escaped(run_page, 1000)}{quote(one.run_id, safe='')}|open run>")
    blocks: list[dict[str, Any]] = [_section(escaped(text, SECTION_MAX))]
    if facts:
        blocks.append({"type": "context", "elements": [_mrkdwn(DOT.join(facts))]})
    return {"text": escaped(text, SLACK_TEXT_MAX), "blocks": blocks}


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


CONTENT_MAX = 1900  # Discord takes 2000 characters, and counts some as two
EMBED_MAX = 3800  # of 4096
LINE_MIN = 60


def discord_body(batch: Sequence[Notification], run_page: str = "") -> str:
    """The JSON of one message for one or more announcements, in their order, but what needs a person first.
    `run_page`: where the page of a run lies, before its id; "" = there is none to link to."""
    quiet: dict[str, object] = {"allowed_mentions": {"parse": []}}
    if len(batch) == 1:
        one = batch[0]
        facts = " \N{MIDDLE DOT} ".join([*account(one), *link(run_page, one.run_id)])
        text = f"{sign(one)} {sentence(one, CONTENT_MAX - len(facts) - 30)}"
        return json.dumps({"content": _encodable(f"{text}\n{facts}" if facts else text), **quiet})
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
    embed = {"description": _encodable("\n".join(lines))}
    return json.dumps({"content": _encodable(counted(batch))[:CONTENT_MAX], "embeds": [embed], **quiet})


def link(run_page: str, run_id: str) -> list[str]:
    """In angle brackets Discord shows an address as it is, without a picture of where it leads."""
    linked = run_page and 0 < len(run_id) <= RUN_ID_MAX
    return [f"<{run_page}{quote(run_id, safe='')}>"] if linked else []


def _encodable(text: str) -> str:
    """Without lone surrogates, which no UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode()
