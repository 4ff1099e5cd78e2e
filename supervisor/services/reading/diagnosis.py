"""What the end of an attempt means: the verdict of the rules on the evidence that was kept, beside what was acted on.

The decision about an end was made from the beat and the platform's record. The document that was kept afterwards may
say more: it explains, and nothing acts on it again. Where no document can be read, that is an error with what the row
says, and never a guess. The rules also judge files without a run (`spot diagnose`), and describe themselves for the
pages of docs/causes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.contract import signs
from supervisor.domain.attempt import Attempt
from supervisor.domain.causes import SAME_FAILURE, Cause
from supervisor.domain.diagnosis.evidence import Evidence
from supervisor.domain.diagnosis.verdict import Certainty, Quote, Retry, Verdict
from supervisor.domain.errors import EvidenceNotFound, FilesPurged, Unavailable
from supervisor.domain.run import Run
from supervisor.lifecycle.diagnosis import reading
from supervisor.lifecycle.diagnosis.diagnose import diagnose, findings
from supervisor.lifecycle.diagnosis.remedies import REMEDIES
from supervisor.lifecycle.diagnosis.rule import Rule
from supervisor.lifecycle.diagnosis.rules.table import LIVING, RULES
from supervisor.lifecycle.evidence.attempt_evidence import Found, compose
from supervisor.services.parts import Parts
from supervisor.services.reading.evidence import attempt_of, differences_of, kept_document
from supervisor.services.reading.queries import Queries
from supervisor.services.views import formats
from supervisor.services.views.run_view import CauseWord
from supervisor.wording import why as words
from supervisor.wording.run import status_text

EPOCH_FROM, EPOCH_TO = 1e9, 4e9  # seconds: a time between is of the calendar, one below is of an agent's clock
UNREAD_SHOWN = 12
# The platform's record and our own acts are not questioned by what a log says.
_ON_RECORD = words.OWN_ENDS | {
    Cause.PREEMPTED,
    Cause.HOST_ERROR,
    Cause.HOST_REBOOTED,
    Cause.EXPIRED,
    Cause.MACHINE_DELETED,
}


class QuoteShown(TypedDict):
    """`text` stands verbatim in its source. `where`: the place in it, "" = not known. `at`: null where its time on the
    supervisor's clock is not known; `up_s`: the same by the agent's clock, since its start."""

    item: str
    text: str
    source: str
    where: str
    at: formats.Time | None
    up_s: float | None


class RemedyShown(TypedDict):
    """`ours`: the supervisor does it by itself; else it is advice. `setting`: what to change, "" = no setting."""

    word: str
    text: str
    ours: bool
    setting: str


class RejectedRule(TypedDict):
    rule: str
    cause: CauseWord
    why: str


class NearRule(TypedDict):
    rule: str
    cause: CauseWord


class VerdictShown(TypedDict):
    """`certainty`: certain, likely or hint. `where`: ours, place, machine, card, image, code, data, account or unknown.
    `goes_on`: it can go on without a change of the code; null: not known. `rejected`: rules that nearly apply, and why
    they do not. `hints`: without a cause, the nearest rules. `page`: about the cause, in the project's documentation.
    Clients must accept words that they do not know."""

    rule: str
    certainty: str
    cause: CauseWord
    where: str
    goes_on: bool | None
    retry: str
    sentence: str
    quotes: list[QuoteShown]
    remedies: list[RemedyShown]
    rejected: list[RejectedRule]
    hints: list[NearRule]
    page: str | None


class UnreadShown(TypedDict):
    """What could not be read, and why: it would have told more."""

    name: str
    why: str


class ActedOn(TypedDict):
    """What the attempt's end was taken for when it was decided. `rule` null: no rule was needed for it."""

    cause: CauseWord
    detail: str
    rule: str | None
    certainty: str | None


class Diagnosis(TypedDict):
    """`verdict` null: the attempt goes on, or the run's own work or limit ended it. `revised`: the evidence names
    another cause than the one that was acted on; nothing acts on that. `findings`: what else was noticed."""

    run_id: str
    generation: int
    attempt: int
    ended: bool
    text: Annotated[str, Field(description="One line: what ended it, how sure that is, and whether it was restarted.")]
    verdict: VerdictShown | None
    acted_on: ActedOn | None
    revised: bool
    findings: list[VerdictShown]
    unread: list[UnreadShown]


