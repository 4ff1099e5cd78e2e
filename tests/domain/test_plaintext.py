"""Hidden characters: the same characters are refused in stored texts and displayed by their numbers."""

from __future__ import annotations

import re
from typing import Annotated

import jsonschema_rs
import pytest
from pydantic import BaseModel, StringConstraints, ValidationError

from supervisor.domain.texts import HIDDEN, ONE_LINE, PROSE, visible

CHARACTERS = [chr(code) for code in (*range(0x3000), 0xFEFF, *range(0xFFF0, 0x10000), *range(0xDFFF0, 0xE0090))]


class Kept(BaseModel):
    line: Annotated[str, StringConstraints(pattern=ONE_LINE)] = ""
    prose: Annotated[str, StringConstraints(pattern=PROSE)] = "-"


def taken(name: str, text: str) -> bool:
    try:
        Kept.model_validate({name: text})
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "pattern", "also"), [("line", ONE_LINE, "\t\n\r"), ("prose", PROSE, "")], ids=["line", "prose"]
)
def test_the_gate_the_document_and_the_list_refuse_the_same(name: str, pattern: str, also: str) -> None:
    """Three regex engines: the API's validation is Rust, a JSON schema ECMA-262, the check Python."""
    schema = jsonschema_rs.validator_for({"type": "string", "pattern": pattern})
    for char in CHARACTERS:
        fine, text = HIDDEN.search(char) is None and char not in also, f"a{char}b"
        found = (re.search(pattern, text) is not None, schema.is_valid(text), taken(name, text))
        assert found == (fine, fine, fine), f"U+{ord(char):04X}"


def test_a_line_may_be_empty_and_a_reason_says_something() -> None:
    assert taken("line", "")
    assert [taken("prose", text) for text in ("", " \t\n", "\u3000", "\u202e", " a\nb ")] == [*[False] * 4, True]


def test_what_is_hidden_is_shown_by_its_number() -> None:
    assert visible("a\u202eb\U000e0041c\td\n") == "a⟨U+202E⟩b⟨U+E0041⟩c\td\n"
