"""Containers as real processes: the command of a pod on this computer, with folders in place of its volumes.

There is no image and no mount: the command runs with the programs of this computer (`python3` is the Python of the
tests), in a folder of its own for each pod. Each path at which the pod mounts a volume becomes a folder below it, and
where such a path stands in the command, in a variable or in the working directory, it is replaced by that folder, the
longest first. What is in a file is not replaced: a program that is to be started here finds its paths in variables.
Two kinds of mounts are what they are: a claim at a path that is a folder of this computer, which supervisor and pods
then share, and memory, whose /dev/shm is the computer's.

TERM goes to the first process alone. When it has ended, or with KILL, everything that it has started is killed, as the
end of a container does.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.cloud import vm_keeper, vm_processes
from tests.kubernetes.containers import Exit, Launch, Mount

PYTHON_FOLDER = str(Path(sys.executable).parent)


class ProcessRuntime:
    """`folder`: of all pods and claims."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, launch: Launch) -> Process:
        root = self.folder / "pods" / launch.pod["metadata"]["name"]
        root.mkdir(parents=True)
        paths = {mount.path: self._folder(root, mount) for mount in launch.mounts}
        environ = {
            "PATH": os.pathsep.join((PYTHON_FOLDER, "/usr/local/bin", "/usr/bin", "/bin")),
            "HOME": str(root),
            "HOSTNAME": launch.pod["metadata"]["name"],
            "LANG": "C.UTF-8",
            "KUBERNETES_SERVICE_HOST": "10.96.0.1",
            "KUBERNETES_SERVICE_PORT": "443",
            **{name: _moved(value, paths) for name, value in launch.environ.items()},
            vm_processes.MARKER: str(root),
        }
        command = [_moved(word, paths) for word in launch.command]
        workdir = _moved(launch.workdir, paths) if launch.workdir else str(root)
        vm_keeper.keep(root)
        return Process(command, environ, workdir, root)

    def _folder(self, root: Path, mount: Mount) -> str:
        if mount.in_memory or (mount.claim and Path(mount.path).is_dir()):
            return mount.path
        parts = ("claims", mount.claim) if mount.claim else (root.name, mount.volume)
        folder = (self.folder if mount.claim else root.parent).joinpath(*parts)
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in (mount.files or {}).items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return str(folder)


class Process:
    def __init__(self, command: list[str], environ: Mapping[str, str], workdir: str, root: Path) -> None:
        self.root, self._log = root, root / "log"
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                command,
                env=environ,
                cwd=workdir,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._exit: Exit | None = None

    @property
    def pid(self) -> int:
        return self._child.pid

    def poll(self) -> Exit | None:
        code = self._child.poll()
        if code is not None and self._exit is None:
            self._end_rest()
            self._exit = Exit(code if code >= 0 else 128 - code)
        return self._exit

    def terminate(self) -> None:
        with suppress(ProcessLookupError):
            self._child.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._end_rest()
        self._child.wait(30)
        self.poll()

    def log(self) -> bytes:
        return self._log.read_bytes()

    def _end_rest(self) -> None:
        left = vm_processes.end(self.root)
        assert left == [], f"processes of {self.root} could not be ended: {left}"
        vm_keeper.forget(self.root)


def _moved(text: str, paths: Mapping[str, str]) -> str:
    """With each path of a mount replaced by its folder, once."""
    if not paths:
        return text
    longest_first = sorted(paths, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, longest_first))})(?![\w.-])")
    return pattern.sub(lambda match: paths[match[1]], text)
