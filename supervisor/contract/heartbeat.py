"""The beat: the messages of the agent beside the training, and the only thing that the supervisor believes of it.

Shared with the agent: Python 3.8, standard library only. A beat is untrusted input (RULES section 6): `parse` checks
size, types and bounds, and raises `BeatRejected` for anything else, so that a forged or absurd beat can reset nothing.
A beat is a pulse; only a change of (step, checkpoint_step) is progress.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, Mapping, NamedTuple, Optional, Tuple

from supervisor.contract import beat_telemetry, drill, signs
from supervisor.contract.identifiers import is_run_id, parse_launch_id

MAX_BYTES = 10_240
# A stored beat is custom metadata of its object too: a bucket takes 8 KiB of it, names and values together.
MAX_STORED_BYTES = 8_000
REST_MAX_S = 3600.0  # the longest time for which a supervisor lets stored beats rest, and an agent rests
MAX_COUNT = 10**15  # steps, sequence numbers: beyond any training, below 2**53
# More than one start of an agent sends. A further start on the same machine counts on from the next multiple.
BEATS_OF_A_START = 10**9
MAX_TEXT = 300
MAX_METRICS = 16
MAX_NAME = 64  # characters of a metric's name
MAX_RECENT_BYTES = 2000  # all ASCII
NO_METRICS: Mapping[str, float] = {}
MAX_PRUNED = 8  # checkpoints that one beat names, each with a reason of at most 40 characters

BOOT, IMAGE, DRIVER = "boot", "image", "driver"
SETUP, RESTORE, TRAINING, CHECKPOINT, EVALUATION = "setup", "restore", "training", "checkpoint", "evaluation"
FINISHING, FINISHED = "finishing", "finished"
PHASES = (BOOT, IMAGE, DRIVER, SETUP, RESTORE, TRAINING, CHECKPOINT, EVALUATION, FINISHING, FINISHED)
BEFORE_CLAIM = (BOOT, IMAGE, DRIVER)

# Why an agent stopped without an exit of the command (`left`).
SUPERSEDED, CUT_OFF, CLOSED, STOPPED, NOTICED, EXPIRED = (
    "superseded", "cut_off", "closed", "stopped", "noticed", "expired",
)  # fmt: skip
# The same before the command was started: fewer GPUs than promised; a code bundle that is missing or damaged.
NO_GPU, NO_CODE = "no_gpu", "no_code"
# The image does not exist, may not be pulled or has no Python; the machine's account cannot read a secret; the
# container could not be started.
NO_IMAGE, NO_SECRET, NO_START = "no_image", "no_secret", "no_start"
# The agent ended the command, because it started over beside the checkpoint that was restored for it.
RESUME_IGNORED = "resume_ignored"
LEFT = (
    SUPERSEDED, CUT_OFF, CLOSED, STOPPED, NOTICED, EXPIRED, NO_GPU, NO_CODE, NO_IMAGE, NO_SECRET, NO_START,
    RESUME_IGNORED,
)  # fmt: skip

# Errors that only report the failure of another process.
LAUNCHER_WORDS = ("ChildFailedError", "CalledProcessError", "ProcessRaisedException", "ProcessExitedException", "NCCL")

NOT_FOUND_CODES = (126, 127)  # exit codes of a shell that could not start its command
# The beginning of an exit's last line when the agent did not even look for the command: it could not enter the folder,
# or the environment to start the command in is missing.
NO_WORKDIR = "the working directory "
NO_CONDA = "the conda environment "
NO_VENV = "the virtual environment "
NO_MODULE = "ModuleNotFoundError:"  # Python's own word
# Last lines of a setup that was not done in time.
SETUP_LATE = "the setup took longer than its limit of %.0f s"
SETUP_WAITED = "another run's setup kept this machine busy for longer than the limit of %.0f s"
BAD_CODE = "the code bundle "  # the beginning of the message of an agent that left with NO_CODE


class BeatRejected(ValueError):
    """The bytes are not a valid beat; the text says which rule they broke and never repeats the input."""


class Exit(NamedTuple):
    """How the command ended: exit code or signal, whether our TERM or KILL caused it, and its last line."""

    code: Optional[int]
    signal: Optional[int]
    sent_by_us: bool
    ran_s: float = 0.0
    last_line: str = ""
    retry_named: bool = False  # an exit code or log pattern of the run's `retry` rules matched
    oom_kills: Optional[int] = None  # by the kernel, in our cgroup, during the command; None = cannot be counted
    disk_full: str = ""  # which folder had no bytes or no inodes left at the end, with its figures
    after_work: bool = False  # it failed after the last step, with its results written
    in_setup: bool = False  # the setup ended so, and the command was not started

    @property
    def work_done(self) -> bool:
        return (self.code == 0 or self.after_work) and not self.in_setup

    @property
    def not_entered(self) -> bool:
        """The agent could not enter its folder or its environment, so nothing is known about the command itself."""
        missing = (NO_WORKDIR, NO_CONDA, NO_VENV)
        return self.code in NOT_FOUND_CODES and self.ran_s == 0 and self.last_line.startswith(missing)


class Pruned(NamedTuple):
    """Checkpoints that this agent has removed from the store: how many so far, and (step, reason) of the last few."""

    count: int  # type: ignore[assignment]
    last: Tuple[Tuple[int, str], ...] = ()


class Guess(NamedTuple):
    """Progress of a command that reports none, read from its log. It is shown, and decides nothing."""

    step: int
    total: Optional[int] = None
    steps_per_s: Optional[float] = None


class Beat(NamedTuple):
    """One heartbeat. `sequence` counts the agent's beats from 1; clocks of the machine are never compared."""

    run_id: str
    attempt: int
    launch_id: str
    machine_id: str
    boot_id: str
    sequence: int
    phase: str
    nonce: str = ""
    step: Optional[int] = None
    total: Optional[int] = None
    checkpoint_step: Optional[int] = None  # newest checkpoint that was uploaded, verified and pointed to
    resumed_from: Optional[int] = None  # None: this attempt started from zero, or has not restored yet
    steps_per_s: Optional[float] = None
    notice_s: Optional[float] = None  # seconds until the announced preemption of this machine
    left: Optional[str] = None  # the agent stopped itself: one of LEFT
    stop_generation: Optional[str] = None  # object generation of the .stop marker that the agent has read
    exit: Optional[Exit] = None
    message: str = ""  # a short fact for the status sentence, such as "pulling image (4.1 GB)"
    metrics: Mapping[str, float] = NO_METRICS
    rejected_checkpoint: Optional[int] = None  # not restored, because it did not verify; `message` says why
    telemetry: str = ""  # JSON text for beat_telemetry.decode; "" = none in this beat
    pruned: Optional[Pruned] = None
    from_zero: Optional[bool] = None  # steps are counted from 0; None = no step was reported yet
    up_s: Optional[float] = None  # how long the agent has run, by its own monotonic clock
    recent: str = ""  # text for recent_points.decode: points of a young training; "" = none in this beat
    save_s: Optional[float] = None  # the longest time of a checkpoint of this attempt with its upload; None = none yet
    signs: str = ""  # JSON text for signs.decode: what may decide an end; "" = nothing notable
    guess: Optional[Guess] = None  # only while no step was reported: nobody can take a guess for a report
    drill: str = ""  # JSON text for drill.decode: the newest drill of this agent; "" = there was none


