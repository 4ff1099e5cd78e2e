"""The serial port in parts, what its ring has lost, and what Cloud Logging kept of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.ports.provider import MachineMissing, ProviderUnavailable
from supervisor.providers.gce.machines.consoles import part_of
from tests.cloud.compute_instances import SERIAL_BYTES
from tests.contracts.platform_stages import GceStage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[GceStage]:
    stage = GceStage(tmp_path)
    yield stage
    stage.close()


def archive(stage: GceStage, since: float = 0.0, lines: int = 100) -> list[str]:
    return stage.platform.console_archive(stage.ref, since, lines).decode().splitlines()


def test_what_the_ring_has_lost_shows_in_the_offset(stage: GceStage) -> None:
    stage.write(b"x" * 100)
    before = stage.platform.console_after(stage.ref, 0)
    stage.write(b"y" * (SERIAL_BYTES + 500))
    part = stage.platform.console_after(stage.ref, before.end)
    assert part.start - before.end == 500
    assert part.content == b"y" * 65536


def test_an_answer_is_never_larger_than_asked_for(stage: GceStage) -> None:
    stage.write("é".encode() * 1000)
    part = stage.platform.console_after(stage.ref, 0, 101)
    assert part.content.decode() == "é" * 50
    assert part.end == 100


@pytest.mark.parametrize(
    ("text", "length", "content", "end"),
    [
        ("plain", 5, b"plain", 105),
        ("torn\ufffd", 6, b"torn", 104),  # two bytes of a character that has more
        ("each its own\ufffd\ufffd\ufffd", 15, b"each its own", 112),
        ("bad \ufffd inside", 12, "bad \ufffd inside".encode(), 112),  # one byte that is not text
        ("\ufffdx\ufffd", 3, "\ufffdx\ufffd".encode(), 103),  # no text at both ends: nothing can be requested again
        ("noise" + 5 * "\ufffd", 10, ("noise" + 5 * "\ufffd").encode(), 110),  # too long for one character
        ("", 0, b"", 100),
    ],
)
def test_bytes_that_google_replaced(text: str, length: int, content: bytes, end: int) -> None:
    part = part_of(text, 100, 100 + length, 1000)
    assert (part.content, part.start, part.end) == (content, 100, end)


def test_a_machine_that_is_off_has_no_console(stage: GceStage) -> None:
    stage.subject.compute.stop_by("ann@example.com", stage.ref.name)
    stage.subject.clock.advance(60.0)
    with pytest.raises(MachineMissing):
        stage.platform.console_after(stage.ref, 0)


def test_a_404_of_something_in_between_says_nothing_of_the_machine(stage: GceStage) -> None:
    stage.subject.compute.fail_next("GET", "serialPort", (404, "<html>not here</html>"), times=9)
    with pytest.raises(ProviderUnavailable):
        stage.platform.console_after(stage.ref, 0)


def test_the_archive_is_read_by_the_numeric_id_and_never_by_the_name(stage: GceStage) -> None:
    stage.write(b"one\r\ntwo\n")
    assert archive(stage) == ["one", "two"]
    [body] = stage.logging.requests
    assert f'resource.labels.instance_id="{stage.ref.machine_id}"' in body["filter"]
    assert stage.ref.name not in body["filter"]
    assert stage.platform.console_archive(replace(stage.ref, machine_id="4711"), 0.0, 10) == b""
    assert stage.platform.console_archive(replace(stage.ref, machine_id='1" OR "'), 0.0, 10) == b""
    assert stage.platform.console_archive(replace(stage.ref, machine_id=None), 0.0, 10) == b""


def test_the_archive_goes_over_pages_and_over_empty_ones(stage: GceStage) -> None:
    stage.write(b"".join(b"line %d\n" % n for n in range(25)))
    stage.logging.page_rows, stage.logging.empty_pages = 4, 2
    assert archive(stage, lines=10) == [f"line {n}" for n in range(15, 25)]
    assert archive(stage)[0] == "line 0"


def test_only_lines_since_then(stage: GceStage) -> None:
    stage.write(b"early\n")
    stage.subject.clock.advance(3600.0)
    moment = stage.subject.clock.now()
    stage.write(b"late\n")
    assert archive(stage, since=moment - 1.0) == ["late"]


def test_only_the_console_is_asked_for(stage: GceStage) -> None:
    """The machines' account may not write logs: nothing of theirs can be in another one."""
    stage.logging.log(
        "google_metadata_script_runner", stage.ref.machine_id or "", stage.subject.clock.now(), message="a"
    )
    assert archive(stage) == []


def test_a_missing_permission_and_a_service_that_is_off_are_named(stage: GceStage) -> None:
    stage.logging.denied = "Permission denied for all log views"
    with pytest.raises(ProviderUnavailable, match=r"logging\.logEntries\.list"):
        archive(stage)
    stage.logging.denied = "Cloud Logging API has not been used in project p before or it is disabled."
    with pytest.raises(ProviderUnavailable, match=r"gcloud services enable logging\.googleapis\.com --project=p"):
        archive(stage)
