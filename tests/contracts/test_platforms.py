"""Every platform keeps the promises of ports/platform.py; broken ones do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.ports.platform import ConsolePart
from supervisor.ports.provider import ProviderUnavailable
from tests.contracts.platform_stages import FakeStage, GceStage, LocalStage, SshStage
from tests.contracts.platform_suite import PlatformContract


class TestLocalPlatform(PlatformContract):
    @pytest.fixture
    def stage(self, tmp_path: Path) -> Iterator[LocalStage]:
        stage = LocalStage(tmp_path)
        yield stage
        stage.close()


class TestSshPlatform(PlatformContract):
    @pytest.fixture
    def stage(self, tmp_path: Path) -> Iterator[SshStage]:
        stage = SshStage(tmp_path)
        yield stage
        stage.close()


class TestGcePlatform(PlatformContract):
    @pytest.fixture
    def stage(self, tmp_path: Path) -> Iterator[GceStage]:
        stage = GceStage(tmp_path)
        yield stage
        stage.close()


class TestFakePlatform(PlatformContract):
    @pytest.fixture
    def stage(self) -> FakeStage:
        return FakeStage()


def cuts_characters(stage: FakeStage) -> None:
    stage.platform.console_after = lambda ref, start, most=65536: _cut(  # type: ignore[method-assign]
        stage.fake.consoles[ref.name], start, most
    )


def _cut(whole: bytes, start: int, most: int) -> ConsolePart:
    first = max(0, len(whole) + start) if start < 0 else start
    return ConsolePart(whole[first : first + most], first, first + len(whole[first : first + most]))


def takes_silence_for_an_answer(stage: FakeStage) -> None:
    ask = stage.platform.console_after

    def tolerant(*args: object) -> ConsolePart:
        try:
            return ask(*args)  # type: ignore[arg-type]
        except ProviderUnavailable:
            return ConsolePart(b"", 0, 0)

    stage.platform.console_after = tolerant  # type: ignore[method-assign]


def tells_of_everybodys_machines(stage: FakeStage) -> None:
    stage.platform.history = lambda refs, since: tuple(stage.fake.events)  # type: ignore[method-assign]


def keeps_the_oldest_lines(stage: FakeStage) -> None:
    def oldest(ref: object, since: float, most: int) -> bytes:
        return b"".join(stage.fake.archives["m-a1"].splitlines(keepends=True)[:most])

    stage.platform.console_archive = oldest  # type: ignore[method-assign, assignment]


P = PlatformContract
CAUGHT: list[tuple[Callable[[FakeStage], None], Callable[..., None]]] = [
    (cuts_characters, P.test_a_character_that_is_still_being_written_waits_for_its_rest),
    (cuts_characters, P.test_the_parts_of_a_console_make_the_whole_of_it),
    (takes_silence_for_an_answer, P.test_a_console_that_cannot_be_read_is_not_an_empty_one),
    (tells_of_everybodys_machines, P.test_the_platforms_own_history_is_in_order_and_of_these_machines_only),
    (keeps_the_oldest_lines, P.test_the_log_service_has_the_newest_lines_also_of_a_machine_that_is_gone),
]


@pytest.mark.parametrize(
    ("broken", "promise"), [pytest.param(b, p, id=f"{b.__name__}-{p.__name__}") for b, p in CAUGHT]
)
def test_a_broken_platform_is_caught(broken: Callable[[FakeStage], None], promise: Callable[..., None]) -> None:
    stage = FakeStage()
    broken(stage)
    with pytest.raises((AssertionError, UnicodeDecodeError, pytest.fail.Exception)):
        promise(PlatformContract(), stage)
