"""A real sshd for tests, for one host: its own keys, its own home, on a loopback port, as the user of the tests."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.components import require_component
from tests.waiting import wait_for

SSHD = "/usr/sbin/sshd"


def require_sshd() -> None:
    there = Path(SSHD).exists() and shutil.which("ssh-keygen") is not None
    require_component("sshd", there, "apt-get install openssh-server")


@dataclass
class Sshd:
    """`folder`: of everything, made for this host. `home`: of its user."""

    alias: str
    folder: Path
    options: dict[str, str] = field(default_factory=dict)
    wrapper: Sequence[str] = ()  # a program that starts the server, such as one with mounts of its own
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def user_key(self) -> Path:
        return self.folder / "userkey"

    def make(self) -> None:
        require_sshd()
        self.home.mkdir(parents=True, mode=0o700)
        for key in ("hostkey", "userkey"):
            self._write_key(key, *_known_key(self.alias, key))
        shutil.copyfile(self.folder / "userkey.pub", self.folder / "authorized_keys")
        (self.folder / "authorized_keys").chmod(0o600)
        self.port = free_port()
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd's own folder; only root needs it

    def make_key(self, name: str) -> None:
        """Another one than before."""
        self._write_key(name, *_new_key())

    def _write_key(self, name: str, secret: bytes, public: bytes) -> None:
        (self.folder / name).write_bytes(secret)
        (self.folder / name).chmod(0o600)
        (self.folder / f"{name}.pub").write_bytes(public)

    def start(self) -> None:
        lines = {
            "Port": str(self.port),
            "ListenAddress": "127.0.0.1",
            "HostKey": str(self.folder / "hostkey"),
            "PidFile": "none",
            "AuthorizedKeysFile": str(self.folder / "authorized_keys"),
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "UsePAM": "no",
            "StrictModes": "no",
            "PermitRootLogin": "prohibit-password",
            "MaxStartups": "100:30:200",
            **self.options,
            "SetEnv": " ".join([f"HOME={self.home}", self.options.get("SetEnv", "")]),
        }
        config = self.folder / "sshd_config"
        config.write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
        log = self.folder / "sshd.log"
        self.process = subprocess.Popen(
            [*self.wrapper, SSHD, "-D", "-f", str(config), "-E", str(log)], start_new_session=True
        )
        wait_for(self.answers, what="sshd to listen")

    def answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
            return True
        return False

    def stop(self) -> None:
        """End the server and every connection to it; what runs on the host goes on."""
        if self.process is None:
            return
        for pid in (*self.connections(), self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(60)
        self.process = None

    def end_all(self) -> None:
        """As a reboot does: the server, and every process that a login has started, machines and commands alike."""
        self.stop()
        marker = b"HOME=" + os.fsencode(self.home)
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                if marker in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)

    def signal(self, number: int) -> None:
        """To the server and to the processes of its connections."""
        assert self.process is not None
        for pid in (self.process.pid, *self.connections()):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def connections(self) -> list[int]:
        """sshd's own processes below the server: one or two for each connection."""
        assert self.process is not None
        found, waiting = [], [self.process.pid]
        while waiting:
            for child in _children(waiting.pop()):
                with suppress(OSError):
                    if (Path("/proc") / str(child) / "comm").read_text().strip() == "sshd":
                        found.append(child)
                        waiting.append(child)
        return found

    def config_lines(self) -> str:
        return (
            f"Host {self.alias}\n  HostName 127.0.0.1\n  Port {self.port}\n  IdentityFile {self.user_key}\n"
            "  IdentitiesOnly yes\n"
        )

    def known_line(self) -> str:
        key = " ".join((self.folder / "hostkey.pub").read_text().split()[:2])
        return f"[127.0.0.1]:{self.port} {key}\n"


def _new_key() -> tuple[bytes, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "key")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True, timeout=60)
        return path.read_bytes(), path.with_suffix(".pub").read_bytes()


@cache
def _known_key(alias: str, name: str) -> tuple[bytes, bytes]:
    """Of the hosts of this name: each test starts two, and a key takes 4 ms of CPU."""
    return _new_key()


def write_client_files(folder: Path, hosts: Sequence[Sshd]) -> tuple[Path, Path]:
    """(configuration, known hosts) of a client of these hosts."""
    config, known = folder / "ssh_config", folder / "known_hosts"
    config.write_text("".join(host.config_lines() for host in hosts))
    known.write_text("".join(host.known_line() for host in hosts))
    return config, known


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(word) for word in (Path("/proc") / str(pid) / "task" / str(pid) / "children").read_text().split()]
    return []


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
