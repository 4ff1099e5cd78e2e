"""Ends that the supervisor or its agent decided, and the platform's words beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from supervisor.domain.causes import Cause
from tests.diagnosis.cases import Expected
from tests.diagnosis.makers.answers import NO_GPU, OUR_END, PREEMPTED, STOPPED, USER_ERROR, code, not_
from tests.diagnosis.makers.documents import NOW
from tests.diagnosis.makers.situations import GCE, KUBERNETES, SLURM, Fact, Mechanism, Story, record
from tests.diagnosis.makers.variations import Variation

OWN = Expected("", "OWN", "certain", "none", "ours")
# Cause of an end that the supervisor recorded -> (its words, retry class).
RECORDED: dict[Cause, tuple[str, str]] = {
    Cause.AGENT_LOST: ("no beats for 420 s; the machine is up", "once_identical"),
    Cause.ORPHANED: ("the machine is gone, and no record says why", "once_identical"),
    Cause.EXPIRED: ("the machine reached its own time limit", "free_same"),
    Cause.CUT_OFF: ("the agent reached neither the store nor the supervisor", "free_same"),
    Cause.DEADLINE: ("the deadline has passed", "none"),
    Cause.MAX_RUNTIME: ("the training time is used up", "none"),
    Cause.BUDGET: ("the budget of 40 USD is spent", "none"),
    Cause.LIMIT_REACHED: ("the limit of 12 attempts is reached", "none"),
    Cause.NO_PROGRESS: ("three attempts without a newer checkpoint", "none"),
    Cause.BOOT_TIMEOUT: ("no beat after its claim within 900 s", "free_elsewhere"),
    Cause.SUPERSEDED: ("the agent found a newer attempt and left", "free_same"),
    Cause.GPU_FAULT: ("GPU 1 is lost", "free_elsewhere"),
    Cause.GPU_UNAVAILABLE: ("the machine has 0 of 1 GPUs that its shape promises", "free_elsewhere"),
    Cause.LAUNCH_REJECTED: ("the cluster refuses the request: a quota of zero", "never"),
    Cause.IMAGE_ERROR: ("the image cannot be pulled: manifest unknown", "never"),
    Cause.FINISHED: ("the work is done", "none"),
}
LEFT: dict[str, tuple[str, str]] = {
    "cut_off": ("cut_off", "free_same"),
    "expired": ("expired", "free_same"),
    "superseded": ("superseded", "free_same"),
    "closed": ("superseded", "free_same"),
}


def _recorded(cause: Cause) -> Callable[[Variation], Story]:
    words, retry = RECORDED[cause]

    def tell(drawn: Variation) -> Story:
        drawn.train()
        return Story(
            replace(OWN, cause=cause.value, retry=retry), cause=cause, detail=words, agent=False, placement=GCE
        )

    return tell


def _failed_after_all(cause: Cause) -> Callable[[Variation], Story]:
    """The supervisor recorded an end; the agent's part came later and shows that the command had failed by itself."""

    def tell(drawn: Variation) -> Story:
        drawn.train()
        drawn.error(drawn.pick("KeyError: 'lr'", "IndexError: list index out of range"))
        return Story(not_(USER_ERROR, "OWN"), code=1, cause=cause, detail=RECORDED[cause][0], placement=GCE)

    return tell


def _left(word: str) -> Callable[[Variation], Story]:
    cause, retry = LEFT[word]

    def tell(drawn: Variation) -> Story:
        drawn.train()
        return Story(
            replace(OUR_END, cause=cause, rule="LEFT", retry=retry), number=15, sent_by_us=True, signals_sent=(15,),
            left=word, placement=GCE,
        )  # fmt: skip

    return tell


def ended_by_the_agent(drawn: Variation) -> Story:
    drawn.train()
    return Story(OUR_END, number=(15, 9)[drawn.seed % 2], sent_by_us=True, signals_sent=(15,), placement=GCE)


def metric_stops(drawn: Variation) -> Story:
    """`watch: {loss: {nan: stop}}`: the supervisor ended it, and the agent left because it was asked to."""
    drawn.train()
    drawn.say("loss nan")
    step = drawn.step
    words = f"loss stays NaN since step {step}; the last finite value was 2.31 at step {step - 10}"
    answer = code("METRIC", "certain", "lower_rate", "resume_kept")
    return Story(
        answer, number=15, sent_by_us=True, signals_sent=(15,), left="stopped", cause=Cause.USER_ERROR, detail=words,
        facts=(("metric.lasting", "loss", "agent", drawn.up_s, words),),
    )  # fmt: skip


# --- look-alikes ------------------------------------------------------------------------------------------------------


def superseded_by_a_preemption(drawn: Variation) -> Story:
    """The agent found a newer attempt because the platform had taken its machine."""
    drawn.train()
    end = (15, 9)[drawn.seed % 2]
    left = ("superseded", "closed", None)[drawn.seed % 3]
    kept = record(Cause.PREEMPTED, "Google preempted the machine")
    return Story(
        not_(PREEMPTED, "OWN"), number=end, sent_by_us=True, signals_sent=(15,), left=left, record=kept, placement=GCE
    )