class FilesDiagnosis(TypedDict):
    """Of files without a run; the fields mean the same as in Diagnosis."""

    name: str
    ended: bool
    text: str
    verdict: VerdictShown
    findings: list[VerdictShown]
    unread: list[UnreadShown]


class RuleShown(TypedDict):
    """One row of the table of rules. `requires`, `excludes`: statements."""

    rule: str
    gotchas: Sequence[str]
    certainty: str
    cause: str | None
    where: str
    retry: str
    requires: list[str]
    excludes: list[str]
    sentence: str
    remedies: list[str]


def show_diagnosis(parts: Parts, queries: Queries, run_id: str, number: int | None) -> Diagnosis:
    """`number`: of the attempt; None = the newest. Raises NotFound, EvidenceNotFound (which says whether it will come),
    FilesPurged, Unavailable."""
    run = queries.fresh(run_id)
    attempts = parts.store.attempts(run.key)
    if not attempts:
        now_text = status_text(run, parts.clock.now())
        raise EvidenceNotFound(f"{run_id} has had no machine. {now_text}", {"run_id": run_id})
    attempt = attempt_of(run, attempts, number)
    if attempt.ended_at is not None and attempt.cause in words.OWN_ENDS:
        return _shown(run, attempt, attempts, None)
    differs, unread = differences_of(parts, run, attempts, attempt)
    if attempt.ended_at is None:
        return _living(run, attempt, parts.clock.now(), differs)
    try:
        document = kept_document(parts, run, attempt)
    except (EvidenceNotFound, FilesPurged, Unavailable) as error:
        raise type(error)(f"{error.detail} {_on_record(attempt)}", error.meta) from None
    is_repeated = attempt == attempts[-1] and run.detail.endswith(f"({SAME_FAILURE})")
    evidence = reading.of_document(document, differs, is_repeated)
    if unread:
        evidence = replace(evidence, unread={**evidence.unread, "facts": unread})
    return _shown(run, attempt, attempts, evidence)


def _on_record(attempt: Attempt) -> str:
    detail = f": {attempt.evidence.rstrip('.')}" if attempt.evidence else ""
    acted = attempt.verdict
    rule = "" if acted is None else f" ({acted.certainty}, rule {acted.rule})"
    return f"On record, it ended as {attempt.cause or Cause.UNKNOWN}{rule}{detail}."


def _living(run: Run, attempt: Attempt, now: float, differs: Sequence[formats.Json]) -> Diagnosis:
    """Of the row, the last beat and the facts."""
    pulse = run.pulse if run.pulse is not None and run.pulse.launch_id == attempt.launch_id else None
    seen = signs.encode(signs.decode(pulse.signs)) if pulse is not None else ""
    evidence = reading.of_document(
        compose(run, attempt, Found({"signs": json.loads(seen)} if seen else None), (), None), differs
    )
    noticed = findings(evidence)
    name = f"{run.run_id}, attempt {attempt.number}"
    return {
        "run_id": run.run_id,
        "generation": attempt.generation,
        "attempt": attempt.number,
        "ended": False,
        "text": f"{name}, has not ended. {status_text(run, now)} {words.findings_text(run, len(noticed))}.",
        "verdict": None,
        "acted_on": None,
        "revised": False,
        "findings": [verdict_json(verdict, attempt) for verdict in noticed],
        "unread": [],
    }


def _shown(run: Run, attempt: Attempt, attempts: Sequence[Attempt], evidence: Evidence | None) -> Diagnosis:
    verdict = diagnose(evidence) if evidence is not None else None
    cause = attempt.cause or Cause.UNKNOWN
    agreeing = [each for each in (attempt.verdict, verdict) if each is not None and each.cause == cause]
    following = next((later for later in attempts if later.number > attempt.number), None)
    restart = words.restart_text(run, attempt, following, agreeing[0].retry if agreeing else None)
    name = f"{run.run_id}, attempt {attempt.number}"
    return {
        "run_id": run.run_id,
        "generation": attempt.generation,
        "attempt": attempt.number,
        "ended": True,
        # The fuller evidence may raise the certainty, and never lowers it.
        "text": words.headline(
            name, cause, min((each.certainty for each in agreeing), key=list(Certainty).index, default=""), restart
        ),
        "verdict": None if verdict is None else verdict_json(verdict, attempt),
        "acted_on": _acted_on(attempt),
        "revised": verdict is not None and _revises(verdict, cause),
        "findings": [] if evidence is None else [verdict_json(each, attempt) for each in findings(evidence)],
        "unread": [] if evidence is None else _unread(evidence),
    }


