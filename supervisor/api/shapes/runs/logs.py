"""The shapes of a log's answers: a part of its text, or the lines in which a text was found."""

from __future__ import annotations

from pydantic import Field

from supervisor.api.shapes.answers import Answer


class LogAnswer(Answer):
    run_id: str
    attempt: int | None
    text: str
    offset: int
    next_offset: int
    size: int
    complete: bool
    line: int | None = Field(description="Number of the line in which `offset` lies; null: not known yet.")
    lines: int | None = Field(description="Lines of the whole log; null: not counted to its end yet.")
    counted_bytes: int = Field(description="So far lines were counted; ask again, and it goes on.")


class LogText(LogAnswer):
    """Offsets count bytes of the attempt's whole log. `complete`: nothing will follow `next_offset`. With `line` beyond
    what is counted yet, `line` is null and the text empty: ask again."""


class LogMatch(Answer):
    line: int | None
    offset: int = Field(description="The byte where the line begins.")
    text: str = Field(description="Of the line, around the first place: at most 640 bytes.")
    skipped_bytes: int = Field(description="of the line, before `text`")
    cut_bytes: int = Field(description="of the line, after `text`")


class LogMatches(LogAnswer):
    """Of a search: at most 100 lines. Go on from `next_offset` while there is `more`; `text` is empty."""

    matches: list[LogMatch]
    more: bool
