"""The words about an attempt that is over: one phrase for each cause, what the end counts as, and two tables of rows.

`ending.py` decides how an attempt ends; this file only words it, for the sentence of a recovering run and the table of
attempts. The rows are (label, text), the same in a terminal and on a page: the evidence (why it ended) and the facts
(what it ran on). The agent's part of both is not trusted: fields may be missing or of another type. Texts from outside
are not changed here: the terminal and the page make them harmless.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from supervisor.domain.attempt import Attempt
from supervisor.domain.causes import DELIVERED_AGAIN, LARGER_SHAPE, REPAIRED, Cause, CauseRule, Kind, rule_for
from supervisor.domain.run import Run
from supervisor.wording.figures import DASH, after_colon, age_text, clip, count, count_text, gib_text, plural

Fields = Mapping[str, Any]
Row = tuple[str, str]

EVIDENCE_LIMIT = 120
FACT_CHARS = 300
_GOES_ON = (LARGER_SHAPE, DELIVERED_AGAIN, REPAIRED)  # without one of these, such an end is the run's last
NONE = "none"
# {zone} and {ran} are filled in; the words of the platform or the agent follow after a colon.
PHRASES: Mapping[Cause, str] = {
    Cause.PREEMPTED: "Preempted in {zone} after {ran}",
    Cause.HOST_ERROR: "The host of the machine in {zone} failed after {ran}",
    Cause.HOST_REBOOTED: "The machine in {zone} was rebooted after {ran}",
    Cause.EXPIRED: "The machine in {zone} reached its maximum lifetime after {ran}",
    Cause.TIME_LIMIT: "A time limit of the platform ended the command in {zone} after {ran}",
    Cause.MACHINE_DELETED: "The machine in {zone} was deleted from outside after {ran}, without a stop of the run",
    Cause.RACE_LOST: "Another zone gave its machine before {zone}, after {ran}",
    Cause.SUPERSEDED: "The agent in {zone} stopped after {ran}, because it no longer held the run",
    Cause.CUT_OFF: "The agent in {zone} stopped itself after {ran}: it reached neither the store nor the supervisor",
    Cause.YIELDED: "The run gave its machine in {zone} to a run of a higher priority after {ran}",
    Cause.NO_CAPACITY: "No machine was available in {zone}",
    Cause.QUOTA: "The quota allows no machine in {zone}",
    Cause.QUOTA_HOURS: "The platform lends no more hours in {zone} now",
    Cause.LAUNCH_REJECTED: "The start on the machine in {zone} was refused after {ran}",
    Cause.QUEUED: "Our own machines used the capacity in {zone}",
    Cause.GROUP_LIMIT: "Other runs of its group came first",
    Cause.MACHINE_LIMIT: "Other runs used all machines of a limit",
    Cause.DEPENDENCY: "Runs that come before it were not completed yet",
    Cause.DEPENDENCY_FAILED: "A run that comes before it was not completed",
    Cause.ORPHANED: "The machine in {zone} disappeared after {ran} without a record of why, and its beats stopped",
    Cause.AGENT_LOST: "The machine in {zone} is up, but its agent stopped responding after {ran}",
    Cause.GPU_FAULT: "The GPU in {zone} failed after {ran}",
    Cause.GPU_UNAVAILABLE: "The machine in {zone} did not show all its GPUs within {ran}",
    Cause.BOOT_TIMEOUT: "The machine in {zone} sent no heartbeat within {ran}",
    Cause.STALLED: "Stalled in {zone} after {ran}",
    Cause.HOST_OOM: "The machine in {zone} ran out of memory after {ran}",
    Cause.DISK_FULL: "The disk of the machine in {zone} was full after {ran}",
    Cause.KILLED: "The command in {zone} was killed from outside after {ran}",
    Cause.UNKNOWN: "The attempt in {zone} ended after {ran} for an unknown reason",
    Cause.USER_ERROR: "The command failed in {zone} after {ran}",
    Cause.GPU_OOM: "The GPU in {zone} ran out of memory after {ran}",
    Cause.IMAGE_ERROR: "The image could not be started in {zone}",
    Cause.SETUP_FAILED: "The setup failed in {zone} after {ran}",
    Cause.COMMAND_NOT_FOUND: "The command could not be started in {zone}",
    Cause.RESUME_IGNORED: "The command in {zone} started over beside its checkpoint after {ran}",
    Cause.FINISHED: "The command finished in {zone} after {ran}",
    Cause.DEADLINE: "The run's deadline passed after {ran} in {zone}",
    Cause.MAX_RUNTIME: "The run's training time was used up after {ran} in {zone}",
    Cause.BUDGET: "The run's budget was spent after {ran} in {zone}",
    Cause.LIMIT_REACHED: "The run's limit of attempts was reached after {ran} in {zone}",
    Cause.NO_PROGRESS: "The attempt in {zone} ended after {ran} without a newer checkpoint",
    Cause.RESULTS_UNVERIFIED: "The results could not be verified after {ran} in {zone}",
    Cause.STOP_REQUESTED: "Stopped in {zone} after {ran}",
}
MOVED = "moved at checkpoint "  # an end by `on_slow: move`
_LEFT = "The run left {zone} after {ran}"
# The beginning of the evidence for the end of a session that a platform ends by itself (a machine's record has it): the
# normal life of such a platform. Rows hold it.
SESSION_CAP = "the session ended at its cap"
_AT_CAP = "The session in {zone} ended at its cap after {ran}"
# Causes whose phrase is complete: the events have more from the platform.
_COMPLETE = frozenset({Cause.ORPHANED, Cause.CUT_OFF, Cause.SUPERSEDED})
# Ends that nobody investigates: the command did not cause them.
_UNREMARKABLE = frozenset({"finished", "preempted", "stop_requested", "superseded", "expired", "yielded"})
_SECONDS = re.compile(r"\.\d+(?=Z$)")  # the microseconds of a beat's time tell a reader nothing
# (label, fact), in the order of a methods section; no label: a second line of the row before.
FACTS = (
    ("command", "command"), ("code", "code"), ("revision", "code_revision"), ("commit", "code_git"),
    ("image", "image_digest"), ("python", "python"), ("", "python_executable"), ("conda", "conda_env"),
    ("venv", "virtual_env"), ("torch", "torch"), ("CUDA", "cuda"), ("cuDNN", "cudnn"), ("driver", "driver"),
    ("GPUs", "gpus"), ("packages", "packages"), ("seeds", "seeds"), ("tracker", "tracker_url"), ("CPU", "cpu"),
    ("cores", "cores"), ("memory", "memory_bytes"), ("kernel", "kernel"),
)  # fmt: skip


def ran_s(attempt: Attempt, now: float) -> float:
    """How long the attempt had its machine, in seconds."""
    end = attempt.ended_at if attempt.ended_at is not None else now
    return max(0.0, end - attempt.started_at - attempt.drift_s)


def ended_text(attempt: Attempt, now: float) -> str:
    """One clause without a full stop: 'Preempted in us-east1-c after 2 h 14 min: preempted with 30 s notice'."""
    cause = attempt.cause or Cause.UNKNOWN
    is_moved = cause == Cause.SUPERSEDED and attempt.evidence.startswith(MOVED)
    at_cap = attempt.evidence.startswith(SESSION_CAP)
    phrase = _LEFT if is_moved else _AT_CAP if at_cap else PHRASES[cause]
    phrase = phrase.format(zone=clip(attempt.placement.zone, 40), ran=age_text(ran_s(attempt, now)))
    more = attempt.evidence.removeprefix(SESSION_CAP).lstrip(":;, ")
    evidence = "" if cause in _COMPLETE and not is_moved else after_colon(clip(more, EVIDENCE_LIMIT))
    return f"{phrase}: {evidence}" if evidence else phrase


def end_word(cause: str, evidence: str) -> str:
    """Of the end of an attempt, in a table: its cause, or the plain word for a session at its cap."""
    return "session cap" if evidence.startswith(SESSION_CAP) else cause


def steps_lost(attempt: Attempt, resume_from: int | None) -> int | None:
    """Steps that must be trained again; None where the attempt reported none."""
    return None if attempt.step_last is None else max(0, attempt.step_last - (resume_from or 0))


def kept_text(attempt: Attempt, resume_from: int | None, saving: bool = False) -> str:
    """'checkpoint 12,290 is saved, 10 steps lost'. `saving`: the machine has notice and may still save, so nothing is
    lost yet."""
    lost = steps_lost(attempt, resume_from)
    saved = "no checkpoint yet" if resume_from is None else f"checkpoint {count_text(resume_from)} is saved"
    if lost is None:
        return saved
    if saving and lost > 0:
        return f"{saved}; saving, at most {plural(lost, 'step')} at risk"
    return f"{saved}, {plural(lost, 'step')} lost"


def may_still_save(run: Run, now: float) -> bool:
    """The machine of the last attempt received a preemption notice and runs until then."""
    attempt = run.attempt
    return attempt is not None and any(
        item.launch_id == attempt.launch_id and item.until > now and attempt.cause == Cause.PREEMPTED
        for item in run.retiring
    )


def counts_text(run: Run) -> str:
    """What this end counts as, of a run that goes on: 'Does not count as a failure', or the failures so far and their
    limit."""
    attempt = run.attempt
    if attempt is None or attempt.cause is None:
        return ""
    rule = cost_of(attempt, attempt.cause, _GOES_ON)
    if attempt.free or attempt.has_question or not rule.counts:
        return "Does not count as a failure"
    limits, counters = run.policy.limits, run.counters
    if rule.kind == Kind.USER:
        return f"Failure {counters.user_failures} of {limits.max_user_failures} of the command itself"
    return f"Failure {counters.counted} of {limits.max_attempts}"


def cost_of(attempt: Attempt, cause: Cause, also: Collection[str] = ()) -> CauseRule:
    """The row of the table of causes that this end matches. `also`: further conditions that held."""
    kept, start = attempt.step_kept, attempt.step_from
    newer = kept is not None and (start is None or kept > start)
    return rule_for(cause, newer, attempt.exit is not None and attempt.exit.retry_named, also)


def mapping(value: object) -> Fields:
    return value if isinstance(value, Mapping) else {}


def listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def last_failure(attempts: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The newest attempt that is over, if its end is one to investigate."""
    over = [attempt for attempt in attempts if attempt.get("ended_at") is not None]
    return over[-1] if over and not _is_usual(over[-1]) else None


