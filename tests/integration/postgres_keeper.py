"""Keeps one throwaway PostgreSQL server alive as long as somebody holds the other end of standard input.

    python postgres_keeper.py BIN_DIR DATA_DIR [NAME=VALUE ...]

It makes the cluster, starts the server on a free loopback port, prints `ready PORT`, and waits for the end of its
standard input. That end also comes when the tests are killed, with -9 too; then the server is stopped and its folder
removed, so that no server outlives the tests. A process of its own, in a session of its own: signals meant for the
tests do not reach the server.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

USER = "supervisor"
START_TIMEOUT_S = 60.0
FREE_PORT_TRIES = 3


def as_nobody() -> list[str]:
    """PostgreSQL refuses to run as root: as root it runs in a user namespace without privileges."""
    return ["unshare", "--user"] if os.geteuid() == 0 else []


def environment() -> dict[str, str]:
    """Ours, without the PG* variables that would change what initdb and the server do."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return {**kept, "LC_ALL": "C.UTF-8"}


def make_cluster(binaries: Path, folder: Path) -> None:
    """Raises CalledProcessError, with initdb's output in `stdout`."""
    options = ["--username", USER, "--auth", "trust", "--encoding", "UTF8", "--no-sync", "--no-instructions"]
    subprocess.run(
        [*as_nobody(), str(binaries / "initdb"), "--pgdata", str(folder / "data"), *options],
        check=True,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def free_port() -> int:
    """Free now; another process may take it before the server does, so there are several tries."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start(binaries: Path, folder: Path, port: int, settings: list[str]) -> "subprocess.Popen[bytes] | None":
    """The server when it accepts connections; None = it ended at its start."""
    where = ["-D", str(folder / "data"), "-h", "127.0.0.1", "-p", str(port), "-k", str(folder)]
    options = [word for setting in settings for word in ("-c", setting)]
    with (folder / "log").open("ab") as log:
        server = subprocess.Popen(
            [*as_nobody(), str(binaries / "postgres"), *where, *options],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    deadline = time.monotonic() + START_TIMEOUT_S
    question = [str(binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    while time.monotonic() < deadline and server.poll() is None:
        if subprocess.run(question, env=environment(), check=False).returncode == 0 and server.poll() is None:
            return server
        time.sleep(0.02)
    stop(server)
    return None


def stop(server: "subprocess.Popen[bytes]") -> None:
    """Fast shutdown: it ends open sessions, because the cluster is deleted anyway."""
    if server.poll() is None:
        server.send_signal(signal.SIGINT)
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def keep(binaries: Path, folder: Path, settings: list[str]) -> int:
    """Start, report, wait, stop; returns the exit status."""
    try:
        make_cluster(binaries, folder)
        for _ in range(FREE_PORT_TRIES):
            port = free_port()
            server = start(binaries, folder, port, settings)
            if server is not None:
                print(f"ready {port}", flush=True)
                sys.stdin.read()
                stop(server)
                return 0
        print((folder / "log").read_text(errors="replace"), flush=True)
    except subprocess.CalledProcessError as error:
        print(error.stdout, flush=True)
    except OSError as error:
        print(error, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 1


if __name__ == "__main__":
    sys.exit(keep(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
