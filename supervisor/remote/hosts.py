"""One host: its operations by `agent.pyz host` (supervisor/host/operations.py), over the connections beside this file.

The archive of the agent lies on the host under the hash of its content. The first call finds out whether it is there; a
missing one is sent as a program on standard input, so neither sftp nor any quoting is needed.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from supervisor.domain.texts import clause
from supervisor.host.operations import ANSWER
from supervisor.ports.provider import (
    CapacityInUse,
    LaunchRejected,
    MachineMissing,
    NoCapacity,
    ProviderUnavailable,
    Responded,
)
from supervisor.remote.connections import Completed, Connections, NoResult, NotConnected

CALL_S, PROBE_S, SEND_S = 50.0, 15.0, 50.0
USAGE = 2  # exit code of a Python that cannot open the archive
REFUSALS: Mapping[str, Callable[[str], Exception]] = {
    "refused": LaunchRejected,
    "no_capacity": NoCapacity,
    "in_use": CapacityInUse,
    "missing": MachineMissing,
    "unfinished": Responded,
    "unreadable": Responded,
}
# Runs on the host's Python, from standard input: only a whole archive gets its name. With the bytecode of this Python a
# command takes half the CPU time; another one, after an upgrade, ignores it.
RECEIVER = """\
import base64, hashlib, os, sys
if sys.version_info < (3, 8):
    sys.exit("Python %s is too old: 3.8 or newer is needed" % sys.version.split()[0])
data = base64.b64decode({data!r})
folder = os.path.expanduser({folder!r})
os.makedirs(folder, 0o700, True)
path = os.path.join(folder, {name!r})
draft = "%s.%d" % (path, os.getpid())
def write():
    with open(draft, "wb") as target:
        target.write(data)
        target.flush()
        os.fsync(target.fileno())
write()
if hashlib.sha256(open(draft, "rb").read()).hexdigest() != {sha256!r}:
    os.unlink(draft)
    sys.exit("the archive arrived with another content")
sys.path.insert(0, draft)
from supervisor.host.bytecode import compiled
data = compiled(data)
write()
os.rename(draft, path)
"""

Answer = Mapping[str, Any]


class Host:
    """`alias`: the name that SSH connects to. `folder`: of the machines there. `agent()`: the archive."""

    def __init__(
        self, alias: str, connections: Connections, *, folder: str, python: str, agent: Callable[[], Path]
    ) -> None:
        self.alias, self._connections, self._folder, self._python = alias, connections, folder, python
        self._agent = agent
        self._hash: tuple[float, str] = (0.0, "")  # of the archive, by its time

    def call(self, operation: str, values: Mapping[str, object], within_s: float = CALL_S) -> Answer:
        """The response. Raises NotConnected before anything was asked, the refusals of ports/provider.py, and
        ProviderUnavailable."""
        try:
            done = self._connections.run(self.alias, self.words(), self.request(operation, values), within_s)
            if self.lacks_archive(done):
                self._send()
                done = self._connections.run(self.alias, self.words(), self.request(operation, values), within_s)
        except NoResult as error:
            raise ProviderUnavailable(str(error)) from None
        return self.answer(done)

    def over(self, connections: Connections) -> Host:
        """The same host over other connections."""
        return Host(self.alias, connections, folder=self._folder, python=self._python, agent=self._agent)

    def words(self) -> list[str]:
        # The shell of the host expands ~ in the first letter of a word.
        # Without the packages of its site: an operation uses none, and begins sooner.
        return [self._python, "-S", f"{self._folder}/{self._archive_name()}", "host"]

    def _archive_name(self) -> str:
        return f"agent-{self._sha256()[:16]}.pyz"

    def _sha256(self) -> str:
        path = self._agent()
        changed_at = path.stat().st_mtime
        if self._hash[0] != changed_at:
            self._hash = (changed_at, hashlib.sha256(path.read_bytes()).hexdigest())
        return self._hash[1]

    def request(self, operation: str, values: Mapping[str, object]) -> bytes:
        return json.dumps({"operation": operation, "root": self._folder, **values}).encode()

    def lacks_archive(self, done: Completed) -> bool:
        return done.exit_code == USAGE and self._archive_name().encode() in done.errors

    def _send(self) -> None:
        data = self._agent().read_bytes()
        program = RECEIVER.format(
            data=base64.b64encode(data).decode(),
            folder=self._folder,
            name=self._archive_name(),
            sha256=hashlib.sha256(data).hexdigest(),
        )
        done = self._connections.run(self.alias, [self._python, "-"], program.encode(), SEND_S)
        if done.exit_code != 0:
            self._fail(done, "the agent could not be copied there")

    def answer(self, done: Completed) -> Answer:
        """A login shell may print a banner before the answer, never after it."""
        lines = done.output.decode("utf-8", "replace").splitlines()
        line = next((line for line in reversed(lines) if line.startswith(ANSWER)), None)
        if done.exit_code != 0 or line is None:
            self._fail(done, "the command on it failed")
        try:
            answer: dict[str, Any] = json.loads(line.removeprefix(ANSWER))
            refusal = answer.get("refusal")
        except (ValueError, AttributeError):
            self._fail(done, "its answer is not understood")
        if refusal is not None:
            raise REFUSALS.get(refusal, Responded)(f"{self.alias}: {answer.get('text')}")
        return answer

    def _fail(self, done: Completed, what: str) -> NoReturn:
        last = (done.errors.decode("utf-8", "replace").strip().splitlines() or ["it printed nothing"])[-1]
        code = "a signal" if done.exit_code is None else f"exit code {done.exit_code}"
        raise Responded(f"{self.alias}: {what} ({code}): {clause(last[:200])}")


def probe_all(hosts: Sequence[Host], connections: Connections, **values: object) -> dict[str, Answer | str]:
    """One probe of each host, all at the same time: alias -> the answer, or why there is none. A host that did not
    respond before is connected in the background, so it delays no other."""
    calls = {host.alias: (host.words(), host.request("probe", values)) for host in hosts}
    results = connections.run_all(calls, PROBE_S)
    return {host.alias: _probed(host, results[host.alias], values) for host in hosts}


def _probed(host: Host, result: Completed | Exception, values: Mapping[str, object]) -> Answer | str:
    try:
        if isinstance(result, Exception):
            raise result
        if host.lacks_archive(result):
            return host.call("probe", values, PROBE_S)
        return host.answer(result)
    except (NotConnected, NoResult, ProviderUnavailable) as error:
        return str(error)
