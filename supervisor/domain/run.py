"""A run: what the user asked for, its state, and what it has used so far. One frozen value; a change makes a new one.

Billed hours, their cost and the time in training follow the agent's uptime (Attempt.drift_s), not the wall clock.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from operator import attrgetter

from supervisor.contract.identifiers import parse_launch_id
from supervisor.domain.attempt import Attempt, Chain, Drills, Kept, Moving, Pulse, Retiring, Try, Yielding, billed_h
from supervisor.domain.causes import Cause
from supervisor.domain.gates.verdicts import Waiver
from supervisor.domain.machines import Away
from supervisor.domain.policies import Policy
from supervisor.domain.status import TERMINAL, Status


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals of the run; `counted`, `user_failures`, `no_progress` and `free_row` restart with each generation."""

    attempts: int = 0
    tries: int = 0
    preemptions: int = 0
    counted: int = 0
    user_failures: int = 0
    no_progress: int = 0
    streak: int = 0  # ends in a row that need backoff
    deleted_at: tuple[float, ...] = ()  # removals of a machine by a person, within the last hour
    preempted_at: tuple[float, ...] = ()  # the last preemptions, if the policy's escalation counts them
    free_row: int = 0  # free ends of FREE_LIMITED in a row without a newer checkpoint than `free_base`
    free_base: int | None = None
    timed_out: int = 0  # attempts that a time limit of the platform has ended
    out_of_memory: int = 0  # attempts that ended as host_oom
    memory_bytes: float | None = None  # the most that the last of these used; None = not measured


LIMIT, METRIC = "limit", "metric"  # sources of a stop


@dataclass(frozen=True, slots=True)
class StopRequest:
    actor: str
    at: float
    cause: Cause = Cause.STOP_REQUESTED  # or the limit of the run that caused the stop
    source: str = "api"  # api | marker | limit | METRIC

    @property
    def by_metric(self) -> bool:
        """A metric of the run's `watch` caused the stop."""
        return self.source == METRIC


@dataclass(frozen=True, slots=True)
class SmokeRun:
    """The smoke that the user's computer ran before the submit. `code`: hash of the bundle that it used, "" = none.
    `spec_sha256`: of the spec that was submitted with it. `exit_codes`: of its starts. `first_step`: the last step of
    the first start, `second_from`: where the second one began; None = it reported no step."""

    at: float
    computer: str
    command: str
    code: str
    spec_sha256: str
    exit_codes: tuple[int, ...]
    first_step: int | None = None
    second_from: int | None = None


@dataclass(frozen=True, slots=True)
class Approval:
    actor: str
    at: float
    machine_id: str
    results_sha256: str
    accept_loss: str = ""  # the reason for giving up the results; "" = they are not given up
    verb: str = ""  # how the machine is given back; "" = by its release
    meter_stopped: bool = False  # this person has seen that the machine is billed no more


