"""The body of an announcement in each form: Standard Webhooks 1.0 for programs, Slack and Discord for people.

People get a sign, a sentence that begins with the run, and the cost. Texts of runs, trainings and clouds come from
outside: each stays on one line and within a length, and the chat must not interpret it.

Slack interprets `<!channel>`, `<@U1>` and `<http://…|text>` anywhere: with & < > escaped no text can form them, and
`verbatim` turns off its own search for names and links. A message has at most 50 blocks, a section 3000 characters, a
header 150. In Discord an empty `allowed_mentions` keeps a message from notifying anyone.
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
from supervisor.ports.notifier import Form, Notification
from supervisor.wording.figures import clip, ended, money_text

DONE, NOTED, WARNED, URGENT = ":white_check_mark:", ":information_source:", ":warning:", ":rotating_light:"
_SIGNS: Mapping[str, str] = {
    **dict.fromkeys(("completed", "recovered", "breaker_closed"), DONE),
    **dict.fromkeys(
        (
            "preempted", "hanging", "finding", "stalled", "attempt_ended", "waiting", "budget_80", "partial",
            "checkpoint_rejected", "orphan_machine",
        ),
        WARNED,
    ),
}  # fmt: skip
# How a sentence continues after the name of its run; any other sentence follows a colon.
_CONTINUED = {
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

BODY_BYTES = 20_000  # Standard Webhooks requires less than 20 KB
TEXT_MAX = 1900
BASE64 = "whsec_"  # the beginning of a secret that continues in base64
BLOCKS_MAX, SECTION_MAX, HEADER_MAX = 50, 3000, 150
SLACK_TEXT_MAX = 3000  # of the plain text
LINE_MAX = 600  # of one announcement among many, in Slack
LINE_MIN = 60  # the same, in Discord
CONTENT_MAX = 1900  # Discord accepts 2000 characters, and counts some as two
EMBED_MAX = 3800  # of 4096
RUN_ID_MAX = 63
VERDICT_MAX = 190  # of what the rules say, in one fact
DOT = " \N{MIDDLE DOT} "
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def body_of(form: Form, batch: Sequence[Notification], run_page: str = "") -> str:
    """The JSON of one message for one or more announcements (a standard form takes one), those that need a person
    first. `run_page`: the address of a run's page, without the id at its end; "" = no links."""
    if form is Form.STANDARD:
        return standard_body(batch[0])
    return slack_body(batch, run_page) if form is Form.SLACK else discord_body(batch, run_page)


def standard_body(notification: Notification) -> str:
    """Details that would make it too large are left out."""
    body = json.dumps(_message(notification, dict(notification.data)))
    return body if len(body.encode()) < BODY_BYTES else json.dumps(_message(notification, {}))


def standard_headers(message_id: str, text: str, secrets: Sequence[str], at: float) -> dict[str, str]:
    """`at`: epoch seconds of this try; verifiers refuse a message older than 5 minutes. Each secret signs; without
    secrets there is no signature. Raises ValueError for a `whsec_` that is not base64."""
    moment = datetime.fromtimestamp(int(at), UTC)
    headers = {"webhook-id": message_id, "webhook-timestamp": str(int(at))}
    signatures = [signer(secret).sign(msg_id=message_id, timestamp=moment, data=text) for secret in secrets]
    if signatures:
        headers["webhook-signature"] = " ".join(signatures)
    return headers


def signer(secret: str) -> Any:
    """`whsec_…` is a key in base64, as Standard Webhooks writes it; any other text is the key itself, in UTF-8. Raises
    ValueError."""
    from standardwebhooks import Webhook
    from standardwebhooks.webhooks import EmptyWebhookSecretError

    try:
        return Webhook(secret if secret.startswith(BASE64) else secret.encode())
    except (ValueError, EmptyWebhookSecretError):
        raise ValueError("a secret that begins with whsec_ must continue in base64") from None


