"""G4, the monitoring: is the run watched, and do its signs agree? These checks only warn: the loop acts on its own."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.domain.causes import Cause
from supervisor.domain.gates.verdicts import State
from supervisor.lifecycle.gates.rules import Judged, Known, Rule, Rules, judged, listed
from supervisor.wording.figures import age_text

LONG_RUN_S = 12 * 3600.0  # longer than a person watches
READ_MAX_S = 15.0  # a read of a machine is given up after this
USED_MAX_PCT = 90.0
EXPECTED_MIN_PCT = 50.0  # a training that ends earlier has probably failed
PATROLS_MISSED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitor:
    """None = not read. `layers_missing`: of what should watch a long run. `longest_read_s`: of the machine, lately.
    `used_pct`: name of a figure -> how full. `finished_after_pct`: of the expected time. `process_alive`; `sign_age_s`:
    of its newest beat or file, which comes within `sign_due_s`. `last_cause`: of the last ended attempt."""

    expect_runtime_s: Known[float] = None
    layers_missing: Known[tuple[str, ...]] = None
    longest_read_s: Known[float] = None
    used_pct: Known[tuple[tuple[str, float], ...]] = None
    finished_after_pct: Known[float] = None
    process_alive: Known[bool] = None
    sign_age_s: Known[float] = None
    sign_due_s: Known[float] = None
    last_cause: Known[str] = None
    patrol_age_s: Known[float] = None
    patrol_every_s: Known[float] = None


def _watch_layers(runtime_s: float, missing: tuple[str, ...]) -> Judged:
    good = not missing or runtime_s <= LONG_RUN_S
    return judged(good, State.WARN, runtime=age_text(runtime_s), missing=listed(missing))


def _bounded_waits(longest_s: float) -> Judged:
    return judged(longest_s <= READ_MAX_S, State.WARN, longest=age_text(longest_s), limit=age_text(READ_MAX_S))


def _trends(used: tuple[tuple[str, float], ...]) -> Judged:
    good = all(pct < USED_MAX_PCT for _, pct in used)
    return judged(good, State.WARN, used=listed(tuple(f"{name} {pct:.0f} %" for name, pct in used)))


def _fast_finish(after_pct: float) -> Judged:
    return judged(after_pct >= EXPECTED_MIN_PCT, State.WARN, after=f"{after_pct:.0f} %")


def _reconciled(alive: bool, sign_age_s: float, due_s: float) -> Judged:
    """A live process without signs, or signs of a process that is not there: one of the two readings is wrong."""
    process = "is alive" if alive else "is not alive"
    return judged(alive == (sign_age_s <= due_s), State.WARN, process=process, age=age_text(sign_age_s))


def _causes_typed(cause: str) -> Judged:
    return judged(cause != Cause.UNKNOWN, State.WARN, cause=f"cause {cause}")


def _patrol(age_s: float, every_s: float) -> Judged:
    return judged(age_s <= PATROLS_MISSED * every_s, State.WARN, age=age_text(age_s), every=age_text(every_s))


RULES: Rules = {
    "watch_layers": Rule(("expect_runtime_s", "layers_missing"), _watch_layers),
    "bounded_waits": Rule(("longest_read_s",), _bounded_waits),
    "trends": Rule(("used_pct",), _trends),
    "fast_finish": Rule(("finished_after_pct",), _fast_finish),
    "reconciled": Rule(("process_alive", "sign_age_s", "sign_due_s"), _reconciled),
    "causes_typed": Rule(("last_cause",), _causes_typed),
    "patrol": Rule(("patrol_age_s", "patrol_every_s"), _patrol),
}
