"""An attempt of a run on one machine, the create calls (tries) before it, the pulse of its beats, and drills."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from supervisor.contract.heartbeat import Exit, Guess
from supervisor.domain.causes import Cause
from supervisor.domain.diagnosis.verdict import Retry, Verdict
from supervisor.domain.machines import How, MachineRef, Placement

CREATE_SETTLED_S = 180.0  # by then a create call has been answered or has given up (deadline of a call: 60 s)


@dataclass(frozen=True, slots=True)
class Try:
    """One create call. Its row is committed before the call; `nonce_hash` authenticates the beats of its machine.
    `on`: the kept machine that it starts again; None = it makes a new one. `beside`: the launch that it was requested
    beside, in a race (phases/racing); "" = it is not the second of a race."""

    attempt: int
    number: int
    launch_id: str
    machine_name: str
    placement: Placement
    requested_at: float
    price_usd_per_h: float | None = None
    on_demand_usd_per_h: float | None = None
    nonce_hash: str = ""
    ended_at: float | None = None
    outcome: Cause | None = None  # None: still open, or the call returned a machine
    detail: str = ""
    minimum_s: float = 0.0  # the minimum time that the platform bills for
    off_usd_per_h: float | None = None
    on: Retiring | None = None
    beside: str = ""
    waits_s: float = 0.0  # how long the platform may look for capacity (flex-start); 0 = it answers at once

    @property
    def ref(self) -> MachineRef:
        return MachineRef(self.placement.provider, self.placement.zone, self.machine_name)

    @property
    def may_claim_after(self) -> str:
        """The launch that the baton names before any create call of this one: its own, or that of its race."""
        return self.beside or self.launch_id

    def refusal(self, code: str) -> str:
        """Why the provider refused this request with this error code; "" = it did not (`refusal_detail`)."""
        begin = refusal_detail(code, "")
        refused = self.outcome == Cause.LAUNCH_REJECTED and self.detail.startswith(begin)
        return self.detail[len(begin) :] if refused else ""


def refusal_detail(code: str, text: str) -> str:
    """The detail of a try that was refused. `code` "" = it has none."""
    return f"{code}: {text}" if code else text


@dataclass(frozen=True, slots=True)
class Attempt:
    """Times are epoch seconds by the supervisor's clock; None = not yet."""

    number: int
    generation: int
    launch_id: str
    machine_name: str
    machine_id: str
    placement: Placement
    requested_at: float
    started_at: float  # the machine exists: billing begins
    price_usd_per_h: float | None = None
    on_demand_usd_per_h: float | None = None
    up_at: float | None = None
    running_at: float | None = None  # first beat in phase restore or later
    training_at: float | None = None  # first beat in phase training or later
    ended_at: float | None = None  # the run's work on this machine is over
    gone_at: float | None = None  # the machine is known gone
    cause: Cause | None = None
    evidence: str = ""
    step_from: int | None = None  # resumed from this step; None = from nothing
    step_last: int | None = None  # last step in a beat; the next attempt's step_from shows how many steps were lost
    step_kept: int | None = None  # newest verified checkpoint of this attempt
    exit: Exit | None = None
    step_rejected: int | None = None  # last checkpoint that did not verify when this attempt restored
    code: str | None = None  # sha256 of the code bundle it ran; None = no bundle
    readings: tuple[str, ...] = ()  # the evidence for its end: source, value, age
    pruned: int = 0  # checkpoints that its agent removed, as far as events have reported them
    pruned_at: float | None = None  # time of the last such event
    # Billing ended because the machine stopped, by the platform's record where there is one; None = until gone_at.
    stopped_at: float | None = None
    minimum_s: float = 0.0  # the minimum time that the platform bills for
    pull_at: float | None = None  # first beat in phase image: its image is being pulled
    pulled_at: float | None = None  # first beat in another phase after that
    progress_at: float | None = None  # its last progress; set at its end, as the two fields below
    kept_at: float | None = None  # when its newest checkpoint was known to be safe
    stalled_s: float = 0.0  # in stalls that ended by themselves
    agent_at: float | None = None  # start of the agent, by the agent's own uptime; None = no beat has carried it
    free: bool = False  # its end counts as no failure, although its cause may
    verdict: Verdict | None = None  # what its end means; None = not ended, or the end explains itself
    drift_s: float = 0.0  # how far steps of the wall clock have moved the times above ahead of that uptime
    node: str = ""  # the computer of a cluster that it ran on; "" = not known, or there is none
    alerted: tuple[str, ...] = ()  # "METRIC nan" or "METRIC spike": the event about it was written
    off_usd_per_h: float | None = None  # of its machine's disks, while that is switched off
    # The last step of the attempt before it, if that one was preempted; None = it was not, or reported no step.
    preempted_at_step: int | None = None
    finishing_at: float | None = None  # first beat in phase finishing or later
    held_at: float | None = None  # since when its machine stays for a person, or by its run's rule; None = it leaves
    beat_at: float | None = None  # its last beat; set at its end, as the three fields below
    frozen_s: float = 0.0
    frozen_at: float | None = None
    saving_s: float | None = None

    @property
    def ref(self) -> MachineRef:
        return MachineRef(self.placement.provider, self.placement.zone, self.machine_name, self.machine_id)

    @property
    def begins_saved(self) -> bool | None:
        """The last step before a preemption was in the checkpoint from which this attempt trains; None = there was no
        preemption before it, or it does not train yet."""
        if self.preempted_at_step is None or self.training_at is None:
            return None
        return self.step_from is not None and self.step_from >= self.preempted_at_step

    @property
    def has_question(self) -> bool:
        """A person was asked what follows its end (Kind.ASK): it has cost no failure, and gave up its slot."""
        return self.verdict is not None and self.verdict.retry == Retry.ASK


