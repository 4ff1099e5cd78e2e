"""Sessions of Kaggle without the internet before the tests' Kaggle: the agent's half is its own code
(agent/notebook/apart.py), and the training a few changes of the baton."""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

from supervisor.agent.notebook import apart
from supervisor.contract import baton as batons
from supervisor.contract import heartbeat, runfiles
from supervisor.contract.baton import FileEntry, Pointer
from supervisor.contract.heartbeat import Beat
from supervisor.contract.stores.folder import FolderStore
from supervisor.domain.machines import Machine, MachineState
from supervisor.ports.provider import LaunchRequest
from tests.kaggle.service import COMPLETE, USER, Kaggle, Version
from tests.providers.kaggle_subject import KaggleSubject

RUN = "digits"
NONCE = "secret-nonce"


def weights(step: int) -> bytes:
    return b"the weights of step %d" % step * 100


class Sessions:
    """Each begins with its parcel and its inputs, makes one more checkpoint, and leaves its output."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.step = folder, 0
        self.restored: list[bytes] = []
        self.kaggle: Kaggle

    def begin(self, version: Version) -> None:
        assert not version.internet
        folder = self.folder / str(version.session_id)
        inputs, output = folder / "inputs", folder / "output"
        inputs.mkdir(parents=True)
        for source in version.flags.get("kernelDataSources", ()):
            slug = source.removeprefix(f"{USER}/")
            (inputs / "notebooks" / slug).mkdir(parents=True)
            for name, content in self.kaggle.version(slug).output.items():
                assert isinstance(content, bytes)
                (inputs / "notebooks" / slug / name).write_bytes(content)
        text = re.search(r'^PARCEL = "(.*?)"', version.code, flags=re.MULTILINE)
        assert text is not None
        assert NONCE not in b64decode(text[1]).decode()
        (folder / "parcel.json").write_bytes(b64decode(text[1]))
        job = apart.job_of(str(folder / "parcel.json"), str(folder), str(inputs))
        self._train(FolderStore(folder / "store"), job)
        apart.pack(job, str(folder), str(output))
        version.output = {path.name: path.read_bytes() for path in output.iterdir()}
        version.printed = "trained"

    def _train(self, store: FolderStore, job: dict[str, Any]) -> None:
        launch_id, machine_id = job["launch_id"], job["machine_id"]
        attempt = int(launch_id.split(".")[1])
        raw, info = store.get(runfiles.baton(RUN))
        baton = batons.claim(batons.decode(raw), launch_id, machine_id, 0.0)
        if baton.checkpoint is not None:
            self.restored.append(store.get(baton.checkpoint.prefix + "last.bin")[0])
        self.step += 100
        content = weights(self.step)
        entry = FileEntry("last.bin", len(content), hashlib.sha256(content).hexdigest())
        prefix = runfiles.checkpoint(RUN, self.step, attempt)
        store.put(prefix + entry.name, content)
        store.put(runfiles.log_chunk(RUN, attempt, 1), b"a line of its log\n")
        baton = batons.move_checkpoint(baton, launch_id, machine_id, Pointer(self.step, prefix, (entry,)))
        store.put(runfiles.baton(RUN), batons.encode(batons.leave(baton, launch_id, machine_id)), info.generation)
        beat = Beat(
            RUN, attempt, launch_id, machine_id, "boot", 9, heartbeat.FINISHED, left=heartbeat.EXPIRED, step=self.step
        )
        store.put(runfiles.beat(RUN), heartbeat.encode(beat))

    def cancel(self, version: Version) -> None:
        pass


class Apart(KaggleSubject):
    """`objects`: of the run, whose baton waits for the launch of `begun`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, kaggle_internet=False)
        self.apart = Sessions(folder / "sessions")
        self.kaggle.runner, self.apart.kaggle = self.apart, self.kaggle
        self.objects.put(runfiles.baton(RUN), batons.encode(batons.create("supervisor-one", 1)))

    def baton(self) -> batons.Baton:
        return batons.decode(self.objects.get(runfiles.baton(RUN))[0])

    def change(self, change: Callable[[batons.Baton], batons.Baton]) -> None:
        raw, info = self.objects.get(runfiles.baton(RUN))
        self.objects.put(runfiles.baton(RUN), batons.encode(change(batons.decode(raw))), info.generation)

    def begun(self, attempt: int = 1) -> LaunchRequest:
        """Its session has run; nothing of it is fetched."""
        request = self.request(attempt=attempt)
        self.change(lambda baton: batons.raise_next(baton, request.launch_id, NONCE, True))
        self.provider.launch(request)
        self.step()
        return request

    def ended(self, attempt: int = 1, word: str = COMPLETE, message: str = "") -> LaunchRequest:
        request = self.begun(attempt)
        self.kaggle.end(self.version(request), word, message)
        return request

    def here_with(self, provider: Any, request: LaunchRequest) -> Machine:
        """By this provider, which may be killed."""
        self.provider = provider
        return self.here(request)

    def here(self, request: LaunchRequest) -> Machine:
        """Fetched, whatever that takes."""
        return self.eventually(
            lambda: (m := self.listed(request)) and m.state is MachineState.ENDED and m, "the end of its machine"
        )

    def files(self) -> list[str]:
        return [info.key for page in self.objects.pages(runfiles.folder(RUN)) for info in page.objects]


def of(subject: Apart, request: LaunchRequest) -> Machine:
    machine = subject.listed(request)
    assert machine is not None
    return machine