def _acted_on(attempt: Attempt) -> ActedOn:
    acted = attempt.verdict
    return {
        "cause": attempt.cause,
        "detail": attempt.evidence,
        "rule": None if acted is None else acted.rule,
        "certainty": None if acted is None else acted.certainty,
    }


def _revises(verdict: Verdict, acted_on: Cause) -> bool:
    """A likely verdict revises nothing but an unknown end."""
    if verdict.cause is None or verdict.cause == acted_on or acted_on in _ON_RECORD:
        return False
    return verdict.certainty == Certainty.CERTAIN or acted_on == Cause.UNKNOWN


def _unread(evidence: Evidence) -> list[UnreadShown]:
    reasons = sorted(evidence.unread.items())[:UNREAD_SHOWN]
    return [{"name": name, "why": reason} for name, reason in reasons]


def verdict_json(verdict: Verdict, attempt: Attempt | None = None) -> VerdictShown:
    """`attempt` None: times of an agent's clock stay what they are."""
    return {
        "rule": verdict.rule,
        "certainty": verdict.certainty,
        "cause": verdict.cause,
        "where": verdict.where,
        "goes_on": verdict.goes_on,
        "retry": verdict.retry,
        "sentence": verdict.sentence,
        "quotes": [_quote(quote, attempt) for quote in verdict.quotes],
        "remedies": [
            {"word": remedy.word, "text": remedy.text, "ours": remedy.ours, "setting": remedy.setting}
            for remedy in verdict.remedies
        ],
        "rejected": [{"rule": rule, "cause": _CAUSE_OF.get(rule), "why": why} for rule, why in verdict.rejected],
        "hints": [{"rule": rule, "cause": _CAUSE_OF.get(rule)} for rule in verdict.hints],
        "page": words.page_of(verdict.cause),
    }


_CAUSE_OF: Mapping[str, Cause | None] = {rule.id: rule.cause for rule in RULES}


def _quote(quote: Quote, attempt: Attempt | None) -> QuoteShown:
    at, up_s = quote.at, None
    if at is not None and not 0 <= at < EPOCH_TO:
        at = None
    if at is not None and at < EPOCH_FROM:
        up_s = round(at, 3)
        start = None if attempt is None or attempt.agent_at is None else attempt.agent_at + attempt.drift_s
        at = None if start is None else start + up_s
    if at is not None and not EPOCH_FROM <= at < EPOCH_TO:  # it may come from a machine
        at = None
    return {
        "item": quote.item,
        "text": quote.text,
        "source": quote.source,
        "where": quote.where,
        "at": formats.maybe_time(at),
        "up_s": up_s,
    }


def of_files(name: str, log: bytes, facts: Mapping[str, Any]) -> FilesDiagnosis:
    """`facts`: an evidence document or loose facts (docs/evidence.md has their names). Never raises."""
    evidence = reading.of_files(log, facts)
    verdict, noticed = diagnose(evidence), findings(evidence)
    return {
        "name": name,
        "ended": verdict.retry != Retry.NONE or verdict.cause is not None,
        "text": words.offline_headline(name, verdict),
        "verdict": verdict_json(verdict),
        "findings": [verdict_json(finding) for finding in noticed],
        "unread": _unread(evidence),
    }


def rules_shown() -> list[RuleShown]:
    """Every rule, in the order in which they are tried; those about runs that go on have no cause."""
    return [_rule_json(rule) for rules in (RULES, LIVING) for rule in sorted(rules, key=lambda rule: rule.tier)]


def _rule_json(rule: Rule) -> RuleShown:
    return {
        "rule": rule.id,
        "gotchas": rule.gotchas,
        "certainty": rule.certainty,
        "cause": rule.cause,
        "where": rule.where,
        "retry": rule.retry,
        "requires": [sign.name for sign in rule.requires],
        "excludes": [sign.name for sign in rule.excludes],
        "sentence": rule.sentence,
        "remedies": [REMEDIES[word][0] for word in rule.remedies],
    }
