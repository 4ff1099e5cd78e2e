"""What the cell of a notebook says while its training runs: one line a minute, and `notebook.json` for a live view.

It knows the agent by the files of its folder alone: `agent.json` (which process it is) and `beat.json` (its newest
beat). So a cell that is run again goes on where the one before was.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from typing import Any, Callable, Dict, List, Mapping, Optional

from supervisor.agent.machine.folder import BEAT, open_own, read_bytes, read_text
from supervisor.agent.machine.processes import boot_id, stat_fields
from supervisor.contract import heartbeat
from supervisor.contract.heartbeat import Beat, BeatRejected

CHECK_S = 0.5
LINE_S = 60.0
TAIL_BYTES, TAIL_LINES = 4096, 12
SHOWN_METRICS = 2
STATES = {
    heartbeat.BOOT: "starting",
    heartbeat.SETUP: "preparing",
    heartbeat.RESTORE: "restoring",
    heartbeat.TRAINING: "training",
    heartbeat.CHECKPOINT: "saving a checkpoint",
    heartbeat.EVALUATION: "evaluating",
    heartbeat.FINISHING: "saving the results",
    heartbeat.FINISHED: "ended",
}
# Why an agent left, for the reader of the cell; the supervisor's page says what follows.
LEFT = {
    heartbeat.EXPIRED: "the time of this session is over; the next session goes on from here",
    heartbeat.NOTICED: "the platform takes this machine back; the run goes on elsewhere",
    heartbeat.STOPPED: "it was stopped",
    heartbeat.SUPERSEDED: "a newer session of this run goes on",
    heartbeat.CLOSED: "the run is closed",
    heartbeat.CUT_OFF: "the supervisor was out of reach for too long",
}


def agent_state(folder: str) -> Optional[bool]:
    """True: the agent of this folder lives. False: it has ended. None: there was none yet. What cannot be read has not
    ended: with the cell a platform may end the session, and the training in it."""
    try:
        with open(os.path.join(folder, "agent.json"), encoding="utf-8") as source:
            data = json.load(source)
        pid, ticks, boot = int(data["pid"]), int(data["start_ticks"]), str(data["boot_id"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    except OSError:
        return True
    try:
        fields = stat_fields(pid)
        same_process = int(fields[19]) == ticks and fields[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError, ValueError, IndexError):
        return False
    except OSError:
        return True
    return same_process and boot_id() in (boot, "")  # "" = it cannot be read


def newest_beat(folder: str) -> Optional[Beat]:
    try:
        return heartbeat.parse(read_bytes(os.path.join(folder, BEAT)))
    except BeatRejected:
        return None


class View:
    """`folder`: of the machine. `show` gets each line. `reap`: called again and again, for a child that has ended."""

    def __init__(
        self,
        folder: str,
        show: Callable[[str], None],
        line_s: float = LINE_S,
        reap: Callable[[], object] = lambda: None,
    ) -> None:
        self._folder, self._show, self._line_s, self._reap = folder, show, line_s, reap
        self._path = os.path.join(folder, "notebook.json")
        earlier = _state(self._path)
        self._checkpoint = (earlier.get("checkpoint_step"), str(earlier.get("checkpoint_at") or ""))
        self._written: Dict[str, Any] = {}

    def watch(self) -> None:
        """Until the agent has ended; then its last words."""
        due, state = 0.0, ""
        while agent_state(self._folder):
            beat, now = newest_beat(self._folder), time.monotonic()
            if beat is not None:
                self._write(beat)
                word = state_of(beat)
                if now >= due or word != state:
                    self._show(self.line(beat))
                    due, state = now + self._line_s, word
            time.sleep(CHECK_S)
            self._reap()
        self.end()

    def end(self) -> None:
        """How it ended, as far as the agent has said."""
        beat = newest_beat(self._folder)
        if beat is not None:
            self._write(beat)
            self._show(self.line(beat))
        words = last_words(beat)
        for line in words or self._console():
            self._show("%s · %s" % (_clock(), line))

    def _console(self) -> List[str]:
        lines = read_text(os.path.join(self._folder, "console.log"), -TAIL_BYTES).splitlines()[-TAIL_LINES:]
        return ["the agent ended without a last word; its own output ends with:", *lines]

    def line(self, beat: Beat) -> str:
        """Such as `14:03 · training · step 1,200 of 5,000 · loss 0.42 · checkpoint 14:01 safe`."""
        parts = self._parts(beat)
        words = (parts["state"], "step " + parts["step"] if parts["step"] else "", parts["metrics"])
        kept = parts["checkpoint"] and "checkpoint %s safe" % parts["checkpoint"]
        return " · ".join(filter(None, (_clock(), *words, kept, parts["note"])))

    def _parts(self, beat: Beat) -> Dict[str, str]:
        step = "" if beat.step is None else format(beat.step, ",")
        if step and beat.total is not None:
            step += " of " + format(beat.total, ",")
        return {
            "run": beat.run_id,
            "state": state_of(beat),
            "step": step,
            "metrics": ", ".join("%s %.4g" % pair for pair in list(beat.metrics.items())[:SHOWN_METRICS]),
            "checkpoint": self._checkpoint_words(beat),
            "note": beat.message[:200],
        }

    def _checkpoint_words(self, beat: Beat) -> str:
        """When this view saw it, else of which step it is."""
        step = beat.checkpoint_step
        if step is None:
            return ""
        if step != self._checkpoint[0]:
            is_restored = step == beat.resumed_from  # nobody here saw when it was saved
            self._checkpoint = (step, "" if is_restored else _clock())
        return self._checkpoint[1] or "of step " + format(step, ",")

    def _write(self, beat: Beat) -> None:
        """By rename; a full disk costs the picture only."""
        parts: Dict[str, Any] = dict(self._parts(beat))
        parts.update(step_number=beat.step, total=beat.total, sequence=beat.sequence)
        parts.update(checkpoint_step=self._checkpoint[0], checkpoint_at=self._checkpoint[1])
        if parts == self._written:
            return
        draft = "%s.%d" % (self._path, os.getpid())
        with suppress(OSError):
            with open(draft, "w", encoding="utf-8", opener=open_own) as target:
                json.dump(parts, target)
            os.rename(draft, self._path)
            self._written = parts


def state_of(beat: Beat) -> str:
    return STATES.get(beat.phase, beat.phase)


def last_words(beat: Optional[Beat]) -> List[str]:
    """Empty: the agent has not said how it ended."""
    if beat is None or beat.phase != heartbeat.FINISHED:
        return []
    if beat.exit is not None and beat.exit.work_done:
        return ["the training is done, and its results are saved"]
    reason = LEFT.get(beat.left or "")
    if reason is not None:
        return ["the training has left: %s" % reason]
    if beat.exit is None:
        return ["the training was not started: %s" % (beat.message or beat.left or "no reason was given")]
    end = beat.exit
    how = "exit code %s" % end.code if end.signal is None else "signal %s" % end.signal
    return ["the training has ended with %s: %s" % (how, end.last_line), "The supervisor decides what follows."]


def say(text: str) -> None:
    """One line into the cell. A kernel that is gone reads nothing: this process ends then, and the training goes on."""
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(0)


def _clock() -> str:
    return time.strftime("%H:%M")


def _state(path: str) -> Mapping[str, Any]:
    try:
        with open(path, encoding="utf-8") as source:
            data = json.load(source)
        return data if isinstance(data, dict) else {}
    except (OSError, ValueError):
        return {}
