"""One machine for a test: a folder with a job, a store with a baton, and the agent's archive as a real process."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from supervisor.contract import baton as rules
from supervisor.contract import heartbeat, identifiers, runfiles
from supervisor.contract.baton import Baton
from supervisor.contract.heartbeat import Beat
from supervisor.contract.stores.folder import FolderStore
from supervisor.contract.stores.promise import ObjectMissing, PreconditionFailed
from supervisor.machinefolder import agent_archive
from tests.agent.listening_server import ListeningServer
from tests.cloud.vm_processes import read
from tests.waiting import wait_for

RUN = "digits-7"
TOY = str(Path(__file__).with_name("toy_training.py"))
PACES = {
    "beat_push_s": 0.2,
    "beat_store_s": 0.2,
    "log_chunk_s": 0.2,
    "rest_s": 0.3,
    "stop_grace_s": 10.0,
    "cut_off_s": 3600.0,
}


@cache
def agent_with_bytecode() -> bytes:
    """The archive as the local provider starts it: from the sources alone each start takes 0.2 s of CPU more."""
    return agent_archive.compiled(agent_archive.build_agent())


class Rig:
    """`agents`: every process started, the newest last. Close it: nothing of a machine survives its test."""

    def __init__(self, folder: Path, archive: Path, python: str = sys.executable) -> None:
        self.store = FolderStore.create(folder / "objects")
        self.server = ListeningServer(folder / "server.json")
        self.agents: list[subprocess.Popen[bytes]] = []
        self.machine = folder
        self.given = b""  # what the next agent reads as its standard input
        self.wrapper: tuple[str, ...] = ()  # a command that becomes the next agent in the end
        self._folder, self._archive, self._python = folder, archive, python
        self.write(rules.create("sup-1", 1))

    def close(self) -> None:
        for agent in self.agents:
            with suppress(ProcessLookupError):
                os.killpg(agent.pid, signal.SIGKILL)
            agent.wait()
        for pid in marked(f"SPOT_MACHINE_DIR={self._folder}/"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.server.close()

    # --- the supervisor's part ------------------------------------------------------------------------------------

    def write(self, baton: Baton) -> None:
        self.store.put(runfiles.baton(RUN), rules.encode(baton))

    @property
    def baton(self) -> Baton:
        return rules.decode(self.store.get(runfiles.baton(RUN))[0])

    def change(self, step: Any) -> None:
        while True:
            raw, info = self.store.get(runfiles.baton(RUN))
            try:
                after = rules.encode(step(rules.decode(raw)))
                self.store.put(runfiles.baton(RUN), after, info.generation)
            except PreconditionFailed:
                continue  # the agent was faster
            return

    def start(self, *command: str, attempt: int = 1, holder_gone: bool = False, **job: Any) -> None:
        """Name attempt `attempt` as next and start its machine. Without a command: the toy training."""
        launch_id = identifiers.launch_id(1, attempt, 1)
        self.change(lambda b: rules.raise_next(b, launch_id, "secret", holder_gone))
        self.launch(launch_id, *command, **job)

    def launch(self, launch_id: str, *command: str, **job: Any) -> None:
        self.machine = self._folder / f"machine-{launch_id}-{len(self.agents)}"
        self.machine.mkdir()
        paper = {
            "version": 1,
            "name": self.machine.name,
            "run_id": RUN,
            "generation": 1,
            "attempt": identifiers.parse_launch_id(launch_id)[1],
            "launch_id": launch_id,
            "nonce": "secret",
            "supervisor_id": "sup-1",
            "store_url": self.store.url,
            "server_file": str(self._folder / "server.json"),
            "command": list(command) or self.toy(),
            "workdir": None,
            "env": {},
            "results": [],
            "results_generation": 1,
            "retry": {"exit_codes": [], "log_patterns": []},
            **PACES,
            **job,
        }
        (self.machine / "job.json").write_text(json.dumps(paper))
        self.spawn()

    def spawn(self) -> None:
        """The agent of the present machine folder."""
        env = {**os.environ, "SPOT_MACHINE": self.machine.name, "SPOT_MACHINE_DIR": str(self.machine)}
        with (self.machine / "console.log").open("ab") as console, tempfile.TemporaryFile() as given:
            given.write(self.given)
            given.seek(0)
            agent = subprocess.Popen(
                [*self.wrapper, self._python, str(self._archive), str(self.machine)],
                stdin=given,
                stdout=console,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
            )
        self.agents.append(agent)

    def toy(self, *options: str) -> list[str]:
        return [self._python, TOY, *options]

    def stop_marker(self) -> str:
        return self.store.put(runfiles.stop_marker(RUN), b"").generation

    def notice(self, notice_s: float) -> None:
        deadline = time.clock_gettime(time.CLOCK_BOOTTIME) + notice_s
        text = json.dumps({"deadline_boottime_s": deadline, "notice_s": notice_s})
        (self.machine / ".notice").write_text(text)
        (self.machine / ".notice").rename(self.machine / "notice.json")

    # --- what can be seen -----------------------------------------------------------------------------------------

    @property
    def agent(self) -> "subprocess.Popen[bytes]":
        return self.agents[-1]

    def ended(self, deadline_s: float = 30) -> Beat:
        """The last stored beat, once the agent has ended."""
        try:
            self.agent.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the agent goes on:\n{self.console}") from None
        return self.stored_beat

    @property
    def console(self) -> str:
        return (self.machine / "console.log").read_text()

    @property
    def stored_beat(self) -> Beat:
        return heartbeat.parse(self.store.get(runfiles.beat(RUN))[0])

    def beat_with(self, what: str, test: Any, deadline_s: float = 30) -> Beat:
        """The first pushed beat of the newest machine that passes `test`."""

        def pids() -> "Beat | None":
            if self.agent.poll() is not None and not any(test(b) for b in self.server.beats):
                raise AssertionError(f"the agent left before {what}:\n{self.console}")
            return next((b for b in self.server.beats if test(b)), None)

        return wait_for(pids, deadline_s, what)

    def at_step(self, step: int) -> Beat:
        return self.beat_with(f"step {step}", lambda b: b.step == step and b.launch_id == self.launch_id)

    @property
    def launch_id(self) -> str:
        return json.loads((self.machine / "job.json").read_text())["launch_id"]

    def go(self) -> None:
        """Let a waiting training continue."""
        (self.machine / "work" / "scratch" / "go").touch()

    def keys(self, prefix: str) -> list[str]:
        return [info.key for page in self.store.pages(prefix) for info in page.objects]

    def log(self, attempt: int = 1) -> bytes:
        return b"".join(self.store.get(key)[0] for key in self.keys(runfiles.logs(RUN, attempt)))

    def text(self, key: str) -> str:
        try:
            return self.store.get(key)[0].decode()
        except ObjectMissing:
            return ""

    def exit_record(self, attempt: int = 1) -> dict[str, Any]:
        return json.loads(self.store.get(runfiles.exit_record(RUN, attempt))[0])

    def command_pid(self) -> int:
        """The process that leads the command's group."""
        children = Path(f"/proc/{self.agent.pid}/task").glob("*/children")
        return wait_for(lambda: next((int(c.read_text().split()[0]) for c in children if c.read_text()), 0))

    def survivors(self) -> list[int]:
        """Living processes that carry the machine's marker."""
        return marked(f"SPOT_MACHINE_DIR={self.machine}\0")


def marked(begins: str) -> list[int]:
    """Living processes with a variable in their environment that begins with this text."""
    pids = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            alive = read(f"/proc/{name}/stat").rpartition(b")")[2].split(None, 1)[0] not in b"ZX"
            if alive and b"\0" + begins.encode() in b"\0" + read(f"/proc/{name}/environ"):
                pids.append(int(name))
    return pids
