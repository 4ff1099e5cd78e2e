"""Make the dumps beside this file again, from processes that really hang: python -m tests.agent.hangs.make [NAME…]

Each script hangs in one way; the agent's own code takes the dump, as it does on a machine. `disk` needs root and a loop
device. Paths of this computer are replaced, so that the files are the same wherever they are made.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from supervisor.agent import spot_progress
from supervisor.agent.facts.dumps import thread_dumps

HERE = Path(__file__).parent
REST_S = 1.5  # until every process of a script stands where it will hang
LOCKS = """
    import threading, time
    first, second = threading.Lock(), threading.Lock()
    def other():
        with second:
            time.sleep(0.2)
            with first:
                pass
    threading.Thread(target=other, daemon=True).start()
    with first:
        time.sleep(0.2)
        with second:
            pass
"""
JOIN = """
    import threading
    gate = threading.Lock()
    gate.acquire()
    worker = threading.Thread(target=gate.acquire)
    worker.start()
    worker.join()
"""
QUEUE = """
    import multiprocessing
    batches = multiprocessing.Queue()
    def next_batch():
        return batches.get()
    next_batch()
"""
BARRIER = """
    import multiprocessing, time
    def rank(number, barrier):
        if number == 0:
            time.sleep(600)
        barrier.wait()
    if __name__ == "__main__":
        spawn = multiprocessing.get_context("spawn")
        barrier = spawn.Barrier(2)
        ranks = [spawn.Process(target=rank, args=(number, barrier)) for number in (0, 1)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
"""
PEER = """
    import socket
    listener = socket.create_server(("127.0.0.1", 0))
    peer = socket.create_connection(listener.getsockname())
"""
RECV = PEER + "    data = peer.recv(4096)\n"
HTTP = (
    PEER
    + """
    import http.client
    connection = http.client.HTTPConnection(*listener.getsockname())
    connection.request("GET", "/shard-7")
    connection.getresponse()
"""
)
SLEEP = "import time\ntime.sleep(600)\n"
POOL = """
    import multiprocessing, os, time
    def work(number):
        os.kill(os.getpid(), 9) if number == 1 else time.sleep(0)
    if __name__ == "__main__":
        with multiprocessing.get_context("fork").Pool(2) as pool:
            pool.map(work, range(4), chunksize=1)
"""
WRITES = """
    import os, sys
    target = open(sys.argv[1] + "/step-1.ckpt", "wb")
    while True:
        target.seek(0)
        target.write(b"0" * 65536)
        target.flush()
        os.fsync(target.fileno())
"""
SHELL = "sleep 600 & wait"


class Scene:
    """Processes of one machine folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "work" / "threads").mkdir(parents=True)
        self.children: list[subprocess.Popen[bytes]] = []

    def start(self, script: str, *arguments: str, registered: bool = True, program: str = sys.executable) -> None:
        path = self.root / "train.py"
        path.write_text(("import spot_progress\n" if registered else "") + textwrap.dedent(script))
        env = {**os.environ, "SPOT_MACHINE_DIR": str(self.root), "PYTHONPATH": str(Path(spot_progress.__file__).parent)}
        words = [program, *([] if program != sys.executable else ["-S"]), "train.py", *arguments]
        self.children.append(subprocess.Popen(words, cwd=self.root, env=env, start_new_session=True))
        time.sleep(REST_S)

    def dumps(self) -> list[dict[str, Any]]:
        groups = [child.pid for child in self.children]
        pids = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _group(pid) in groups]
        return thread_dumps(str(self.root / "work" / "threads"), pids)

    def close(self) -> None:
        for child in self.children:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


@contextmanager
def frozen_disk(root: Path) -> Iterator[str]:
    """A file system that takes no write."""
    image, mount = root / "disk.img", root / "mnt"
    mount.mkdir()
    subprocess.run(["truncate", "-s", "16M", image], check=True)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, mount], check=True)
    try:
        yield str(mount)
    finally:
        time.sleep(0.2)
        subprocess.run(["umount", "-l", mount], check=False)


def _disk(scene: Scene) -> list[dict[str, Any]]:
    with frozen_disk(scene.root) as mount:
        scene.start(WRITES, mount)
        subprocess.run(["fsfreeze", "-f", mount], check=True)
        time.sleep(REST_S)
        dumps = scene.dumps()
        subprocess.run(["fsfreeze", "-u", mount], check=True)
        scene.close()
        scene.children.clear()
    return dumps


def _stopped(scene: Scene) -> list[dict[str, Any]]:
    scene.start("while True:\n    pass")
    os.kill(scene.children[0].pid, signal.SIGSTOP)
    time.sleep(0.1)
    return scene.dumps()


def _of(script: str, registered: bool = True, program: str = sys.executable) -> Callable[[Scene], list[dict[str, Any]]]:
    def make(scene: Scene) -> list[dict[str, Any]]:
        scene.start(script, registered=registered, program=program)
        return scene.dumps()

    return make


CASES: dict[str, Callable[[Scene], list[dict[str, Any]]]] = {
    "lock": _of(LOCKS),
    "lock-join": _of(JOIN),
    "lock-unregistered": _of(LOCKS, registered=False),
    "input": _of(QUEUE),
    "input-pool": _of(POOL),
    "collective": _of(BARRIER),
    "network": _of(RECV),
    "network-http": _of(HTTP),
    "network-unregistered": _of(RECV, registered=False),
    "stopped": _stopped,
    "disk": _disk,
    "unknown": _of(SLEEP),
    "unknown-shell": _of(SHELL, registered=False, program="/bin/sh"),
}


def main(names: list[str]) -> None:
    for name in names or CASES:
        with tempfile.TemporaryDirectory() as folder:
            scene = Scene(Path(folder))
            try:
                dumps = CASES[name](scene)
            finally:
                scene.close()
            text = json.dumps(dumps, indent=1, sort_keys=True).replace(folder, "/home/user")
            text = text.replace(sys.executable, "python").replace(sys.base_prefix, "/usr")
            text = re.sub(r"0x[0-9a-f]{6,}", "0x0", text)
            (HERE / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