def stopped_with_nan(drawn: Variation) -> Story:
    """A person stops a run whose loss is NaN; no `watch` says stop."""
    drawn.train()
    drawn.say("loss nan")
    facts = (("metric.nonfinite", "loss", "agent", drawn.up_s, f"loss is NaN since step {drawn.step}"),)
    return Story(
        not_(STOPPED, "METRIC"), number=15, sent_by_us=True, signals_sent=(15,), left="stopped", facts=facts,
        cause=Cause.STOP_REQUESTED, detail="stop requested by ops",
    )  # fmt: skip


def stopped_after_the_last_step(drawn: Variation) -> Story:
    drawn.train(3)
    drawn.total = drawn.step
    drawn.error("KeyError: 'val/best'")
    return Story(not_(STOPPED, "U37"), code=1, after_work=True, left="stopped", signals_sent=(15,))


def left_with_0(drawn: Variation) -> Story:
    """It saved and left with 0, because the machine or its time was over: the work is not done."""
    drawn.train(3)
    drawn.say("saved on request, leaving")
    word, cause, retry = (
        ("noticed", "preempted", "free_elsewhere"),
        ("expired", "expired", "free_same"),
        ("cut_off", "cut_off", "free_same"),
    )[drawn.seed % 3]
    answer = Expected(cause, "LEFT", "certain", retry, "ours")
    return Story(not_(answer, "OWN"), code=0, left=word, signals_sent=(15,), placement=GCE)


def stood_while_its_session_ended(drawn: Variation) -> Story:
    """The supervisor saw no progress; the platform does not list the session any more."""
    drawn.train(3)
    at_cap = drawn.seed % 2 == 0
    facts = (
        ("session.age_s", 43000.0 if at_cap else 9000.0, "provider"),
        ("session.cap_s", 43200.0, "provider"),
        ("session.listed", False, "provider"),
    )
    answer = Expected(
        "time_limit" if at_cap else "preempted", "NB5", "likely", "free_same" if at_cap else "free_elsewhere", "place"
    )
    return Story(not_(answer, "OWN"), facts=facts, cause=Cause.STALLED, detail="no progress for 600 s", agent=False,
                 pages="kaggle.com/docs/notebooks: session limits")  # fmt: skip


def waited_once_and_failed(drawn: Variation) -> Story:
    """An event of the time when it waited is still listed; the command failed by itself."""
    text = drawn.pick(
        "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        'Job.batch "x" is invalid: spec.template: field is immutable',
    )
    drawn.train()
    drawn.error("KeyError: 'lr'")
    facts = (("platform.message", text, "provider"),)
    return Story(
        not_(USER_ERROR, "K8S1", "K8S2"), code=1, facts=facts, placement=KUBERNETES, pages="kubernetes.io: Events"
    )


def stopped_and_left_with_0(drawn: Variation) -> Story:
    drawn.train(3)
    drawn.say("saved on request, leaving")
    return Story(not_(STOPPED, "OWN"), code=0, left="stopped", signals_sent=(15,))


WORDS: tuple[tuple[Cause | None, str, tuple[Fact, ...]], ...] = (
    (Cause.PREEMPTED, "Google preempted the machine", ()),
    (Cause.HOST_ERROR, "the machine's host failed", ()),
    (Cause.HOST_REBOOTED, "Google restarted the machine", ()),
    (Cause.MACHINE_DELETED, "deleted by admin@example.com", ()),
    (Cause.TIME_LIMIT, "TIMEOUT: it reached its time limit", ()),
    (None, "", (("platform.state", "PREEMPTED", "provider"),)),
    (None, "", (("platform.state", "NODE_FAIL", "provider"),)),
    (None, "", (("boot.id_start", "b007", "host"), ("boot.id_now", "b008", "host"))),
    (None, "", (("platform.message", "compute.instances.automaticRestart", "provider"),)),
    (None, "", (("platform.state", "CANCELLED by 1000", "provider"),)),
    (None, "", (("platform.state", "TIMEOUT", "provider"),)),
    (None, "", (("session.age_s", 43000, "provider"), ("session.cap_s", 43200, "provider"), ("session.listed", False, "provider"))),
)  # fmt: skip


def platform_speaks_later(drawn: Variation) -> Story:
    """The agent left because there was no card; what the platform says of the machine came after that."""
    cause, words, facts = WORDS[drawn.seed % len(WORDS)]
    message = "the machine has 0 of 1 GPUs that its shape promises"
    kept = None if cause is None else record(cause, words)
    facts = (*facts, ("left", "no_gpu", "agent"), ("left.message", message, "agent"))
    return Story(not_(NO_GPU, "U3"), left="no_gpu", message=message, record=kept, facts=facts, placement=GCE)