def _is_usual(attempt: Fields) -> bool:
    """A time limit of the platform is, where the attempt brought a newer checkpoint."""
    cause, kept = attempt.get("cause"), attempt.get("step_kept")
    newer = kept is not None and kept > (attempt.get("step_from") or 0)
    return cause in _UNREMARKABLE or (cause == "time_limit" and newer)


def evidence_rows(kept: Fields) -> list[Row]:
    """Why the attempt ended, at a glance. `kept`: the evidence as the API has it."""
    agent, end = _agent_and_exit(kept)
    return _rows(
        ("why", kept.get("detail")),
        ("exit", _exit_text(end)),
        ("most telling line", end.get("last_line")),
        ("memory", _memory_text(kept, agent, end)),
        ("disk", _disk_text(end, agent)),
        ("agent's reason", agent.get("left")),
    )


def evidence_details(kept: Fields) -> list[Row]:
    """What else is kept, besides the readings, the threads and the end of the log."""
    agent, _ = _agent_and_exit(kept)
    machine, boot = mapping(kept.get("machine")), mapping(agent.get("boot"))
    before = (
        ""
        if boot.get("at_start") == boot.get("now")
        else f"; it was {boot.get('at_start')} at the start: the machine was rebooted"
    )
    return _rows(
        ("last beat", _beat_text(mapping(kept.get("beat")))),
        ("machine", " · ".join(str(machine[name]) for name in ("name", "zone", "shape") if machine.get(name))),
        ("boot", boot and f"{boot.get('now')}{before}"),
        ("signals sent", ", ".join(map(str, listed(agent.get("signals_sent"))))),
        ("agent's part", kept.get("agent_missing") and f"none: {kept['agent_missing']}"),
        ("console", kept.get("console")),
        ("cut to fit", ", ".join(map(str, listed(agent.get("trimmed"))))),
    )


