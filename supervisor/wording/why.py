"""Why an attempt ended, in words: the headline, the answer to "was it restarted", and rows of evidence and remedies.

The rules (lifecycle/diagnosis) decide what an end means; a verdict is only worded here. The functions of the first part
take values of the domain and make the sentences that the API sends. Those of the second part take the API's JSON and
make rows, (label, text), the same in a terminal and on a page. Texts from outside are not changed here: the terminal
and the page make them harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from supervisor.domain.attempt import Attempt
from supervisor.domain.causes import SAME_FAILURE, UNANSWERED, Cause, Kind
from supervisor.domain.diagnosis.evidence import Source
from supervisor.domain.diagnosis.verdict import Certainty, Retry, Verdict
from supervisor.domain.run import Run
from supervisor.domain.status import TERMINAL, Status
from supervisor.wording.attempt import Row, cost_of, listed, mapping
from supervisor.wording.figures import age_text, clip, ended, plural, step_text
from supervisor.wording.forecast import needs_person

QUOTE_LIMIT = 160  # characters of the one quote in a message
_SOURCES = {"own": "supervisor", "provider": "platform"}  # the others are words already
REJECTED_SHOWN = 1
_DOUBTED = (None, Cause.KILLED, Cause.UNKNOWN)  # causes that another one is easily taken for
PAGES = "docs/causes"
EVIDENCE = "evidence"  # the label of the quotes
SAID = ("verdict", "acted on", "fuller")  # labels of what ended it, before the quotes
SEPARATOR = " \N{MIDDLE DOT} "
# The work or a limit of the run ended it: no rule is needed to explain that.
OWN_ENDS = frozenset(
    {
        Cause.FINISHED, Cause.STOP_REQUESTED, Cause.DEADLINE, Cause.MAX_RUNTIME, Cause.BUDGET, Cause.LIMIT_REACHED,
        Cause.NO_PROGRESS, Cause.RESULTS_UNVERIFIED, Cause.SUPERSEDED,
    }
)  # fmt: skip
_WORK_DONE = frozenset({Status.FINISHING, Status.AWAITING_TEARDOWN, Status.COMPLETED, Status.PARTIAL})
# One sentence for each, as on its page in docs/causes.
CAUSE_MEANINGS: Mapping[Cause, str] = {
    Cause.PREEMPTED: "The platform took its spot machine back.",
    Cause.HOST_ERROR: "The computer that carried the machine failed.",
    Cause.HOST_REBOOTED: "The computer was rebooted under the run.",
    Cause.EXPIRED: "The machine reached the lifetime that the supervisor gave it.",
    Cause.TIME_LIMIT: "A time limit of the platform or of the computer ended the command.",
    Cause.MACHINE_DELETED: "The machine was deleted from outside, without a stop of the run.",
    Cause.SUPERSEDED: "The agent stopped, because the run belongs to another attempt, or to none any more; or a run "
    "left a throttled GPU (`on_slow: move`), or changed between spot and on-demand for its deadline.",
    Cause.RACE_LOST: "Another zone gave its machine first (`race: 2`). Only a request for a machine ends so.",
    Cause.CUT_OFF: "The agent reached neither the object store nor the supervisor, and stopped itself.",
    Cause.YIELDED: "It gave its machine to a run of a higher priority, after a save.",
    Cause.NO_CAPACITY: "No machine was available.",
    Cause.QUOTA: "The quota of the account allows no such machine.",
    Cause.QUOTA_HOURS: "The hours that the platform lends are used up until the next week of its quota begins.",
    Cause.LAUNCH_REJECTED: "The platform refused the request for a machine.",
    Cause.QUEUED: "The capacity is used by other machines of this supervisor.",
    Cause.GROUP_LIMIT: "Other runs of the group come first.",
    Cause.MACHINE_LIMIT: "A limit of the settings is reached: other runs have as many machines as it allows.",
    Cause.DEPENDENCY: "Runs that come before this one are not completed yet.",
    Cause.DEPENDENCY_FAILED: "A run that comes before this one was not completed.",
    Cause.ORPHANED: "The machine is gone without a record of why, and its beats have stopped.",
    Cause.AGENT_LOST: "The machine is up, but its agent stopped responding.",
    Cause.GPU_FAULT: "A GPU failed: it is lost, or its error is one of the hardware.",
    Cause.GPU_UNAVAILABLE: "The machine does not have the GPUs that its shape promises.",
    Cause.BOOT_TIMEOUT: "The machine did not report within the time for its boot.",
    Cause.STALLED: "The training made no progress any more.",
    Cause.HOST_OOM: "The kernel killed a process of the run for main memory. GPU memory is another matter.",
    Cause.DISK_FULL: "A disk ran out of bytes or of inodes.",
    Cause.KILLED: "A signal from outside ended the command, and the supervisor did not send it.",
    Cause.UNKNOWN: "The attempt ended, and no rule explains it.",
    Cause.USER_ERROR: "The command failed by itself: the same code would fail again.",
    Cause.GPU_OOM: "The command asked for more GPU memory than the card had free.",
    Cause.IMAGE_ERROR: "The image could not be pulled or started.",
    Cause.SETUP_FAILED: "The commands of `setup` failed, so the command itself was not started.",
    Cause.COMMAND_NOT_FOUND: "The command does not exist on the machine, or cannot be run there.",
    Cause.RESUME_IGNORED: "The command started over beside the checkpoint that was restored for it, and was ended.",
    Cause.FINISHED: "The command did its work.",
    Cause.DEADLINE: "The deadline of the run has passed.",
    Cause.MAX_RUNTIME: "The training time of the run is used up.",
    Cause.BUDGET: "The budget of the run is spent.",
    Cause.LIMIT_REACHED: "The run reached its limit of attempts.",
    Cause.NO_PROGRESS: "Several attempts in a row ended without a newer checkpoint.",
    Cause.RESULTS_UNVERIFIED: "The command succeeded, but its results could not be verified in the object store.",
    Cause.STOP_REQUESTED: "A person or a program stopped the run.",
}
# Why the same would happen again.
_AGAIN: Mapping[Cause, str] = {
    Cause.HOST_OOM: "the same configuration would be killed again",
    Cause.GPU_OOM: "the same configuration would run out of GPU memory again",
    Cause.USER_ERROR: "the same code would fail again",
    Cause.SETUP_FAILED: "the same setup would fail again",
    Cause.COMMAND_NOT_FOUND: "the same command could not be started again",
    Cause.RESUME_IGNORED: "the same code would start over again",
    Cause.IMAGE_ERROR: "the same image would fail again",
    Cause.DISK_FULL: "a new machine would fill up at the same place",
    Cause.LAUNCH_REJECTED: "the same request would be refused again",
}
_ALWAYS_AGAIN = "another attempt would end the same way"
# What the supervisor does after such an end. For a verdict without a run (`spot diagnose`).
RETRIES: Mapping[Retry, str] = {
    Retry.FREE_ELSEWHERE: "yes, in another zone or shape; it counts as no failure",
    Retry.FREE_SAME: "yes, at the same place; it counts as no failure",
    Retry.ONCE_AFTER_REPAIR: "once, after a repair",
    Retry.ONCE_IDENTICAL: "yes, until the same end comes twice",
    Retry.NEVER: "no",
    Retry.ASK: "only when a person agrees",
    Retry.NONE: "nothing ended",
}


def page_of(cause: str | None) -> str | None:
    """The page about a cause, relative to the project's root; None without a cause."""
    return f"{PAGES}/{cause}.md" if cause else None