def attempt_on(try_: Try, generation: int, machine_id: str, now: float) -> Attempt:
    """The record of the machine that this create call has brought; its bill begins now."""
    return Attempt(
        number=try_.attempt,
        generation=generation,
        launch_id=try_.launch_id,
        machine_name=try_.machine_name,
        machine_id=machine_id,
        placement=try_.placement,
        requested_at=try_.requested_at,
        started_at=now,
        price_usd_per_h=try_.price_usd_per_h,
        on_demand_usd_per_h=try_.on_demand_usd_per_h,
        minimum_s=try_.minimum_s,
        off_usd_per_h=try_.off_usd_per_h,
    )


@dataclass(frozen=True, slots=True)
class Moving:
    """Of `on_slow: move` (lifecycle/living/moving). `after_step`: it moves at its first checkpoint after this step;
    None = no plan. `moved_at`: its last move in this generation; `pace`: its steps a second until then. `rung_at`: when
    it last left a machine for the other market (lifecycle/phases/changing); None = not in this generation. `refused`:
    how often it left for spot since it last obtained a spot machine."""

    after_step: int | None = None
    moved_at: float | None = None
    pace: float | None = None
    rung_at: float | None = None
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Yielding:
    """The last order to give its machine to a run of a higher priority (lifecycle/phases/running). `launch_id` "" =
    there was none. `to`: the key of that run. `at`: of the order. `gone_at`: its machine, at `place`, is gone since
    then; None = not yet."""

    launch_id: str = ""
    to: int = 0
    at: float = 0.0
    why: str = ""
    place: Placement | None = None
    gone_at: float | None = None


@dataclass(frozen=True, slots=True)
class Pulse:
    """The state of the current launch by its beats; the only state that changes without an event."""

    launch_id: str
    sequence: int = 0
    phase: str = "boot"
    phase_since: float = 0.0
    beat_at: float = 0.0  # when the agent made that beat, on the supervisor's clock: now minus its age
    step: int | None = None
    total: int | None = None
    checkpoint_step: int | None = None
    first_progress_at: float | None = None  # None = this attempt has not reported a step yet
    progress_at: float | None = None
    stall_polls: int = 0
    stall_counted_at: float = 0.0
    steps_per_s: float | None = None
    message: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    checkpoint_at: float | None = None  # when a beat or the baton first showed `checkpoint_step`
    stalled_s: float = 0.0  # in stalls that are over
    from_zero: bool | None = None  # its steps are counted from 0; None = not reported
    up_s: float | None = None  # uptime of the agent, by its monotonic clock; None = not reported
    telemetry: str = ""  # the newest one in a beat, as text (contract/beat_telemetry)
    recent: str = ""  # points in the newest beat, as text (contract/recent_points); not stored
    save_s: float | None = None  # the longest time of a checkpoint with its upload; None = not reported
    signs: str = ""  # those of the newest beat, as text (contract/signs)
    guess: Guess | None = None  # of the newest beat; for people only, no decision reads it
    hang_at: float | None = None  # when a beat first reported the present hang; None = it does not hang
    hang_looks: int = 0  # beats that reported it, each a poll later than the one before
    drill: str = ""  # that of the newest beat, as text (contract/drill)
    frozen_s: float = 0.0  # the agent cannot have run, by the numbers of its beats; at least so long
    frozen_at: float | None = None  # when the last such time ended
    saving_s: float | None = None  # in saves that are over; None = the training has named no phase of one