def encode(beat: Beat) -> bytes:
    """The beat as compact JSON; absent fields are left out (absent is not zero)."""
    raw = {name: value for name, value in beat._asdict().items() if value not in (None, "", {})}
    if beat.exit is not None:
        raw["exit"] = {name: value for name, value in beat.exit._asdict().items() if value is not None}
    if beat.pruned is not None:
        raw["pruned"] = beat.pruned._asdict()
    if beat.guess is not None:
        raw["guess"] = {name: value for name, value in beat.guess._asdict().items() if value is not None}
    return json.dumps(raw, separators=(",", ":"), allow_nan=False).encode()


def encode_within(beat: Beat, max_bytes: int) -> bytes:
    """The same in at most `max_bytes`, as far as the fields that are never left out allow it. Recent points are left
    out first, then a guess, telemetry, pruned checkpoints, metrics, a drill, the ends of quotes in the signs, and the
    ends of texts."""
    text = encode(beat)
    smaller = _smaller(beat)
    while len(text) > max_bytes:
        less = next(smaller, None)
        if less is None:
            break
        text = encode(less)
    return text


def _smaller(beat: Beat) -> Iterator[Beat]:
    if beat.recent:
        beat = beat._replace(recent="")
        yield beat
    if beat.guess is not None:
        beat = beat._replace(guess=None)
        yield beat
    for shorter in beat_telemetry.shorter(beat.telemetry):
        beat = beat._replace(telemetry=shorter)
        yield beat
    if beat.pruned is not None:
        beat = beat._replace(pruned=Pruned(beat.pruned.count))
        yield beat
    for kept in (MAX_METRICS // 2, 2, 0):
        beat = beat._replace(metrics=dict(list(beat.metrics.items())[:kept]))
        yield beat
    if beat.drill:
        beat = beat._replace(drill="")
        yield beat
    for fewer in signs.shorter(beat.signs):
        beat = beat._replace(signs=fewer)
        yield beat
    for chars in (120, 60, 0):
        end = beat.exit
        if end is not None:
            end = end._replace(last_line=end.last_line[:chars], disk_full=end.disk_full[:chars])
        beat = beat._replace(message=beat.message[:chars], exit=end)
        yield beat


def parse(raw: bytes) -> Beat:
    """The beat in `raw`. Unknown fields are ignored, so that newer agents can speak to older supervisors."""
    if len(raw) > MAX_BYTES:
        raise BeatRejected("larger than %d bytes" % MAX_BYTES)
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        raise BeatRejected("not JSON") from None
    if not isinstance(data, dict):
        raise BeatRejected("not a JSON object")
    run_id, launch = _text(data, "run_id"), _text(data, "launch_id")
    if not is_run_id(run_id):
        raise BeatRejected("run_id is not a run id")
    try:
        attempt = parse_launch_id(launch)[1]
    except ValueError:
        raise BeatRejected("launch_id is not <generation>.<attempt>.<try>") from None
    if _count(data, "attempt") != attempt:
        raise BeatRejected("attempt differs from launch_id")
    phase, left = _text(data, "phase"), _text(data, "left") or None
    if phase not in PHASES:
        raise BeatRejected("unknown phase")
    if left is not None and left not in LEFT:
        raise BeatRejected("unknown reason in left")
    return Beat(
        run_id=run_id,
        attempt=attempt,
        launch_id=launch,
        machine_id=_text(data, "machine_id"),
        boot_id=_text(data, "boot_id"),
        sequence=_count(data, "sequence") or 0,
        phase=phase,
        nonce=_text(data, "nonce"),
        step=_count(data, "step"),
        total=_count(data, "total"),
        checkpoint_step=_count(data, "checkpoint_step"),
        resumed_from=_count(data, "resumed_from"),
        rejected_checkpoint=_count(data, "rejected_checkpoint"),
        steps_per_s=_number(data, "steps_per_s"),
        notice_s=_number(data, "notice_s"),
        left=left,
        stop_generation=_text(data, "stop_generation") or None,
        exit=_exit(data.get("exit")),
        message=_text(data, "message"),
        metrics=_metrics(data.get("metrics")),
        telemetry=beat_telemetry.as_received(data.get("telemetry")),
        pruned=_pruned(data.get("pruned")),
        from_zero=data["from_zero"] if isinstance(data.get("from_zero"), bool) else None,
        up_s=_seconds(data, "up_s"),
        recent=_recent(data.get("recent")),
        save_s=_seconds(data, "save_s"),
        signs=signs.as_received(data.get("signs")),
        guess=_guess(data.get("guess")),
        drill=drill.as_received(data.get("drill")),
    )


def glance_s(beat_store_s: float) -> float:
    """How often an agent whose stored beats rest reads the stop marker and the orders."""
    return min(5.0 * beat_store_s, 300.0)


def is_count(value: Any) -> bool:
    """A whole number that a beat can carry as a count; False for True."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT


def is_number(value: Any) -> bool:
    """A finite number that a beat can carry; False for True."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -1e18 < value < 1e18


def is_metric_name(name: Any) -> bool:
    return isinstance(name, str) and len(name) <= MAX_NAME and name.isprintable()


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name, "")
    if not isinstance(value, str) or len(value) > MAX_TEXT or "\x00" in value:
        raise BeatRejected("%s is not a text of at most %d characters" % (name, MAX_TEXT))
    # A lone surrogate is legal JSON and cannot be stored or sent on as UTF-8.
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _recent(value: Any) -> str:
    """Unread, and never a reason to refuse a beat: the text is for charts, no decision depends on it."""
    fits = isinstance(value, str) and len(value) <= MAX_RECENT_BYTES and value.isascii() and "\x00" not in value
    return value if fits else ""


