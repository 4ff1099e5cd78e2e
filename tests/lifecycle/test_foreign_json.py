"""JSON that an agent, or a training in its place, has stored is accepted only if it can be encoded again."""

from __future__ import annotations

import json

import pytest

from supervisor.lifecycle.evidence import attempt_evidence as evidence
from supervisor.lifecycle.evidence import facts
from supervisor.lifecycle.evidence.facts import DEPTH, read_object

ODD = [
    b"",
    b"{",
    b"[]",
    b'{"a": NaN}',
    b'{"a": 1e999}',
    b'{"a":' * (DEPTH + 2) + b"1" + b"}" * (DEPTH + 2),
    b'{"a":' + b"[" * 900 + b"]" * 900 + b"}",
    b"[" * 100_000,
    b"\xff",
    b'{"a": "' + b"x" * 300_000 + b'"}',
]


@pytest.mark.parametrize("raw", ODD)
def test_what_no_agent_writes_is_rejected(raw: bytes) -> None:
    assert read_object(raw, 1000) is None
    assert facts.parse(raw) is None
    assert evidence.read(raw) is None


def test_the_deepest_accepted_document_can_be_encoded() -> None:
    raw = b'{"a":' * DEPTH + b"1" + b"}" * DEPTH
    assert json.dumps(read_object(raw, 1000), allow_nan=False).encode() == raw.replace(b'":', b'": ')
