"""The signs that rules require and exclude: named, pure predicates over the evidence.

Functions make a sign for a value (`ended_by(SIGKILL)`), constants are signs themselves. Names are statements, because
they are shown: "not applied: the agent sent the signal". Values that sentences use are texts with their units.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterable

from supervisor.contract.heartbeat import Exit
from supervisor.domain.causes import Cause
from supervisor.domain.diagnosis.evidence import Clock, Evidence, Item, Source
from supervisor.domain.diagnosis.verdict import Quote
from supervisor.lifecycle.diagnosis.rule import Match, Sign

SHELL_SIGNAL_BASE = 128  # `sh -c` reports a child killed by signal n as exit code 128 + n
OUTSIDE_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
START_S = 120.0  # an error so early is one that a smoke shows
CAP_SHARE = 0.9  # of the age that a session may have
SAME_TIME_S = 60.0  # slack between two clocks, and between an error and the end that it caused
UP = "up"  # place of a record of a machine that still runs
MATCHED = Match()


# --- reading --------------------------------------------------------------------------------------------------------


def number(item: Item | None) -> float | None:
    """The value as a finite number; None for anything else."""
    value = item.value if item is not None else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def figure(evidence: Evidence, name: str) -> float | None:
    return number(evidence.last(name))


def text_of(evidence: Evidence, name: str) -> str:
    item = evidence.last(name)
    return item.value if item is not None and isinstance(item.value, str) else ""


def contains(line: str, words: Iterable[str]) -> bool:
    """In any case."""
    lower = line.lower()
    return any(word.lower() in lower for word in words)


def pair(item: Item) -> tuple[float, float] | None:
    """A value of two numbers, such as (card, code)."""
    value = item.value
    if not isinstance(value, tuple) or len(value) != 2 or None in value:
        return None
    first, second = value
    return (float(first or 0), float(second or 0))


def quote_of(item: Item, words: str = "") -> Quote:
    return Quote(item.name, words or str(item.value), item.source, item.at, item.where)


def exit_signal(end: Exit | None) -> int | None:
    """The signal that ended the command, also as a shell reports it."""
    if end is None:
        return None
    if end.signal is None and end.code is not None and end.code > SHELL_SIGNAL_BASE:
        return end.code - SHELL_SIGNAL_BASE
    return end.signal


def signal_name(value: int) -> str:
    try:
        return signal.Signals(value).name
    except ValueError:
        return f"signal {value}"


def item_sign(name: str, statement: str, test: Callable[[Item], Match | None], no: str = "") -> Sign:
    """Matches where one item of this name does; the newest first."""

    def find(evidence: Evidence) -> Match | None:
        return next((match for item in reversed(evidence.items.get(name, ())) if (match := test(item))), None)

    return Sign(statement, find, (name,), no)


# --- the end of the command -------------------------------------------------------------------------------------------


def end_values(end: Exit) -> dict[str, str]:
    how = f"exit code {end.code}" if end.signal is None else signal_name(end.signal)
    disk = end.disk_full
    ran = f"{end.ran_s:.0f} s" if end.ran_s else ""
    return {"exit": how, "ran": ran, "line": end.last_line, "disk_warning": disk}


def failed(evidence: Evidence) -> Match | None:
    end = evidence.exit
    if end is None or end.work_done or (end.code is None and end.signal is None):
        return None
    quotes = (Quote("exit", end.last_line, Source.LOG),) if end.last_line else ()
    return Match(end_values(end), quotes)


FAILED = Sign("the command failed", failed, no="the command did not fail")


NO_EXIT = Sign("no exit of the command was reported", lambda evidence: MATCHED if evidence.exit is None else None)


def ended_by(*numbers: int) -> Sign:
    names = " or ".join(signal_name(value) for value in numbers)

    def find(evidence: Evidence) -> Match | None:
        value, end = exit_signal(evidence.exit), evidence.exit
        if end is None or value not in numbers:
            return None
        hangup = " (hang-up)" if value == signal.SIGHUP else ""
        return Match({**end_values(end), "signal": signal_name(value) + hangup})

    return Sign(f"{names} ended the command", find, no=f"no {names} ended the command")


SENT_BY_US = Sign(
    "the agent ended the command",
    lambda evidence: MATCHED if evidence.exit is not None and evidence.exit.sent_by_us else None,
)
NOT_ENTERED = Sign(
    "the command was not started",
    lambda evidence: failed(evidence) if evidence.exit is not None and evidence.exit.not_entered else None,
)
AFTER_LAST_STEP = Sign(
    "the last step was reached",
    lambda evidence: (
        Match(end_values(evidence.exit)) if evidence.exit is not None and evidence.exit.after_work else None
    ),
)
DONE = Sign(
    "the command ended with 0",
    lambda evidence: MATCHED if evidence.exit is not None and evidence.exit.code == 0 else None,
)


def failed_by_itself(evidence: Evidence) -> Match | None:
    """Neither we nor a signal from outside ended it."""
    end = evidence.exit
    if end is None or end.sent_by_us or exit_signal(end) in OUTSIDE_SIGNALS:
        return None
    return failed(evidence)


def _in_setup(evidence: Evidence) -> Match | None:
    return MATCHED if evidence.exit is not None and evidence.exit.in_setup else None


IN_SETUP = Sign("the setup ended, not the command", _in_setup, no="the command itself ended")
BY_ITSELF = Sign("the command ended by itself", failed_by_itself, no="the command did not end by itself")


def exit_code(*codes: int) -> Sign:
    numbers = " or ".join(map(str, codes))
    return Sign(
        f"exit code {numbers}",
        lambda evidence: failed(evidence) if evidence.exit is not None and evidence.exit.code in codes else None,
        no=f"the exit code is not {numbers}",
    )


def _worked(evidence: Evidence) -> Match | None:
    last, first = figure(evidence, "step.last"), figure(evidence, "step.from") or 0.0
    ran_s = evidence.exit.ran_s if evidence.exit is not None else 0.0
    if last is not None and last > first:
        return Match({"worked": f"step {last:.0f} was reported before"})
    return Match({"worked": f"it ran {ran_s:.0f} s"}) if ran_s >= SAME_TIME_S else None


WORKED_BEFORE = Sign("the command had worked: {worked}", _worked)


def _started_just_now(evidence: Evidence) -> Match | None:
    end = evidence.exit
    is_new = end is not None and 0 < end.ran_s < START_S and evidence.last("step.last") is None
    smoke = evidence.last("smoke.passed")
    return MATCHED if is_new and (smoke is None or smoke.value is not True) else None


STARTED_JUST_NOW = Sign(f"the command had run for less than {START_S:.0f} s", _started_just_now)


def left(*words: str) -> Sign:
    """The agent left for one of these reasons."""

    def test(item: Item) -> Match | None:
        return Match({"left": str(item.value)}, (quote_of(item),)) if item.value in words else None

    sign = item_sign("left", f"the agent left as {' or '.join(words)}", test)

    def find(evidence: Evidence) -> Match | None:
        match = sign.find(evidence)
        message = evidence.last("left.message")
        if match is None or message is None or not isinstance(message.value, str) or not message.value:
            return match
        return Match({**match.values, "message": message.value}, (quote_of(message),))

    return Sign(sign.name, find, ("left",))


def left_says(*words: str) -> Sign:
    """The message with which the agent or the start-up script left contains one of these words, in any case."""

    def test(item: Item) -> Match | None:
        message = str(item.value)
        return Match({"message": message}, (quote_of(item),)) if contains(message, words) else None

    return item_sign("left.message", f"the message says {' or '.join(words)}", test)


# --- the platform -----------------------------------------------------------------------------------------------------


def record_of(*causes: Cause) -> Sign:
    """The platform's record means one of these causes."""

    def find(evidence: Evidence) -> Match | None:
        for item in reversed(evidence.items.get("record.cause", ())):
            if item.value in causes:
                detail = evidence.last("record.detail")
                words = str(detail.value) if detail is not None else str(item.value)
                values = {"record": words, "record_cause": str(item.value)}
                return Match(values, (quote_of(detail or item),))
        return None

    return Sign(f"the platform records {' or '.join(causes)}", find, ("record.cause",), "the platform's record differs")