def _guess(value: Any) -> Optional[Guess]:
    """None for anything else, and never a reason to refuse a beat: no decision depends on it."""
    if not isinstance(value, dict) or not is_count(value.get("step")):
        return None
    total, pace = value.get("total"), value.get("steps_per_s")
    fits = (total is None or is_count(total)) and (pace is None or is_number(pace))
    return Guess(value["step"], total, None if pace is None else float(pace)) if fits else None


def _count(data: Mapping[str, Any], name: str) -> Optional[int]:
    value: Optional[int] = data.get(name)
    if value is not None and not is_count(value):
        raise BeatRejected("%s is not a count from 0 to 10**15" % name)
    return value


def _number(data: Mapping[str, Any], name: str) -> Optional[float]:
    value = data.get(name)
    if value is not None and not is_number(value):
        raise BeatRejected("%s is not a finite number" % name)
    return None if value is None else float(value)


def _seconds(data: Mapping[str, Any], name: str) -> Optional[float]:
    value = _number(data, name)
    if value is not None and value < 0:
        raise BeatRejected("%s is negative" % name)
    return value


def _metrics(value: Any) -> Dict[str, float]:
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > MAX_METRICS:
        raise BeatRejected("metrics is not an object of at most %d numbers" % MAX_METRICS)
    numbers = {}
    for key, figure in value.items():
        if figure is not None and not is_number(figure):
            raise BeatRejected("a metric is not a finite number")
        name = key.encode("utf-8", "replace").decode()
        if figure is not None and is_metric_name(name):
            numbers[name] = float(figure)
    return numbers


