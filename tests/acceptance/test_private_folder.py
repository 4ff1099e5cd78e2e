"""A data folder that others may enter shows them nothing of the supervisor's."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.acceptance.daemon import QUICK, Daemon


def test_nothing_in_a_data_folder_of_mode_755_is_readable_by_others(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o755)
    before = os.umask(0o022)
    daemon = Daemon(folder, QUICK)
    try:
        daemon.start()
        daemon.submit("short", command=["true"])
        daemon.wait_status("short", "completed")
        assert readable(folder) == []
        [told] = [check for check in daemon.call("GET", "/v1/doctor")["checks"] if check["name"] == "privacy"]
        assert told["result"] == "ok"
        daemon.kill(signal.SIGTERM)
        (folder / "supervisor.db").chmod(0o644)
        daemon.start()
        assert readable(folder) == [], "what an earlier version has left is tightened"
    finally:
        daemon.close()
        os.umask(before)


def readable(folder: Path) -> list[str]:
    """What others can read or enter there, without the program and what the test itself has put there."""
    found = [path.name for path in folder.iterdir() if path.stat().st_mode & 0o077]
    return [name for name in found if name not in ("serve.log", "agent.pyz", "agent-compiled.pyz")]
