"""Lines of a log: where they start, how many there are, the last ones; as far as they were counted."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from supervisor.contract import runfiles
from supervisor.contract.heartbeat import encode
from supervisor.services.logs import chunks, lines, logs
from supervisor.services.logs.lines import SPACING, LineIndex
from supervisor.services.logs.logs import Part
from tests.services.bed import Bed, beat

RUN = "digits-7"


@pytest.fixture
def trained(bed: Bed) -> Bed:
    bed.submit(RUN)
    bed.train(RUN)
    return bed


def chunk(bed: Bed, sequence: int, data: bytes) -> None:
    bed.objects.put(runfiles.log_chunk(RUN, 1, sequence), data)


def show(bed: Bed, **part: int) -> dict[str, Any]:
    return bed.services.logs.show(RUN, None, Part(**part))


def test_every_line_of_a_random_log_is_found_by_its_number(trained: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compared with a plain read of the whole log, with marks every 16 bytes and chunks that cut lines anywhere."""
    for module in (chunks, lines):
        monkeypatch.setattr(module, "SPACING", 16)
    chance = random.Random(7)
    whole = b"".join(chance.choice((b"", b"x", b"loss 0.1\r", b"\xff\xc3", b"y" * 40)) + b"\n" for _ in range(300))
    whole += b"the last without an end"
    cuts = sorted(chance.sample(range(len(whole)), 25))
    for sequence, (begin, end) in enumerate(zip([0, *cuts], [*cuts, None], strict=True)):
        chunk(trained, sequence, whole[begin:end])
    begins = [0, *(at + 1 for at, byte in enumerate(whole) if byte == 10)]
    for line in chance.sample(range(1, 302), 60):
        told = show(trained, line=line, lines=2)
        assert (told["line"], told["offset"], told["lines"]) == (line, begins[line - 1], 301)
        assert told["text"] == whole[begins[line - 1] : [*begins, None, None][line + 1]].decode("utf-8", "replace")
    for offset in chance.sample(range(len(whole)), 40):
        assert show(trained, offset=offset, lines=1)["line"] == 1 + whole.count(b"\n", 0, offset)
    for tail in (1, 2, 7, 300, 301, 302):
        told = show(trained, tail=tail)
        assert (told["offset"], told["line"]) == (begins[-tail:][0], max(1, 302 - tail))
        assert told["next_offset"] == len(whole)
    assert show(trained, tail=3, before=begins[100])["line"] == 98
    assert show(trained, line=999) | {"line": 0} == show(trained, offset=len(whole), lines=1) | {"line": 0}


def test_a_growing_log_is_counted_on(trained: Bed) -> None:
    """Broken variant: the end of the count was taken for the end of the line that grew afterwards."""
    chunk(trained, 0, b"one\ntw")
    assert (show(trained, tail=1)["text"], show(trained, tail=1)["lines"]) == ("tw", 2)
    chunk(trained, 0, b"one\ntwo\n")
    assert show(trained, tail=1)["lines"] == 2
    chunk(trained, 0, b"one\ntwo\nthree\n")
    chunk(trained, 1, b"four\n")
    told = show(trained, line=3)
    assert (told["text"], told["line"], told["lines"]) == ("three\nfour\n", 3, 4)
    assert show(trained, offset=8)["line"] is None, "a plain piece is not worth a count"
    assert show(trained, offset=told["size"])["line"] == 5


def test_reading_the_end_does_not_make_the_agent_write_faster(trained: Bed) -> None:
    """Broken variant: an open overview page caused a write to the bucket every two seconds."""
    show(trained, tail=15)
    assert not trained.inbox.receive(RUN, encode(beat(RUN, 9))).follow_logs
    show(trained, line=1)
    assert trained.inbox.receive(RUN, encode(beat(RUN, 10))).follow_logs


def test_replaced_chunks_are_counted_again(trained: Bed) -> None:
    """An agent that started again writes its chunks from the first one."""
    chunk(trained, 0, b"a\n" * 1000)
    chunk(trained, 1, b"b\n")
    assert show(trained, tail=1)["lines"] == 1001
    chunk(trained, 0, b"longer\n" * 500)
    trained.clock.advance(60)
    told = show(trained, line=500, lines=2)
    assert (told["text"], told["lines"]) == ("longer\nb\n", 501)
    chunk(trained, 1, b"")
    assert show(trained, tail=2)["text"] == "longer\nlonger\n"


