"""Forged evidence: any value at any place of a document has a verdict that can be sent, or the document is refused."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

from supervisor.contract.signs import NAN, NOTES, SLOW, Hang, Hit, OddMetric, Signs, Slow, encode
from supervisor.lifecycle.diagnosis.diagnose import diagnose, findings
from supervisor.lifecycle.diagnosis.reading import of_document, of_files
from supervisor.lifecycle.evidence import attempt_evidence, facts
from supervisor.services.reading.diagnosis import verdict_json
from supervisor.wording.attempt import evidence_details, evidence_rows, fact_rows
from tests.diagnosis.cases import load
from tests.properties import examples

SIGNS = Signs(
    (Hit("gpu_oom", "cause", 1, "CUDA out of memory", 1.0, 2.0, 0, 4),), "CUDA out of memory", 1.0, False,
    ((0, 79, 3.0),), ((0, 5e9),), Hang("lock", 61.0, 7), ("loss",), 9.0, "gpu_oom", ("cpu",), (1, 2),
    (OddMetric("loss", NAN, 3, 1.0),), tuple((name, 3) for name in NOTES),
    tuple(Slow(word, (3.0,) * len(names), "nfs4") for word, names in SLOW.items()),
)  # fmt: skip
AGENT = {
    "version": 2, "when": "end", "left": "noticed", "exit": {"code": 1, "ran_s": 3.0, "last_line": "KeyError"},
    "oom": {"before": 1, "after": 2, "shared": False}, "xids": [[0, 79, 3.0]], "cards_before": [[0, 5, 9]],
    "start": {"conda_prefix": "/a", "cards_opened": 1}, "boot": {"at_start": "a", "now": "b"}, "code_edited": ["a.py"],
    "disks": {"scratch": {"free_bytes": 5, "total_bytes": 9, "free_inodes": 3}}, "signs": json.loads(encode(SIGNS)),
    "stall": {"without_progress_s": 5.0, "threads": [{"pid": 1, "text": "File a"}]},
}  # fmt: skip
FACTS = {"packages": ["a==1"], "packages_sha256": "x", "seeds": {"--seed": "7"}, "memory_bytes": 5, "gpus": ["L4"]}
VALUES = (
    None, True, -1, 10**400, -(10**400), 1e308, 5e-324, 2**63, float("nan"), float("inf"), "\ud800", "a\x00b", "", [],
    {}, [[]], {"\ud800": 1}, [None] * 70, "9" * 400, [1e18] * 3, json.loads("[" * 50 + "]" * 50),
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield (*path, key)
        yield from places(inner, (*path, key))


def forged(document: Any, chance: random.Random) -> bytes:
    """The document with one or two wrong values."""
    made = copy.deepcopy(document)
    for _ in range(chance.randrange(1, 3)):
        *path, last = chance.choice(list(places(made)))
        target = made
        for key in path:
            target = target[key]
        target[last] = copy.deepcopy(chance.choice(VALUES))
    return json.dumps(made).encode()


def sent(evidence: Any) -> None:
    """As an API sends it."""
    verdicts = [diagnose(evidence), *findings(evidence)]
    json.dumps([verdict_json(verdict) for verdict in verdicts], ensure_ascii=False, allow_nan=False).encode()


def test_a_forged_document_is_refused_or_has_a_verdict_that_can_be_sent() -> None:
    whole = {**next(case.document for case in load() if case.document["beat"]), "agent": AGENT}
    chance, read = random.Random(19), 0
    for _ in range(examples(400, 20_000)):
        raw = forged(whole, chance)
        document = attempt_evidence.read(raw)
        if document is not None:
            read += 1
            sent(of_document(document))
            evidence_rows(document)
            evidence_details(document)
        loose = json.loads(raw)
        sent(of_files(b"", loose if isinstance(loose, dict) else {}))
    assert read > 100


def test_forged_facts_are_refused_or_can_be_compared_and_shown() -> None:
    chance, read = random.Random(19), 0
    for _ in range(examples(200, 5000)):
        noted = facts.parse(forged(FACTS, chance))
        if noted is not None:
            read += 1
            fact_rows(noted)
            for pair in ([(1, FACTS), (2, noted)], [(1, noted), (2, FACTS)]):
                sent(of_document({}, facts.differences(pair)))
    assert read > 50