@dataclass(frozen=True, slots=True)
class WriteOff:
    """A person says that a machine that cannot be read is lost. It counts for this launch and those before it."""

    actor: str
    at: float
    launch_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verified results in the store. `missing`: what the spec promised and is not there."""

    results_sha256: str
    files: int
    size_bytes: int
    verified_at: float
    step: int | None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """A machine of this offer could not serve: its GPUs did not work, or its memory did not suffice."""

    zone: str
    shape: str
    spot: bool
    at: float
    cause: Cause
    evidence: str
    provider: str = ""  # "" = the row is from the time when a run had one provider only

    @property
    def of_memory(self) -> bool:
        """A later machine of this offer has as little."""
        return self.cause == Cause.HOST_OOM


@dataclass(frozen=True, slots=True)
class Waiting:
    since: float | None = None  # when this wait in the queue began; None = it does not wait
    before_s: float = 0.0  # how long it waited for the platform before; kept while it waits in the queue
    reasons: tuple[str, ...] = ()  # for this wait, as far as events have reported them; the present one last
    held: bool = False  # a paid provider is held back until the deadline needs it: no limit of waiting counts


@dataclass(frozen=True, slots=True)
class Money:
    """What ended attempts of all generations cost; unknown prices are left out."""

    cost_usd: float = 0.0
    on_demand_usd: float = 0.0
    all_known: bool = True  # False: an attempt had no known price, so the sums are lower bounds
    budget_from_usd: float = 0.0  # `cost_usd` when this generation began
    budget_warned_usd: float | None = None  # the cost at the last warning that most of a budget is spent
    disks_usd: float = 0.0  # part of `cost_usd`: of the disks of switched-off machines
    # Of machines that lost a race (lifecycle/phases/racing) and are gone: no attempt has their bill.
    races_s: float = 0.0
    races_usd: float = 0.0  # part of `cost_usd`


@dataclass(frozen=True, slots=True)
class Person:
    """The request for a person's help; `needing` and `unneeded` set and clear it."""

    why: str = ""  # "" = none is needed
    since: float | None = None
    reminded_at: float | None = None  # the last reminder


@dataclass(frozen=True, slots=True)
class Image:
    digest: str = ""  # what the run's machines run, as name@sha256:...; "" = no image, or it cannot be pinned
    pinned_for: str = ""  # the image (and the attempt, where the tag is followed) that the digest was resolved for


@dataclass(frozen=True, slots=True)
class Files:
    """The run's files in the store: its newest checkpoint, its results, and a purge of both."""

    checkpoint_step: int | None = None  # newest verified checkpoint known to the supervisor
    checkpoint_bytes: int | None = None  # size of the newest one that the baton was read with; None = not read yet
    # The longest time of a checkpoint with its upload, in the last ended attempt that measured one; None = none did.
    checkpoint_s: float | None = None
    outcome: Outcome | None = None
    pulled_sha256: str | None = None  # of the results that a user pulled completely (as in `outcome`)
    purging: bool = False  # the files are being deleted; a purge that was cut off is finished by repeating it
    purged_at: float | None = None  # the files are gone since then: a resume begins from nothing


