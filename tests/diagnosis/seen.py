"""The evidence of a case: its document, read as the supervisor reads it, with the words of its log.

A composed case may have `items` in the normal form, which nothing collects yet, and `steps`: then the hits of the log
are made as the agent makes them, which knows which lines the training survived.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from supervisor.contract.logs.beginning import beginning
from supervisor.contract.logs.matcher import Matcher
from supervisor.domain.diagnosis.evidence import Clock, Evidence, Item, Source, in_order
from supervisor.lifecycle.diagnosis.reading import of_document
from tests.diagnosis.cases import Case

_CLOCKS = {
    Source.OWN: Clock.SUPERVISOR,
    Source.PROVIDER: Clock.PROVIDER,
    Source.AGENT: Clock.AGENT,
    Source.HOST: Clock.NONE,
    Source.LOG: Clock.AGENT,
}


@cache
def evidence_of(case: Case) -> Evidence:
    evidence = of_document(case.document)
    extra = [item_of(raw) for raw in case.document.get("items", ())]
    if case.steps:
        evidence, words = _with_steps(evidence, case)
        extra += words
    known = {(item.name, repr(item.value)) for items in evidence.items.values() for item in items}
    new = [item for item in extra if (item.name, repr(item.value)) not in known]
    kept = [item for items in evidence.items.values() for item in items]
    return replace(evidence, items=in_order([*kept, *new])) if new else evidence


def item_of(raw: Mapping[str, Any]) -> Item:
    source, at, value = Source(raw["source"]), raw.get("at"), raw["value"]
    if isinstance(value, list):
        value = tuple(None if number is None else float(number) for number in value)
    return Item(raw["name"], value, source, at, _CLOCKS[source] if at is not None else Clock.NONE, raw.get("where", ""))


def _with_steps(evidence: Evidence, case: Case) -> tuple[Evidence, list[Item]]:
    """The words of the log as an agent finds them that knows when each step was reported."""
    matcher, begin = Matcher(), 0
    for offset, _, up_s in case.steps:
        matcher.feed(case.log[begin:offset], up_s)
        begin = max(begin, offset)
    last_up_s = case.steps[-1][2]
    matcher.feed(case.log[begin:], last_up_s)
    matcher.end(last_up_s)
    hits = []
    for seen in matcher.seen():
        after = sum(offset > seen.last.offset for offset, _, _ in case.steps)
        hits.append(matcher.hit(seen, after))
    code = None if evidence.exit is None else evidence.exit.code
    pattern, error = beginning(matcher, case.steps[-1][0], code)
    kept = {name: items for name, items in evidence.items.items() if name != "error.pattern"}
    words = [Item("error.pattern", pattern, Source.LOG)] if pattern else []
    return replace(evidence, items=kept, hits=tuple(hits), error=error), words
