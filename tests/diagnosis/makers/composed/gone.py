"""Ends from outside: the platform's records, signals, closed sessions, time limits; and what only looks like them."""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.causes import Cause
from tests.diagnosis.makers.answers import (
    ALIVE,
    HANGUP,
    HOST_ERROR,
    KILLED,
    MACHINE_DELETED,
    PREEMPTED,
    REBOOTED,
    STOPPED,
    TIME_LIMIT,
    USER_ERROR,
    not_,
)
from tests.diagnosis.makers.documents import NOW
from tests.diagnosis.makers.situations import GCE, SLURM, Mechanism, Story, memory, record
from tests.diagnosis.makers.variations import Variation

EVENTS = "cloud.google.com: compute/docs/logging/activity-logs, system events of instances"
SLURM_STATES = "slurm.schedmd.com: job_state_codes.html; slurmstepd's own lines"


def preempted(drawn: Variation) -> Story:
    drawn.train()
    kept = record(
        Cause.PREEMPTED,
        drawn.pick(
            "Google preempted the machine", "a pod with a higher priority took its place", "PREEMPTED: it was preempted"
        ),
    )
    end = ((None, 9), (None, 15), (143, None), (None, None))[drawn.seed % 4]
    return Story(PREEMPTED, code=end[0], number=end[1], record=kept, placement=GCE, pages=EVENTS)


def preempted_breaks_first(drawn: Variation) -> Story:
    """The machine that goes away breaks connections first: the command ends with an error of its own."""
    drawn.train()
    drawn.error(drawn.pick(
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1333, remote process exited or there was a network error",
        "requests.exceptions.ConnectionError: ('Connection aborted.', RemoteDisconnected('Remote end closed connection without response'))",
        "BrokenPipeError: [Errno 32] Broken pipe",
    ))  # fmt: skip
    kept = record(Cause.PREEMPTED, "Google preempted the machine", 3.0)
    return Story(not_(PREEMPTED, "CODE"), code=1, record=kept, placement=GCE, pages=EVENTS)


def host_error(drawn: Variation) -> Story:
    drawn.train()
    kept = record(
        Cause.HOST_ERROR,
        drawn.pick("the machine's host failed", "the machine's host went into maintenance", "NODE_FAIL: a node failed"),
    )
    return Story(HOST_ERROR, record=kept, placement=GCE, agent=False, pages=EVENTS)


def deleted(drawn: Variation) -> Story:
    drawn.train()
    kept = record(Cause.MACHINE_DELETED, "deleted by admin@example.com")
    return Story(MACHINE_DELETED, record=kept, placement=GCE, agent=False, pages=EVENTS)


def rebooted(drawn: Variation) -> Story:
    drawn.train()
    kept = None if drawn.seed % 2 else record(Cause.HOST_REBOOTED, "Google restarted the machine")
    facts = (
        ("boot.id_start", "b0070000-0000-4000-8000-000000000000", "host"),
        ("boot.id_now", "b0080000-0000-4000-8000-000000000000", "host"), ("boot.uptime_s", 41.0, "host"),
    )  # fmt: skip
    return Story(REBOOTED, record=kept, facts=facts, placement=GCE, agent=False, reboot=True, pages=EVENTS)


def hang_up(drawn: Variation) -> Story:
    drawn.train()
    if drawn.seed % 2:
        drawn.say("Hangup")
    facts = (("contact.closed", round(drawn.draw.uniform(0.2, 4.0), 1), "host"),)
    return Story(HANGUP, number=1, facts=facts, telemetry=memory(drawn, 0.3))


def killed(drawn: Variation) -> Story:
    drawn.train()
    return Story(KILLED, number=(9, 15)[drawn.seed % 2], telemetry=memory(drawn, 0.4))


def slurm_limit(drawn: Variation) -> Story:
    drawn.train()
    drawn.say(
        f"slurmstepd: error: *** JOB {41000 + drawn.seed} ON node017 CANCELLED AT 2026-03-01T12:00:00 DUE TO TIME LIMIT ***"
    )
    facts = (("platform.state", "TIMEOUT", "provider"),)
    kept = record(Cause.TIME_LIMIT, "TIMEOUT: it reached its time limit")
    return Story(
        TIME_LIMIT, number=(15, 9)[drawn.seed % 2], record=kept, facts=facts, placement=SLURM, pages=SLURM_STATES
    )


def slurm_preempted(drawn: Variation) -> Story:
    drawn.train()
    drawn.say(
        f"slurmstepd: error: *** JOB {41000 + drawn.seed} ON node017 CANCELLED AT 2026-03-01T12:00:00 DUE TO PREEMPTION ***"
    )
    facts = (("platform.state", "PREEMPTED", "provider"),)
    kept = record(Cause.PREEMPTED, "PREEMPTED: it was preempted")
    return Story(
        replace(PREEMPTED, rule="SLURM2"), number=15, record=kept, facts=facts, placement=SLURM, pages=SLURM_STATES
    )


