"""What the end of the user's command means: exit code, signal, who sent it, and its last line."""

from __future__ import annotations

import signal

from supervisor.domain import heartbeat
from supervisor.domain.causes import Cause
from supervisor.domain.heartbeat import Beat, Exit

SHELL_SIGNAL_BASE = 128  # `sh -c` reports a child killed by signal n as exit code 128 + n
OUTSIDE_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
NOT_FOUND_CODES = (126, 127)

_LEFT_CAUSES = {
    heartbeat.SUPERSEDED: (Cause.SUPERSEDED, "the agent found a newer attempt and left"),
    heartbeat.CLOSED: (Cause.SUPERSEDED, "the agent found the run closed and left"),
    heartbeat.CUT_OFF: (Cause.CUT_OFF, "the agent reached neither the store nor the supervisor and left"),
    heartbeat.NOTICED: (Cause.PREEMPTED, "the machine was told of its preemption; the agent saved and left"),
    heartbeat.EXPIRED: (Cause.EXPIRED, "the machine's own time limit was over"),
    heartbeat.NO_GPU: (Cause.GPU_UNAVAILABLE, "the machine has fewer GPUs than its shape promises"),
    heartbeat.NO_CODE: (Cause.IMAGE_ERROR, "the code bundle could not be unpacked"),
}


def end_of(beat: Beat) -> tuple[Cause, str] | None:
    """(cause, fact) when this beat says that the training is over and did not finish; None while it goes on, at
    exit 0, and where the agent left because of a stop (that is the run's end, not the attempt's failure)."""
    if beat.left in _LEFT_CAUSES:
        cause, fact = _LEFT_CAUSES[beat.left]
        return cause, beat.message if beat.left in (
            heartbeat.NO_GPU,
            heartbeat.NO_CODE,
        ) and beat.message else fact
    if beat.exit is None or beat.exit.code == 0 or beat.left == heartbeat.STOPPED:
        return None
    if beat.exit.sent_by_us:
        return Cause.SUPERSEDED, "the agent ended the command"
    return _classify(beat.exit)


def _classify(end: Exit) -> tuple[Cause, str]:
    number = end.signal
    if number is None and end.code is not None and end.code > SHELL_SIGNAL_BASE:
        number = end.code - SHELL_SIGNAL_BASE
    if number is not None and number in OUTSIDE_SIGNALS:
        return (
            Cause.KILLED,
            f"{_signal_name(number)} came from outside after {end.ran_s:.0f} s; nobody of ours sent it",
        )
    fact = f"exit code {end.code}" if end.signal is None else _signal_name(end.signal)
    words = f": `{end.last_line}`" if end.last_line else ""
    text = f"The command ended with {fact} after {end.ran_s:.0f} s{words}"
    if not_entered(end):
        return Cause.COMMAND_NOT_FOUND, f"The command was not started: {end.last_line}"
    if end.code in NOT_FOUND_CODES:
        return Cause.COMMAND_NOT_FOUND, text
    if "CUDA out of memory" in end.last_line or "OutOfMemoryError" in end.last_line:
        return Cause.GPU_OOM, text
    if "No space left on device" in end.last_line or "Errno 28" in end.last_line:
        return Cause.DISK_FULL, text
    return Cause.USER_ERROR, text


def not_entered(end: Exit) -> bool:
    """The command's folder could not be entered: nothing is known of the command itself."""
    return end.code in NOT_FOUND_CODES and end.ran_s == 0 and end.last_line.startswith(heartbeat.NO_WORKDIR)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