PACE_MIN_S = 60.0


@dataclass(frozen=True, slots=True)
class FirstForecast:
    """What was forecast when a generation had begun to train, to be held against its end. `ends_at`, `usd`: p10, p50
    and p90; the cost is of the whole run, () = a price was not known."""

    generation: int
    at: float
    ends_at: tuple[float, ...]
    usd: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Chain:
    """What the ended attempts of a run have shown of its work, for the forecast of those that follow. By provider:
    `paces`: steps a second, as they were reported last. `starts_s`: from the request of a machine to its training.
    `total`: the number of steps; None = none was reported. `first_forecast`: of the newest generation that had one."""

    total: int | None = None
    paces: Mapping[str, float] = field(default_factory=dict)
    starts_s: Mapping[str, float] = field(default_factory=dict)
    first_forecast: FirstForecast | None = None


def with_links(chain: Chain, attempt: Attempt, pulse: Pulse | None) -> Chain:
    """The chain after one more attempt. `pulse`: its last; None = it sent no beat. One that did not train shows
    nothing."""
    if attempt.training_at is None:
        return chain
    name, pace = attempt.placement.provider, pace_of(attempt, pulse)
    start_s = max(0.0, attempt.training_at - attempt.requested_at - attempt.drift_s)
    return replace(
        chain,
        total=chain.total if pulse is None or pulse.total is None else pulse.total,
        paces=chain.paces if pace is None else {**chain.paces, name: pace},
        starts_s={**chain.starts_s, name: start_s},
    )


def pace_of(attempt: Attempt, pulse: Pulse | None) -> float | None:
    """Steps a second of this attempt, from its first step to its last: with its saves and evaluations. In the first
    minute, the pace that it reports. Only reported steps count, no guesses. None = not measured."""
    if pulse is None or pulse.launch_id != attempt.launch_id or pulse.step is None or attempt.training_at is None:
        return None
    steps = pulse.step - (attempt.step_from or 0)
    trained_s = 0.0 if pulse.progress_at is None else pulse.progress_at - attempt.training_at - attempt.drift_s
    pace = steps / trained_s if steps > 0 and trained_s >= PACE_MIN_S else pulse.steps_per_s
    return pace if pace and pace > 0 else None


@dataclass(frozen=True, slots=True)
class Drills:
    """What is known of the drills of a run. `number`: of the last order; `launch_id`: the launch that it is open for,
    "" = none is open. `generation`: the last one in which a drill came to its end. `record`: of the last one that did,
    as text (contract/drill). `spans`: of the last SPANS_KEPT notices, seconds until the command had left, and from
    there until all was saved."""

    number: int = 0
    launch_id: str = ""
    actor: str = ""
    ordered_at: float | None = None
    generation: int = 0
    over_at: float | None = None  # of the last order, however it ended
    record: str = ""
    drilled_at: float | None = None
    spans: tuple[tuple[float, float], ...] = ()


SPANS_KEPT = 40


@dataclass(frozen=True, slots=True)
class DrillFault:
    """`word`: of wording/forecast. `moment`: of contract/drill. `figure`: seconds, steps or samples, by the word."""

    word: str
    moment: str
    figure: float | None = None


