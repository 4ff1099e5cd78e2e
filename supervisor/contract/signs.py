"""The part of a beat that may decide what an end means: hits in the log, the kernel's kills, errors of cards, a hang.

Shared with the agent: Python 3.8, standard library only. Beats and pulses hold it as one ASCII text of JSON, "" while
nothing is notable, so a healthy run costs nothing. It is untrusted input, like the beat that carries it: `decode` keeps
what is in bounds, silently drops the rest, and never raises. Times are seconds since the agent's start (`up_s`).

A text that would be too long loses the ends of its quotes first, then its oldest hits that did not begin the end.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from supervisor.contract.beat_telemetry import figure

MAX_BYTES = 1500
MAX_HITS = 6
MAX_TEXT = 300
MAX_XIDS, MAX_HELD, MAX_METRICS, MAX_MOVES, MAX_ODD = 8, 16, 8, 6, 4
MAX_NAME = 64  # characters of a metric's name
MAX_COUNT = 10**15
CAUSE, CASCADE, TEARDOWN, SIGN = "cause", "cascade", "teardown", "sign"  # roles of a pattern
ROLES = (CAUSE, CASCADE, TEARDOWN, SIGN)
NAN, INF, SPIKE = "nan", "inf", "spike"  # what is odd about a metric
NAN_STAYS, INF_STAYS = "nan_stays", "inf_stays"  # it is lasting, and the spec says stop
STAYS = (NAN_STAYS, INF_STAYS)
FLAT, ZERO = "flat", "zero"  # it does not change at all
ODD = (NAN, INF, SPIKE, *STAYS, FLAT, ZERO)  # a reader drops a kind that it does not know
# What a living run shows that is worth a hint: items of the evidence (domain/diagnosis/evidence.py), by their names.
NOTES = (
    "checkpoint.shrinks", "checkpoint.torn", "checkpoint.missing", "metric.reported", "step.from",
    "step.first_after_restore", "window.save_share", "checkpoint.opened",
    "save.every_s", "save.best_s", "save.best_steps", "save.s",
)  # fmt: skip
# What makes a run slow -> the figures that show it, in order; each is of several minutes (agent/watch/slow.py).
THROTTLED, UNDERFED, MOUNT, LOADER, SMALL_FILES, THREADS, SHARED, DOWNLOAD, HALVED = (
    "throttled", "underfed", "mount", "loader", "small_files", "threads", "shared", "download", "halved",
)  # fmt: skip
SLOW: Mapping[str, Tuple[str, ...]] = {
    THROTTLED: ("window.clock_reasons", "window.steps_share", "window.temperature"),
    UNDERFED: ("window.gpu_util", "window.sm_clock_share", "window.power_share"),
    MOUNT: ("window.io_pressure", "window.gpu_util"),  # `detail`: the kind of the mount
    LOADER: ("window.loader_cpu", "window.gpu_util"),
    SMALL_FILES: ("window.reads_per_s", "window.read_bytes", "window.new_inodes_per_s"),
    THREADS: ("window.threads", "window.cpu_quota", "window.throttled_share", "window.gpu_util"),
    SHARED: ("window.card_others_bytes", "window.steps_share"),
    DOWNLOAD: ("window.download_still_s",),
    HALVED: ("window.steps_share",),
}
# NVML's clock event reasons that no person asked for: a hardware slowdown, a software and a hardware thermal slowdown,
# a power brake.
THROTTLING = 0x08 | 0x20 | 0x40 | 0x80
# Parts of the names of file systems whose reads take long: of the network, and a rotating disk.
SLOW_MOUNTS = (
    "nfs", "fuse", "9p", "cifs", "smb", "ceph", "lustre", "gpfs", "beegfs", "virtiofs", "gcsfuse", "s3fs", "sshfs",
    "hdd",
)  # fmt: skip
_STILL = "still"  # in a list of what moves that would be empty
_WORD = re.compile(r"[a-z][a-z0-9_.]{0,39}")
_DETAIL = re.compile(r"[a-z0-9_.-]{1,24}")
# Hits, characters of each quote, characters of the error: as many as fit.
_FORMS = ((6, 200, 200), (6, 120, 120), (6, 60, 60), (6, 30, 60), (6, 0, 30), (3, 0, 30), (1, 0, 20))


class Hit(NamedTuple):
    """Lines of the log that one pattern matches. `line`: the last one, verbatim but for secrets and colors.
    `steps_after`: steps reported after it; 0 = none, so the command may have ended with it; None = the command reports
    no steps. `lines_after`: of the log, without the frames of tracebacks; None = unknown. `offset`: of the last hit in
    the log, which orders hits. `context`: up to five lines before and after; never in a beat."""

    pattern: str
    role: str
    count: int  # type: ignore[assignment]
    line: str
    first_up_s: float
    last_up_s: float
    steps_after: Optional[int] = None
    offset: int = 0
    context: Tuple[str, ...] = ()
    lines_after: Optional[int] = None


class Hang(NamedTuple):
    """Nothing moves: no step, no GPU, CPU, IO or network. `place`: what the dump of its threads shows."""

    place: str
    still_s: float
    step: Optional[int] = None


class OddMetric(NamedTuple):
    """A metric that was not finite, that jumped, or that does not change. `step`, `up_s`: of the first such value of
    the attempt. `before`: the last finite value before it, at `before_step`; of a jump the median before it. `value`:
    of the jump, or the one that does not change.
    `back_step`: where it was finite again; None = it is not yet, or it only jumped. Values that a beat cannot carry
    are None."""

    name: str
    kind: str  # of ODD
    step: int
    up_s: float
    before: Optional[float] = None
    before_step: Optional[int] = None
    value: Optional[float] = None
    back_step: Optional[int] = None


class Slow(NamedTuple):
    """Why a run is slow. `word`: of SLOW; `figures`: as named there, None = unread."""

    word: str
    figures: Tuple[Optional[float], ...]
    detail: str = ""


class Signs(NamedTuple):
    """`began`: the pattern of the hit that began the end; "" = an error without a pattern, or unknown. `error`: the
    line that began the end, in most cases the last one of an exception; where `began` is set, its hit's. A hit of a
    cause that is not `began` was caught, follows from another one, or is old. `oom_shared`: processes of others are in
    the same cgroup. `xids`: (card, code, up_s). `held`: (card, bytes in use before the command started). `nonfinite`:
    names of metrics that were NaN or infinite. `metrics`: the same with figures, and those that jumped; the watched
    ones first, at most MAX_ODD. `moves`: what still moves while a step is late, in words of agent/watch/motion.py;
    () = nothing does, None = no step is late, or it cannot be said. `repaired`: (files, bytes) that were removed from
    the run's `scratch` after a full disk; None = that was not tried. `notes`: (one of NOTES, figure), each once;
    that of `metric.reported` is 0 or 1. `slow`: what has made it slow for minutes; only what is notable."""

    hits: Tuple[Hit, ...] = ()
    error: str = ""
    oom_rose_up_s: Optional[float] = None
    oom_shared: Optional[bool] = None
    xids: Tuple[Tuple[int, int, float], ...] = ()
    held: Tuple[Tuple[int, float], ...] = ()
    hang: Optional[Hang] = None
    nonfinite: Tuple[str, ...] = ()
    up_s: Optional[float] = None  # when the signs were written
    began: str = ""
    moves: Optional[Tuple[str, ...]] = None
    repaired: Optional[Tuple[int, int]] = None
    metrics: Tuple[OddMetric, ...] = ()
    notes: Tuple[Tuple[str, float], ...] = ()
    slow: Tuple[Slow, ...] = ()


def encode(signs: Signs) -> str:
    """At most MAX_BYTES, all ASCII; "" where nothing is notable."""
    if signs._replace(up_s=None) == Signs():
        return ""
    signs = _bounded(signs)
    text = _dumps(signs)
    for shorter_text in _shorter(signs):
        if len(text) <= MAX_BYTES:
            break
        text = shorter_text
    return text


def decode(text: str) -> Signs:
    """What is in bounds of such a text."""
    try:
        data = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return Signs()
    if not isinstance(data, dict):
        return Signs()
    oom, hang = data.get("oom"), data.get("hang")
    return Signs(
        hits=tuple(hit for hit in map(_hit, _rows(data, "hits", MAX_HITS)) if hit is not None),
        error=_text(data.get("error")),
        oom_rose_up_s=figure(oom[0]) if isinstance(oom, list) and oom else None,
        oom_shared=oom[1] if isinstance(oom, list) and len(oom) > 1 and isinstance(oom[1], bool) else None,
        xids=tuple(row for row in map(_xid, _rows(data, "xids", MAX_XIDS)) if row is not None),
        held=tuple(row for row in map(_held, _rows(data, "held", MAX_HELD)) if row is not None),
        hang=_hang(hang) if isinstance(hang, list) else None,
        nonfinite=tuple(
            name for name in map(_text, _rows(data, "nonfinite", MAX_METRICS)) if 0 < len(name) <= MAX_NAME
        ),
        up_s=figure(data.get("up_s")),
        began=_word(data.get("began")),
        moves=_moves(data.get("moves")),
        repaired=_repaired(data.get("repaired")),
        metrics=tuple(odd for odd in map(_odd, _rows(data, "metrics", MAX_ODD)) if odd is not None),
        notes=_notes(data.get("notes")),
        slow=tuple(slow for slow in map(_slow, _rows(data, "slow", len(SLOW))) if slow is not None),
    )


def as_received(data: object) -> str:
    """The text of this part of a beat that came from outside, unread; "" when it is too long or not ASCII."""
    fits = isinstance(data, str) and len(data) <= MAX_BYTES and data.isascii() and "\x00" not in data
    return data if fits else ""  # type: ignore[return-value]


def shorter(text: str) -> Iterator[str]:
    """Shorter and shorter forms of such a text, for a beat that has no space for all of it. What happened stays; quotes
    and old hits go. A text that cannot be read becomes ""."""
    if not text:
        return
    signs = decode(text)
    if signs._replace(up_s=None) == Signs():
        yield ""
    else:
        yield from _shorter(signs)


def _shorter(signs: Signs) -> Iterator[str]:
    for most, chars, error_chars in _FORMS:
        fewer = signs._replace(hits=tuple(hit._replace(line=hit.line[:chars]) for hit in _kept(signs, most)))
        if most < MAX_HITS:
            metrics = signs.metrics[: most - 1] or tuple(odd for odd in signs.metrics if odd.kind in STAYS)[:1]
            fewer = fewer._replace(held=signs.held[:4], nonfinite=(), metrics=metrics, notes=())
            fewer = fewer._replace(slow=signs.slow[: most - 1])
        yield _dumps(fewer._replace(error=signs.error[:error_chars]))


def _kept(signs: Signs, most: int) -> List[Hit]:
    """The hit that began the end, then the newest; in their order."""
    first = [hit for hit in signs.hits if hit.pattern == signs.began]
    others = sorted((hit for hit in signs.hits if hit.pattern != signs.began), key=lambda hit: -hit.offset)
    return sorted([*first, *others][:most], key=lambda hit: hit.offset)


def _bounded(signs: Signs) -> Signs:
    """In the bounds of `decode`, so that what is sent can be read."""
    hits = tuple(hit._replace(line=_text(hit.line), context=()) for hit in _kept(signs, MAX_HITS))
    return signs._replace(
        hits=hits,
        error=_text(signs.error),
        xids=signs.xids[-MAX_XIDS:],
        held=signs.held[:MAX_HELD],
        nonfinite=signs.nonfinite[:MAX_METRICS],
        moves=None if signs.moves is None else signs.moves[:MAX_MOVES],
        metrics=signs.metrics[:MAX_ODD],
        slow=signs.slow[: len(SLOW)],
    )


def _dumps(signs: Signs) -> str:
    hang = signs.hang
    oom = [signs.oom_rose_up_s, signs.oom_shared]
    data: Dict[str, Any] = {
        "began": signs.began,
        "error": signs.error,
        "hits": [_row(hit) for hit in signs.hits],
        "oom": oom if oom != [None, None] else None,
        "xids": [list(row) for row in signs.xids],
        "held": [list(row) for row in signs.held],
        "hang": None if hang is None else [hang.place, round(hang.still_s, 1), hang.step],
        "moves": None if signs.moves is None else list(signs.moves) or [_STILL],
        "nonfinite": list(signs.nonfinite),
        "repaired": None if signs.repaired is None else list(signs.repaired),
        "metrics": [_odd_row(odd) for odd in signs.metrics],
        "notes": dict(sorted(signs.notes)) or None,
        "slow": [[slow.word, slow.detail, *map(_number, slow.figures)] for slow in signs.slow],
        "up_s": signs.up_s,
    }
    return json.dumps(
        {name: value for name, value in data.items() if value not in (None, "", [])}, separators=(",", ":")
    )


def _row(hit: Hit) -> List[Any]:
    times = round(hit.first_up_s, 1), round(hit.last_up_s, 1)
    return [hit.pattern, hit.role, hit.count, *times, hit.steps_after, hit.lines_after, hit.offset, hit.line]


def _hit(row: object) -> Optional[Hit]:
    if not isinstance(row, list) or len(row) != 9:
        return None
    pattern, role, count, first, last, steps, lines, offset, line = row
    first_up_s, last_up_s = figure(first), figure(last)
    if not _word(pattern) or role not in ROLES or not _is_count(count) or not _is_count(offset):
        return None
    if (
        first_up_s is None
        or last_up_s is None
        or not all(value is None or _is_count(value) for value in (steps, lines))
    ):
        return None
    return Hit(pattern, role, count, _text(line), first_up_s, last_up_s, steps, offset, (), lines)


def _odd_row(odd: OddMetric) -> List[Any]:
    before, value = _number(odd.before), _number(odd.value)
    return [odd.name, odd.kind, odd.step, round(odd.up_s, 1), before, odd.before_step, value, odd.back_step]


def _odd(row: object) -> Optional[OddMetric]:
    if not isinstance(row, list) or len(row) != 8:
        return None
    name, kind, step, up_s, before, before_step, value, back_step = row
    name, up_s = _text(name), figure(up_s)
    if not 0 < len(name) <= MAX_NAME or kind not in ODD or up_s is None or not _is_count(step):
        return None
    if not all(number is None or _is_count(number) for number in (before_step, back_step)):
        return None
    return OddMetric(name, kind, step, up_s, _number(before), before_step, _number(value), back_step)


def _slow(row: object) -> Optional[Slow]:
    if not isinstance(row, list) or not row or not isinstance(row[0], str) or len(row) != 2 + len(SLOW.get(row[0], "")):
        return None
    word, detail, figures = row[0], row[1], tuple(_number(value) for value in row[2:])
    if word not in SLOW or all(value is None for value in figures):
        return None
    return Slow(word, figures, detail if isinstance(detail, str) and _DETAIL.fullmatch(detail) else "")


def _number(value: object) -> Optional[float]:
    """A finite number that a beat can carry, to six digits; None for anything else."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not -1e18 < value < 1e18:
        return None
    return float("%.6g" % value)


