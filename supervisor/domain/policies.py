"""What a user asks of a run, as the decisions need it: limits, stall windows, retry rules.

`Policy` is derived from the submitted spec and stored with the run, so that the tick never reads the spec.
`Knobs` are the supervisor's own settings that decisions need. Every number carries its unit in its name.

Limits that contradict each other are refused before they can kill healthy work, always with both numbers. These are the
pairs of RULES section 4: the settings check their defaults here, a submit checks its own limits.
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.domain.errors import InvalidTimeouts

STALLING_POLLS = 2  # one poll without progress may be a long step


@dataclass(frozen=True, slots=True)
class ResultRule:
    path: str  # a glob under the results folder
    min_count: int = 1
    verify: str = ""  # a command that must succeed on the files as read back from the store


@dataclass(frozen=True, slots=True)
class StallLimits:
    """How long each silence is legal (RULES section 4)."""

    polls: int = 10
    boot_timeout_s: float = 1500.0
    first_progress_s: float = 1800.0
    silence_s: float = 180.0
    restore_s: float = 1800.0
    checkpoint_s: float = 900.0
    evaluation_s: float = 3600.0
    finishing_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class Limits:
    max_runtime_s: float | None = None  # training wall time in this generation
    deadline: float | None = None  # epoch seconds
    max_attempts: int = 10  # only attempts that count
    max_user_failures: int = 3
    wait_for_capacity_s: float = 86400.0
    budget_usd: float | None = None
    machine_max_s: float = 86400.0  # the machine's own dead-man switch


@dataclass(frozen=True, slots=True)
class Policy:
    providers: tuple[str, ...] = ()  # an ordered ladder; empty = the one in the run's row alone
    zones: tuple[str, ...] = ()  # empty = all zones of the provider
    shapes: tuple[str, ...] = ()  # an ordered ladder; empty = the provider's first shape
    spot: bool = True
    allow_on_demand: bool = False
    results: tuple[ResultRule, ...] = ()
    expect_runtime_s: float | None = None
    limits: Limits = Limits()
    stall: StallLimits = StallLimits()
    stop_grace_s: float = 120.0
    on_success: str = "release"  # release | keep | ask
    on_failure: str = "release"  # release | keep
    keep_s: float = 0.0
    code: str | None = None  # sha256 of the code bundle; each attempt notes which one it ran
    image: str = ""  # the container image as the user names it; "" = none
    follow_tag: bool = False  # each attempt takes what the image's tag names then; else all take the same content
    escalate_after: int = 0  # so many preemptions within the window change what is asked for; 0 = never
    escalate_window_s: float = 21_600.0
    escalate_to: str = "on_demand"  # on_demand | next_shape (of `shapes`) | next_provider (of `providers`)
    on_demand_before_deadline_s: float | None = None  # with less time left, on-demand machines are asked for first
    next_provider_before_deadline_s: float | None = None  # with less time left, the next of `providers` is
    require_pull: bool = False  # after success no machine is released before somebody has pulled the results


@dataclass(frozen=True, slots=True)
class Knobs:
    """Settings of the supervisor that rules refer to."""

    supervisor_id: str
    machine_prefix: str = "spot"
    poll_interval_s: float = 30.0
    beat_push_s: float = 10.0
    beat_store_s: float = 60.0
    recovery_backoff_s: float = 10.0
    recovery_backoff_max_s: float = 600.0
    cooldown_min_s: float = 180.0
    cooldown_max_s: float = 1800.0
    quota_retry_s: float = 600.0
    launch_timeout_s: float = 900.0  # a request for a machine that has not ended by then is called off
    notice_overlap_s: float = 150.0  # how long a machine may go on after its preemption notice
    ask_limit_s: float = 86400.0
    unverified_limit_s: float = 86400.0
    stop_poll_s: float = 600.0  # each active run's .stop marker is read once in this time


BEATS_PER_SILENCE = 3  # a silence limit must hold at least this many stored beats
BOOT_MARGIN_S = 300.0  # what a boot needs beyond the wait for its GPU
CUT_OFF_MIN_S = 3600.0


def check_stall(stall: StallLimits, beat_store_s: float, gpu_timeout_s: float, prefix: str = "stall.") -> None:
    """Raises InvalidTimeouts. `prefix` is put before the names of `stall`'s fields; gpu_timeout_s 0 = no GPU to wait
    for, so any boot limit may stand."""
    silence_min_s = BEATS_PER_SILENCE * beat_store_s
    if stall.silence_s < silence_min_s:
        raise contradiction(
            f"{prefix}silence_s", stall.silence_s, "%d x beat_store_s" % BEATS_PER_SILENCE, bound=silence_min_s,
            why="one late beat would be taken for a dead agent",
            cure=f"Set silence_s >= {silence_min_s:g}, or lower beat_store_s.",
        )  # fmt: skip
    boot_min_s = gpu_timeout_s + BOOT_MARGIN_S
    if gpu_timeout_s > 0 and stall.boot_timeout_s < boot_min_s:
        raise contradiction(
            f"{prefix}boot_timeout_s", stall.boot_timeout_s, f"gpu_timeout_s + {BOOT_MARGIN_S:g}", bound=boot_min_s,
            why="a VM that is still installing its driver would be taken for dead",
            cure=f"Set boot_timeout_s >= {boot_min_s:g}, or lower gpu_timeout_s.",
        )  # fmt: skip


def check_cut_off(cut_off_s: float) -> None:
    """Raises InvalidTimeouts: the cut-off clock only saves money, the baton protects the data."""
    if cut_off_s < CUT_OFF_MIN_S:
        raise contradiction(
            "cut_off_s", cut_off_s, "its minimum", bound=CUT_OFF_MIN_S,
            why="an outage of the store would end healthy trainings", cure=f"Set cut_off_s >= {CUT_OFF_MIN_S:g}.",
        )  # fmt: skip


def check_order(lower_name: str, lower: float, upper_name: str, upper: float, why: str) -> None:
    """Raises InvalidTimeouts unless lower <= upper."""
    if upper < lower:
        raise contradiction(
            upper_name, upper, lower_name, bound=lower, why=why,
            cure=f"Set {upper_name} >= {lower:g}, or lower {lower_name}.",
        )  # fmt: skip


def contradiction(name: str, value: float, other: str, *, bound: float, why: str, cure: str) -> InvalidTimeouts:
    text = f"{name} = {value:g} is shorter than {other} = {bound:g} s: {why}. {cure}"
    return InvalidTimeouts(text, {"field": name, "value": value, "bound": other, "bound_value": bound})