@dataclass(frozen=True, slots=True)
class DrillVerdict:
    """`word`: survives | fails | not_drilled. `missing`: (moment, why) without proof. `notices`: (seconds of a notice,
    whether the run survives it); empty where that is not known. `p95_s`: what leaving, saving and an upload on its way
    need.
    `ask_s`: the notice to ask the platform for; None = no other one helps, or the shortest is enough."""

    word: str
    faults: tuple[DrillFault, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()
    notices: tuple[tuple[float, bool], ...] = ()
    p95_s: float | None = None
    ask_s: float | None = None


@dataclass(frozen=True, slots=True)
class Bill:
    """The bill of a machine that ends only by a verb which a person approves; it counts as running until a later read
    or a person confirms its end. `how`, `verb` and `confirms` follow the settings (phases/teardown). `verb`: of the
    provider; the approval may name another. Times are epoch seconds."""

    how: How
    verb: str
    confirms: bool = False  # a later read can say whether it runs
    announced: bool = False  # the question for the approval
    left_at: float | None = None  # the run's own processes are known gone from the host
    tried_at: float | None = None  # the last try of the verb; of `ask`: when the person was told
    tries: int = 0  # failed ones in a row
    done_verb: str = ""
    done_at: float | None = None  # `done_verb` was carried out
    problem: str = ""  # of the last try, or of the last read


@dataclass(frozen=True, slots=True)
class Kept:
    """Of a machine that its run keeps with its disks, for its next attempt. `off_by`: it is switched off then at the
    latest. `off_at`: since when it is known to be off; only its disks are billed from then on. `refused_at`: the first
    refusal to start it again since its last attempt, `refusal`: the text of the last one. `given_up`: why it is
    deleted; "" = it stays."""

    placement: Placement
    off_by: float
    off_at: float | None = None
    usd_per_h: float | None = None  # of its disks; None = not known
    refused_at: float | None = None
    refusal: str = ""
    given_up: str = ""

    def disks_usd(self, now: float) -> float:
        """The cost of its disks since it is off, which is not among the costs of its run yet."""
        return 0.0 if self.off_at is None else (self.usd_per_h or 0.0) * max(0.0, now - self.off_at) / 3600.0


@dataclass(frozen=True, slots=True)
class Retiring:
    """A machine whose attempt is over and that must be known gone. `until`: it may stay until then (a notice runs, or
    the run keeps it). `attempt`: set when the next attempt begins before this machine is gone, because it is billed
    until then. `bill`: set when the work is verified, where only a verb ends the bill; the machine then stays until
    that is confirmed. `call`: of a machine that lost a race: its create call. `attempt` is then the record of its bill
    since it was first seen, and no attempt of the run."""

    ref: MachineRef
    launch_id: str
    since: float
    until: float
    note: str = ""
    attempt: Attempt | None = None  # None = still the run's own
    up_at: float | None = None  # last tick that saw it running and asked for its release
    bill: Bill | None = None
    kept: Kept | None = None
    call: Try | None = None

    @property
    def lost_until(self) -> float | None:
        """Of a machine that lost a race: until then its create call may bring it. None = it lost none."""
        return None if self.call is None else self.since + CREATE_SETTLED_S


def billed_h(attempt: Attempt, now: float) -> float:
    """Billed hours of the attempt's machine until it stopped, or until now; at least the platform's minimum."""
    end = attempt.stopped_at if attempt.stopped_at is not None else attempt.gone_at
    lasted_s = (now if end is None else end) - attempt.started_at - attempt.drift_s
    return max(attempt.minimum_s, lasted_s) / 3600.0


def kept_step(attempt: Attempt, after: Attempt | None) -> int | None:
    """The newest verified checkpoint of this attempt; None = none. `after`: the next attempt. The agent may save within
    a notice, after the attempt has ended here: only the start of the next attempt shows that checkpoint."""
    if after is None or after.generation != attempt.generation or after.step_from is None:
        return attempt.step_kept
    newer = after.step_from > max(attempt.step_from or 0, attempt.step_kept or 0)
    return after.step_from if newer else attempt.step_kept


def training_s(attempt: Attempt | None, now: float) -> float:
    """How long this attempt has trained, by its agent's uptime: without the steps of our clock."""
    if attempt is None or attempt.training_at is None:
        return 0.0
    return max(0.0, (attempt.ended_at or now) - attempt.training_at - attempt.drift_s)
