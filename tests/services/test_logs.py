"""Logs: chunks are joined and read in pieces of any size, growing logs are followed, unreadable ones reported."""

from __future__ import annotations

import pytest

from supervisor.contract import runfiles
from supervisor.contract.heartbeat import encode
from supervisor.domain.errors import NotFound, Unavailable
from supervisor.domain.status import Status
from supervisor.services.logs.logs import Part
from tests.services.bed import Bed, beat


def chunk(bed: Bed, sequence: int, data: bytes) -> None:
    bed.objects.put(runfiles.log_chunk("digits-7", 1, sequence), data)


def read_all(bed: Bed, limit: int) -> tuple[str, bool]:
    text, offset = "", 0
    for _ in range(1000):
        told = bed.services.logs.show("digits-7", None, Part(offset, limit))
        text, offset = text + told["text"], told["next_offset"]
        if told["complete"] or not told["text"]:
            return text, told["complete"]
    raise AssertionError("the log has no end")


def test_a_log_is_its_chunks_in_order_read_in_pieces_of_any_size(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    whole = "".join(f"line {number} schön €\n" for number in range(40))
    raw = whole.encode()
    for sequence, start in enumerate(range(0, len(raw), 37)):
        chunk(bed, sequence, raw[start : start + 37])
    for limit in (4, 5, 36, 37, 38, 1000, 10**6):
        assert read_all(bed, limit) == (whole, False)
    bed.end("digits-7")
    assert read_all(bed, 100) == (whole, True)


def test_a_log_that_grows_is_followed_without_listing_it_again(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    chunk(bed, 1, b"one\n")
    assert read_all(bed, 100)[0] == "one\n"
    listings = bed.objects.calls["pages"]
    chunk(bed, 1, b"one\none more\n")
    chunk(bed, 2, b"two\n")
    assert bed.services.logs.show("digits-7", 1, Part(4, 100))["text"] == "one more\ntwo\n"
    assert bed.objects.calls["pages"] == listings


def test_a_gap_in_the_numbers_is_noticed(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    chunk(bed, 1, b"one\n")
    assert read_all(bed, 100)[0] == "one\n"
    chunk(bed, 3, b"three\n")
    bed.clock.advance(60)
    assert read_all(bed, 100)[0] == "one\nthree\n"


def test_a_reader_makes_the_agent_write_faster(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    bed.services.logs.show("digits-7", None, Part(0, 10))
    assert bed.inbox.receive("digits-7", encode(beat("digits-7", 9))).follow_logs


def test_bytes_that_are_no_text_are_replaced(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    chunk(bed, 1, b"\xff\x00 ok\n\xc3")
    told = bed.services.logs.show("digits-7", None, Part(0, 100))
    assert told["text"] == "�\x00 ok\n"
    assert told["next_offset"] == told["size"] - 1, "the first half of a character waits for the second"
    bed.end("digits-7")
    assert bed.services.logs.show("digits-7", None, Part(6, 100))["complete"]


def test_logs_that_are_not_there(bed: Bed) -> None:
    bed.submit("digits-7")
    told = bed.services.logs.show("digits-7", None, Part(0, 100))
    assert (told["attempt"], told["text"], told["complete"]) == (None, "", False)
    with pytest.raises(NotFound):
        bed.services.logs.show("digits-7", 3, Part(0, 100))
    bed.train("digits-7")
    bed.objects.fail_reads = True
    with pytest.raises(Unavailable):
        bed.services.logs.show("digits-7", None, Part(0, 100))


def test_the_log_of_an_earlier_attempt_stays_readable(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    chunk(bed, 1, b"first\n")
    bed.end("digits-7", Status.RECOVERING)
    bed.train("digits-7", number=2)
    assert bed.services.logs.show("digits-7", 1, Part(0, 100))["text"] == "first\n"
    assert bed.services.logs.show("digits-7", None, Part(0, 100))["text"] == ""