@dataclass(frozen=True, slots=True)
class Run:
    """`key` is the database's id, `version` its row version. Times are epoch seconds by the supervisor's clock. The
    groups at the end are stored flat, beside the run's own fields (storage/engine/codec)."""

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
    hold: str = ""  # what blocks the run now; shown in the status sentence
    next_at: float | None = None  # when the next try or restart is due
    try_: Try | None = None
    rival: Try | None = None  # the second create call of the last race; its machine's beats do not count
    attempt: Attempt | None = None
    pulse: Pulse | None = None
    retiring: tuple[Retiring, ...] = ()
    counters: Counters = Counters()
    last_failure: str = ""  # the last error of the command in this generation: exit, step and last line
    once: tuple[str, ...] = ()  # conditions of the table of causes that have held in this generation, each once
    no_progress_base: int | None = None  # `files.checkpoint_step` at the first of the failures in a row
    reported: bool = False  # an attempt of this run has reported a step
    from_zero: bool = False  # its steps are counted from 0: the last one is total - 1
    avoid_zone: str = ""  # the zone of the lost attempt
    refusals: tuple[Refusal, ...] = ()  # of this generation, within the last hour
    stop: StopRequest | None = None
    stop_consumed: str | None = None
    approval: Approval | None = None
    kept_until: float | None = None
    rerun: bool = False  # this generation starts from nothing: the old checkpoint is not used
    fresh_generation: int = 1  # the last one that started from nothing
    training_s: float = 0.0  # of ended attempts in this generation
    disk_low: bool = False  # an event has reported it; until there is ample space again
    down_since: float | None = None  # no training since then, after a lost attempt; None = it trains, or never did
    settled: bool = False  # terminal, and nothing is left to clean up
    smoke: SmokeRun | None = None  # of the submit of this generation; None = none was run
    written_off: WriteOff | None = None
    away: Away | None = None  # the zone of one of its machines cannot be read, for longer than a moment
    moving: Moving = Moving()  # noqa: RUF009
    yielding: Yielding = Yielding()  # noqa: RUF009
    drills: Drills = Drills()  # noqa: RUF009 - frozen
    chain: Chain = Chain()  # noqa: RUF009
    waivers: tuple[Waiver, ...] = ()  # a person lets the run go on in spite of these checks; kept over generations
    version: int = 0
    waiting: Waiting = Waiting()
    money: Money = Money()
    person: Person = Person()
    image: Image = Image()
    files: Files = Files()

    @property
    def terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def files_gone(self) -> bool:
        """The files up to this generation are purged, or are being purged: a resume begins from nothing."""
        purged_at = self.files.purged_at
        return self.files.purging or (purged_at is not None and purged_at >= self.generation_at)

    def has_purged(self, attempt: Attempt) -> bool:
        """The files of this attempt are purged."""
        return self.files.purged_at is not None and attempt.started_at <= self.files.purged_at

    @property
    def awaits_pull(self) -> bool:
        """The policy requires a pull of the results, and there was none of these results."""
        outcome = self.files.outcome
        return self.policy.require_pull and outcome is not None and outcome.results_sha256 != self.files.pulled_sha256

    @property
    def billed(self) -> Retiring | None:
        """The machine whose bill only an approved verb ends, until its end is confirmed."""
        return next((item for item in self.retiring if item.bill is not None), None)

    @property
    def approved_end(self) -> Approval | None:
        """The approval to give back this machine with these results. One of another machine, or of other results, does
        not count."""
        approval, outcome, attempt = self.approval, self.files.outcome, self.attempt
        if approval is None or outcome is None or attempt is None or approval.machine_id != attempt.machine_id:
            return None
        return approval if approval.accept_loss or approval.results_sha256 == outcome.results_sha256 else None

    @property
    def live_attempt(self) -> Attempt | None:
        """The attempt that has not ended, if any."""
        return self.attempt if self.attempt is not None and self.attempt.ended_at is None else None

    @property
    def asks(self) -> bool:
        """It waits until a person says what follows the end of its attempt: nothing is requested for it."""
        attempt = self.attempt
        return (
            self.status == Status.WAITING
            and attempt is not None
            and attempt.has_question
            and self.cause == attempt.cause
        )

    @property
    def has_begun(self) -> bool:
        """This generation had a machine."""
        return self.attempt is not None and self.attempt.generation == self.generation

    @property
    def has_machine(self) -> bool:
        """It has a machine, requests one, or one of its machines is not known gone. A kept one takes no place."""
        leaving = any(item.kept is None for item in self.retiring)
        return self.open_try is not None or self.live_attempt is not None or leaving

    @property
    def yields(self) -> bool:
        """Its live attempt saves and leaves, for a run of a higher priority."""
        live = self.live_attempt
        return self.yielding.launch_id != "" and live is not None and live.launch_id == self.yielding.launch_id

    @property
    def kept(self) -> tuple[Retiring, Kept] | None:
        """The machine that it keeps for its next attempt, or is about to delete."""
        return next(((item, item.kept) for item in self.retiring if item.kept is not None), None)

    @property
    def providers(self) -> tuple[str, ...]:
        """The providers that it may use, in the order of its spec."""
        return self.policy.providers or (self.provider,)

    @property
    def given_up(self) -> str:
        """The launch that a person wrote off, once nothing of the run is there any more by the row; "" = none. A later
        attempt may work in the same home."""
        if self.written_off is None or self.live_attempt is not None:
            return ""
        lost = parse_launch_id(self.written_off.launch_id)
        is_ended = self.attempt is None or parse_launch_id(self.attempt.launch_id) <= lost
        is_over = self.open_try is None or parse_launch_id(self.open_try.launch_id) > lost
        return self.written_off.launch_id if is_ended and is_over else ""

    @property
    def open_try(self) -> Try | None:
        """The create call that is in flight, or that returned the live attempt's machine."""
        return self.try_ if self.try_ is not None and self.try_.ended_at is None else None

    @property
    def open_rival(self) -> Try | None:
        """The create call beside `open_try`, while nobody knows yet which of the two brings a machine first."""
        return self.rival if self.rival is not None and self.rival.ended_at is None else None


