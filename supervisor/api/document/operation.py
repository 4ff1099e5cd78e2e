"""What the document tells of one route, beside what its function says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class Operation:
    """What one route takes and gives.

    `answers`: status → model; a status whose answer has no JSON of its own stands in `media` alone.
    `refuses`: codes beyond those that every route may answer with, with a blank between.
    `raw_body`: the media type of a body that is not JSON; `json_types`: those of one that is.
    `also`: another shape of the answer 200.
    `media`: status → media types of answers beside JSON; text/… is text, others are bytes.
    `takes`, `sends`: request headers, and headers of the good answers, by their names in api/document_headers.
    """

    answers: Mapping[int, type[BaseModel]]
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    refuses: str = ""
    body_required: bool = True
    raw_body: str = ""
    json_types: tuple[str, ...] = ("application/json",)
    also: type[BaseModel] | None = None
    media: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    takes: tuple[str, ...] = ()
    sends: tuple[str, ...] = ()

    @property
    def models(self) -> set[type[BaseModel]]:
        """All that the operation's bodies and answers are made of."""
        others = {part for part in (self.body, self.also) if part is not None}
        return {*self.answers.values(), *others}

    @property
    def codes(self) -> list[str]:
        return self.refuses.split()
