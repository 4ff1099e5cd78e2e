"""Real notices of the local provider, against the verdict of a drill before them.

A supervisor, its agents and planted trainings as real processes, at their real times: the verdict is the supervisor's
own, of a notice of 30 s and of one of 120 s. What was lost is known without any of them: a training writes each step
that it has done into a ledger outside of its machine, and the next attempt begins after the step that it was given.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.daemon import QUICK
from tests.acceptance.stories import Stories
from tests.waiting import wait_for

TRAINING = Path(__file__).parents[1] / "agent" / "drilled_training.py"
SHORT_S, LONG_S = 30.0, 120.0
# A machine that its next attempt has left stays until its notice is over.
SETTINGS = {**QUICK, "SPOT_BEAT_PUSH_S": "1", "SPOT_BEAT_STORE_S": "1", "SPOT_LOCAL_MACHINES": "1000"}
# A regular checkpoint at the very step of a notice would save what its training does not.
SELDOM = ("--first", "20", "--every", "1000000")


@dataclass(frozen=True)
class Case:
    """A run with this planted training. `survives`: 30 s, 120 s. `notices`: their lengths in seconds, in order."""

    kind: str
    survives: tuple[bool, bool]
    notices: Sequence[float]
    options: tuple[str, ...] = ()
    delay_s: float = 0.05


@dataclass(frozen=True)
class Outcome:
    case: Case
    notice_s: float
    predicted: bool
    survived: bool
    last_step: int
    restored_step: int


def noticed(house: Stories, cases: Sequence[Case], seed: int = 20) -> list[Outcome]:
    """All runs side by side."""
    with ThreadPoolExecutor(len(cases)) as pool:
        lives = [pool.submit(_Life(house, number, case, seed).outcomes) for number, case in enumerate(cases)]
        return [outcome for life in lives for outcome in life.result()]


class _Life:
    """One run: drilled once, then preempted again and again."""

    def __init__(self, house: Stories, number: int, case: Case, seed: int) -> None:
        self.house, self.case = house, case
        self.run_id = f"{case.kind.replace('_', '-')}-{number}"
        self.ledger = house.folder / f"{self.run_id}.ledger"
        self.chance = random.Random(f"{seed} {number}")

    def outcomes(self) -> list[Outcome]:
        words = [sys.executable, "-S", "-E", str(TRAINING), "--kind", self.case.kind, "--ledger", str(self.ledger)]
        words += ["--delay-s", str(self.case.delay_s), *self.case.options]
        self.house.daemon.submit(self.run_id, command=words)
        self._until(lambda: self._steps(1)[-1:] > [20], "its first checkpoint")
        predictions = self._drilled()
        return [
            self._preempted(attempt, notice_s, predictions[notice_s])
            for attempt, notice_s in enumerate(self.case.notices, 1)
        ]

    def _drilled(self) -> dict[float, bool]:
        """Notice -> whether the supervisor says that it is survived."""
        # Refused until the supervisor too has seen that the training runs.
        self._until(lambda: self.house.post(f"/v1/runs/{self.run_id}/drill").is_success, "a drill")
        shown = self._until(self._verdict, "the verdict of its drill")
        predictions = {each["notice_s"]: each["survives"] for each in shown["notices"]}
        assert predictions == {SHORT_S: self.case.survives[0], LONG_S: self.case.survives[1]}, (self.run_id, shown)
        return predictions

    def _verdict(self) -> Any:
        shown = self.house.daemon.run(self.run_id)["drill"]
        return shown if shown is not None and not shown["going_on"] and shown["verdict"] else None

    def _preempted(self, attempt: int, notice_s: float, predicted: bool) -> Outcome:
        least = self.chance.randrange(22, 60)
        self._until(lambda: len(self._steps(attempt)) >= least, f"{least} steps of attempt {attempt}")
        order = {"run_id": self.run_id, "notice_s": notice_s}
        self._until(lambda: self.house.post("/v1/dev/preempt", order).is_success, "a notice")
        [restored] = self._until(lambda: self._steps(attempt + 1)[:1], f"attempt {attempt + 1}")
        last = self._steps(attempt)[-1]
        assert self.house.attempts(self.run_id)[attempt - 1]["cause"] == "preempted"
        return Outcome(self.case, notice_s, predicted, restored - 1 == last, last, restored - 1)

    def _steps(self, attempt: int) -> list[int]:
        """Done by this attempt; also those of a start that a drill has ended."""
        lines = self.ledger.read_text().splitlines(keepends=True) if self.ledger.exists() else []
        rows = [line.split() for line in lines if line.endswith("\n")]
        return [int(step) for number, step in rows if int(number) == attempt]

    def _until(self, condition: Any, what: str) -> Any:
        try:
            return wait_for(condition, 400, f"{what} of {self.run_id}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.house.told(self.run_id)}") from None
