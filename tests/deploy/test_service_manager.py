"""What systemd hears, on a real socket of the kind that it listens on."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.settings.serving_process import ServiceManager

PID = 4711


class Systemd:
    def __init__(self, folder: Path, abstract: bool) -> None:
        self.address = f"@spot-test-{folder.name}-{id(self)}" if abstract else str(folder / "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + self.address[1:] if abstract else self.address)
        self._socket.setblocking(False)

    def heard(self) -> list[str]:
        found = []
        while True:
            try:
                found.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=[False, True], ids=["path", "abstract"])
def systemd(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Systemd]:
    one = Systemd(tmp_path, request.param)
    yield one
    one.close()


class Time:
    now = 100.0


def manager(systemd: Systemd, **environ: str) -> ServiceManager:
    return ServiceManager({"NOTIFY_SOCKET": systemd.address, **environ}, lambda: Time.now, PID)


def test_the_beginning_and_the_end_are_told(systemd: Systemd) -> None:
    one = manager(systemd)
    one.ready("http://127.0.0.1:1")
    one.stopping()
    ready, stopping = systemd.heard()
    assert ready.splitlines()[:2] == ["READY=1", "STATUS=Serving at http://127.0.0.1:1"]
    assert stopping.startswith("STOPPING=1\n")


def test_the_watchdog_is_fed_in_time_and_only_while_the_loop_ticks(
    systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = manager(systemd, WATCHDOG_USEC="10000000", WATCHDOG_PID=str(PID))
    fed = []
    for second in range(30):
        monkeypatch.setattr(Time, "now", 100.0 + second)
        one.feed(lambda: second < 20)  # noqa: B023 - called at once
        fed += [second for _ in systemd.heard()]
    assert fed == [0, 4, 8, 12, 16], "twice within the 10 s of the watchdog, and no more when the loop hangs"


@pytest.mark.parametrize(
    "environ",
    [{}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": str(PID + 1)}],
    ids=["none", "no number", "of another process"],
)
def test_a_watchdog_that_is_not_ours_is_not_fed(systemd: Systemd, environ: dict[str, str]) -> None:
    manager(systemd, **environ).feed(lambda: True)
    assert systemd.heard() == []


def test_nobody_who_listens_is_no_trouble(tmp_path: Path) -> None:
    for address in ("", "nonsense", str(tmp_path / "gone"), "@" + "x" * 200):
        one = ServiceManager({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1"}, lambda: 0.0, PID)
        one.ready("http://127.0.0.1:1")
        one.feed(lambda: True)
        one.stopping()