def _pruned(value: Any) -> Optional[Pruned]:
    if value is None:
        return None
    last = value.get("last", []) if isinstance(value, dict) else None
    if not isinstance(last, list) or len(last) > MAX_PRUNED:
        raise BeatRejected("pruned is not an object with a list of at most %d checkpoints" % MAX_PRUNED)
    rows = []
    for row in last:
        why = _text({"why": row[1]}, "why") if isinstance(row, list) and len(row) == 2 and is_count(row[0]) else ""
        if not 0 < len(why) <= 40:
            raise BeatRejected("a pruned checkpoint is not a step and a short reason")
        rows.append((row[0], why))
    return Pruned(_count(value, "count") or 0, tuple(rows))


def _exit(value: Any) -> Optional[Exit]:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise BeatRejected("exit is not an object")
    return Exit(
        code=_count(value, "code"),
        signal=_count(value, "signal"),
        sent_by_us=value.get("sent_by_us") is True,
        ran_s=_number(value, "ran_s") or 0.0,
        last_line=_text(value, "last_line"),
        retry_named=value.get("retry_named") is True,
        oom_kills=_count(value, "oom_kills"),
        disk_full=_text(value, "disk_full"),
        after_work=value.get("after_work") is True,
        in_setup=value.get("in_setup") is True,
    )
