"""The machine's folder: what lies where, who owns it, and the notice that the provider may lay into it.

The agent holds a lock on `lock` for life: a second agent on the same folder finds it taken and exits. The training
works below `work/`; nothing else of the folder is its business.
"""

from __future__ import annotations

import fcntl
import json
import os
import pkgutil
import time
from contextlib import suppress
from typing import Dict, Mapping, Optional

from supervisor.agent.machine.identity import Identity


class MachineFolder:
    """Paths are absolute, so that the agent's own working directory never matters."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self.job = os.path.join(self.root, "job.json")
        self.identity = os.path.join(self.root, "identity.json")
        work = os.path.join(self.root, "work")
        self.checkpoints = os.path.join(work, "checkpoints")
        self.results = os.path.join(work, "results")
        self.scratch = os.path.join(work, "scratch")
        self.code = os.path.join(work, "code")  # made when a bundle is unpacked
        self.python = os.path.join(work, "python")
        self.staging = os.path.join(work, "staging")
        self.moments = os.path.join(work, "moments")  # copies of results, until they are saved
        self.incoming = os.path.join(work, "incoming")  # of results that are brought back
        self.readback = os.path.join(work, "readback")  # made where results are checked by loading them
        self.threads = os.path.join(work, "threads")
        self.progress = os.path.join(work, "progress.jsonl")
        self.output = os.path.join(work, "output.log")
        self.stopping = os.path.join(work, "stopping")
        self.marker = "SPOT_MACHINE_DIR=%s" % self.root  # in the environment of every process of this machine
        self._lock: Optional[int] = None
        self._deadline: Optional[float] = None  # of a notice that this agent found itself

    def roles(self) -> Dict[str, str]:
        """Where the command writes."""
        return {"checkpoints": self.checkpoints, "results": self.results, "scratch": self.scratch}

    def take(self) -> bool:
        """False when another agent lives on this folder. OSError."""
        flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(os.path.join(self.root, "lock"), flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._lock = descriptor  # never closed: the kernel drops the lock with the process
        return True

    def introduce(self, identity: Identity) -> None:
        """Tell the provider which process this machine is. The first thing an agent does."""
        text = {"pid": identity.pid, "start_ticks": identity.start_ticks, "boot_id": identity.boot_id}
        temporary = os.path.join(self.root, ".agent.json.%d" % identity.pid)
        with open(temporary, "w", encoding="utf-8", opener=_ours) as target:
            json.dump(text, target)
            target.flush()
            os.fsync(target.fileno())
        os.rename(temporary, os.path.join(self.root, "agent.json"))

    def furnish(self) -> None:
        """Make what the training needs: its folders, an empty output, and the module `spot_progress`."""
        for folder in (self.checkpoints, self.results, self.scratch, self.python, self.staging, self.threads):
            os.makedirs(folder, exist_ok=True)
        with open(self.output, "ab", opener=_ours):
            pass
        module = pkgutil.get_data("supervisor.agent", "spot_progress.py")
        if module is not None:
            with open(os.path.join(self.python, "spot_progress.py"), "wb", opener=_ours) as target:
                target.write(module)

    def say(self, text: str) -> None:
        """A line of ours in the command's output. Where the disk is full, or a pipe lies there that nobody reads, it
        is left out: the beat has it."""
        with suppress(OSError), open(self.output, "ab", opener=_ours) as target:
            target.write(b"spot: %s\n" % text.encode("utf-8", "replace"))

    def tell_stopping(self, reason: str) -> None:
        """For `spot_progress.stopping()`, in processes that get no TERM too. Neither a full disk nor a pipe in the
        file's place may hold up the end."""
        with suppress(OSError), open(self.stopping, "w", encoding="utf-8", opener=_ours) as target:
            target.write(reason + "\n")

    @property
    def authorities(self) -> Optional[str]:
        """The host's certificates, where they were laid down: an image may have none."""
        path = os.path.join(self.root, "ca-certificates.crt")
        return path if os.path.exists(path) else None

    def give_notice(self, notice_s: float) -> None:
        """This machine is taken away in so many seconds. OSError where that cannot be written down; it counts then
        too, for as long as this agent lives."""
        deadline = self._deadline = time.clock_gettime(time.CLOCK_BOOTTIME) + notice_s
        temporary = os.path.join(self.root, ".notice.json")
        with open(temporary, "w", encoding="utf-8", opener=_ours) as target:
            json.dump({"deadline_boottime_s": deadline, "notice_s": notice_s}, target)
        os.rename(temporary, os.path.join(self.root, "notice.json"))

    def tell_bad_gpus(self, cards: Mapping[str, str]) -> None:
        """For the provider, which gives such a card to no other machine. OSError."""
        now = time.time()
        temporary = os.path.join(self.root, ".bad_gpus.json")
        with open(temporary, "w", encoding="utf-8", opener=_ours) as target:
            json.dump({name: {"why": why, "at": now} for name, why in cards.items()}, target)
            target.flush()
            os.fsync(target.fileno())
        os.rename(temporary, os.path.join(self.root, "bad_gpus.json"))

    def notice_s(self) -> Optional[float]:
        """Seconds until this machine is taken away; None when no notice was given. A torn notice is read again."""
        deadline = self._deadline
        if deadline is None:
            try:
                with open(os.path.join(self.root, "notice.json"), encoding="utf-8") as source:
                    deadline = float(json.load(source)["deadline_boottime_s"])
            except (OSError, ValueError, KeyError, TypeError):
                return None
        return max(0.0, deadline - time.clock_gettime(time.CLOCK_BOOTTIME))


def _ours(path: str, flags: int) -> int:
    """A file of this folder: no link that the training laid there is followed, and no pipe is waited for."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW, 0o600)
