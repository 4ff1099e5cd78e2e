"""What the next beat says: one place that every part of the agent tells what it knows.

A change of phase, a notice, a stop marker, the exit: these are beaten at once, by both ways. Everything else waits for
the next beat. Texts and metrics are cut to what `heartbeat.parse` accepts, so no training can make its own agent mute.

No step and no checkpoint for `stall_dump_s` in phase training: where the threads stand is kept, once per episode.

Before the first step the limit is `first_dump_s`, where the job gives one: the run has reported steps before. The
supervisor judges stalls, and later than this; so the dump is in the store before the machine may be given up.
"""

from __future__ import annotations

import json
import math
import threading
import time
from dataclasses import replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from supervisor.agent.machine.folder import Job
from supervisor.agent.machine.masking import NOTHING, Masker
from supervisor.agent.machine.processes import Identity
from supervisor.contract.heartbeat import BOOT, MAX_METRICS, MAX_TEXT, TRAINING, Beat
from supervisor.contract.recent_points import RecentPoint, RecentPoints

URGENT = ("phase", "notice_s", "left", "stop_generation", "exit")
_TEXT_BYTES = 1200  # as JSON; two texts and the metrics must fit into heartbeat.MAX_BYTES
_METRICS_BYTES = 3000
_NAME_CHARS = 64


class Situation:
    """Safe to use from every thread. `sequence` counts all beats, whichever way they go."""

    def __init__(
        self, job: Job, identity: Identity, masker: Masker = NOTHING, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._masker = masker
        self._monotonic, self._began = monotonic, monotonic()
        self._lock = threading.Lock()
        self._notes: Dict[str, str] = {}
        self._on_urgent: List[Callable[[], None]] = []
        self._vitals: Callable[[], str] = lambda: ""
        self._recent = RecentPoints()
        self._beat = Beat(
            run_id=job.run_id,
            attempt=job.attempt,
            launch_id=job.launch_id,
            machine_id=identity.machine_id,
            boot_id=identity.boot_id,
            sequence=job.sequence_from,
            phase=BOOT,
            nonce=job.nonce,
        )

    def on_urgent(self, call: Callable[[], None]) -> None:
        """`call` must not block."""
        self._on_urgent.append(call)

    def carry(self, vitals: Callable[[], str]) -> None:
        """Each beat tells how the machine is. `vitals` must not block."""
        self._vitals = vitals

    def tell(self, **changes: Any) -> None:
        """New values of the beat's fields."""
        if "metrics" in changes:
            changes["metrics"] = fit_metrics(self._masker.json(changes["metrics"]))
        with self._lock:
            before = self._beat
            self._beat = beat = replace(before, **changes)
            if "step" in changes and beat.step is not None and beat.phase == TRAINING:
                self._recent.note(RecentPoint(self._up_s(), beat.step, beat.steps_per_s, beat.metrics))
            urgent = any(getattr(before, name) != getattr(self._beat, name) for name in URGENT)
        if urgent:
            for call in self._on_urgent:
                call()

    def note(self, about: str, text: str) -> None:
        """A short fact for the status sentence, one for each `about`; "" takes it back."""
        text = self._masker.text(text)  # before it is cut: a half of a value would not be found
        with self._lock:
            self._notes.pop(about, None)
            if text:
                self._notes[about] = text
            self._beat = replace(self._beat, message=fit_text("; ".join(reversed(list(self._notes.values())))))

    def beat(self) -> Beat:
        """The next beat, with a sequence number of its own."""
        with self._lock:
            sequence = self._beat.sequence + 1
            up_s = self._up_s()
            vitals, recent = self._vitals(), self._recent.text(up_s)
            self._beat = replace(self._beat, sequence=sequence, telemetry=vitals, up_s=up_s, recent=recent)
            return self._beat

    def _up_s(self) -> float:
        return round(self._monotonic() - self._began, 1)

    @property
    def now(self) -> Beat:
        """The last beat with what has been told since."""
        return self._beat


def fit_text(text: str) -> str:
    """`text` as one line that any beat can carry."""
    plain = "".join(char if char.isprintable() else " " for char in text[: 4 * MAX_TEXT])
    plain = plain.encode("utf-8", "replace").decode()[:MAX_TEXT]
    while len(json.dumps(plain)) > _TEXT_BYTES:
        plain = plain[: int(len(plain) * 0.8)]
    return plain


def fit_metrics(metrics: Mapping[Any, Any]) -> Dict[str, float]:
    """The first of `metrics` that are finite numbers with short, printable names, as many as a beat can carry."""
    fitting: Dict[str, float] = {}
    room = _METRICS_BYTES
    for name, value in metrics.items():
        fits = isinstance(name, str) and len(name) <= _NAME_CHARS and name.isprintable()
        if not fits or not _is_number(value):
            continue
        room -= len(json.dumps(name)) + 26
        if room < 0 or len(fitting) == MAX_METRICS:
            break
        fitting[name] = float(value)
    return fitting


def _is_number(value: Any) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    return -1e18 < value < 1e18 and math.isfinite(value)


LOOK_S = 1.0


class StallWatch:
    """A loop's step; `dump` gets the seconds without progress."""

    def __init__(
        self, job: Job, situation: Situation, dump: Callable[[float], None], monotonic: Callable[[], float]
    ) -> None:
        self._job, self._situation, self._dump, self._monotonic = job, situation, dump, monotonic
        self._at: Tuple[Optional[int], Optional[int], str] = (None, None, "")
        self._since = monotonic()
        self._dumped = False

    def step(self) -> Optional[float]:
        """Seconds until the next look; None = never."""
        limits = [limit for limit in (self._job.stall_dump_s, self._job.first_dump_s) if limit is not None]
        if not limits:
            return None
        beat, now = self._situation.now, self._monotonic()
        at = (beat.step, beat.checkpoint_step, beat.phase)
        if at != self._at:
            self._at, self._since, self._dumped = at, now, False
        limit_s = self._job.first_dump_s if beat.step is None else self._job.stall_dump_s
        due = limit_s is not None and beat.phase == TRAINING and now - self._since >= limit_s
        if due and not self._dumped:
            self._dumped = True
            self._dump(now - self._since)
        return min(LOOK_S, min(limits) / 4)
