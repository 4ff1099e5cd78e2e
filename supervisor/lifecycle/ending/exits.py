"""How an attempt's own machine reports its end: the last beat, and what the exit of the command means.

A beat contains the command's exit, why the agent or the start-up script left, or a preemption notice that was seen
inside the machine. The platform's own record of the machine's end may know better. An exit is judged by its code, its
signal, who sent it, what the kernel counted, and its last line.

A text says "certain" where the kernel's counter or the figures of a disk agree with the end, and "likely" where they
cannot. A figure without matching words only warns.
"""

from __future__ import annotations

import signal

from supervisor.contract import heartbeat
from supervisor.contract.beat_telemetry import HARDWARE_XIDS, decode
from supervisor.contract.heartbeat import Beat, Exit
from supervisor.domain.causes import Cause
from supervisor.domain.observation import Observation, Seen, World
from supervisor.lifecycle.ending import machines
from supervisor.lifecycle.ending.ending import End
from supervisor.wording.figures import plural

SHELL_SIGNAL_BASE = 128  # `sh -c` reports a child killed by signal n as exit code 128 + n
OUTSIDE_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
NEAR_LIMIT = 0.95
_OOM_ADVICE = "use fewer loader workers (num_workers); the batch can stay"

_LEFT_CAUSES = {
    heartbeat.SUPERSEDED: (Cause.SUPERSEDED, "the agent found a newer attempt and left"),
    heartbeat.CLOSED: (Cause.SUPERSEDED, "the agent found the run closed and left"),
    heartbeat.CUT_OFF: (Cause.CUT_OFF, "the agent reached neither the store nor the supervisor and left"),
    heartbeat.NOTICED: (Cause.PREEMPTED, "the machine received a preemption notice; the agent saved and left"),
    heartbeat.EXPIRED: (Cause.EXPIRED, "the machine reached its own time limit"),
    heartbeat.NO_GPU: (Cause.GPU_UNAVAILABLE, "the machine has fewer GPUs than its shape promises"),
    heartbeat.NO_CODE: (Cause.IMAGE_ERROR, "the code bundle could not be unpacked"),
    heartbeat.NO_IMAGE: (Cause.IMAGE_ERROR, "the image could not be pulled or run"),
    heartbeat.NO_SECRET: (Cause.USER_ERROR, "a secret of the run cannot be read on the machine"),
    heartbeat.NO_START: (Cause.UNKNOWN, "the container could not be started"),
}
# The agent left before anything was started: the beat's message has the fact.
_NOT_STARTED = (
    heartbeat.NO_GPU, heartbeat.NO_CODE, heartbeat.NO_IMAGE, heartbeat.NO_SECRET, heartbeat.NO_START,
)  # fmt: skip
# A preempted machine ends its processes: what these causes say weighs less than the platform's record.
_WEAK = (Cause.KILLED, Cause.SUPERSEDED, Cause.UNKNOWN)


def end_in(beat: Beat, obs: Observation, world: World, telemetry_before: str = "") -> End | None:
    """The End that this beat reports; None while the training goes on, at exit 0, and where the agent left because of
    a stop. `telemetry_before`: what earlier beats reported of the machine."""
    ended = end_of(beat, telemetry_before)
    if ended is not None:
        cause, evidence = _record_wins(obs, *ended)
        return End(cause, evidence, machines.readings(obs), exit=beat.exit)
    if beat.notice_s is None:
        return None
    ahead = f"{beat.notice_s:.0f} s ahead" if beat.notice_s >= 0.5 else "at the last moment"
    evidence = f"the machine received its preemption notice {ahead}"
    return End(Cause.PREEMPTED, evidence, machines.readings(obs), overlap_s=world.knobs.notice_overlap_s)


def _record_wins(obs: Observation, cause: Cause, evidence: str) -> tuple[Cause, str]:
    """A signal from outside, on a machine whose end the platform records, is that end."""
    record = obs.machine.value.record if isinstance(obs.machine, Seen) else None
    if record is not None and cause in _WEAK:
        return record.cause, record.detail
    return cause, evidence


