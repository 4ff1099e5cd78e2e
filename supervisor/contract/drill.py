"""A drill: a preemption notice without a preemption, what the agent reports of it, and the times that a notice leaves.

Shared with the agent: Python 3.8, standard library only. The agent sends TERM as at a real notice, at each moment in
MOMENTS that the training knows, saves, restores on the same machine and starts the command again (agent/life/drilling).
It reports facts only, one `Round` for each moment; whether a run survives is judged by lifecycle/living/drilling. Beats
hold the record as one ASCII text of JSON, "" until the first drill. It is untrusted input, like the beat that carries
it: `decode` keeps what is in bounds, and never raises.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from supervisor.contract.beat_telemetry import figure

MAX_BYTES = 1200
MAX_COUNT = 10**15
# When TERM comes. Again: after the first step of a restored command, so that two resumes follow each other. Warm-up:
# after a start of the command, before its first step.
TRAINING, AGAIN, WARM_UP, EVALUATION, CHECKPOINT = "training", "again", "warm_up", "evaluation", "checkpoint"
MOMENTS = (TRAINING, AGAIN, WARM_UP, EVALUATION, CHECKPOINT)
RUNNING, OVER = "running", "over"
# Why a moment was not drilled: it did not come in time; the process of the command had ended before TERM reached it;
# the moment was over before TERM arrived; the drill ended before it; the reports have no steps; too much would be lost.
NOT_SEEN, GONE, MISSED, CUT, NO_STEPS, UNSAVED = "not_seen", "gone", "missed", "cut", "no_steps", "unsaved"
WHY_NOT = (NOT_SEEN, GONE, MISSED, CUT, NO_STEPS, UNSAVED)
# How the command resumed: its first step came; it ended before that; no step came in time; the next TERM came first.
STEPPED, ENDED, LATE, NEXT = "stepped", "ended", "late", "next"
RESUMED = (STEPPED, ENDED, LATE, NEXT)

RESERVE_S = 8.0  # of a notice, for the upload
SHARE = 0.4  # of a short notice that is reserved at most
LAST_BEAT_S = 0.5  # of a notice, for the last beat


class DrillOrder(NamedTuple):
    """In the baton: the agent of this launch shall drill its training. `number` counts the orders of a run."""

    launch_id: str
    number: int


class Times(NamedTuple):
    """Seconds from a notice to KILL, and to the end of all uploads."""

    kill_s: float
    save_s: float


def notice_times(left_s: float, reserve_s: float = RESERVE_S) -> Times:
    """What a notice of `left_s` seconds leaves. The agent ends every command by these times (watch/ends)."""
    return Times(left_s - min(reserve_s, left_s * SHARE), max(0.0, left_s - LAST_BEAT_S))


class Round(NamedTuple):
    """One notice of a drill. Seconds are durations, None = it did not come to that.

    `delivered`: the command's process was there when TERM was sent, or it died of that very TERM. `why`: of WHY_NOT,
    "" where it was delivered. `step`: the last one that the training reported before it left. `leave_s`: from TERM to
    the end of its last process. `killed`: KILL ended it. `saved`: step of the newest verified checkpoint then;
    `upload_s`: from the end of the command until that was safe. `resumed`: of RESUMED, "" = not started again.
    `restored`: step of the restored checkpoint, None = nothing. `first`: the first step reported after the restore,
    `start_s` after the start of the command. `stride`: steps between two reports. `loss_before`, `loss_after`: of these
    two reports; `loss_jumped`: far outside of what it was before. `data_off`: how far the reported data position was
    from the expected one; None = not reported. `from_zero`: its steps are counted from 0.
    """

    moment: str
    delivered: bool = False
    why: str = ""
    step: Optional[int] = None
    leave_s: Optional[float] = None
    killed: bool = False
    saved: Optional[int] = None
    upload_s: Optional[float] = None
    resumed: str = ""
    restored: Optional[int] = None
    start_s: Optional[float] = None
    first: Optional[int] = None
    stride: int = 1
    loss_before: Optional[float] = None
    loss_after: Optional[float] = None
    loss_jumped: bool = False
    data_off: Optional[float] = None
    from_zero: bool = False


class Record(NamedTuple):
    """`number`: of the order. `moments`: those that the training knows, in the order of the drill."""

    number: int
    state: str = RUNNING
    moments: Tuple[str, ...] = ()
    rounds: Tuple[Round, ...] = ()


def encode(record: Record) -> str:
    """At most MAX_BYTES, all ASCII. Fields with their default are left out."""
    rows = [_row(each) for each in record.rounds[: len(MOMENTS)]]
    data = {"n": record.number, "state": record.state, "moments": list(record.moments), "rounds": rows}
    text = json.dumps(data, separators=(",", ":"))
    if len(text) > MAX_BYTES:  # six digits of a loss and long counts in every round: the losses are for people only
        for row in rows:
            row.pop("loss_before", None)
            row.pop("loss_after", None)
        text = json.dumps(data, separators=(",", ":"))
    return text


def _row(each: Round) -> Dict[str, Any]:
    default = Round("")
    row = {name: value for name, value in each._asdict().items() if value != getattr(default, name)}
    return {name: float("%.6g" % value) if isinstance(value, float) else value for name, value in row.items()}


def decode(text: str) -> Optional[Record]:
    """What is in bounds of such a text; None where there is no record."""
    try:
        data = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or not _is_count(data.get("n")) or data.get("state") not in (RUNNING, OVER):
        return None
    rounds = tuple(each for each in map(_round, _list(data.get("rounds"))) if each is not None)
    moments = tuple(word for word in _list(data.get("moments")) if isinstance(word, str) and word in MOMENTS)
    return Record(data["n"], data["state"], moments, rounds)


def as_received(data: object) -> str:
    """The text of this part of a beat that came from outside, unread; "" when it is too long or not ASCII."""
    fits = isinstance(data, str) and len(data) <= MAX_BYTES and data.isascii() and "\x00" not in data
    return data if fits else ""  # type: ignore[return-value]


def _list(value: object) -> List[Any]:
    return value[: len(MOMENTS)] if isinstance(value, list) else []


def _round(row: object) -> Optional[Round]:
    """A value that is out of bounds counts as not reported, which never makes a verdict better."""
    if not isinstance(row, dict) or not isinstance(row.get("moment"), str) or row["moment"] not in MOMENTS:
        return None
    stride = row.get("stride", 1)
    return Round(
        moment=row["moment"],
        delivered=row.get("delivered") is True,
        why=_word(row.get("why"), WHY_NOT),
        step=_count(row.get("step")),
        leave_s=figure(row.get("leave_s")),
        killed=row.get("killed") is True,
        saved=_count(row.get("saved")),
        upload_s=figure(row.get("upload_s")),
        resumed=_word(row.get("resumed"), RESUMED),
        restored=_count(row.get("restored")),
        start_s=figure(row.get("start_s")),
        first=_count(row.get("first")),
        stride=stride if _is_count(stride) and stride > 0 else 1,
        loss_before=_number(row.get("loss_before")),
        loss_after=_number(row.get("loss_after")),
        loss_jumped=row.get("loss_jumped") is True,
        data_off=_number(row.get("data_off")),
        from_zero=row.get("from_zero") is True,
    )


def _word(value: object, words: Tuple[str, ...]) -> str:
    return value if isinstance(value, str) and value in words else ""


def _count(value: object) -> Optional[int]:
    return value if _is_count(value) else None  # type: ignore[return-value]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT


def _number(value: object) -> Optional[float]:
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and -1e18 < value < 1e18
    return float(value) if fits else None  # type: ignore[arg-type]