def test_a_chunk_that_grew_between_two_reads_is_whole(trained: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken variant: it kept the first size, and all later text had wrong offsets."""
    chunk(trained, 0, b"one\n")
    show(trained)
    stat = trained.objects.stat

    def late(key: str) -> Any:
        found = stat(key)
        if key.endswith("00000000.log") and not trained.objects.calls["late"]:
            trained.objects.calls["late"] += 1
            chunk(trained, 0, b"one\ntwo\n")
            chunk(trained, 1, b"three\n")
        return found

    monkeypatch.setattr(trained.objects, "stat", late)
    assert show(trained)["text"] == "one\ntwo\nthree\n"


def test_uncounted_lines_are_reported_and_counted_later(trained: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "COUNTED_BYTES", 70_000)
    chunk(trained, 0, b"123456789\n" * 40_000)
    told = show(trained, line=39_000)
    assert (told["line"], told["text"], told["lines"], told["complete"]) == (None, "", None, False)
    assert told["size"] > told["counted_bytes"] > 0
    told = show(trained, tail=2)
    assert (told["line"], told["text"]) == (None, "123456789\n" * 2)
    seen = []
    for _ in range(8):
        told = show(trained, line=39_000, lines=1)
        seen.append(told["counted_bytes"])
        if told["line"] is not None:
            break
    assert told["offset"] == 389_990
    assert seen == sorted(seen)


def test_long_lines_and_the_limit(trained: Bed) -> None:
    chunk(trained, 0, b"a" * 65_536 + b"\n" + b"b" * 65_536 + b"\nend\n")
    told = show(trained, line=1, limit=100_000)
    assert told["text"] == "a" * 65_536 + "\n", "it ends where a line ends"
    assert show(trained, line=1, limit=1000)["text"] == "a" * 1000, "unless one alone is longer"
    assert show(trained, tail=5, limit=66_000)["line"] == 2, "it begins with a line"
    assert show(trained, tail=5, limit=2)["text"] == "d\n"


def test_only_so_much_is_remembered(trained: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest log alone may have more chunks than the limit for all logs."""
    monkeypatch.setattr(logs, "CHUNKS_KEPT", 5)
    for run_id in ("a-1", "a-2", "a-3"):
        trained.submit(run_id)
        trained.train(run_id)
        for sequence in range(3):
            trained.objects.put(runfiles.log_chunk(run_id, 1, sequence), b"x\n")
        assert trained.services.logs.show(run_id, None, Part(tail=1))["lines"] == 3
    assert trained.services.logs.show("a-3", None, Part(line=2))["text"] == "x\nx\n"
    assert sum(map(len, trained.services.logs._chunks_by_log.values())) <= 6


def test_many_readers_of_a_growing_log_agree(trained: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken variant: two readers that counted the same bytes counted them twice."""
    for module in (chunks, lines):
        monkeypatch.setattr(module, "SPACING", 64)
    wrong: list[object] = []

    def read() -> None:
        chance = random.Random(threading.get_ident())
        for _ in range(60):
            line = chance.randrange(1, 400)
            told = show(trained, line=line, lines=1)
            if told["text"] and (told["text"], told["line"]) != (f"line {line}\n", line):
                wrong.append(told)

    readers = [threading.Thread(target=read) for _ in range(4)]
    whole = [f"line {number}\n".encode() for number in range(1, 401)]
    for reader in readers:
        reader.start()
    for at in range(0, 400, 20):
        chunk(trained, at // 100, b"".join(whole[at // 100 * 100 : at + 20]))
    for reader in readers:
        reader.join()
    assert wrong == []
    trained.clock.advance(60)
    assert show(trained, line=400)["lines"] == 400


def test_the_index_takes_bytes_in_order_only() -> None:
    index = LineIndex()
    index.feed(5, b"\n", 0)
    assert index.counted == 0, "too early"
    index.feed(0, b"\n" * (SPACING + 3), 0)
    index.feed(0, b"\n\n", 0)
    assert index.total(SPACING + 3) == SPACING + 3
    index.forget(SPACING + 1)
    assert (index.counted, index.before(SPACING)) == (SPACING, (SPACING, SPACING))
    index.feed(SPACING, b"\n", 0)
    assert index.counted == SPACING, "of an earlier epoch"
    index.feed(SPACING, b"x", index.epoch)
    assert index.total(SPACING + 1) == SPACING + 1