def _message(notification: Notification, details: dict[str, object]) -> dict[str, object]:
    at = datetime.fromtimestamp(notification.at, UTC).isoformat(timespec="milliseconds")
    run_id, text = notification.run_id, notification.text
    return {
        "type": f"{'run' if run_id else 'supervisor'}.{notification.kind}",
        "timestamp": at.replace("+00:00", "Z"),
        "data": {
            "run_id": run_id or None,
            "kind": notification.kind,
            # Receivers may show this field alone, so it names the run.
            "text": visible(text if not run_id or run_id in text else f"{run_id}: {text}")[:TEXT_MAX],
            "sequence": notification.sequence,
            "event_id": notification.event_id,
            "details": visible_in(details),
        },
    }


def slack_body(batch: Sequence[Notification], run_page: str = "") -> str:
    if len(batch) == 1:
        return json.dumps(_slack_single(batch[0], run_page))
    lines = [escaped(_line(notification, LINE_MAX), LINE_MAX) for notification in _urgent_first(batch)]
    sections = _joined(lines, SECTION_MAX)
    shown, left_out = sections[: BLOCKS_MAX - 2], sections[BLOCKS_MAX - 2 :]
    if left_out:
        shown.append(f"and {sum(text.count(chr(10)) + 1 for text in left_out)} more")
    head = counted(batch)
    header = {"type": "header", "text": {"type": "plain_text", "text": _cut(list(head), HEADER_MAX)}}
    return json.dumps({"text": escaped(head, SLACK_TEXT_MAX), "blocks": [header, *map(_section, shown)]})


def _slack_single(notification: Notification, run_page: str) -> dict[str, Any]:
    text = escaped(_line(notification, SECTION_MAX), SECTION_MAX)
    facts = [escaped(fact, 200) for fact in account(notification)]
    if address := _address(escaped(run_page, 1000), notification):
        facts.append(f"<{address}|open run>")
    blocks = [_section(text)]
    if facts:
        blocks.append({"type": "context", "elements": [_mrkdwn(DOT.join(facts))]})
    return {"text": text, "blocks": blocks}


