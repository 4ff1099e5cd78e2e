"""The part of a beat that may decide what an end means: hits in the log, the kernel's kills, errors of cards, a hang.

Shared with the agent: Python 3.8, standard library only. "" while nothing is notable, so a healthy run costs nothing.
Untrusted input, like the beat that carries it. Times are seconds since the agent's start (`up_s`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

MAX_BYTES = 1500
MAX_HITS = 6
CAUSE, CASCADE, TEARDOWN, SIGN = "cause", "cascade", "teardown", "sign"  # roles of a pattern


@dataclass(frozen=True)
class Hit:
    """Lines of the log that one pattern matches. `line`: the last one, verbatim but for secrets and colors.
    `steps_after`: steps reported after it; 0 = the command ended with it; None = unknown. `offset`: of the last hit in
    the log, which orders hits. `context`: up to five lines before and after; never in a beat."""

    pattern: str
    role: str
    count: int
    line: str
    first_up_s: float
    last_up_s: float
    steps_after: Optional[int] = None
    offset: int = 0
    context: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Hang:
    """Nothing moves: no step, no GPU, CPU, IO or network. `place`: what the dump of its threads shows."""

    place: str
    still_s: float
    step: Optional[int] = None


@dataclass(frozen=True)
class Signs:
    """`error`: the last line of the exception that began the end. `oom_shared`: processes of others are in the same
    cgroup. `xids`: (card, code, up_s). `held`: (card, bytes in use before the command started). `nonfinite`: names of
    metrics that were NaN or infinite."""

    hits: Tuple[Hit, ...] = ()
    error: str = ""
    oom_rose_up_s: Optional[float] = None
    oom_shared: Optional[bool] = None
    xids: Tuple[Tuple[int, int, float], ...] = ()
    held: Tuple[Tuple[int, float], ...] = ()
    hang: Optional[Hang] = None
    nonfinite: Tuple[str, ...] = ()
    up_s: Optional[float] = None  # when the signs were written