def session_over(drawn: Variation) -> Story:
    """A notebook session at its cap: the beats stop, and the platform lists it no more."""
    drawn.train()
    cap = drawn.draw.choice((9.0, 12.0)) * 3600
    facts = (
        ("session.age_s", round(cap * drawn.draw.uniform(0.93, 1.01)), "provider"), ("session.cap_s", cap, "provider"),
        ("session.listed", False, "provider"),
    )  # fmt: skip
    return Story(replace(TIME_LIMIT, rule="NB5", certainty="likely"), facts=facts, agent=False, cause=Cause.AGENT_LOST,
                 detail="no beats for 400 s", pages="kaggle.com/docs/notebooks: session limits")  # fmt: skip


def session_taken(drawn: Variation) -> Story:
    drawn.train()
    facts = (
        ("session.age_s", round(12 * 3600 * drawn.draw.uniform(0.1, 0.6)), "provider"), ("session.cap_s", 12 * 3600.0, "provider"),
        ("session.listed", False, "provider"),
    )  # fmt: skip
    return Story(replace(PREEMPTED, rule="NB5", certainty="likely"), facts=facts, agent=False, cause=Cause.AGENT_LOST,
                 detail="no beats for 400 s", pages="googlecolab/google-colab-cli: docs")  # fmt: skip


def notice(drawn: Variation) -> Story:
    drawn.train()
    return Story(
        PREEMPTED,
        number=15,
        sent_by_us=True,
        signals_sent=(15,),
        left="noticed",
        notice_s=drawn.draw.uniform(1, 25),
        placement=GCE,
    )


# --- look-alikes ------------------------------------------------------------------------------------------------------


def own_end_over_ssh(drawn: Variation) -> Story:
    """SSH exits with 255 within seconds after our own kill."""
    drawn.train()
    facts = (("own.stop", True, "own", NOW - 4), ("own.kill", True, "own", NOW - 4), ("contact.closed", 3.0, "host"))
    return Story(not_(STOPPED, "U1", "U3"), number=9, sent_by_us=True, left="stopped", signals_sent=(9,), facts=facts)


def same_boot(drawn: Variation) -> Story:
    """The computer was started minutes ago, but it is the same boot: the code failed."""
    drawn.train(2)
    drawn.error("ValueError: could not convert string to float: 'n/a'")
    boot = "b0070000-0000-4000-8000-000000000000"
    facts = (("boot.id_start", boot, "host"), ("boot.id_now", boot, "host"), ("boot.uptime_s", 180.0, "host"))
    return Story(not_(USER_ERROR, "GEN6"), code=1, facts=facts)


def failed_long_before(drawn: Variation) -> Story:
    """The command had failed two hours before the platform took the machine."""
    drawn.train()
    drawn.error("KeyError: 'lr'")
    facts = (("exit.at", NOW - 7200, "own", NOW - 7200),)
    kept = record(Cause.PREEMPTED, "Google preempted the machine", 5.0)
    return Story(not_(USER_ERROR, "U3"), code=1, record=kept, facts=facts, placement=GCE, pages=EVENTS)


def not_reached(drawn: Variation) -> Story:
    """The machine could not be reached for a while; beats arrive in the store."""
    drawn.train()
    return Story(not_(ALIVE, "GEN8", "U3"), facts=(("motion.cpu", True, "agent"),), telemetry=memory(drawn, 0.4))


def ended_by_its_launcher(drawn: Variation) -> Story:
    drawn.train()
    drawn.error("ValueError: bad sample 817 in shard 3")
    drawn.say(
        "W1126 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 4712 closing signal SIGTERM",
        "E1126 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 4711) of binary: /opt/python/bin/python",
    )
    return Story(not_(USER_ERROR, "U3"), code=1)


MECHANISMS = (
    Mechanism("preempted", preempted, 8),
    Mechanism("host-error", host_error, 5),
    Mechanism("deleted", deleted, 5),
    Mechanism("rebooted", rebooted, 6),
    Mechanism("hang-up-closed", hang_up, 6),
    Mechanism("killed-by-another", killed, 6),
    Mechanism("slurm-limit", slurm_limit, 5),
    Mechanism("slurm-preempted", slurm_preempted, 5),
    Mechanism("session-over", session_over, 5),
    Mechanism("session-taken", session_taken, 5),
    Mechanism("noticed", notice, 5),
    Mechanism("not-the-codes-error", preempted_breaks_first, 8),
    Mechanism("not-ssh-255", own_end_over_ssh, 5),
    Mechanism("not-another-boot", same_boot, 4),
    Mechanism("not-the-record", failed_long_before, 5),
    Mechanism("not-unreachable", not_reached, 4),
    Mechanism("not-its-launcher", ended_by_its_launcher, 4),
)
