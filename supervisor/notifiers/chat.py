"""An announcement as people read it in a chat: a sign, a sentence that begins with the run, and what it has cost.

What runs, trainings and clouds say is somebody else's text: it stays on its line and within its length. How it is kept
from being understood as more than text is each chat's own matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from supervisor.domain.announcements import KINDS
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
_OVER = frozenset(
    {"completed", "partial", "failed", "stopped", "giving_up", "budget_100", "results_unverified"}
)


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
    return (
        full if isinstance(full, str) and full and notification.kind != "needs_person" else notification.text
    )


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
