"""What every rule is worth: without it a case fails; without its `excludes` a look-alike does. And rules are total."""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from supervisor.contract.heartbeat import Exit
from supervisor.contract.logs.patterns import PATTERNS
from supervisor.contract.signs import NOTES, SLOW, Hit
from supervisor.domain.causes import Cause
from supervisor.domain.diagnosis.evidence import NAMES, Clock, Evidence, Item, Source, in_order
from supervisor.domain.diagnosis.verdict import Verdict
from supervisor.lifecycle.diagnosis import collecting, reading
from supervisor.lifecycle.diagnosis.diagnose import diagnose, findings
from supervisor.lifecycle.diagnosis.rule import Rule
from supervisor.lifecycle.diagnosis.rules.table import LIVING, RULES
from tests.diagnosis.cases import Case
from tests.diagnosis.measuring import Judged, judge
from tests.diagnosis.seen import evidence_of


def unneeded(judged: Sequence[Judged]) -> dict[str, str]:
    """Rules whose removal no right case notices -> why: no case has them, or another rule says the same."""
    by_rule: dict[str, list[Judged]] = {}
    for each in judged:
        for verdict in (each.verdict, *each.found):
            by_rule.setdefault(verdict.rule, []).append(each)
    missed = {}
    for rule in (*RULES, *LIVING):
        cases = [each for each in by_rule.get(rule.id, ()) if each.right]
        if not cases:
            missed[rule.id] = "no case"
        elif not any(_is_worse(each, rule) for each in cases):
            missed[rule.id] = "another rule says the same"
    return missed


def _is_worse(before: Judged, removed: Rule) -> bool:
    """Not the same verdict any more in what a person or the supervisor does with it."""
    rules, living = _without(RULES, removed), _without(LIVING, removed)
    after = judge(before.case, rules=rules, living=living)
    if not after.right:
        return True
    if {verdict.rule for verdict in before.found} != {verdict.rule for verdict in after.found}:
        return True
    return _meaning(before.verdict) != _meaning(after.verdict)


def _meaning(verdict: Verdict) -> tuple[object, ...]:
    return (verdict.cause, verdict.certainty, verdict.retry, verdict.where, verdict.sentence)


def _without(rules: Sequence[Rule], removed: Rule) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules if rule.id != removed.id)


def unguarded(cases: Iterable[Case]) -> list[str]:
    """Rules with `excludes` that no case needs: the verdict of every case is the same without them."""
    evidences = [(case, evidence_of(case)) for case in cases]
    with_excludes = [rule for rule in (*RULES, *LIVING) if rule.excludes]
    return [rule.id for rule in with_excludes if not _flips(rule, evidences)]


def _flips(rule: Rule, evidences: Sequence[tuple[Case, Evidence]]) -> bool:
    bare = replace(rule, excludes=())
    is_living = rule in LIVING
    for case, evidence in evidences:
        if not all(sign.find(evidence) for sign in rule.requires if sign not in rule.likely_without):
            continue
        if not any(sign.find(evidence) for sign in rule.excludes):
            continue
        before = judge(case, evidence)
        after = judge(
            case, evidence,
            _replaced(RULES, rule, bare) if not is_living else RULES,
            _replaced(LIVING, rule, bare) if is_living else LIVING,
        )  # fmt: skip
        if rule.id in {hint.rule for hint in after.found} - {hint.rule for hint in before.found}:
            return True
        if before.right and (not after.right or after.verdict.rule == rule.id != before.verdict.rule):
            return True
    return False


def _replaced(rules: Sequence[Rule], old: Rule, new: Rule) -> tuple[Rule, ...]:
    return tuple(new if rule is old else rule for rule in rules)


def unfed() -> list[Rule]:
    """Rules that require an item which no reader of beats and documents makes: they wait for facts of the agent or of
    the platform that nothing collects yet. `spot diagnose` can give them such facts."""
    names = fed()
    return [
        rule for rule in (*RULES, *LIVING) if any(sign.reads and not names & set(sign.reads) for sign in rule.requires)
    ]