def headline(name: str, cause: str, certainty: str, restart: str) -> str:
    """'llm-a, attempt 3, ended: host_oom (certain). Restarted? No: …'. `certainty` "" = no rule explains the end;
    `restart` "" = the question does not arise."""
    sure = f" ({certainty})" if certainty else ""
    return f"{name}, ended: {cause}{sure}." + (f" Restarted? {ended(restart)}" if restart else "")


def restart_text(run: Run, attempt: Attempt, following: Attempt | None, retry: Retry | None) -> str:
    """What followed, without a full stop: 'No: the same configuration would be killed again'. "" where the work is
    done. `following`: the next attempt; `retry`: of the verdict, None = there is none."""
    if following is not None:
        return _followed(attempt, following)
    if run.status in _WORK_DONE:
        return ""
    if run.generation > attempt.generation:
        return "Not by itself: the run was resumed, and its next attempt has not started yet"
    if run.status in TERMINAL or run.status == Status.STOPPING:
        return f"No: {_why_not(run, attempt, retry)}"
    if (need := needs_person(run)) and (run.asks or run.person.why):
        return f"Not yet: the run needs you: {clip(need, QUOTE_LIMIT)}"
    if run.status == Status.WAITING:
        return "Not yet: the run waits for a machine"
    return "Yes: the next attempt is being placed"