def evidence_readings(kept: Fields) -> list[Row]:
    """What the end of the attempt and the release of its machine rest on: (end or release, source, value and age)."""
    readings = mapping(kept.get("readings"))
    return [(name, str(reading)) for name in ("end", "release") for reading in listed(readings.get(name))]


def thread_stacks(kept: Fields) -> list[tuple[str, list[str]]]:
    """(title, lines) of each process of a stalled attempt: where its threads stood."""
    stall = mapping(mapping(kept.get("agent")).get("stall"))
    return [
        (
            f"threads of process {dump.get('pid')} ({dump.get('how')}): {dump.get('command')}",
            [line for line in str(dump.get("text", "")).splitlines() if line.strip()],
        )
        for dump in map(mapping, listed(stall.get("threads")))
    ]


def telemetry_of(kept: Fields) -> Fields:
    """From the last beat, else from the agent's part."""
    return mapping(mapping(kept.get("beat")).get("telemetry")) or mapping(mapping(kept.get("agent")).get("telemetry"))


def _agent_and_exit(kept: Fields) -> tuple[Fields, Fields]:
    agent = mapping(kept.get("agent"))
    return agent, mapping(kept.get("exit")) or mapping(agent.get("exit"))


def _rows(*rows: tuple[str, object]) -> list[Row]:
    return [(label, str(value)) for label, value in rows if value]


