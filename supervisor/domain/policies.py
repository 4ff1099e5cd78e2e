"""The limits, stall windows and retry rules that decisions follow.

`Policy` is derived from the submitted spec and stored with the run: the tick never reads the spec. `Knobs` are the
supervisor's own settings for decisions. Limits that contradict each other are refused, with both numbers, before they
can end healthy work (the pairs of RULES section 4): the settings check their defaults, a submit checks its limits.
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.contract.heartbeat import REST_MAX_S
from supervisor.domain.errors import InvalidTimeouts

STALLING_POLLS = 2  # one poll without progress may be a long step
BEATS_PER_SILENCE = 3  # a silence limit must hold at least this many stored beats
BOOT_MARGIN_S = 300.0  # what a boot needs beyond the wait for its GPU
CUT_OFF_MIN_S = 3600.0
MOST_SAVE_S = 3600.0  # a longer save waited for a store that was away
SAVE_WAIT_S = 3.0  # after TERM: Transformers' JIT checkpoint waits so long before it saves (kill_wait)
PAY_FOR_DEADLINE, PAY_ALWAYS = "deadline", "always"  # of a paid provider: when the deadline needs it, or as any other
# What a run's choice between spot and on-demand is for: the least money that keeps the deadline, the earliest end, or
# spot alone, whatever the deadline.
FOR_COST, FOR_DEADLINE, FOR_SPOT = "cost", "deadline", "wait"
MIN_RUN_S = 900.0
STOP = "stop"  # of a metric, or of a resume that is ignored: the run ends


@dataclass(frozen=True, slots=True)
class ResultRule:
    path: str  # a glob under the results folder
    min_count: int = 1
    verify: str = ""  # a command that must succeed on the files as they are in the store


@dataclass(frozen=True, slots=True)
class StallLimits:
    """How long each phase may show no progress (RULES section 4). `hang`: the agent judges whether the command hangs;
    `quiet_s`: how long a command that reports no steps may show no motion at all."""

    polls: int = 10
    boot_timeout_s: float = 1500.0
    first_progress_s: float = 1800.0
    silence_s: float = 180.0
    setup_s: float = 1800.0
    restore_s: float = 1800.0
    checkpoint_s: float = 900.0
    evaluation_s: float = 3600.0
    finishing_s: float = 3600.0
    quiet_s: float = 1800.0
    hang: bool = True


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
class Needs:
    """What a machine must have for the run, checked before the launch. `gpu`: a part of the name of its GPUs. `cuda`:
    the version that the training was built for, such as 12.4. "" and None: nothing is required."""

    gpu: str = ""
    cuda: str = ""
    memory_gb: float | None = None
    disk_gb: float | None = None  # free, beside the checkpoints


@dataclass(frozen=True, slots=True)
class MetricRule:
    """What happens at a metric that is not finite (`nan`: "alert" or "stop"), or that jumps (`spike`: "alert"); "" for
    nothing."""

    metric: str
    nan: str = ""
    spike: str = ""


@dataclass(frozen=True, slots=True)
class KeepRule:
    """Of `keep: machine`: the next attempt starts the same machine again, with its disks. `wait_s`: how long it waits
    for the start after the first refusal. `fallback`: `new` gives the machine up then, `wait` does not. `for_s`: how
    long a machine may stay switched off; then it is deleted."""

    machine: bool = False
    wait_s: float = 1200.0
    fallback: str = "new"
    for_s: float = 43_200.0


@dataclass(frozen=True, slots=True)
class DrillPolicy:
    """When the training is drilled without a person's order. `at_start`: once a generation, when it trains, and again
    when it first shows an evaluation or a save as a phase. `every_s`: so long after the last drill; None = never."""

    at_start: bool = False
    every_s: float | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    providers: tuple[str, ...] = ()  # in order of preference; empty = only the provider in the run's row
    zones: tuple[str, ...] = ()  # empty = all zones of the provider
    shapes: tuple[str, ...] = ()  # in order of preference; empty = the provider's first shape
    spot: bool = True
    allow_on_demand: bool = False
    allow_flex_start: bool = False  # in place of doing nothing, one request waits at the platform (lifecycle/rungs)
    optimize: str = ""  # cost | deadline | wait; "" = cost where a deadline and on-demand allow for it, else deadline
    results: tuple[ResultRule, ...] = ()
    expect_runtime_s: float | None = None
    expect_checkpoint_gb: float | None = None
    expect_checkpoint_every_s: float | None = None
    needs: Needs = Needs()
    limits: Limits = Limits()
    stall: StallLimits = StallLimits()
    stop_grace_s: float = 120.0
    on_success: str = "release"  # release | keep | ask
    on_failure: str = "release"  # release | keep
    keep_s: float = 0.0
    code: str | None = None  # sha256 of the code bundle; each attempt records its own
    image: str = ""  # the container image as the user names it; "" = none
    base: str = ""  # with its version: what prepares each machine before the setup; "" = none
    prepares: str = ""  # the base that is made of its machine; "" = none
    follow_tag: bool = False  # each attempt resolves the image's tag again; False: all run the same content
    escalate_after: int = 0  # after this many preemptions within the window the request changes; 0 = never
    escalate_window_s: float = 21_600.0
    escalate_to: str = "on_demand"  # on_demand | next_shape (of `shapes`) | next_provider (of `providers`)
    on_demand_before_deadline_s: float | None = None  # with less time left, on-demand machines come first
    next_provider_before_deadline_s: float | None = None  # with less time left, the next of `providers` comes first
    pay: str = PAY_FOR_DEADLINE  # when a provider is paid that comes after one whose sessions cost nothing
    require_pull: bool = False  # after success no machine is released before the results are pulled
    group: str = ""  # runs of one owner with the same word are one group; "" = none
    max_parallel: int | None = None  # of its group, runs with a machine at once; None = this run states no limit
    after: tuple[str, ...] = ()  # run ids: it starts when each of them is completed
    priority: int = 0  # of runs that wait for a machine, the highest gets the next one
    min_run_s: float = MIN_RUN_S  # so long an attempt trains before it yields its machine to a higher priority
    watch: tuple[MetricRule, ...] = ()
    on_resume_ignored: str = STOP  # stop | warn: where the command starts over beside the restored checkpoint
    on_slow: str = "off"  # off | move: at its next checkpoint, where a throttled GPU makes that pay
    keep: KeepRule = KeepRule()
    drill: DrillPolicy = DrillPolicy()
    race: int = 1  # 2: two zones are requested at once (lifecycle/phases/racing)


@dataclass(frozen=True, slots=True)
class Knobs:
    """Settings of the supervisor that decisions use."""

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
    launch_timeout_s: float = 900.0  # a create call that is still open by then is canceled
    notice_overlap_s: float = 150.0  # how long a machine may run on after its preemption notice
    ask_limit_s: float = 86400.0  # for an answer of a person: about a finished machine, or about how a run goes on
    unverified_limit_s: float = 86400.0
    stop_poll_s: float = 600.0  # the .stop marker of each active run is read once in this time
    max_parallel_runs: int = 0  # runs with a machine at once, in one cell; 0 = no limit
    max_parallel_per_owner: int = 0  # the same, for the runs of each owner


RESTING_BEATS = 60.0
LISTED_RESTS = 2.0
PUSHES_PER_BEAT = 3.0  # so many pushes are due in the time of a stored beat, or nothing rests: one may be late


def rest_s(beat_store_s: float) -> float:
    """How long a stored beat may stay the newest one of its run while pushed beats are acknowledged."""
    return min(RESTING_BEATS * beat_store_s, REST_MAX_S)


def list_every_s(beat_store_s: float) -> float:
    """How often stored beats are listed while no run needs them."""
    return LISTED_RESTS * rest_s(beat_store_s)


def check_stall(stall: StallLimits, beat_store_s: float, gpu_timeout_s: float, prefix: str = "stall.") -> None:
    """Raises InvalidTimeouts. `prefix`: put before the names of `stall`'s fields. gpu_timeout_s 0 = no wait for a GPU:
    any boot limit is valid."""
    silence_min_s = BEATS_PER_SILENCE * beat_store_s
    if stall.silence_s < silence_min_s:
        raise contradiction(
            f"{prefix}silence_s", stall.silence_s, "%d x beat_store_s" % BEATS_PER_SILENCE, bound=silence_min_s,
            why="one late beat would look like a dead agent",
            cure=f"Set silence_s >= {silence_min_s:g}, or lower beat_store_s.",
        )  # fmt: skip
    boot_min_s = gpu_timeout_s + BOOT_MARGIN_S
    if gpu_timeout_s > 0 and stall.boot_timeout_s < boot_min_s:
        raise contradiction(
            f"{prefix}boot_timeout_s", stall.boot_timeout_s, f"gpu_timeout_s + {BOOT_MARGIN_S:g}", bound=boot_min_s,
            why="a VM that is still installing its driver would look dead",
            cure=f"Set boot_timeout_s >= {boot_min_s:g}, or lower gpu_timeout_s.",
        )  # fmt: skip


def check_cut_off(cut_off_s: float) -> None:
    """Raises InvalidTimeouts: the cut-off clock only saves money, the baton protects the data."""
    if cut_off_s < CUT_OFF_MIN_S:
        raise contradiction(
            "cut_off_s", cut_off_s, "its minimum", bound=CUT_OFF_MIN_S,
            why="an outage of the store would end healthy trainings", cure=f"Set cut_off_s >= {CUT_OFF_MIN_S:g}.",
        )  # fmt: skip


def leaving_s(save_s: float | None) -> float:
    """What an agent needs to leave a machine: the wait before a save, two checkpoints and a minute. None = no save was
    measured."""
    return SAVE_WAIT_S + 2.0 * min(save_s or 0.0, MOST_SAVE_S) + 60.0


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
