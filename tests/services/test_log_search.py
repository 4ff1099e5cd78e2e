"""Search in a log: each line once, with its number and position, across the ends of chunks and responses."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.services.logs import logs
from supervisor.services.logs.logs import Part
from tests.services.bed import Bed
from tests.services.test_log_lines import RUN, chunk, trained

__all__ = ["trained"]


def search(bed: Bed, text: str, ignore_case: bool = False, **part: int) -> dict[str, Any]:
    return bed.services.logs.search(RUN, None, text, ignore_case, Part(**part))


def lines(told: dict[str, Any]) -> list[int | None]:
    return [match["line"] for match in told["matches"]]


def test_each_line_once_with_its_place(trained: Bed) -> None:
    whole = b"start\nloss 1 loss 2\r\nno\nLoss 3\nschoen: gr\xc3\xbcn\nand GR\xc3\x9cN\nlast loss"
    for cut in range(len(whole)):
        trained.objects.delete(f"runs/{RUN}/logs/a1/00000001.log")
        chunk(trained, 0, whole[:cut])
        chunk(trained, 1, whole[cut:])
        trained.services.logs._chunks_by_log.clear()
        told = search(trained, "loss")
        assert [(match["line"], match["offset"], match["text"]) for match in told["matches"]] == [
            (2, 6, "loss 1 loss 2"),
            (7, whole.rfind(b"\n") + 1, "last loss"),
        ]
        assert (told["more"], told["next_offset"], told["complete"]) == (False, len(whole), False)
    assert lines(search(trained, "LOSS", ignore_case=True)) == [2, 4, 7]
    assert lines(search(trained, "grün")) == [5]
    assert lines(search(trained, "grün", ignore_case=True)) == [5, 6]
    assert lines(search(trained, "loss", line=3)) == [7]
    assert lines(search(trained, "oss", offset=8)) == [2, 4, 7]
    assert lines(search(trained, "nowhere")) == []
    trained.end(RUN)
    assert search(trained, "nowhere")["complete"]


def test_many_matches_come_in_answers_that_go_on(trained: Bed) -> None:
    chunk(trained, 0, b"".join(b"row %d hit\nrow\n" % number for number in range(250)))
    told, found = search(trained, "hit"), []
    while True:
        found += lines(told)
        if not told["more"]:
            break
        told = search(trained, "hit", offset=told["next_offset"])
        assert len(told["matches"]) <= logs.MATCHES
    assert found == list(range(1, 501, 2))


def test_a_long_line_is_shown_around_its_match(trained: Bed) -> None:
    chunk(trained, 0, "é".encode() * 1000 + b"needle" + b"x" * 3000 + b"\n")
    (match,) = search(trained, "needle")["matches"]
    assert "�" not in match["text"]
    assert match["text"].lstrip("é").startswith("needlexxx")
    assert match["skipped_bytes"] + len(match["text"].encode()) + match["cut_bytes"] == 2000 + 6 + 3000
    assert len(match["text"].encode()) <= logs.SHOWN_BYTES


def test_a_line_without_an_end_is_searched_in_parts(trained: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded; the positions are still right."""
    monkeypatch.setattr(logs, "LINE_BYTES", 100_000)
    chunk(trained, 0, b"x" * 300_000 + b"needle" + b"x" * 300_000)
    told = search(trained, "needle")
    assert (len(told["matches"]), told["next_offset"]) == (1, 600_006)


def test_a_search_that_may_read_no_more_says_where_to_go_on(trained: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "COUNTED_BYTES", 70_000)
    chunk(trained, 0, b"123456789\n" * 40_000 + b"needle\n")
    told, asked = search(trained, "needle"), 1
    while told["more"]:
        assert told["matches"] == []
        told, asked = search(trained, "needle", offset=told["next_offset"]), asked + 1
    assert lines(told) == [40_001]
    assert 3 < asked < 8


def test_a_match_in_uncounted_lines_has_no_number(trained: Bed) -> None:
    chunk(trained, 0, b"a\nb\nneedle\n")
    assert [(match["line"], match["offset"]) for match in search(trained, "needle", offset=2)["matches"]] == [(3, 4)]
    trained.services.logs._chunks_by_log.clear()
    opened = trained.services.logs.whole(RUN, "1")
    found = logs.Search("needle", False, 2, None)
    found.run(opened.bytes, logs.Allowance(1000, 1.0, trained.clock.monotonic))
    assert [(match["line"], match["offset"]) for match in found.matches] == [(None, 4)]
