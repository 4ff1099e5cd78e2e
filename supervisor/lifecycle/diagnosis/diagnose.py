"""The verdict about an end or a stall: the first certain rule by tier and table order, else the best likely one.

Pure and total: every evidence has a verdict, in any order of its items. Rules that nearly apply are kept as `rejected`
with the reason, because what it is not helps as much as what it is. Where no rule applies, `hints` has the three
nearest ones. Rules about living runs (`findings`) are hints: they never have a retry, and nothing acts on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from supervisor.domain.diagnosis.evidence import Evidence
from supervisor.domain.diagnosis.verdict import Certainty, Quote, Retry, Verdict, Where
from supervisor.lifecycle.diagnosis.remedies import remedies_of
from supervisor.lifecycle.diagnosis.rule import Match, Rule, Sign, filled
from supervisor.lifecycle.diagnosis.rules.table import LIVING, RULES
from supervisor.lifecycle.diagnosis.signs import BOOT_CHANGED

ALIVE, UNKNOWN = "ALIVE", "UNKNOWN"  # rules of a verdict without a row
HINTS, REJECTED, QUOTES = 3, 8, 8  # at most
# An evidence with none of these describes a run that has not ended.
_ENDS = (
    "results.unverified", "own.stop", "own.kill", "own.end", "record.cause", "platform.state", "left",
    "notice.left_s", "hang.place",
    "container.oom_killed", "container.exit", "serial.phase", "contact.closed", "session.listed", "platform.message",
)  # fmt: skip
# What the platform says of a machine that may only wait.
_STATES = frozenset({"platform.state", "platform.message", "serial.phase", "contact.closed", "session.listed"})


@dataclass(frozen=True, slots=True)
class _Fit:
    """How far a rule applies: `share` of the signs it requires match; `reason`: why it does not apply, "" = it does,
    or too little of it matches to say."""

    rule: Rule
    share: float
    certainty: Certainty | None = None
    match: Match = field(default_factory=Match)
    reason: str = ""


def diagnose(evidence: Evidence, rules: Sequence[Rule] = RULES) -> Verdict:
    """The meaning of this end or stall. Never raises."""
    if not has_ended(evidence):
        return _alive(evidence)
    fits = _fits(evidence, rules)
    rejected = tuple((fit.rule.id, fit.reason) for fit in fits if fit.reason)[:REJECTED]
    best = _first(fits, Certainty.CERTAIN) or _first(fits, Certainty.LIKELY)
    if best is not None:
        return replace(_verdict(evidence, best), rejected=rejected)
    if not has_ended(evidence, _STATES):
        return _alive(evidence, rejected)
    near = sorted((fit for fit in fits if fit.share > 0), key=lambda fit: -fit.share)
    return Verdict(
        UNKNOWN, Certainty.HINT, None, Where.UNKNOWN, None, Retry.ONCE_IDENTICAL,
        "no rule explains this end", rejected=rejected, hints=tuple(fit.rule.id for fit in near[:HINTS]),
    )  # fmt: skip


def findings(evidence: Evidence, rules: Sequence[Rule] = LIVING) -> tuple[Verdict, ...]:
    """What the figures of a living run show: hints, and signs of life. Never a cause."""
    fits = _fits(evidence, rules)
    return tuple(_verdict(evidence, fit) for fit in fits if fit.certainty is not None)


def _alive(evidence: Evidence, rejected: tuple[tuple[str, str], ...] = ()) -> Verdict:
    living = findings(evidence)
    text = living[0].sentence if living else "nothing in the evidence says that the run has ended"
    return Verdict(ALIVE, Certainty.CERTAIN, None, Where.UNKNOWN, True, Retry.NONE, text, rejected=rejected)


def has_ended(evidence: Evidence, besides: frozenset[str] = frozenset()) -> bool:
    """`besides`: names that do not count."""
    if evidence.exit is not None or any(evidence.items.get(name) for name in _ENDS if name not in besides):
        return True
    return BOOT_CHANGED.find(evidence) is not None


def _fits(evidence: Evidence, rules: Sequence[Rule]) -> list[_Fit]:
    matches: dict[Sign, Match | None] = {}
    return [_fit(rule, evidence, matches) for rule in sorted(rules, key=lambda rule: rule.tier)]


def _fit(rule: Rule, evidence: Evidence, matches: dict[Sign, Match | None]) -> _Fit:
    def find(sign: Sign) -> Match | None:
        if sign not in matches:
            matches[sign] = sign.find(evidence)
        return matches[sign]

    results = [(sign, find(sign)) for sign in rule.requires]
    missing = [sign for sign, match in results if match is None]
    share = 1.0 - len(missing) / max(1, len(results))
    unread = [sign for sign in missing if sign in rule.likely_without and not sign.is_read(evidence)]
    hard = [sign for sign in missing if sign not in unread]
    if hard:
        is_near = len(hard) == 1 and share > 0 and bool(hard[0].reads) and hard[0].is_read(evidence)
        return _Fit(rule, share, reason=hard[0].no if is_near else "")
    for sign in rule.excludes:
        if (match := find(sign)) is not None:
            return _Fit(rule, share, reason=filled(sign.name, match.values))
    found_all = [match for _, match in results if match is not None]
    values = {name: value for match in found_all for name, value in match.values.items()}
    quotes = dict.fromkeys(quote for match in found_all for quote in match.quotes)
    unsure = bool(unread) or any(sign.lacks_times(evidence) for sign in rule.excludes)
    certainty = Certainty.LIKELY if unsure and rule.certainty == Certainty.CERTAIN else rule.certainty
    return _Fit(rule, share, certainty, Match(values, tuple(quotes)[:QUOTES]))


def _first(fits: Sequence[_Fit], certainty: Certainty) -> _Fit | None:
    return next((fit for fit in fits if fit.certainty == certainty), None)


def _verdict(evidence: Evidence, fit: _Fit) -> Verdict:
    rule, certainty = fit.rule, fit.certainty or Certainty.HINT
    values = {**fit.match.values, "certainty": certainty.value}
    quotes: tuple[Quote, ...] = fit.match.quotes
    return Verdict(
        rule.id, certainty, rule.cause, rule.where, rule.can_go_on, rule.retry, filled(rule.sentence, values),
        quotes, remedies_of(rule.remedies, evidence, values),
    )  # fmt: skip
