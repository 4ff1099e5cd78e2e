"""After a reboot of this computer: the agents of machines that asked for it are started again, by whoever comes first.

That is the line which a launch installs (a unit of the user's own systemd where the user lingers, else a line of the
user's crontab), or the next request of the supervisor. Machine and launch stay the same: the id lies in identity.json,
beats are counted on from a higher number, and the baton knows its holder. Secrets are on an agent's standard input
only, so a machine with secrets cannot be relaunched.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Callable, List, Mapping, NamedTuple, Sequence

from supervisor.host import processes
from supervisor.host.files import Unreadable, clause, read_json, remove, write_json, write_text
from supervisor.host.folders import Folder, Folders
from supervisor.host.refusals import Refused
from supervisor.host.starting import Agents, Start

if TYPE_CHECKING:
    import subprocess

RELAUNCH = "relaunch"  # value of `on_reboot` in job.json
ENVIRONMENT = "environment.json"  # what the first agent was started with
OUTPUT = "output.log"
CALL_S = 20.0
UNIT_FOLDER = "~/.config/systemd/user"
UNIT = """\
# Written by `spot`: starts the agents in {root} again after a reboot. It is removed with the last of them.
[Unit]
Description=Agents of Spot Supervisor in {root}

[Service]
Type=oneshot
KillMode=process
ExecStart={command}

[Install]
WantedBy=default.target
"""


# --- the machines -----------------------------------------------------------------------------------------------------


def prepare(folder: Folder, environment: Mapping[str, str]) -> None:
    """Before the first start of its agent: what a later start needs. OSError."""
    import secrets  # late here and below, as in operations.py

    write_json(folder.path / "identity.json", {"machine_id": "m-" + secrets.token_hex(12)})
    write_json(folder.path / ENVIRONMENT, dict(environment))


def wants(folder: Folder) -> bool:
    """Its machine is to be relaunched, and was not released. Unreadable."""
    job = read_json(folder.path / "job.json") or {}
    return job.get("on_reboot") == RELAUNCH and folder.record() is None and folder.gone_at() is None


def relaunch(folders: Folders, agents: Agents, prefix: Callable[[], Sequence[str]], now: float) -> List[str]:
    """Start the agents of machines that were alive at the end of the boot before this one. Their names. An agent that
    cannot be started leaves its machine as any other one after a reboot, and a folder that cannot be read stops no
    other. OSError: not even the names of the folders can be read."""
    boot, started = processes.boot_id(), []
    for folder in folders.all():
        with suppress(OSError, Unreadable):
            if _is_due(folder, boot):
                with folders.locked():
                    if _is_due(folder, boot) and _start(folder, agents, prefix(), boot, now):
                        started.append(folder.name)
    return started


def _is_due(folder: Folder, boot: str) -> bool:
    """Its agent was killed by the end of an earlier boot, or left because of it, and none was started since."""
    agent = folder.agent()
    if agent is None or processes.same_boot(agent.boot_id, boot) or folder.notice() is not None or not wants(folder):
        return False
    left = read_json(folder.path / "left.json") or {}
    return left.get("by_shutdown", True) is True and not folder.is_relaunched_in(boot)


def _start(folder: Folder, agents: Agents, prefix: Sequence[str], boot: str, now: float) -> bool:
    """Once in each boot: an agent that ends at once must not be started without end. All that is left of the earlier
    one is its output, which the new one goes on with: the log in the store has the same beginning."""
    environment = read_json(folder.path / ENVIRONMENT)
    if environment is None:
        return False
    folder.write_relaunch(boot, now)
    for name in os.listdir(folder.path / "work") if (folder.path / "work").is_dir() else ():
        if name != OUTPUT:
            remove(folder.path / "work" / name)
    (folder.path / "left.json").unlink(missing_ok=True)
    agents.start(folder, Start({str(name): str(value) for name, value in environment.items()}, {}, prefix))
    deadline = time.monotonic() + CALL_S
    while _is_starting(folder, agents, boot) and time.monotonic() < deadline:
        time.sleep(processes.POLL_S)
    return True


def _is_starting(folder: Folder, agents: Agents, boot: str) -> bool:
    agent = folder.agent()
    return agents.lives(folder) and (agent is None or not processes.same_boot(agent.boot_id, boot))


# --- the line that the computer runs after a reboot -------------------------------------------------------------------


class BootLine(NamedTuple):
    """`root`: of the machines. `archive`: the program that runs then. `lingers`: the user's own systemd starts with the
    computer. `mark`: a file that exists while there may be a line."""

    root: Path
    archive: Path
    lingers: bool
    mark: Path

    def install(self) -> None:
        """Safe to repeat. Refused."""
        import shlex

        self.mark.touch()
        if self.lingers and shutil.which("systemctl") is not None:
            self._enable_unit()
        elif shutil.which("crontab") is not None:
            self._write_crontab([*self._other_lines(), f"@reboot {shlex.join(self._command())} {self._comment}"])
        else:
            raise Refused("on_reboot = relaunch needs crontab on the host, or a user who lingers (loginctl)")

    def remove_unneeded(self, folders: Folders) -> None:
        """With the last machine that wants it. Refused."""
        if self.mark.exists():
            with folders.locked():
                if not any(map(wants, folders.all())):
                    self.remove()
                    self.mark.unlink(missing_ok=True)

    def remove(self) -> None:
        """Of both kinds, whichever is there. Refused."""
        if self._unit.exists():
            self._systemctl("disable", self._unit.name)
            self._unit.unlink(missing_ok=True)
        if shutil.which("crontab") is not None:
            lines = self._lines()
            others = self._other_lines()
            if len(others) < len(lines):
                self._write_crontab(others)

    def _command(self) -> List[str]:
        return [sys.executable, str(self.archive), "host", RELAUNCH, str(self.root)]

    @property
    def _comment(self) -> str:
        return f"# spot machines in {self.root}"

    @property
    def _unit(self) -> Path:
        import hashlib

        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:12]
        return Path(os.path.expanduser(UNIT_FOLDER)) / f"spot-relaunch-{digest}.service"

    def _enable_unit(self) -> None:
        import shlex

        self._unit.parent.mkdir(parents=True, exist_ok=True)
        text = UNIT.format(root=self.root, command=shlex.join(self._command()))
        if not self._unit.exists() or self._unit.read_text() != text:
            write_text(self._unit, text)
        self._systemctl("daemon-reload")
        self._systemctl("enable", self._unit.name)

    def _systemctl(self, *words: str) -> None:
        done = _run(["systemctl", "--user", *words])
        if done.returncode != 0:
            raise Refused(f"systemctl --user {words[0]} failed: {_last_line(done)}")

    def _lines(self) -> List[str]:
        done = _run(["crontab", "-l"])
        if done.returncode != 0 and "no crontab" not in done.stderr:
            raise Refused(f"crontab -l failed: {_last_line(done)}")
        return done.stdout.splitlines() if done.returncode == 0 else []

    def _other_lines(self) -> List[str]:
        return [line for line in self._lines() if not line.endswith(self._comment)]

    def _write_crontab(self, lines: Sequence[str]) -> None:
        done = _run(["crontab", "-"], "".join(f"{line}\n" for line in lines))
        if done.returncode != 0:
            raise Refused(f"crontab cannot be written: {_last_line(done)}")


def _run(words: Sequence[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Refused."""
    import subprocess

    try:
        return subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=CALL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refused(f"{words[0]} cannot be run: {error}") from None


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    return clause((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:200])