def platform_says(*words: str) -> Sign:
    """The platform's own state or message contains one of these words; those in capitals as they are."""

    states = [word for word in words if word.isupper()]
    others = [word for word in words if not word.isupper()]

    def find(evidence: Evidence) -> Match | None:
        for name in ("platform.state", "platform.message"):
            for item in reversed(evidence.items.get(name, ())):
                line = str(item.value)
                if contains(line, others) or any(word in line for word in states):
                    return Match({"platform": str(item.value), "record": str(item.value)}, (quote_of(item),))
        return None

    return Sign(f"the platform says {words[0]}", find, ("platform.state", "platform.message"))


def _boot_changed(evidence: Evidence) -> Match | None:
    before, now = evidence.last("boot.id_start"), evidence.last("boot.id_now")
    if before is None or now is None or before.value == now.value:
        return None
    words = f"the computer was rebooted: boot id {str(before.value)[:8]} → {str(now.value)[:8]}"
    return Match({"record": words}, (quote_of(before), quote_of(now)))


BOOT_CHANGED = Sign("the boot id changed", _boot_changed, ("boot.id_now",), "not rebooted: the boot id is the same")


def _session_at_cap(evidence: Evidence) -> Match | None:
    age_s, cap_s = figure(evidence, "session.age_s"), figure(evidence, "session.cap_s")
    if age_s is None or not cap_s or age_s < CAP_SHARE * cap_s:
        return None
    item = evidence.last("session.age_s")
    words = f"the session was {age_s / 3600:.1f} h old, and its cap is {cap_s / 3600:.1f} h"
    return Match({"record": words}, (quote_of(item),) if item is not None else ())