def fed() -> set[str]:
    """Items that the readers of beats and documents make."""
    text = "".join(inspect.getsource(module) for module in (collecting, reading))
    written = {name for name in NAMES if f'"{name}"' in text or name.startswith("disk.")}
    return written | set(NOTES) | {name for names in SLOW.values() for name in names}


# --- random evidence --------------------------------------------------------------------------------------------------

_TEXTS = (
    "",
    "x",
    "\x00",
    "é" * 40,
    "CUDA out of memory",
    "No space left on device",
    "Killed",
    "OOMKilled",
    "preempted",
    "no_gpu",
    "TIMEOUT",
    "collective",
    "lock",
    "{line}",
    "[{before}]",
    "a" * 4000,
)
_NUMBERS = (0, 1, -1, 9, 15, 79, 94, 125, 137, 1e18, -1e18, 0.5, 1e-9, float("nan"), float("inf"), 2**70)


def not_total(count: int, seed: int = 19) -> list[str]:
    """Evidences for which there is no verdict, or another one in another order of the items: what went wrong."""
    draw, problems = random.Random(seed), []
    for number in range(count):
        items, hits, rest = _random(draw)
        try:
            verdicts = [_verdicts(items, hits, rest)]
            draw.shuffle(items)
            draw.shuffle(hits)
            verdicts.append(_verdicts(items, hits, rest))
        except Exception as error:  # noqa: BLE001 - it is what we look for
            problems.append(f"{number}: {type(error).__name__}: {error}")
            continue
        if verdicts[0] != verdicts[1]:
            problems.append(f"{number}: another order gives {verdicts[1][0].rule} instead of {verdicts[0][0].rule}")
    return problems


def _verdicts(items: list[Item], hits: list[Hit], rest: Mapping[str, object]) -> tuple[Verdict, ...]:
    evidence = Evidence(items=in_order(items), hits=tuple(hits), **rest)  # type: ignore[arg-type]
    made = (diagnose(evidence), *findings(evidence))
    assert all(isinstance(verdict, Verdict) for verdict in made)
    return made


def _random(draw: random.Random) -> tuple[list[Item], list[Hit], dict[str, object]]:
    names = sorted(NAMES)
    items = [_item(draw, draw.choice(names)) for _ in range(draw.randrange(0, 14))]
    ids = [pattern.id for pattern in PATTERNS]
    hits = [
        Hit(
            draw.choice(ids),
            draw.choice(("cause", "cascade", "teardown", "sign")),
            1 + draw.randrange(3),
            draw.choice(_TEXTS),
            draw.uniform(0, 1e5),
            draw.uniform(0, 1e5),
            draw.choice((None, 0, 1, 500)),
            draw.randrange(9000),
        )
        for _ in range(draw.randrange(0, 5))
    ]
    end = None
    if draw.random() < 0.7:
        code = draw.choice((None, 0, 1, 2, 125, 126, 127, 137, 143, 255, -9))
        number = draw.choice((None, 1, 2, 9, 11, 15, 24, 64)) if code is None else None
        kills = draw.choice((None, 0, 1, 7))
        end = Exit(
            code,
            number,
            draw.random() < 0.2,
            draw.choice((0.0, 3.0, 90.0, 1e6)),
            draw.choice(_TEXTS)[:300],
            False,
            kills,
            draw.choice(("", "checkpoints: 0 of 8 MiB are free")),
            draw.random() < 0.1,
        )
    unread = dict.fromkeys(draw.sample(names, draw.randrange(0, 4)), "not read")
    return items, hits, {"exit": end, "error": draw.choice(_TEXTS), "unread": unread}


def _item(draw: random.Random, name: str) -> Item:
    value = draw.choice(
        (
            draw.choice(_TEXTS),
            draw.choice(_NUMBERS),
            draw.random() < 0.5,
            (draw.choice(_NUMBERS), draw.choice(_NUMBERS)),
            (),
            (None, 79.0),
            draw.choice(list(Cause)).value,
        )
    )
    at = draw.choice((None, 0.0, draw.uniform(0, 2e9), draw.uniform(0, 1e5)))
    return Item(name, value, draw.choice(list(Source)), at, draw.choice(list(Clock)), draw.choice(_TEXTS[:6]))
