"""What the beats of a training say of its health: it hangs, it is late but still moves, it is slow, a metric of it is
not finite or has jumped; and the words for it.

The agent judges hangs and motion (agent/watch/hang.py), metrics (agent/watch/metrics.py) and what is slow
(agent/watch/slow.py), and puts that into the signs of its beat. A hang counts only at the step at which the beat itself
stands: an agent whose store is away may repeat an old one.
"""

from __future__ import annotations

from collections.abc import Mapping

from supervisor.contract import signs, thread_places
from supervisor.contract.heartbeat import TRAINING, Beat
from supervisor.contract.signs import (
    DOWNLOAD,
    FLAT,
    HALVED,
    INF,
    INF_STAYS,
    LOADER,
    MOUNT,
    SHARED,
    SLOW,
    SMALL_FILES,
    SPIKE,
    STAYS,
    THREADS,
    THROTTLED,
    UNDERFED,
    ZERO,
    Hang,
    OddMetric,
    Slow,
)
from supervisor.domain.attempt import Pulse
from supervisor.domain.policies import StallLimits
from supervisor.wording.figures import age_text, gib_text, step_text

HANG_LOOKS = 2  # an attempt that hangs is ended when a second beat, a poll later, says the same
_PLACES: Mapping[str, str] = {
    thread_places.INPUT: "it waits for its input",
    thread_places.COLLECTIVE: "it waits for other processes of the training",
    thread_places.GPU_KERNEL: "it waits for the GPU",
    thread_places.LOCK: "it waits for a lock",
    thread_places.NETWORK: "it waits for the network",
    thread_places.DISK: "it waits for a disk",
    thread_places.STOPPED: "it is stopped (SIGSTOP)",
}
_MOVES: Mapping[str, str] = {
    "gpu": "GPU",
    "cpu": "CPU",
    "io": "IO",
    "net": "network",
    "files": "files",
    "output": "log",
}


def hang_in(beat: Beat | Pulse) -> Hang | None:
    """The hang that it reports; None while the training goes on."""
    # Most signs are of the log, and each list of runs asks for each of them.
    hang = signs.decode(beat.signs).hang if '"hang"' in beat.signs and beat.phase == TRAINING else None
    return hang if hang is not None and hang.step == beat.step else None


def hang_reason(hang: Hang) -> str:
    """For the end of its attempt: the verdict adds for how long, and where it waits."""
    where = "" if hang.step is None else f" at {step_text(hang.step)}"
    return f"The command hangs{where}: nothing of it has moved"


def hang_text(hang: Hang) -> str:
    place = _PLACES.get(hang.place, "the dump of its threads does not show for what it waits")
    return f"{hang_reason(hang)} for {age_text(hang.still_s)}, and {place}"


def moves_text(pulse: Pulse) -> str:
    """What still moves of a training whose step is late, as 'CPU, IO'; "" where nothing does, or it cannot be said."""
    moves = signs.decode(pulse.signs).moves if '"moves"' in pulse.signs else None
    return ", ".join(word for signal, word in _MOVES.items() if signal in (moves or ()))


def is_spared(pulse: Pulse, limits: StallLimits, without_progress_s: float) -> bool:
    """It counts enough polls without progress to be ended, but it moves: an evaluation or a save that the training does
    not announce. Not for longer than an evaluation may take."""
    late = pulse.phase == TRAINING and pulse.stall_polls >= limits.polls
    return late and without_progress_s <= limits.evaluation_s and bool(moves_text(pulse))


def late_clauses(pulse: Pulse, limits: StallLimits, without_progress_s: float) -> list[str]:
    """For the status sentence of a training that hangs, or that only its motion keeps alive; [] for any other."""
    hang = hang_in(pulse)
    if hang is not None:
        return [hang_text(hang), "Next: restart, if the next look finds the same"]
    if not is_spared(pulse, limits, without_progress_s):
        return []
    step, since = step_text(pulse.step), age_text(without_progress_s)
    limit = age_text(limits.evaluation_s)
    return [
        f"No progress since {step} for {since} (stall poll {pulse.stall_polls} of {limits.polls})",
        f"It still moves ({moves_text(pulse)}), so it is not restarted before {limit} without a step",
    ]