def end_of(beat: Beat, telemetry_before: str = "") -> tuple[Cause, str] | None:
    """(cause, fact) when this beat says that the training is over and did not finish; None while it goes on, at exit 0
    or after the last step, and where the agent left because of a stop: that ends the run, it is no failure."""
    if beat.left in _LEFT_CAUSES:
        cause, fact = _LEFT_CAUSES[beat.left]
        return cause, beat.message if beat.left in _NOT_STARTED and beat.message else fact
    if beat.exit is None or beat.exit.work_done or beat.left == heartbeat.STOPPED:
        return None
    if beat.exit.sent_by_us:
        return Cause.SUPERSEDED, "the agent ended the command"
    fault = gpu_fault(beat.telemetry) or gpu_fault(telemetry_before)
    if fault and not beat.exit.not_entered:
        return Cause.GPU_FAULT, f"{fault}; the command ended with it: {_classify(beat.exit, 0.0)[1]}"
    return _classify(beat.exit, max(_memory_share(beat.telemetry), _memory_share(telemetry_before)))


def gpu_fault(telemetry_text: str) -> str:
    """Which GPUs failed: one is lost, or NVIDIA's catalog blames the hardware for its Xid. "" = none."""
    telemetry = decode(telemetry_text)
    cards = telemetry.gpus if telemetry is not None else None
    if cards is None:
        return ""
    lost = [f"GPU {number} is lost" for number, value in enumerate(cards.lost) if value]
    xids = [f"GPU {n} had Xid {value:.0f}" for n, value in enumerate(cards.last_xid) if value in HARDWARE_XIDS]
    return "; ".join([*lost, *xids])


def _classify(end: Exit, memory_share: float) -> tuple[Cause, str]:
    number = end.signal
    if number is None and end.code is not None and end.code > SHELL_SIGNAL_BASE:
        number = end.code - SHELL_SIGNAL_BASE
    if number == signal.SIGXCPU:
        text = f"SIGXCPU after {end.ran_s:.0f} s: the process used up its soft limit of CPU time (ulimit -S -t)"
        return Cause.TIME_LIMIT, text
    if number is not None and number in OUTSIDE_SIGNALS:
        return _killed(end, number, memory_share)
    fact = f"exit code {end.code}" if end.signal is None else _signal_name(end.signal)
    last_line = f": `{end.last_line}`" if end.last_line else ""
    text = f"The command ended with {fact} after {end.ran_s:.0f} s{last_line}"
    if end.not_entered:
        return Cause.COMMAND_NOT_FOUND, f"The command was not started: {end.last_line}"
    if end.code in heartbeat.NOT_FOUND_CODES:
        return Cause.COMMAND_NOT_FOUND, text
    if end.oom_kills and _says(end, heartbeat.WORKER_KILLED_WORDS):
        return Cause.HOST_OOM, _certain_oom(end.oom_kills)
    if _says(end, heartbeat.GPU_OOM_WORDS):
        return Cause.GPU_OOM, text
    if _says(end, heartbeat.DISK_FULL_WORDS):
        reason = f"certain: {end.disk_full}" if end.disk_full else "likely: its last line says so"
        return Cause.DISK_FULL, f"disk full ({reason}). {text}"
    warning = f" (warning: {end.disk_full})" if end.disk_full else ""
    return Cause.USER_ERROR, text + warning


def _killed(end: Exit, number: int, memory_share: float) -> tuple[Cause, str]:
    """A signal that was not ours. Only the kernel's own counter tells its kills from those of other programs. Where it
    cannot be read, memory at its limit in the last beats makes the kernel likely."""
    if number == signal.SIGKILL and end.oom_kills:
        return Cause.HOST_OOM, _certain_oom(end.oom_kills)
    if number == signal.SIGKILL and end.oom_kills is None and memory_share >= NEAR_LIMIT:
        return Cause.HOST_OOM, f"memory limit hit (likely: {100 * memory_share:.0f} % of it in use); {_OOM_ADVICE}"
    hangup = " (hang-up)" if number == signal.SIGHUP else ""
    text = f"{_signal_name(number)}{hangup} came from outside after {end.ran_s:.0f} s; the agent did not send it"
    if number == signal.SIGKILL and end.oom_kills == 0:
        text += "; not out of memory: the counter stood still; do not shrink the batch"
    return Cause.KILLED, text


def _certain_oom(kills: int) -> str:
    return f"memory limit hit (certain: the kernel counted {plural(kills, 'kill')}); {_OOM_ADVICE}"


def _memory_share(telemetry_text: str) -> float:
    """Memory in use, as a part of its limit; 0 where either is unknown."""
    telemetry = decode(telemetry_text)
    group = telemetry.cgroup if telemetry is not None else None
    if group is None or group.memory_bytes is None or not group.memory_max_bytes:
        return 0.0
    return group.memory_bytes / group.memory_max_bytes


def _says(end: Exit, words: tuple[str, ...]) -> bool:
    return any(word in end.last_line for word in words)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
