"""Signs in the words of the command: hits of the log's patterns, its last line, the exception that began its end."""

from __future__ import annotations

import re
from collections.abc import Iterable

from supervisor.contract import heartbeat
from supervisor.contract.signs import Hit
from supervisor.domain.diagnosis.evidence import Evidence, Source
from supervisor.domain.diagnosis.verdict import Quote
from supervisor.lifecycle.diagnosis.rule import Match, Sign
from supervisor.lifecycle.diagnosis.signs import contains, failed, text_of
from supervisor.wording.figures import plural

_ABOUT_A_FILE = re.compile(r"(?:^|[\s\])])(?!\w*error)[a-z][\w.+-]{0,30}: .{0,120}/[^\s:]{1,200}(?!:\d).{0,80}: \S")
_OF_A_WORKER = ("killed", "SIGKILL", "BrokenProcessPool", "worker", "exited unexpectedly", "memory")


def quoted_hit(hit: Hit) -> Quote:
    return Quote(hit.pattern, hit.line, Source.LOG, hit.last_up_s)


def _sorted(hits: Iterable[Hit]) -> list[Hit]:
    return sorted(hits, key=lambda hit: (hit.offset, hit.pattern, hit.line))


def cause_is(*patterns: str) -> Sign:
    """The words with which the command ended are of one of these patterns. Words before which the training went on,
    that were caught, that only report the failure of another process, or that belong to the teardown are never those
    (contract/logs/matcher.beginning)."""

    def find(evidence: Evidence) -> Match | None:
        if not any(item.value in patterns for item in evidence.items.get("error.pattern", ())):
            return None
        line = evidence.error or (evidence.exit.last_line if evidence.exit is not None else "")
        return Match({"line": line}, (Quote("error", line, Source.LOG),))

    return Sign(f"the command ended with words of {' or '.join(patterns)}", find, no="it did not end with such words")


def _other_error(evidence: Evidence) -> Match | None:
    """An exception with words of its own began the end. An agent that sends no signs has only its last telling
    line."""
    own = evidence.items.get("error.pattern", ())
    error = evidence.error or (evidence.exit.last_line if evidence.exit is not None else "")
    if "Error" not in error or any(word in error for word in _OF_A_WORKER):
        return None
    return Match({"error": error}) if own or ":" in error else None


OTHER_ERROR = Sign("the command ended with an error of its own: {error}", _other_error)


def _names_a_file(evidence: Evidence) -> Match | None:
    """The last words are those of a tool about a file, in any language: `cp: … '/work/results/a': …`. No exception and
    no words that are known began the end."""
    end = evidence.exit
    if end is None or evidence.error or evidence.items.get("error.pattern"):
        return None
    return failed(evidence) if _ABOUT_A_FILE.search(end.last_line) else None


NAMES_A_FILE = Sign("its last words are about a file", _names_a_file, no="its last words are not about a file")


def has_hit(*patterns: str) -> Sign:
    """Words of one of these patterns, whenever they came."""

    def find(evidence: Evidence) -> Match | None:
        hits = [hit for hit in _sorted(evidence.hits) if hit.pattern in patterns]
        return Match({"line": hits[-1].line, "pattern": hits[-1].pattern}, (quoted_hit(hits[-1]),)) if hits else None

    return Sign(f"the log has words of {' or '.join(patterns)}", find, no="the log has no such words")


def steps_after(*patterns: str) -> Sign:
    def find(evidence: Evidence) -> Match | None:
        hits = [hit for hit in _sorted(evidence.hits) if hit.pattern in patterns]
        survived = [hit for hit in hits if hit.steps_after]
        if not survived or len(survived) < len(hits):
            return None
        return Match({"steps": plural(survived[-1].steps_after or 0, "step")})

    return Sign("the training made {steps} after these words", find)


def error_is_other(*words: str) -> Sign:
    """The exception that began the end has none of these words. Errors that only report another process do not
    count."""

    def find(evidence: Evidence) -> Match | None:
        error = evidence.error
        if not error or contains(error, words) or any(word in error for word in heartbeat.LAUNCHER_WORDS):
            return None
        return Match({"error": error}, (Quote("error", error, Source.LOG),))

    return Sign("the command ended with another error: {error}", find)


def error_says(*words: str) -> Sign:
    """The exception that began the end, or the last line where there is none, has one of these words."""

    def find(evidence: Evidence) -> Match | None:
        end = evidence.exit
        line = evidence.error or (end.last_line if end is not None else "")
        if not line or not contains(line, words):
            return None
        return Match({"error": line, "line": line}, (Quote("error", line, Source.LOG),))

    return Sign(f"the error says {words[0]}", find, no="the error does not say so")


def _environment(evidence: Evidence) -> Match | None:
    """Which environment has the module, or which one the spec wanted."""
    has, wanted = text_of(evidence, "env.has_module"), text_of(evidence, "env.wanted")
    active = text_of(evidence, "env.conda") or text_of(evidence, "env.venv")
    if has:
        return Match({"environment": has})
    if not wanted or active.rstrip("/").rpartition("/")[2] == wanted.rstrip("/").rpartition("/")[2]:
        return None
    return Match({"environment": wanted})


MODULE_IS_ELSEWHERE = Sign(
    "another environment has the module", _environment, ("env.has_module", "env.wanted"), "no other environment has it"
)
