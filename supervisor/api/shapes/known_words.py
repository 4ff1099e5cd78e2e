"""Parameters that take a word out of a list; a misspelt one is answered with its nearest."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from supervisor.domain.events import EventKind
from supervisor.domain.status import Status


def _one_of(words: type[StrEnum], what: str) -> Callable[[str], str]:
    known = [str(word) for word in words]

    def checked(word: str) -> str:
        if word not in known:
            near = get_close_matches(word, known, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            raise ValueError(f"is not {what}; {hint}")
        return word

    return checked


StatusWord = Annotated[
    str,
    AfterValidator(_one_of(Status, "a status")),
    Field(json_schema_extra={"enum": [str(status) for status in Status]}),
]
KindWord = Annotated[
    str,
    AfterValidator(_one_of(EventKind, "a kind of event")),
    Field(json_schema_extra={"enum": [str(kind) for kind in EventKind]}),
]