def _followed(attempt: Attempt, following: Attempt) -> str:
    start = f"attempt {following.number} in {clip(following.placement.zone, 40)}"
    if following.step_from is not None:
        start += f", from {step_text(following.step_from)}"
    if following.generation != attempt.generation:
        return f"Not by itself: a person resumed the run as {start}"
    return f"Yes: as {start}"


def _why_not(run: Run, attempt: Attempt, retry: Retry | None) -> str:
    if run.stop is not None and run.stop.by_metric:
        return "the run's `watch` ends it there, and the same code may diverge again"
    if run.stop is not None:
        return "a stop was requested"
    if run.cause is not None and run.cause != attempt.cause:
        return f"the run ended as {run.cause}"
    cause = attempt.cause or Cause.UNKNOWN
    if cause in OWN_ENDS:
        return f"the run ended as {cause}"
    if run.detail.endswith(f"({SAME_FAILURE})"):
        return "the same exit, last line and step came twice"
    if attempt.has_question:
        return f"{UNANSWERED} in time"
    if retry in (Retry.NEVER, None) or cost_of(attempt, cause).kind == Kind.FINAL:
        return _AGAIN.get(cause, _ALWAYS_AGAIN)
    return "the run reached its limit of such ends"


def offline_headline(name: str, verdict: Verdict) -> str:
    """For files without a run: 'train.log: host_oom (certain). Would a supervisor restart it? No: …'."""
    if verdict.cause is None:
        return f"{name}: {ended(verdict.sentence)}"
    retry = RETRIES[verdict.retry]
    why = f": {_AGAIN.get(verdict.cause, _ALWAYS_AGAIN)}" if verdict.retry == Retry.NEVER else ""
    return f"{name}: {verdict.cause}{_sure(verdict)}. Would it be restarted? {retry[:1].upper()}{retry[1:]}{why}."


def _sure(verdict: Verdict) -> str:
    return f" ({verdict.certainty})" if verdict.certainty != Certainty.HINT else ""


def announced_facts(verdict: Verdict | None) -> dict[str, str]:
    """What an announcement of an end carries: the rule, how sure it is, and one quote on one line: words of the log
    before figures."""
    if verdict is None or verdict.cause is None:
        return {}
    quotes = sorted(verdict.quotes, key=lambda quote: quote.source != Source.LOG)
    texts = [clip(quoted({"item": quote.item, "text": quote.text}), QUOTE_LIMIT) for quote in quotes if quote.text]
    quote = next(filter(None, texts), "") or clip(verdict.sentence, QUOTE_LIMIT)
    return {"rule": verdict.rule, "certainty": str(verdict.certainty), "quote": quote}


Fields = Mapping[str, Any]
Clock = Callable[[str], str]  # of an RFC 3339 text


def rows(diagnosis: Fields, clock: Clock) -> list[Row]:
    """Below the headline. `diagnosis`: as the API or `spot diagnose` has it."""
    verdict, basis = mapping(diagnosis.get("verdict")), mapping(diagnosis.get("acted_on"))
    detail = str(basis.get("detail") or "")
    if not verdict:
        return [*_texts(EVIDENCE, [detail]), *_finding_rows(diagnosis, clock)]
    if diagnosis.get("revised"):
        sure = f"{verdict.get('cause')} ({verdict.get('certainty')}): {verdict.get('sentence')}"
        first = [("acted on", detail), ("fuller", f"evidence that came later says {sure}")]
    else:
        first = _texts("verdict", [str(verdict.get("sentence") or "")])
    return [
        *first,
        *_texts(EVIDENCE, quote_texts(verdict, clock)),
        *_remedy_rows(verdict),
        *_texts("not this", _rejections(verdict)),
        *_texts("nearest", [_hint_text(item) for item in _dicts(verdict, "hints")]),
        *_texts("not read", [f"{item.get('name')}: {item.get('why')}" for item in _dicts(diagnosis, "unread")]),
        *_finding_rows(diagnosis, clock),
    ]


def _texts(label: str, texts: Iterable[str]) -> list[Row]:
    """One row of all texts, none without any."""
    text = SEPARATOR.join(filter(None, texts))
    return [(label, text)] if text else []