SESSION_AT_CAP = Sign("the session had reached its cap", _session_at_cap, ("session.age_s",))


def _session_gone(evidence: Evidence) -> Match | None:
    item = evidence.last("session.listed")
    if item is None or item.value is not False:
        return None
    age_s = figure(evidence, "session.age_s")
    return Match({} if age_s is None else {"age": f"{age_s / 3600:.1f} h"}, (quote_of(item),))


SESSION_GONE = Sign("the session is not listed any more", _session_gone, ("session.listed",), "the session is listed")


def says(name: str, *words: str) -> Sign:
    """An item of this name contains one of these words, in any case; () = it is there."""

    def test(item: Item) -> Match | None:
        value, word = str(item.value), name.replace(".", "_")
        if words and not contains(value, words):
            return None
        return Match({word: value, f"{word}_where": item.where}, (quote_of(item),))

    return item_sign(name, f"{name} says {' or '.join(words) or 'something'}", test, f"{name} says something else")


def is_value(name: str, value: str) -> Sign:
    """Where a hang is: the place, with what the supervisor says of the stall."""

    def find(evidence: Evidence) -> Match | None:
        item = evidence.last(name)
        if item is None or item.value != value:
            return None
        still_s, end = figure(evidence, "hang.still_s"), evidence.last("own.end")
        values = {} if still_s is None else {"still": f"{still_s:.0f} s"}
        if end is not None and end.where:
            values["own"] = end.where
        return Match(values, (quote_of(item),))

    return Sign(f"{name} is {value}", find, (name,), f"{name} is not {value}")


def above(name: str, limit: float) -> Sign:
    return _figure_sign(name, f"{name} is above {limit:g}", lambda value: value > limit)


def below(name: str, limit: float) -> Sign:
    return _figure_sign(name, f"{name} is below {limit:g}", lambda value: value < limit)


def has_bits(name: str, mask: int) -> Sign:
    return _figure_sign(
        name, f"{name} has one of {mask:#x}", lambda value: 0 <= value < 2**63 and bool(int(value) & mask)
    )


def _figure_sign(name: str, statement: str, test: Callable[[float], bool]) -> Sign:
    def find(evidence: Evidence) -> Match | None:
        item = evidence.last(name)
        value = number(item)
        if item is None or value is None or not test(value):
            return None
        shown = f"{value:.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.2g}"
        return Match({name.replace(".", "_"): shown}, (quote_of(item),))

    return Sign(statement, find, (name,), f"not so: {statement}")


def steps_fell_back() -> Sign:
    """The first step after a restore is earlier than the one that was restored."""

    def find(evidence: Evidence) -> Match | None:
        start, first = figure(evidence, "step.from"), figure(evidence, "step.first_after_restore")
        if start is None or first is None or first >= start or evidence.last("checkpoint.torn") is not None:
            return None
        return Match({"from_step": f"{start:.0f}", "first_step": f"{first:.0f}"})

    return Sign("the restored checkpoint was not used", find, ("step.first_after_restore",))


def _exit_is_older(evidence: Evidence) -> Match | None:
    ended, record = evidence.last("exit.at"), evidence.last("record.cause")
    same_kind = (Clock.SUPERVISOR, Clock.PROVIDER)
    if ended is None or record is None or ended.clock not in same_kind or record.clock not in same_kind:
        return None
    at = number(ended)
    if at is None or record.at is None or record.at - at <= SAME_TIME_S:
        return None
    return Match({"older": f"{record.at - at:.0f} s"})


def _exit_without_time(evidence: Evidence) -> bool:
    """The command failed by itself, the platform ended the machine, and nothing says which came first."""
    if evidence.last("record.cause") is None or failed_by_itself(evidence) is None:
        return False
    record, ended = evidence.last("record.cause"), evidence.last("exit.at")
    return record is None or record.at is None or ended is None


EXIT_IS_OLDER = Sign(
    "the command had ended {older} before the record", _exit_is_older, ("exit.at",), "", _exit_without_time
)


def _up_with_own_exit(evidence: Evidence) -> Match | None:
    item = evidence.last("record.cause")
    return failed_by_itself(evidence) if item is not None and item.where == UP else None


UP_WITH_OWN_EXIT = Sign("the command ended by itself, and the machine is still up", _up_with_own_exit)


def own_end(*causes: Cause) -> Sign:
    """The supervisor has recorded this end."""

    def test(item: Item) -> Match | None:
        if item.value not in causes:
            return None
        words = item.where or str(item.value)
        return Match({"own": words, "record": words}, (quote_of(item, words),))

    return item_sign("own.end", f"the supervisor ended it as {' or '.join(causes)}", test)
