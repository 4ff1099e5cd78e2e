"""A beat from its bytes, at a sixth of the cost of the contract's parser, which the agent shares.

One typed pass makes the beat itself. It is used where the beat keeps every rule and every value is in its final form.
Anything else (a text that is not ASCII, an exit, telemetry as an object) goes to the contract's parser, which alone
says what is wrong. So both give the same response to every sequence of bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, get_type_hints

import msgspec

from supervisor.contract import beat_telemetry, drill, heartbeat, signs
from supervisor.contract.heartbeat import MAX_COUNT, MAX_TEXT, Beat, Exit, Guess, Pruned
from supervisor.contract.identifiers import is_run_id, parse_launch_id

# Of a beat without its long texts. What lies in fewer bytes is nested less deeply than any parser can follow.
_MAX_REST_BYTES = 1000


class _NoNulls(msgspec.Struct):
    """Texts that are None in a beat without them. The contract's parser refuses a null in their place."""

    left: str = ""
    stop_generation: str = ""


def _struct_of(record: Any, inner: dict[Any, Any]) -> Any:
    """A struct with the fields of a named tuple, which msgspec reads from an array only. `inner`: the structs of named
    tuples within it."""
    hints = {name: inner.get(hint, hint) for name, hint in get_type_hints(record).items()}
    defaults = record._field_defaults
    fields = [(name, hint, defaults[name]) if name in defaults else (name, hint) for name, hint in hints.items()]
    return msgspec.defstruct(record.__name__, fields)


_INNER = {record | None: _struct_of(record, {}) | None for record in (Exit, Pruned, Guess)}
_decode = msgspec.json.Decoder(_struct_of(Beat, _INNER)).decode
_values = msgspec.structs.astuple
_check_nulls = msgspec.json.Decoder(_NoNulls).decode
_launch_of = lru_cache(4096)(lambda launch_id: (parse_launch_id(launch_id)[1], launch_id))
_PHASES = {phase: phase for phase in heartbeat.PHASES}


def parse_beat(raw: bytes) -> Beat:
    """The same as `heartbeat.parse`. Raises BeatRejected."""
    return _plain_beat(raw) or heartbeat.parse(raw)


def _plain_beat(raw: bytes) -> Beat | None:
    """None: the contract's parser decides."""
    if len(raw) > heartbeat.MAX_BYTES or not raw.isascii():  # it skips wrong UTF-8 in a field that it does not know
        return None
    try:
        beat = _decode(raw)
        _check_nulls(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    texts = len(beat.telemetry) + len(beat.recent) + len(beat.signs) + len(beat.drill)
    if len(raw) - texts > _MAX_REST_BYTES:
        return None
    return _beat_of(beat) if _has_plain_texts(beat) and _has_plain_numbers(beat) else None


def _beat_of(read: Any) -> Beat:
    """Ten thousand beats in memory have the same few texts here."""
    read.launch_id, read.phase = _launch_of(read.launch_id)[1], _PHASES[read.phase]
    if read.pruned is not None:
        read.pruned = Pruned(*_values(read.pruned))
    if read.guess is not None:
        read.guess = Guess(*_values(read.guess))
    return Beat(*_values(read))


def _has_plain_texts(beat: Beat) -> bool:
    """Each text is valid, and there is none that the contract's parser would replace."""
    if beat.left is not None or beat.stop_generation is not None or beat.exit is not None:
        return False
    if beat.pruned is not None and not _is_plain_pruned(beat.pruned):
        return False
    try:
        attempt, _ = _launch_of(beat.launch_id)
    except ValueError:
        return False
    return (
        beat.attempt == attempt
        and beat.phase in _PHASES
        and is_run_id(beat.run_id)
        and _is_plain(beat.machine_id)
        and _is_plain(beat.boot_id)
        and _is_plain(beat.nonce)
        and _is_plain(beat.message)
        and _is_plain(beat.telemetry, beat_telemetry.MAX_BYTES)
        and _is_plain(beat.recent, heartbeat.MAX_RECENT_BYTES)
        and _is_plain(beat.signs, signs.MAX_BYTES)
        and _is_plain(beat.drill, drill.MAX_BYTES)
    )


def _is_plain_pruned(pruned: heartbeat.Pruned) -> bool:
    """Every training that has replaced a checkpoint sends it, in each beat."""
    return (
        0 <= pruned.count <= MAX_COUNT
        and len(pruned.last) <= heartbeat.MAX_PRUNED
        and all(0 <= step <= MAX_COUNT and reason != "" and _is_plain(reason, 40) for step, reason in pruned.last)
    )


def _is_plain(text: str, longest: int = MAX_TEXT) -> bool:
    return len(text) <= longest and text.isascii() and "\x00" not in text


def _has_plain_numbers(beat: Beat) -> bool:
    step, total, saved, resumed = beat.step, beat.total, beat.checkpoint_step, beat.resumed_from
    rejected, rate, notice_s, up_s = beat.rejected_checkpoint, beat.steps_per_s, beat.notice_s, beat.up_s
    save_s = beat.save_s
    if beat.guess is not None and not _is_plain_guess(beat.guess):
        return False
    if not (
        0 <= beat.sequence <= MAX_COUNT
        and (step is None or 0 <= step <= MAX_COUNT)
        and (total is None or 0 <= total <= MAX_COUNT)
        and (saved is None or 0 <= saved <= MAX_COUNT)
        and (resumed is None or 0 <= resumed <= MAX_COUNT)
        and (rejected is None or 0 <= rejected <= MAX_COUNT)
        and (rate is None or -1e18 < rate < 1e18)
        and (notice_s is None or -1e18 < notice_s < 1e18)
        and (up_s is None or 0 <= up_s < 1e18)
        and (save_s is None or 0 <= save_s < 1e18)
        and len(beat.metrics) <= heartbeat.MAX_METRICS
    ):
        return False
    return all(heartbeat.is_metric_name(name) and -1e18 < value < 1e18 for name, value in beat.metrics.items())


def _is_plain_guess(guess: heartbeat.Guess) -> bool:
    step, total, pace = guess.step, guess.total, guess.steps_per_s
    return (
        0 <= step <= MAX_COUNT and (total is None or 0 <= total <= MAX_COUNT) and (pace is None or -1e18 < pace < 1e18)
    )