def quote_texts(verdict: Fields, clock: Clock) -> list[str]:
    """'oom.kills: 1 at 03:12:07 (agent, memory.events)', one for each quote."""
    return [f"{quoted(quote)}{_when(quote, clock)} ({source_text(quote)})" for quote in quotes_of(verdict)]


def quotes_of(verdict: Fields) -> list[Fields]:
    """Each text once: an exit and a hit of the log may quote the same line, or a part of it."""
    kept: list[Fields] = []
    for quote in _dicts(verdict, "quotes"):
        if not any(quoted(quote) in quoted(other) for other in kept):
            kept.append(quote)
    return kept


def quoted(quote: Fields) -> str:
    """A line as it is; a bare value with the name of what was observed."""
    name, text = str(quote.get("item") or ""), str(quote.get("text") or "")
    return f"{name}: {text}" if "." in name else text


def source_text(quote: Fields) -> str:
    """'agent, memory.events': who saw it, and where. What the supervisor noted itself has its text as the place."""
    source, where = str(quote.get("source") or "?"), str(quote.get("where") or "")
    return ", ".join(filter(None, [_SOURCES.get(source, source), "" if where == quote.get("text") else where]))


def moment_text(quote: Fields, clock: Clock) -> str:
    """The time of day, or how long after the agent's start; "" = not known."""
    if quote.get("at"):
        return clock(str(quote["at"]))
    up_s = quote.get("up_s")
    return f"{age_text(up_s)} after the agent's start" if isinstance(up_s, int | float) else ""


def _when(quote: Fields, clock: Clock) -> str:
    text = moment_text(quote, clock)
    return f" at {text}" if text and quote.get("at") else f", {text}" if text else ""


def _remedy_rows(verdict: Fields) -> list[Row]:
    remedies = _dicts(verdict, "remedies")
    advice = [_remedy_text(remedy) for remedy in remedies if not remedy.get("ours")]
    ours = [_remedy_text(remedy) for remedy in remedies if remedy.get("ours")]
    return [*_texts("by us", ours), *_texts("remedy", advice)]


def _remedy_text(remedy: Fields) -> str:
    text, setting = str(remedy.get("text") or "").rstrip("."), str(remedy.get("setting") or "")
    return f"{text} (`{setting}`)" if setting and " " not in setting and setting not in text else text


def _rejections(verdict: Fields) -> list[str]:
    """'host_oom (the counter stood still)', one for each other cause; where the cause explains itself, none."""
    reasons: dict[str, str] = {}
    if verdict.get("cause") not in _DOUBTED:
        return []
    for item in _dicts(verdict, "rejected"):
        cause = str(item.get("cause") or "")
        if cause and cause != verdict.get("cause"):
            reasons.setdefault(cause, f"{cause} ({item.get('why')})")
    return list(reasons.values())[:REJECTED_SHOWN]


def _hint_text(hint: Fields) -> str:
    """'host_oom (rule U9.memory)'."""
    cause = hint.get("cause")
    return f"{cause} (rule {hint.get('rule')})" if cause else f"rule {hint.get('rule')}"


def _finding_rows(diagnosis: Fields, clock: Clock) -> list[Row]:
    """Of an attempt that goes on: what was noticed. A finding never acts."""
    found_rows: list[Row] = []
    for finding in _dicts(diagnosis, "findings"):
        found_rows += _texts("notice", [str(finding.get("sentence") or ""), *quote_texts(finding, clock)])
        found_rows += _remedy_rows(finding)
    return found_rows


def rule_text(verdict: Fields) -> str:
    """'[rule U9 · docs/causes/host_oom.md]'; "" where no rule matched."""
    rule, page = str(verdict.get("rule") or ""), str(verdict.get("page") or "")
    return f"[{SEPARATOR.join(filter(None, [f'rule {rule}', page]))}]" if rule else ""


def findings_text(run: Run, findings: int) -> str:
    """The end of the headline of an attempt that goes on. Findings never act, but settings of the spec may."""
    acts = "none of them acts"
    if run.stop is not None and run.stop.by_metric:
        acts = "`nan: stop` acts"
    elif run.moving.after_step is not None:
        acts = "`on_slow: move` acts"
    return f"{plural(findings, 'finding')}; {acts}" if findings else "Nothing unusual was noticed"


def _dicts(fields: Fields, name: str) -> list[Fields]:
    return [mapping(value) for value in listed(fields.get(name))]
