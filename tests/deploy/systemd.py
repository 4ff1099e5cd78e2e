"""As much of systemd as the unit needs: what it starts, whom it tells what at a restart, and what it hears.

The unit's own lines decide (systemd.kill(5)): with KillMode=process only the main process gets the signal; with
control-group every process that was started below it, and SIGKILL for those that stay.
"""

from __future__ import annotations

import configparser
import signal
import socket
from pathlib import Path

from tests.acceptance.daemon import Daemon, kill_if_there, machine_pids

UNIT = Path(__file__).parents[2] / "deploy/systemd/spot-supervisor.service"


def read_unit(text: str) -> dict[str, dict[str, str]]:
    """Section -> name -> value."""
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(text)
    return {section: dict(parser[section]) for section in parser.sections()}


class Service(Daemon):
    """The daemon as systemd runs it."""

    def __init__(self, data_dir: Path, environ: dict[str, str], unit: dict[str, dict[str, str]]) -> None:
        self.unit = unit["Service"]
        address = data_dir.parent / "notify"
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind(str(address))
        self._notify.setblocking(False)
        usec = str(int(float(self.unit["WatchdogSec"]) * 1e6))
        super().__init__(data_dir, {**environ, "NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": usec})
        self._heard: list[str] = []

    def heard(self) -> list[str]:
        """Every line so far."""
        while True:
            try:
                self._heard += self._notify.recv(4096).decode().splitlines()
            except BlockingIOError:
                return self._heard

    def restart(self) -> None:
        number = signal.Signals[self.unit["KillSignal"]]
        everybody = self.unit.get("KillMode", "control-group") == "control-group"
        others = machine_pids(self.data_dir) if everybody else []
        for pid in others:
            kill_if_there(pid, number)
        self.kill(number)
        for pid in others:
            kill_if_there(pid)
        self.start()

    def close(self) -> None:
        super().close()
        self._notify.close()