def platform_speaks_of_another_end(drawn: Variation) -> Story:
    """The command failed by itself, two hours before what the platform records."""
    cause, words, _ = WORDS[drawn.seed % 5]
    assert cause is not None
    drawn.train()
    drawn.error("KeyError: 'lr'")
    facts = (("exit.at", NOW - 7200, "own", NOW - 7200),)
    return Story(not_(USER_ERROR, "U3"), code=1, record=record(cause, words, 5.0), facts=facts, placement=GCE)


STATED: dict[str, tuple[Cause, str, Fact]] = {
    "state-preempted": (Cause.PREEMPTED, "free_elsewhere", ("platform.state", "PREEMPTED", "provider")),
    "state-node-failed": (Cause.HOST_ERROR, "free_elsewhere", ("platform.state", "NODE_FAIL", "provider")),
    "state-restarted": (
        Cause.HOST_REBOOTED,
        "free_same",
        ("platform.message", "compute.instances.automaticRestart", "provider"),
    ),
    "state-cancelled": (Cause.MACHINE_DELETED, "free_same", ("platform.state", "CANCELLED by 1000", "provider")),
    "state-timeout": (Cause.TIME_LIMIT, "free_same", ("platform.state", "TIMEOUT", "provider")),
    "state-evicted": (
        Cause.DISK_FULL,
        "once_after_repair",
        ("platform.message", "The node was low on resource: ephemeral-storage.", "provider"),
    ),
}


def _stated(name: str) -> Callable[[Variation], Story]:
    """The platform's own word for the state, without a record of the machine's end."""
    cause, retry, fact = STATED[name]

    def tell(drawn: Variation) -> Story:
        drawn.train()
        end = (None, 9, 15)[drawn.seed % 3]
        return Story(Expected(cause.value, "RECORD", "certain", retry, "machine"), number=end, facts=(fact,), placement=SLURM,
                     pages="slurm.schedmd.com: job_state_codes.html")  # fmt: skip

    return tell


WEAK: dict[Cause, tuple[str, str]] = {
    Cause.DISK_FULL: ("its disk was full", "once_after_repair"),
    Cause.EXPIRED: ("the machine reached its maxRunDuration", "free_same"),
    Cause.KILLED: ("the job was signaled: 9", "free_same"),
    Cause.ORPHANED: ("the machine is gone", "once_identical"),
    Cause.AGENT_LOST: ("the container is gone", "once_identical"),
    Cause.UNKNOWN: ("it has failed, and no reason is given", "once_identical"),
    Cause.GPU_UNAVAILABLE: ("its node has no healthy GPU for it", "free_elsewhere"),
    Cause.IMAGE_ERROR: ("the image cannot be pulled: manifest unknown", "never"),
    Cause.LAUNCH_REJECTED: ("JobHeldAdmin: an administrator holds it", "never"),
}


def _weakly_recorded(cause: Cause) -> Callable[[Variation], Story]:
    words, retry = WEAK[cause]

    def tell(drawn: Variation) -> Story:
        drawn.train()
        answer = Expected(cause.value, "RECORD", "certain", retry, "machine")
        return Story(answer, record=record(cause, words), placement=SLURM, agent=False)

    return tell


def _failed_beside(cause: Cause) -> Callable[[Variation], Story]:
    """A record that does not say that the machine went away explains nothing where the command failed by itself."""

    def tell(drawn: Variation) -> Story:
        drawn.train()
        drawn.error("IndexError: list index out of range")
        return Story(not_(USER_ERROR, "RECORD"), code=1, record=record(cause, WEAK[cause][0]), placement=SLURM)

    return tell


MECHANISMS = (
    *(
        Mechanism(cause.value.replace("_", "-"), _recorded(cause), 5 if RECORDED[cause][1] == "none" else 3)
        for cause in RECORDED
    ),
    *(Mechanism(f"not-{cause.value.replace('_', '-')}-but-its-own", _failed_after_all(cause), 1) for cause in RECORDED),
    *(Mechanism(name, _stated(name), 3) for name in STATED),
    *(Mechanism(f"left-{word.replace('_', '-')}", _left(word), 5) for word in LEFT),
    *(Mechanism(f"record-{cause.value.replace('_', '-')}", _weakly_recorded(cause), 3) for cause in WEAK),
    *(Mechanism(f"not-record-{cause.value.replace('_', '-')}", _failed_beside(cause), 1) for cause in WEAK),
    Mechanism("metric-stops", metric_stops, 5),
    Mechanism("not-metric-stops", stopped_with_nan, 3),
    Mechanism("by-the-agent", ended_by_the_agent, 5),
    Mechanism("not-superseded", superseded_by_a_preemption, 6),
    Mechanism("not-after-the-last-step", stopped_after_the_last_step, 2),
    Mechanism("not-done", stopped_and_left_with_0, 2),
    Mechanism("not-done-but-over", left_with_0, 3),
    Mechanism("not-stalled-but-over", stood_while_its_session_ended, 4),
    Mechanism("not-waiting-any-more", waited_once_and_failed, 4),
    Mechanism("not-the-platforms-word", platform_speaks_later, 12),
    Mechanism("not-another-end", platform_speaks_of_another_end, 5),
)
