"""G3, the launch: does the training live, is it ours, and does it live without the connection that started it?"""

from __future__ import annotations

import math
from dataclasses import dataclass

from supervisor.domain.gates.verdicts import State
from supervisor.lifecycle.gates.rules import Judged, Known, Rule, Rules, judged
from supervisor.wording.figures import age_text, clip

FIRST_SIGN_S = 60.0  # from the command's start to its first beat and its first log line
NEVER = math.inf  # a sign that did not come in its time; None while it may still come
LINE_MAX = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """None = not read, or its time is not over. `beats_after_drop`: the connection was ended on purpose and the beats
    went on. `after_restart`: what happens to the training when its machine restarts, in words; "" = nobody knows.
    `transfer_resumes`: a cut transfer goes on at its byte. `code_changed`: it was edited on the machine after the
    start. `traceback`: the line of a traceback among the first log lines, "" = none. Times in seconds from the start
    of the command; NEVER = it did not come. `trained_s`: how long it has run.
    `nonce_ours`: the process has the nonce of this try."""

    beats_after_drop: Known[bool] = None
    after_restart: Known[str] = None
    transfer_resumes: Known[bool] = None
    code_changed: Known[bool] = None
    traceback: Known[str] = None
    first_beat_s: Known[float] = None
    first_line_s: Known[float] = None
    nonce_ours: Known[bool] = None
    gpu_used: Known[bool] = None
    trained_s: Known[float] = None
    boot_limit_s: Known[float] = None


def _detached(beats: bool, after_restart: str) -> Judged:
    return judged(
        beats and bool(after_restart), State.WARN if beats else State.FAIL, beats="went on" if beats else "stopped",
        restart=after_restart or "nobody knows",
    )  # fmt: skip


def _transfer(resumes: bool, changed: bool) -> Judged:
    return judged(
        resumes and not changed, State.FAIL if changed else State.WARN,
        transfer="a cut transfer goes on where it ended" if resumes else "a cut transfer begins again",
        code="was changed on the machine" if changed else "is unchanged",
    )  # fmt: skip


def _clean_start(traceback: str) -> Judged:
    text = f"the first log lines have a traceback: {clip(traceback, LINE_MAX)}" if traceback else ""
    return judged(not traceback, traceback=text or "the first log lines have no traceback")


def _alive(beat_s: float, line_s: float) -> Judged:
    good = max(beat_s, line_s) <= FIRST_SIGN_S
    return judged(good, beat=_after(beat_s), line=_after(line_s), limit=age_text(FIRST_SIGN_S))


def _process_ours(ours: bool) -> Judged:
    return judged(ours, nonce="has" if ours else "does not have")


def _gpu_used(used: bool, trained_s: float, limit_s: float) -> Judged:
    """A training may load its data first: only after the limit an idle GPU says something."""
    text = "uses a GPU" if used else "has not used a GPU"
    return judged(used or trained_s <= limit_s, used=text, trained=age_text(trained_s), limit=age_text(limit_s))


def _after(seconds: float) -> str:
    return "never" if seconds == NEVER else f"after {age_text(seconds)}"


RULES: Rules = {
    "detached": Rule(("beats_after_drop", "after_restart"), _detached),
    "transfer": Rule(("transfer_resumes", "code_changed"), _transfer),
    "clean_start": Rule(("traceback",), _clean_start),
    "alive": Rule(("first_beat_s", "first_line_s"), _alive),
    "process_ours": Rule(("nonce_ours",), _process_ours),
    "gpu_used": Rule(("gpu_used", "trained_s", "boot_limit_s"), _gpu_used),
}