def _hang(row: List[Any]) -> Optional[Hang]:
    still_s = figure(row[1]) if len(row) == 3 else None
    if still_s is None or not _word(row[0]) or not (row[2] is None or _is_count(row[2])):
        return None
    return Hang(row[0], still_s, row[2])


def _moves(value: object) -> Optional[Tuple[str, ...]]:
    words = value[:MAX_MOVES] if isinstance(value, list) else []
    return tuple(word for word in map(_word, words) if word and word != _STILL) if words else None


def _notes(value: object) -> Tuple[Tuple[str, float], ...]:
    data = value if isinstance(value, dict) else {}
    figures = ((name, figure(data.get(name))) for name in NOTES)
    return tuple((name, value) for name, value in figures if value is not None)


def _repaired(row: object) -> Optional[Tuple[int, int]]:
    if not isinstance(row, list) or len(row) != 2 or not all(map(_is_count, row)):
        return None
    return row[0], row[1]


def _xid(row: object) -> Optional[Tuple[int, int, float]]:
    if not isinstance(row, list) or len(row) != 3 or not _is_count(row[0]) or not _is_count(row[1]):
        return None
    up_s = figure(row[2])
    return None if up_s is None else (row[0], row[1], up_s)


def _held(row: object) -> Optional[Tuple[int, float]]:
    if not isinstance(row, list) or len(row) != 2 or not _is_count(row[0]):
        return None
    held = figure(row[1])
    return None if held is None else (row[0], held)


def _rows(data: Dict[str, Any], name: str, most: int) -> List[Any]:
    rows = data.get(name)
    return rows[:most] if isinstance(rows, list) else []


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT


def _word(value: object) -> str:
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""


def _text(value: object) -> str:
    """One line of at most MAX_TEXT printable characters that can be stored as UTF-8; "" for no text."""
    if not isinstance(value, str):
        return ""
    plain = "".join(char if char.isprintable() else " " for char in value[:MAX_TEXT])
    return plain.encode("utf-8", "replace").decode()
