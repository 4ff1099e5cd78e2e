"""Verdicts of checks, and the pure function that turns the verdicts of one gate into "may go on".

A fail stops. A reading that failed is `unknown`: it is never a pass, and in the gates G5 and G6 it holds the run like a
fail. A check without a young verdict must be asked (again) first. A warn or a fail of the gates G0 to G4 can be waived
by a person with a reason; in G5 and G6 no waiver counts: `spot approve --accept-loss` gives results up, which the
judges then report as a warn.

Less knowledge never adds a permission: an unknown reading does not replace an earlier fail, and it does replace an
earlier pass. The order of the verdicts does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from supervisor.domain.gates.checks import CHECKS, STRICT, Check, Gate, checks_of, error_code


class State(StrEnum):
    PASS = "pass"  # noqa: S105 - a word of a verdict
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


class GateState(StrEnum):
    """A gate in one word, from the verdicts of its checks; the first that fits."""

    NOT_REACHED = "not_reached"  # no check was asked yet
    STOPPED = "stopped"  # a fail holds the run
    OPEN = "open"  # an unknown holds the run, or a check must be asked (again)
    WARNED = "warned"
    WAIVED = "waived"  # everything that would stop or warn is waived
    UNREAD = "unread"  # goes on, and some checks could not be read
    PASSED = "passed"


# Of two verdicts of the same moment the worse one counts.
_BADNESS = {State.PASS: 0, State.WARN: 1, State.UNKNOWN: 2, State.FAIL: 3}


@dataclass(frozen=True, slots=True)
class Verdict:
    """`fact`: a clause without a full stop. `fix`: a sentence, "" where nothing is to be done. `at`: epoch seconds of
    the reading. `by`: where it comes from, such as "supervisor", "agent" or a person's name."""

    check: str
    state: State
    fact: str
    fix: str
    at: float
    by: str

    @property
    def code(self) -> str:
        """The error code of a fail, else ""."""
        return error_code(CHECKS[self.check]) if self.state == State.FAIL else ""


@dataclass(frozen=True, slots=True)
class Waiver:
    """A person lets a run go on in spite of a warn or a fail of this check."""

    check: str
    reason: str
    actor: str
    at: float


@dataclass(frozen=True, slots=True)
class Key:
    """What a verdict is about; a change of any part asks every check again. "" = has none (yet), such as no image."""

    machine: str
    image: str
    code: str
    spec: str


Kept = Mapping[Key, Iterable[Verdict]]


@dataclass(frozen=True, slots=True)
class Passage:
    """What the verdicts of one gate allow. `to_ask`: checks without a young verdict. `stopped_by`: verdicts that hold
    the run. `waived`: verdicts that a waiver covers. `unread`: unknown verdicts that do not hold it. `warned`: the
    warnings that nobody waived."""

    gate: Gate
    to_ask: tuple[str, ...] = ()
    stopped_by: tuple[Verdict, ...] = ()
    waived: tuple[Verdict, ...] = ()
    unread: tuple[Verdict, ...] = ()
    warned: tuple[Verdict, ...] = ()

    @property
    def go(self) -> bool:
        return not self.to_ask and not self.stopped_by

    @property
    def state(self) -> GateState:
        if len(self.to_ask) == len(checks_of(self.gate)):
            return GateState.NOT_REACHED
        if any(verdict.state == State.FAIL for verdict in self.stopped_by):
            return GateState.STOPPED
        if not self.go:
            return GateState.OPEN
        groups = ((self.warned, GateState.WARNED), (self.waived, GateState.WAIVED), (self.unread, GateState.UNREAD))
        return next((state for verdicts, state in groups if verdicts), GateState.PASSED)


def may_go_on(gate: Gate, verdicts: Iterable[Verdict], waivers: Iterable[Waiver], now: float) -> Passage:
    """`verdicts`: of one key, in any order, also of other gates."""
    counting = standing(verdicts, now)
    waived_checks = frozenset[str]() if gate in STRICT else frozenset(waiver.check for waiver in waivers)
    names = [check.id for check in checks_of(gate)]
    judged = [counting[name] for name in names if name in counting]
    waived = tuple(v for v in judged if v.check in waived_checks and v.state in (State.WARN, State.FAIL))
    rest = [verdict for verdict in judged if verdict not in waived]
    holding = (State.FAIL, State.UNKNOWN) if gate in STRICT else (State.FAIL,)
    return Passage(
        gate,
        to_ask=tuple(name for name in names if name not in counting),
        stopped_by=tuple(verdict for verdict in rest if verdict.state in holding),
        waived=waived,
        unread=tuple(v for v in rest if v.state == State.UNKNOWN and State.UNKNOWN not in holding),
        warned=tuple(verdict for verdict in rest if verdict.state == State.WARN),
    )


def standing(verdicts: Iterable[Verdict], now: float) -> dict[str, Verdict]:
    """Check -> the verdict that counts; checks whose newest verdict is too old are left out."""
    of_check: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        of_check.setdefault(verdict.check, []).append(verdict)
    counting = {}
    for name, of_one in of_check.items():
        newest = max(of_one, key=_rank)
        if not is_young(newest, now):
            continue
        readings = [verdict for verdict in of_one if verdict.state != State.UNKNOWN]
        read = max(readings, key=_rank, default=newest)
        counting[name] = read if read.state == State.FAIL else newest
    return counting


def is_young(verdict: Verdict, now: float) -> bool:
    """True while the verdict counts without another reading. A verdict from after `now` (a clock that was set back) is
    young."""
    return now - verdict.at < CHECKS[verdict.check].young_s


def to_ask(gate: Gate, kept: Kept, key: Key, now: float) -> tuple[Check, ...]:
    """The checks of this gate that need a reading: all others have a young verdict for exactly this key."""
    counting = standing(kept.get(key, ()), now)
    return tuple(check for check in checks_of(gate) if check.id not in counting)


def may_be_waived(check: Check) -> bool:
    return check.gate not in STRICT


def _rank(verdict: Verdict) -> tuple[float, int, str, str, str]:
    """Newest first, the worse one of the same moment; the texts only make the choice independent of the order."""
    return verdict.at, _BADNESS[verdict.state], verdict.fact, verdict.fix, verdict.by
