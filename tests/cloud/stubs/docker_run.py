"""`docker run` of the stub: the command as a process of this computer, with the paths of the sandbox as they are.

Exit codes as of docker: 125 = it could not be started, 126/127 = its program cannot be run or is not there, else the
command's own, 128 + N when signal N ended it. When the first process of a container ends, the others end with it. It
takes orphans in (PR_SET_CHILD_SUBREAPER), so a daemon that cleaned its environment is still among its descendants.
"""

from __future__ import annotations  # a start of it is a third of what a boot costs: it imports little

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress

PR_SET_CHILD_SUBREAPER = 36
HELP = "\nRun 'docker run --help' for more information\n"
DRIVER_FOLDER = "/usr/local/nvidia/"
STUB = os.environ["VM_STUB"]
OPTIONS = (
    "--name", "--network", "--shm-size", "--stop-timeout", "--log-driver", "--entrypoint", "--gpus", "--runtime", "-e",
    "-v", "--device",
)  # fmt: skip
Given = dict[str, list[str]]  # option -> its values


class Refused(Exception):
    """docker's daemon says no."""

    def __init__(self, words: str, code: int = 125) -> None:
        super().__init__(words)
        self.code = code


def main() -> int:
    try:
        given, (_, *command) = parsed(sys.argv[2:])
        environment = prepared(given)
    except Refused as refused:
        sys.stderr.write(f"docker: Error response from daemon: {refused}.\n{HELP}")
        return refused.code
    return run([*given["--entrypoint"], *command], environment)


def parsed(words: list[str]) -> tuple[Given, list[str]]:
    """The options, and the image with its command. Raises Refused."""
    given, rest = Given(), list(words)
    while len(rest) > 1 and rest[0].startswith("-"):
        if rest[0] not in OPTIONS:
            raise Refused(f"unknown flag: {rest[0]}")
        given.setdefault(rest.pop(0), []).append(rest.pop(0))
    if not rest:
        raise Refused("requires at least 1 argument")
    return given, rest


def prepared(given: Given) -> dict[str, str]:
    """The container's environment. Raises Refused."""
    if "--runtime" in given:
        raise Refused(f"unknown or invalid runtime name: {given['--runtime'][0]}")
    if "--gpus" in given:
        raise Refused("error running prestart hook #0: Using requested mode 'cdi'")
    code, _, words = content("refusal").strip().partition(" ")
    if code:
        raise Refused(words, int(code))
    if os.path.exists(f"{STUB}/container"):
        raise Refused(f'Conflict. The container name "/{given["--name"][0]}" is already in use')
    for device in given.get("--device", ()):
        if not os.path.exists(device.partition(":")[0]):
            raise Refused(f"error gathering device information while adding custom device {device!r}")
    environment = image_environment()
    for volume in given.get("-v", ()):
        source, target = volume.split(":")[:2]  # "ro" may follow them
        mount(source, target, environment)
    environment.update(variable.split("=", 1) for variable in given.get("-e", ()))
    return environment


def content(name: str) -> str:
    with open(f"{STUB}/{name}") as source:
        return source.read()


def image_environment() -> dict[str, str]:
    told = content("image_env").split("\n")
    return {
        "VM_FOLDER": os.environ["VM_FOLDER"],
        "HOME": f"{STUB}/home",
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
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with suppress(FileNotFoundError):
            os.unlink(target)
        os.symlink(source, target)


def run(command: list[str], environment: dict[str, str]) -> int:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    quiet = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    defaults = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them
    try:
        os.chdir(content("workdir").strip())
        child = os.posix_spawn(command[0], command, environment, file_actions=[quiet], setsid=True, setsigdef=defaults)
    except OSError as error:
        sys.stderr.write(f"docker: Error response from daemon: exec {command[0]!r}: {error}.\n")
        return 126 if isinstance(error, PermissionError) else 127
    with open(f"{STUB}/container", "w") as target:
        target.write(str(child))
    signal.signal(signal.SIGTERM, lambda number, _: send(child, number))  # --sig-proxy, docker's default
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with suppress(FileNotFoundError):
        os.unlink(f"{STUB}/container")
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
        with open(f"/proc/self/task/{os.getpid()}/children") as children:
            for pid in children.read().split():
                send(int(pid), signal.SIGKILL)
        time.sleep(0.005)


def send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


if __name__ == "__main__":
    sys.exit(main())
