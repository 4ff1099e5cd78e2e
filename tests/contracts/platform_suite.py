"""What a user can ask a platform (ports/platform.py): consoles, history, the account."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

import pytest

from supervisor.domain.machines import MachineRef
from supervisor.ports.platform import ConsolePart, Platform
from supervisor.ports.provider import MachineMissing, NotSupported, ProviderUnavailable

LONG_AGO = 0.0


class PlatformStage(ABC):
    """One platform with one living machine: `ref`. `tells_history`: it has records of its own."""

    platform: Platform
    ref: MachineRef
    tells_history = True

    @abstractmethod
    def write(self, data: bytes) -> None:
        """The machine writes this to its console."""

    @abstractmethod
    def end(self) -> None:
        """The machine is given back, and gone."""

    @abstractmethod
    def unreadable(self) -> AbstractContextManager[None]:
        """While this is open, nothing can be read."""


class PlatformContract:
    """Subclass it with a fixture `stage`."""

    def test_whose_machines_these_are_is_known_without_asking_once_it_was_told(self, stage: PlatformStage) -> None:
        before = stage.platform.account_so_far()
        told = stage.platform.account()
        assert told.name != ""
        assert before.name == told.name
        assert stage.platform.account_so_far() == told
        with stage.unreadable():
            assert stage.platform.account() == told

    def test_a_person_gets_a_shell_by_one_command_or_is_on_that_computer(self, stage: PlatformStage) -> None:
        with stage.unreadable():
            login = stage.platform.login(stage.ref)
        assert login.command or login.folder
        assert not login.command or stage.ref.zone in login.command
        assert not login.folder or login.folder.endswith(f"/{stage.ref.name}")

    def test_the_parts_of_a_console_make_the_whole_of_it(self, stage: PlatformStage) -> None:
        start = self._part(stage, 0).end
        whole = "".join(f"{n} é 中 🚂\n" for n in range(40)).encode()
        stage.write(whole[:201])
        first = stage.platform.console_after(stage.ref, start, 64)
        stage.write(whole[201:])
        parts, at = [first.content], first.end
        for _ in range(100):
            part = stage.platform.console_after(stage.ref, at, 64)
            assert part.start == at
            assert part.end == at + len(part.content)
            assert len(part.content) <= 64
            part.content.decode()
            if not part.content:
                break
            parts.append(part.content)
            at = part.end
        assert b"".join(parts) == whole

    def test_a_character_that_is_still_being_written_waits_for_its_rest(self, stage: PlatformStage) -> None:
        start = self._part(stage, 0).end
        train = "a🚂".encode()
        stage.write(train[:3])
        torn = stage.platform.console_after(stage.ref, start)
        assert (torn.content, torn.end) == (b"a", start + 1)
        stage.write(train[3:])
        assert stage.platform.console_after(stage.ref, torn.end).content.decode() == "🚂"

    def test_a_negative_start_counts_from_the_end_and_behind_the_end_there_is_nothing(
        self, stage: PlatformStage
    ) -> None:
        stage.write(b"one\ntwo\nthree\n")
        last = stage.platform.console_after(stage.ref, -6)
        assert last.content == b"three\n"
        assert last.end - last.start == 6
        nothing = stage.platform.console_after(stage.ref, last.end)
        assert (nothing.content, nothing.end) == (b"", last.end)

    def test_a_machine_that_is_gone_has_no_console(self, stage: PlatformStage) -> None:
        stage.end()
        with pytest.raises(MachineMissing):
            stage.platform.console_after(stage.ref, 0)

    def test_a_console_that_cannot_be_read_is_not_an_empty_one(self, stage: PlatformStage) -> None:
        stage.write(b"something\n")
        with stage.unreadable(), pytest.raises(ProviderUnavailable):
            stage.platform.console_after(stage.ref, 0)

    def test_the_log_service_has_the_newest_lines_also_of_a_machine_that_is_gone(self, stage: PlatformStage) -> None:
        if not stage.platform.log_service:
            with pytest.raises(NotSupported):
                stage.platform.console_archive(stage.ref, LONG_AGO, 10)
            return
        stage.write(b"one\ntwo\nthree\n")
        stage.end()
        assert stage.platform.console_archive(stage.ref, LONG_AGO, 2) == b"two\nthree\n"
        with stage.unreadable(), pytest.raises(ProviderUnavailable):
            stage.platform.console_archive(stage.ref, LONG_AGO, 2)

    def test_the_platforms_own_history_is_in_order_and_of_these_machines_only(self, stage: PlatformStage) -> None:
        stage.end()
        found = stage.platform.history([stage.ref], LONG_AGO)
        assert stage.platform.history([], LONG_AGO) == ()
        assert bool(found) == stage.tells_history
        if not found:
            return
        assert list(found) == sorted(found, key=lambda event: event.at)
        assert {event.machine_name for event in found} == {stage.ref.name}
        assert all(event.kind and event.text and event.event_id for event in found)
        newest = found[-1]
        later = stage.platform.history([stage.ref], newest.at)
        assert newest in later
        assert all(event.at >= newest.at for event in later)
        other = MachineRef(stage.ref.provider, stage.ref.zone, "another", "77")
        assert stage.platform.history([other], LONG_AGO) == ()
        with stage.unreadable(), pytest.raises(ProviderUnavailable):
            stage.platform.history([stage.ref], LONG_AGO)

    @staticmethod
    def _part(stage: PlatformStage, start: int) -> ConsolePart:
        part = stage.platform.console_after(stage.ref, start, 1 << 20)
        assert part.end >= part.start
        return part
