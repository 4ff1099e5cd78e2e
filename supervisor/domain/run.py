"""A run: what the user asked for and where its story stands. One frozen value; every change makes a new one."""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter

from supervisor.domain.attempt import Attempt, Pulse, Retiring, Try
from supervisor.domain.causes import Cause
from supervisor.domain.policies import Policy
from supervisor.domain.status import TERMINAL, Status


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals of the run; `counted`, `user_failures` and `no_progress` begin anew with each generation."""

    attempts: int = 0
    tries: int = 0
    preemptions: int = 0
    counted: int = 0
    user_failures: int = 0
    no_progress: int = 0
    streak: int = 0  # ends in a row that ask for backoff
    deleted_at: tuple[float, ...] = ()  # when a person removed a machine, within the last hour
    preempted_at: tuple[float, ...] = ()  # the last preemptions, where the policy's escalation counts them


@dataclass(frozen=True, slots=True)
class StopRequest:
    actor: str
    at: float
    cause: Cause = Cause.STOP_REQUESTED  # or the limit of the run that asks for the stop
    source: str = "api"  # api | marker | limit


@dataclass(frozen=True, slots=True)
class Approval:
    actor: str
    at: float
    machine_id: str
    results_sha256: str
    accept_loss: str = ""  # the reason, where results are given up


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the finished work left in the store. `missing` lists what was promised and is not there."""

    results_sha256: str
    files: int
    size_bytes: int
    verified_at: float
    step: int | None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """A machine of this offer was had and could not serve: its GPUs did not work."""

    zone: str
    shape: str
    spot: bool
    at: float
    cause: Cause
    evidence: str


@dataclass(frozen=True, slots=True)
class Run:
    """`key` is the database's id, `version` its row version. Times are epoch seconds by the supervisor's clock."""

    key: int
    run_id: str
    owner: str
    cell: str
    provider: str
    generation: int
    status: Status
    policy: Policy
    created_at: float
    generation_at: float  # when this generation began
    status_since: float
    cause: Cause | None = None
    detail: str = ""  # the fact behind the cause, shown with it
    hold: str = ""  # what keeps the run from going on right now, shown in the sentence
    next_at: float | None = None  # when the next try or restart is due
    try_: Try | None = None
    attempt: Attempt | None = None
    pulse: Pulse | None = None
    retiring: tuple[Retiring, ...] = ()
    counters: Counters = Counters()
    checkpoint_step: int | None = None  # newest verified checkpoint known to the supervisor
    checkpoint_bytes: int | None = (
        None  # size of the newest one that the baton was read with; None = not read yet
    )
    last_failure: str = ""  # the last error of the command in this generation: exit, step and last line
    no_progress_base: int | None = None  # checkpoint_step when the row of failures began
    reported: bool = False  # an attempt of this run has reported a step
    from_zero: bool = False  # its steps are counted from 0, so that the last one is total - 1
    waiting_since: float | None = None  # while it is in line: since it stands there
    waited_s: float = 0.0  # for the platform, before it stood in line; kept while it stands there
    waiting_told: tuple[str, ...] = ()  # the reasons for this wait that were told of
    avoid_zone: str = ""  # the zone the last attempt was lost in
    refusals: tuple[Refusal, ...] = ()  # of this generation, within the last hour
    stop: StopRequest | None = None
    stop_consumed: str | None = None
    approval: Approval | None = None
    outcome: Outcome | None = None
    needs_person: str = ""
    needs_person_at: float | None = None
    reminded_at: float | None = None  # when the person who is needed was reminded last
    kept_until: float | None = None
    rerun: bool = False  # this generation starts over: the old checkpoint is not used
    training_s: float = 0.0  # of ended attempts in this generation
    cost_usd: float = 0.0  # of ended attempts, all generations; unknown prices are left out
    on_demand_usd: float = 0.0
    cost_known: bool = True  # False: an attempt had no known price, so the sums are lower bounds
    budget_from_usd: float = 0.0  # cost_usd when this generation began
    budget_warned_usd: float | None = (
        None  # the cost at which most of a budget was said to be spent, the last time
    )
    disk_low: bool = False  # told of; until there is ample room again
    down_since: float | None = (
        None  # it has not trained since, after an attempt was lost; None = it has, or never did
    )
    image_digest: str = (
        ""  # what its machines run, as name@sha256:...; "" = no image, or one that cannot be pinned
    )
    pinned_for: str = ""  # which image (and attempt, where the tag is followed) that was asked for
    settled: bool = False  # terminal, and nothing of it is left to clean up
    pulled: str | None = None  # sha256 of the results that somebody pulled completely (as in `outcome`)
    purging: bool = False  # its files are being deleted; a purge that was cut off is finished by repeating it
    purged_at: float | None = None  # its files are gone since: a resume begins from nothing
    version: int = 0

    @property
    def terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def files_gone(self) -> bool:
        """The files of this generation and those before are purged, or being purged: a resume begins from nothing."""
        return self.purging or (self.purged_at is not None and self.purged_at >= self.generation_at)

    def has_purged(self, attempt: Attempt) -> bool:
        """The files of this attempt are purged."""
        return self.purged_at is not None and attempt.started_at <= self.purged_at

    @property
    def awaits_pull(self) -> bool:
        """It wants its results pulled, and nobody has pulled these."""
        return (
            self.policy.require_pull
            and self.outcome is not None
            and self.pulled != self.outcome.results_sha256
        )

    @property
    def live_attempt(self) -> Attempt | None:
        """The attempt that is not over yet, if any."""
        return self.attempt if self.attempt is not None and self.attempt.ended_at is None else None

    @property
    def open_try(self) -> Try | None:
        """The create call that is in flight or has obtained the live attempt's machine."""
        return self.try_ if self.try_ is not None and self.try_.ended_at is None else None


_NAMES = tuple(field.name for field in fields(Run))
_values = attrgetter(*_NAMES)
_setters = tuple(getattr(Run, name).__set__ for name in _NAMES)
_set_pulse, _set_attempt = _setters[_NAMES.index("pulse")], _setters[_NAMES.index("attempt")]


def with_pulse(run: Run, pulse: Pulse | None, attempt: Attempt | None) -> Run:
    """What `dataclasses.replace` makes of these two, at a third of its price: ten thousand runs at every look."""
    made = object.__new__(Run)
    for put, value in zip(_setters, _values(run), strict=True):
        put(made, value)
    _set_pulse(made, pulse)
    _set_attempt(made, attempt)
    return made