def _exit_text(end: Fields) -> str:
    """`SIGKILL, not sent by us, after 3 min`"""
    if not end:
        return ""
    number, ran = end.get("signal"), end.get("ran_s")
    parts = [f"code {end.get('code')}" if number is None else _signal(number)]
    if number is not None or end.get("sent_by_us"):
        parts.append("sent by us" if end.get("sent_by_us") else "not sent by us")
    if isinstance(ran, int | float):
        parts.append(f"after {age_text(ran)}")
    return ", ".join(parts)


def _signal(number: object) -> str:
    try:
        return signal.Signals(number).name  # type: ignore[arg-type]
    except ValueError:
        return f"signal {number}"


def _memory_text(kept: Fields, agent: Fields, end: Fields) -> str:
    """`kills for memory: 1; 22.5 of 24 GiB at the last beat`"""
    kills, parts = end.get("oom_kills", agent.get("oom_kills")), []
    if isinstance(kills, int):
        parts.append(f"kills for memory: {kills}")
    elif end.get("signal") is not None or end.get("code") == 137:
        parts.append("kills for memory: cannot be counted here")
    group = mapping(telemetry_of(kept).get("cgroup"))
    used, most = group.get("memory_bytes"), group.get("memory_max_bytes")
    if isinstance(used, int | float) and isinstance(most, int | float):
        parts.append(f"{gib_text(used)} of {gib_text(most)} GiB at the last beat")
    return "; ".join(parts)


def _disk_text(end: Fields, agent: Fields) -> str:
    if end.get("disk_full"):
        return f"full: {end['disk_full']}"
    disks = []
    for role, figures in mapping(agent.get("disks")).items():
        free, inodes = mapping(figures).get("free_bytes"), mapping(figures).get("free_inodes")
        if isinstance(free, int | float):
            more = f", {count_text(int(inodes))} inodes" if isinstance(inodes, int | float) else ""
            disks.append(f"{role}: {gib_text(free)} GiB{more} free")
    return "; ".join(disks)


def _beat_text(beat: Fields) -> str:
    if not beat:
        return ""
    step = beat.get("step")
    reached = f", step {count_text(step)}" if isinstance(step, int) else ""
    message = f", {beat['message']}" if beat.get("message") else ""
    return f"{_SECONDS.sub('', str(beat.get('at')))}, phase {beat.get('phase')}{reached}{message}"


def fact_rows(facts: Fields) -> list[Row]:
    """What the attempt ran on; a fact that is unknown says why."""
    reasons, rows = mapping(facts.get("absent")), []
    for label, name in FACTS:
        if name in facts:
            rows.append((label, _named_fact_text(facts, name)))
        elif name in reasons and label:
            rows.append((label, f"not known: {reasons[name]}"))
    return rows


def _named_fact_text(facts: Fields, name: str) -> str:
    value = facts[name]
    if name == "packages":
        number = count(len(value) if isinstance(value, list) else None)
        cut = f"; {facts['packages_note']}" if facts.get("packages_note") else ""
        return f"{number}, sha256 {facts.get('packages_sha256', DASH)}{cut}"
    if name == "seeds" and isinstance(value, Mapping):
        return ", ".join(f"{key}={seed}" for key, seed in value.items()) or NONE
    if name == "memory_bytes" and isinstance(value, int | float):
        return f"{value / 2**30:.1f} GiB"
    if name == "command" and isinstance(value, list):
        return " ".join(map(str, value))
    return fact_text(value) or NONE


def fact_text(value: object) -> str | None:
    """`2 x NVIDIA L4`; None stays None."""
    if value is None:
        return None
    if isinstance(value, list):
        same = len(value) > 1 and len(set(map(str, value))) == 1
        return (f"{len(value)} x {value[0]}" if same else ", ".join(map(str, value)))[:FACT_CHARS] or None
    return str(value)[:FACT_CHARS]


def packages_text(packages: Fields | None, most: int = 5) -> str:
    """'torch 2.3.1 → 2.4.0, added einops==0.8.0, and 2 more'; "" = only the hashes are known to differ. `packages`: as
    lifecycle/evidence/facts.py compares them."""
    if packages is None:
        return ""
    texts = [
        *(_version_text(str(row["was"]), str(row["is"])) for row in packages["changed"]),
        *(f"{word} {line}" for word in ("added", "removed") for line in packages[word]),
    ]
    more = len(texts[most:]) + packages["left_out"]
    return ", ".join([*texts[:most], *([f"and {more} more"] if more else [])])


def _version_text(was: str, now: str) -> str:
    (name, _, old), (same, _, new) = was.partition("=="), now.partition("==")
    return f"{name} {old} → {new}" if old and new and name == same else f"{was} → {now}"
