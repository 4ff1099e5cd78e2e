"""`docker run` of the stub: the command as a process of this computer, with the paths of the sandbox as they are.

Exit codes as of docker: 125 = it could not be started, 126/127 = its program cannot be run or is not there, else the
command's own, 128 + N when signal N ended it. When the first process of a container ends, the others end with it. It
takes orphans in (PR_SET_CHILD_SUBREAPER), so a daemon that cleaned its environment is still among its descendants.
"""

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

PR_SET_CHILD_SUBREAPER = 36
HELP = "\nRun 'docker run --help' for more information\n"
DRIVER_FOLDER = "/usr/local/nvidia/"
STUB = Path(os.environ["VM_STUB"])
ROOT = os.environ["SPOT_ROOT"]


class Refused(Exception):
    """docker's daemon says no."""

    def __init__(self, words: str, code: int = 125) -> None:
        super().__init__(words)
        self.code = code


class Words(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused(message)


def main() -> int:
    parser = Words(allow_abbrev=False)
    for option in ("name", "network", "shm-size", "stop-timeout", "log-driver", "entrypoint", "gpus", "runtime"):
        parser.add_argument("--" + option)
    for option in ("-e", "-v", "--device"):
        parser.add_argument(option, action="append", default=[])
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    try:
        wish = parser.parse_args(sys.argv[2:])
        environment = prepared(wish)
    except Refused as refused:
        sys.stderr.write(f"docker: Error response from daemon: {refused}.\n{HELP}")
        return refused.code
    return run([wish.entrypoint, *wish.command], environment)


def prepared(wish: argparse.Namespace) -> dict[str, str]:
    """The container's environment. Raises Refused."""
    if wish.runtime:
        raise Refused(f"unknown or invalid runtime name: {wish.runtime}")
    if wish.gpus:
        raise Refused("error running prestart hook #0: Using requested mode 'cdi'")
    code, _, words = (STUB / "refusal").read_text().strip().partition(" ")
    if code:
        raise Refused(words, int(code))
    if Path(STUB, "container").exists():
        raise Refused(f'Conflict. The container name "/{wish.name}" is already in use')
    for device in wish.device:
        if not Path(device.partition(":")[0]).exists():
            raise Refused(f"error gathering device information while adding custom device {device!r}")
    environment = image_environment()
    for volume in wish.v:
        source, target = volume.split(":")[:2]  # "ro" may follow them
        mount(source, target, environment)
    environment.update(variable.split("=", 1) for variable in wish.e)
    return environment


def image_environment() -> dict[str, str]:
    told = (STUB / "image_env").read_text().split("\n")
    return {
        "VM_FOLDER": os.environ["VM_FOLDER"],
        "HOME": str(STUB / "home"),
        **dict(line.split("=", 1) for line in told if line),
    }


def mount(source: str, target: str, environment: dict[str, str]) -> None:
    """The same path, or a link to it where the sandbox has room for one. The driver's folders cannot be made on this
    computer: the environment tells the image what it finds there."""
    os.makedirs(source, exist_ok=True)
    if target.startswith(DRIVER_FOLDER):
        if target.endswith("/bin"):
            environment["PATH"] = source + ":" + environment["PATH"]
    elif target != source:
        if not target.startswith(os.environ["VM_FOLDER"]):
            raise Refused(f"the stub cannot mount at {target}")
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            os.unlink(target)
        os.symlink(source, target)


def run(command: list[str], environment: dict[str, str]) -> int:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        child = subprocess.Popen(
            command,
            env=environment,
            cwd=(STUB / "workdir").read_text().strip(),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        sys.stderr.write(f"docker: Error response from daemon: exec {command[0]!r}: {error}.\n")
        return 126 if isinstance(error, PermissionError) else 127
    Path(STUB, "container").write_text(str(child.pid))
    signal.signal(signal.SIGTERM, lambda number, _: child.send_signal(number))  # --sig-proxy, docker's default
    code = child.wait()
    Path(STUB, "container").unlink(missing_ok=True)
    end_descendants()
    return code if code >= 0 else 128 - code


def end_descendants() -> None:
    """Until none is left: the children of each ended process become ours."""
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            return
        for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.005)


if __name__ == "__main__":
    sys.exit(main())
