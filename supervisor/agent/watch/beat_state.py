"""The content of the next beat: every part of the agent writes here what it knows.

A change of phase, a notice, a stop marker, the exit, a sign: these are sent at once, by both ways. Everything else
waits for the next beat. Texts and metrics are cut to what `heartbeat.parse` accepts, so no training can stop its
agent's beats.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional

from supervisor.agent.machine.job import Job
from supervisor.agent.machine.masking import NOTHING, Masker
from supervisor.agent.machine.processes import Identity
from supervisor.contract import signs
from supervisor.contract.heartbeat import (
    BOOT,
    CHECKPOINT,
    EVALUATION,
    MAX_METRICS,
    MAX_TEXT,
    TRAINING,
    Beat,
    Guess,
    is_metric_name,
    is_number,
)
from supervisor.contract.recent_points import RecentPoint, RecentPoints

IN_TRAINING = (TRAINING, CHECKPOINT, EVALUATION)
URGENT = ("phase", "notice_s", "left", "stop_generation", "exit")
_TEXT_BYTES = 1200  # as JSON; two texts and the metrics must fit into heartbeat.MAX_BYTES
_METRICS_BYTES = 3000


class BeatState:
    """Safe to use from every thread. `sequence` counts all beats, of both ways."""

    def __init__(
        self, job: Job, identity: Identity, masker: Masker = NOTHING, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._masker = masker
        self._monotonic, self._started = monotonic, monotonic()
        self._lock = threading.Lock()
        self._notes: Dict[str, str] = {}
        self._on_urgent: List[Callable[[], None]] = []
        self._vitals: Callable[[], str] = lambda: ""
        self._signs = signs.Signs()
        self._more_signs: Callable[[], Mapping[str, Any]] = dict
        self._guess: Callable[[], Optional[Guess]] = lambda: None
        self._recent = RecentPoints()
        self.show: Callable[[Beat], None] = lambda beat: None  # gets each beat that is sent; must not block
        self.held_phase: Optional[str] = None  # while a drill goes on, whatever phase the command is in
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

    def add_vitals(self, vitals: Callable[[], str]) -> None:
        """Each beat carries the state of the machine. `vitals` must not block."""
        self._vitals = vitals

    def add_signs(self, more: Callable[[], Mapping[str, Any]]) -> None:
        """Each beat carries these fields of contract/signs.py too. `more` must not block."""
        self._more_signs = more

    def add_guess(self, guess: Callable[[], Optional[Guess]]) -> None:
        """Each beat carries this guess, until a step is reported. `guess` must not block."""
        self._guess = guess

    def update(self, **changes: Any) -> None:
        """New values of the beat's fields."""
        if "metrics" in changes:
            changes["metrics"] = fit_metrics(self._masker.json(changes["metrics"]))
        if self.held_phase is not None and changes.get("phase") in IN_TRAINING:  # of the command
            changes["phase"] = self.held_phase
        with self._lock:
            before = self._beat
            self._beat = beat = before._replace(**changes)
            if "step" in changes and beat.step is not None and beat.phase == TRAINING:
                self._recent.note(RecentPoint(self.up_s(), beat.step, beat.steps_per_s, beat.metrics))
        if any(getattr(before, name) != getattr(beat, name) for name in URGENT):
            for call in self._on_urgent:
                call()

    def note(self, about: str, text: str) -> None:
        """A short fact for the status sentence, one for each `about`; "" removes it."""
        text = self._masker.text(text)  # before it is cut: the masker would not find half of a value
        with self._lock:
            self._notes.pop(about, None)
            if text:
                self._notes[about] = text
            self._beat = self._beat._replace(message=fit_text("; ".join(reversed(list(self._notes.values())))))

    def sign(self, **changes: Any) -> None:
        """New signs of an end (contract/signs.py), which other parts of the agent add to."""
        with self._lock:
            self._beat = self._beat._replace(signs=self._signed(changes))
        for call in self._on_urgent:
            call()

    def _signed(self, changes: Mapping[str, Any]) -> str:
        """The text of the signs with these changes; the same one, with its old time, while nothing is new."""
        new = self._signs._replace(**changes)
        if new != self._signs:
            self._signs = new._replace(up_s=self.up_s())
            return signs.encode(self._signs)
        return self._beat.signs

    def next_beat(self) -> Beat:
        """The next beat, with its own sequence number."""
        with self._lock:
            sequence = self._beat.sequence + 1
            up_s = self.up_s()
            vitals, recent, signed = self._vitals(), self._recent.text(up_s), self._signed(self._more_signs())
            guess = self._guess() if self._beat.step is None else None
            self._beat = self._beat._replace(
                sequence=sequence, telemetry=vitals, up_s=up_s, recent=recent, signs=signed, guess=guess
            )
            beat = self._beat
        self.show(beat)
        return beat

    def up_s(self) -> float:
        """Seconds since the agent's start."""
        return round(self._monotonic() - self._started, 1)

    @property
    def now(self) -> Beat:
        """The last beat with all later updates."""
        return self._beat


def fit_text(text: str) -> str:
    """`text` as one line that any beat can carry."""
    plain = "".join(char if char.isprintable() else " " for char in text[: 4 * MAX_TEXT])
    plain = plain.encode("utf-8", "replace").decode()[:MAX_TEXT]
    while len(json.dumps(plain)) > _TEXT_BYTES:
        plain = plain[: int(len(plain) * 0.8)]
    return plain


def fit_metrics(metrics: Mapping[Any, Any]) -> Dict[str, float]:
    """The first finite numbers in `metrics` with short, printable names, as many as a beat can carry."""
    fitting: Dict[str, float] = {}
    free_bytes = _METRICS_BYTES
    for name, value in metrics.items():
        if not is_metric_name(name) or not is_number(value):
            continue
        free_bytes -= len(json.dumps(name)) + 26
        if free_bytes < 0 or len(fitting) == MAX_METRICS:
            break
        fitting[name] = float(value)
    return fitting