def needing(run: Run, why: str, at: float) -> Run:
    """The run with a request for a person's help since `at`."""
    return replace(run, person=replace(run.person, why=why, since=at))


def unneeded(run: Run) -> Run:
    """The run without a request for a person's help."""
    return replace(run, person=replace(run.person, why="", since=None))


_NAMES = tuple(field.name for field in fields(Run))
_values = attrgetter(*_NAMES)
_setters = tuple(getattr(Run, name).__set__ for name in _NAMES)
_set_pulse, _set_attempt = _setters[_NAMES.index("pulse")], _setters[_NAMES.index("attempt")]


def with_pulse(run: Run, pulse: Pulse | None, attempt: Attempt | None) -> Run:
    """`dataclasses.replace` of these two fields at a third of its cost: a tick does it for ten thousand runs."""
    copy = object.__new__(Run)
    for set_field, value in zip(_setters, _values(run), strict=True):
        set_field(copy, value)
    _set_pulse(copy, pulse)
    _set_attempt(copy, attempt)
    return copy


def attempt_cost_usd(attempt: Attempt, now: float) -> float | None:
    """The cost of the attempt's machine until it stopped, or until now. None = no known price."""
    price = attempt.price_usd_per_h
    return None if price is None else price * billed_h(attempt, now)


def on_demand_usd(attempt: Attempt, now: float) -> float:
    """The cost of the same time on demand; 0 = that price is not known."""
    return (attempt.on_demand_usd_per_h or 0.0) * billed_h(attempt, now)


def run_cost_usd(run: Run, now: float) -> float:
    """Cost of the whole run so far, including machines that are kept or are ending; attempts without a known price are
    left out (`run.money.all_known` is False then)."""
    so_far = (attempt_cost_usd(live, now) or 0.0) if (live := run.live_attempt) is not None else 0.0
    kept = sum(hours * (attempt.price_usd_per_h or 0.0) for attempt, hours in _after_work(run, now))
    disks = 0.0 if run.kept is None else run.kept[1].disks_usd(now)
    return run.money.cost_usd + so_far + kept + disks


def run_on_demand_usd(run: Run, now: float) -> float:
    """The cost of the same time on demand."""
    so_far = on_demand_usd(live, now) if (live := run.live_attempt) is not None else 0.0
    kept = (hours * (attempt.on_demand_usd_per_h or 0.0) for attempt, hours in _after_work(run, now))
    return run.money.on_demand_usd + so_far + sum(kept)


def _after_work(run: Run, now: float) -> list[tuple[Attempt, float]]:
    """Ended attempts whose machine is still billed, with the hours since the end: added to the row when it stops."""
    billed = []
    for item in run.retiring:
        attempt, _ = attempt_of(run, item)
        if attempt is not None and attempt.ended_at is not None and attempt.stopped_at is None:
            billed.append((attempt, max(0.0, billed_h(attempt, now) - billed_h(attempt, attempt.ended_at))))
    return billed


def attempt_of(run: Run, item: Retiring) -> tuple[Attempt | None, bool]:
    """The attempt of this machine, while the machine is not known gone; and whether it is the run's current one."""
    own = run.attempt is not None and run.attempt.launch_id == item.launch_id
    attempt = run.attempt if own else item.attempt
    return (None if attempt is None or attempt.gone_at is not None else attempt), own
