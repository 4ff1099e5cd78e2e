"""The examples of the document: real requests and answers, recorded by `make openapi` on the tests' bed.

examples.json holds for each operation the body of one request, one answer of each good
status, the beginning of a stream, and one refusal.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

Json = dict[str, Any]
STORED = Path(__file__).with_name("examples.json")


@cache
def _all() -> Json:
    found: Json = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    return found


def put_into(told: Json, operation: str) -> None:
    """The examples of one operation, beside the schemas that they follow."""
    example = _all().get(operation, {})
    if "request" in example:
        for content in told["requestBody"]["content"].values():
            content["example"] = example["request"]
    for status, answer in example.get("answers", {}).items():
        _put(told["responses"].get(status, {}), answer)
    if "stream" in example:
        _put(told["responses"]["200"], example["stream"])
    refusal = example.get("refusal")
    if refusal is not None:
        _put(told["responses"].get(str(refusal["status"]), {}), refusal)


def _put(answer: Json, value: object) -> None:
    """A text is an example of a stream or of a page of text, all else of JSON."""
    for media_type, content in answer.get("content", {}).items():
        if media_type.startswith("text/") == isinstance(value, str) and value is not None:
            content["example"] = value