def discord_body(batch: Sequence[Notification], run_page: str = "") -> str:
    body: dict[str, object] = {"allowed_mentions": {"parse": []}}
    if len(batch) == 1:
        # In angle brackets Discord shows an address as it is, without a preview.
        links = [f"<{address}>" for address in [_address(run_page, batch[0])] if address]
        facts = DOT.join([*account(batch[0]), *links])
        text = _line(batch[0], CONTENT_MAX - len(facts) - 30)
        return json.dumps({"content": _encodable(f"{text}\n{facts}" if facts else text), **body})
    limit = max(LINE_MIN, EMBED_MAX // len(batch) - 1)
    lines: list[str] = []
    capacity = EMBED_MAX
    for notification in _urgent_first(batch):
        line = _line(notification, limit - len(sign(notification)) - 1)
        capacity -= len(line) + 1
        if capacity < 0:
            lines.append(f"and {len(batch) - len(lines)} more")
            break
        lines.append(line)
    embed = {"description": _encodable("\n".join(lines))}
    return json.dumps({"content": _encodable(counted(batch))[:CONTENT_MAX], "embeds": [embed], **body})


def _urgent_first(batch: Sequence[Notification]) -> list[Notification]:
    return sorted(batch, key=lambda notification: not urgent(notification))


def _line(notification: Notification, limit: int) -> str:
    return f"{sign(notification)} {sentence(notification, limit)}"


def sign(notification: Notification) -> str:
    return _SIGNS.get(notification.kind, URGENT if urgent(notification) else NOTED)


def urgent(notification: Notification) -> bool:
    kind = KINDS.get(notification.kind)
    return kind is not None and kind.urgent


def sentence(notification: Notification, limit: int) -> str:
    """One line of at most `limit` characters. It begins with the run, if there is one."""
    # The run's own sentence says more than the event's; but a quota must keep its request to a person.
    full = notification.data.get("status_text")
    text = full if isinstance(full, str) and full and notification.kind != "needs_person" else notification.text
    run_id = clip(notification.run_id, 63)
    if run_id:
        begin = next(filter(text.startswith, _CONTINUED), "")
        text = f"{run_id} {_CONTINUED[begin]}{text.removeprefix(begin)}" if begin else f"{run_id}: {text}"
    return ended(clip(text, limit - 1))


def account(notification: Notification) -> list[str]:
    """What the rules say of an end, the cost, the number of the attempt, and whether a person must act; [] = not about
    a run."""
    if not notification.run_id:
        return []
    data = notification.data
    facts = [fact for fact in [_verdict_fact(data)] if fact]
    cost, budget, before = (_number(data, name) for name in ("cost_usd", "budget_usd", "budget_from_usd"))
    complete = data.get("cost_known", True)
    if cost is not None and (cost > 0 or complete):
        spent = cost - (before or 0.0) if budget is not None else cost
        label = "Cost" if notification.kind in _OVER else "Cost so far"
        of_budget = "" if budget is None else f" of {money_text(budget)}"
        facts.append(f"{label} {'' if complete else 'at least '}{money_text(max(0.0, spent))}{of_budget}")
    if attempt := _number(data, "attempt"):
        facts.append(f"attempt {attempt:.0f}")
    if not urgent(notification):
        facts.append("You need to do nothing")
    return facts


def _verdict_fact(data: Mapping[str, object]) -> str:
    """'host_oom (certain, rule U9.counter): oom_kill +1', of an end that a rule explains; else ""."""
    names = ("cause", "certainty", "rule", "quote")
    cause, certainty, rule, quote = (clip(str(data.get(name) or ""), VERDICT_MAX) for name in names)
    if not (cause and rule):
        return ""
    sure = ", ".join(filter(None, [certainty, f"rule {rule}"]))
    return clip(f"{cause} ({sure})" + (f": {quote}" if quote else ""), VERDICT_MAX)


def _number(data: Mapping[str, object], name: str) -> float | None:
    value = data.get(name)
    fits = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12
    return float(value) if fits else None  # type: ignore[arg-type]


def counted(batch: Sequence[Notification]) -> str:
    """'12 announcements: 9 preempted, 3 recovered', the most frequent first."""
    counts = Counter(notification.kind for notification in batch)
    parts = [f"{count} {clip(kind, 40).replace('_', ' ')}" for kind, count in counts.most_common()]
    return f"{len(batch)} announcements: {', '.join(parts)}"


def _address(run_page: str, notification: Notification) -> str:
    linked = run_page and 0 < len(notification.run_id) <= RUN_ID_MAX
    return f"{run_page}{quote(notification.run_id, safe='')}" if linked else ""


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": _mrkdwn(text)}


def _mrkdwn(text: str) -> dict[str, Any]:
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def escaped(text: str, limit: int) -> str:
    """At most `limit` characters after escaping, never cut within an escape."""
    return _cut([_ESCAPES.get(char, char) for char in _encodable(text)], limit)


def _cut(pieces: Sequence[str], limit: int) -> str:
    if sum(map(_units, pieces)) <= limit:
        return "".join(pieces)
    kept, capacity = [], limit - 1
    for piece in pieces:
        capacity -= _units(piece)
        if capacity < 0:
            break
        kept.append(piece)
    return "".join(kept) + "…"


def _joined(lines: Sequence[str], limit: int) -> list[str]:
    """As few texts of at most `limit` characters as hold all lines, in their order."""
    texts: list[str] = []
    for line in lines:
        if texts and _units(texts[-1]) + 1 + _units(line) <= limit:
            texts[-1] += "\n" + line
        else:
            texts.append(line)
    return texts


def _units(text: str) -> int:
    """Slack counts a character beyond the first 65,536 as two."""
    return sum(2 if ord(char) > 0xFFFF else 1 for char in text)


def _encodable(text: str) -> str:
    """Lone surrogates, which UTF-8 cannot hold, become question marks."""
    return text.encode("utf-8", "replace").decode()