def odd_text(odd: OddMetric) -> str:
    """'loss is NaN since step 1,240; the last finite value was 2.31 at step 1,239'. Without a full stop."""
    if odd.kind == SPIKE:
        value = "" if odd.value is None else f" to {odd.value:.4g}"
        usual = "" if odd.before is None else f"; the median before was {odd.before:.4g}"
        return f"{odd.name} jumped{value} at {step_text(odd.step)}{usual}"
    if odd.kind in (FLAT, ZERO):
        value = "the same" if odd.value is None else f"{odd.value or 0:.4g}"
        return f"{odd.name} is {value} in every report since {step_text(odd.step)}"
    word = "infinite" if odd.kind in (INF, INF_STAYS) else "NaN"
    if odd.kind in STAYS:
        since = f"{odd.name} stays {word} since {step_text(odd.step)}"
    elif odd.back_step is None:
        since = f"{odd.name} is {word} since {step_text(odd.step)}"
    else:
        since = f"{odd.name} was {word} at {step_text(odd.step)}, and is finite again since {step_text(odd.back_step)}"
    if odd.before is None or odd.before_step is None:
        return since if odd.back_step is not None else f"{since}; it was never finite in this attempt"
    return f"{since}; the last finite value was {odd.before:.4g} at {step_text(odd.before_step)}"


def slow_in(pulse: Pulse) -> tuple[Slow, ...]:
    """What makes it slow, by its newest beat."""
    return signs.decode(pulse.signs).slow if '"slow"' in pulse.signs and pulse.phase == TRAINING else ()


def slow_clause(pulse: Pulse, moves: bool = False) -> str:
    """'Slow: the GPU is throttled, at 61 % of its usual pace (`on_slow`)'; "" for a training that is well. `moves`: at
    its next checkpoint."""
    reasons = slow_in(pulse)
    more = f"; {len(reasons) - 1} more in `spot why`" if len(reasons) > 1 else ""
    plan = "; it moves at its next checkpoint" if moves and any(each.word == THROTTLED for each in reasons) else ""
    return f"Slow: {slow_text(reasons[0])}{more}{plan}" if reasons else ""


def slow_text(slow: Slow) -> str:
    """With its figures and the setting to change. Without a full stop."""
    named = {name.partition(".")[2]: value for name, value in zip(SLOW[slow.word], slow.figures, strict=True)}
    figures = {name: (value or 0.0) * (100 if name.endswith("_share") else 1) for name, value in named.items()}
    if slow.word == SMALL_FILES and named["reads_per_s"] is not None and (named["read_bytes"] or 1e9) < 16_384:
        return "many small reads: {reads_per_s:,.0f} a second of {read_bytes:,.0f} bytes (tar shards)".format(**figures)
    gib = gib_text(figures.get("card_others_bytes", 0.0))
    still, kind = age_text(figures.get("download_still_s", 0.0)), slow.detail or "a slow mount"
    degrees = f" and {figures['temperature']:.0f} °C" if named.get("temperature") is not None else ""
    return _SLOW[slow.word].format(gib=gib, still=still, kind=kind, degrees=degrees, **figures)


_SLOW: Mapping[str, str] = {
    THROTTLED: "the GPU is throttled, at {steps_share:.0f} % of its usual pace{degrees} (`on_slow`)",
    UNDERFED: "the GPU is busy ({gpu_util:.0f} %) without much work (`num_workers`)",
    MOUNT: "the data is on {kind}: IO waits {io_pressure:.0f} % of the time, GPU {gpu_util:.0f} % (`stage`)",
    LOADER: "the GPU ({gpu_util:.0f} %) waits for loader workers at {loader_cpu:.0f} % CPU (`num_workers`)",
    SMALL_FILES: "many small files: {new_inodes_per_s:,.0f} new ones a second (tar shards)",
    THREADS: "{threads:.0f} threads share {cpu_quota:g} cores, held back {throttled_share:.0f} % of the time "
    "(`OMP_NUM_THREADS`)",
    SHARED: "others use {gib} GiB of the card; the run is at {steps_share:.0f} % of its usual pace",
    DOWNLOAD: "a download stands still for {still}",
    HALVED: "its steps are at {steps_share:.0f} % of their usual pace",
}
