"""A rented machine for one test: the files of its start-up script, its metadata server, its bucket and its secrets.

The agent is the archive as a real process; everything outside it is reached over HTTP.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from supervisor.agent.store.gcs import GcsStore
from supervisor.agent.store.googleapi import RetryPolicy
from supervisor.contract import baton as rules
from supervisor.contract import heartbeat, identifiers, runfiles
from supervisor.contract.heartbeat import Beat
from tests.agent.bucket import BUCKET
from tests.agent.listening_server import ListeningServer
from tests.agent.machine_rig import PACES, RUN, TOY
from tests.cloud.discovery import Oracle
from tests.cloud.metadata import MetadataFake
from tests.cloud.secretmanager import SecretManagerFake
from tests.cloud.storage import StorageFake

URL = f"gs://{BUCKET}/team"
VM = {"id": "5123456789012345678", "name": "spot-1a2b3c4d-a1-t1", "zone": "us-east1-b"}
BOOT_SEQUENCES = 100


class Rented:
    """Close it: nothing of the machine survives its test, and Google's discovery documents allow every exchange."""

    def __init__(self, folder: Path, archive: Path, python: str = sys.executable) -> None:
        oracle = Oracle("storage")
        self.wrong: list[str] = []
        self.cloud = StorageFake(watch=lambda *exchange: self.wrong.extend(oracle.check(*exchange)))
        self.cloud.make_bucket(BUCKET)
        self.metadata = MetadataFake("p", VM)
        self.cloud.takes_token = lambda token: self.metadata.accepts("Bearer " + token)
        self.secrets = SecretManagerFake(authorize=self.metadata.accepts)
        self.server = ListeningServer(folder / "server.json")
        self.machine = folder / "machine"
        self.machine.mkdir()
        self.agent: subprocess.Popen[bytes] | None = None
        self._archive, self._python = archive, python
        self._environment = {**os.environ, **self.metadata.environment(), "SPOT_MACHINE_DIR": str(self.machine)}
        with patch.dict(os.environ, self.metadata.environment()):
            self.store = GcsStore.at(URL, self.cloud.url, policy=RetryPolicy(5.0))

    def close(self) -> None:
        if self.agent is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.agent.pid, signal.SIGKILL)
            self.agent.wait()
        self.store.close()
        for fake in (self.metadata, self.cloud, self.secrets, self.server):
            fake.close()
        assert not self.wrong, self.wrong

    def start(self, *command: str, attempt: int = 1, **job: Any) -> None:
        """Like the start-up script, which has sent beats before. Without a command: the toy training."""
        launch_id = identifiers.launch_id(1, attempt, 1)
        baton = rules.raise_next(rules.create("sup-1", 1), launch_id, "secret", False)
        self.store.put(runfiles.baton(RUN), rules.encode(baton))
        beat = Beat(RUN, attempt, launch_id, VM["id"], "boot", 7, heartbeat.IMAGE, "secret")
        text = heartbeat.encode(beat)
        self.store.put(runfiles.boot_beat(RUN), text, metadata={"beat": text.decode()})
        self._lay_down(launch_id, list(command) or [self._python, TOY], job)
        with (self.machine / "console.log").open("ab") as console:
            self.agent = subprocess.Popen(
                [self._python, str(self._archive), str(self.machine)],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )

    def _lay_down(self, launch_id: str, command: list[str], job: dict[str, Any]) -> None:
        paper = {
            "version": 1,
            "name": VM["name"],
            "run_id": RUN,
            "attempt": identifiers.parse_launch_id(launch_id)[1],
            "launch_id": launch_id,
            "nonce": "secret",
            "store_url": URL,
            "server_file": None,
            "server_url": None,
            "command_form": "words",
            "sequence_from": BOOT_SEQUENCES,
            "notice_from": "gce",
            "notice_s": 0,
            "storage_endpoint": self.cloud.url,
            "secret_manager_endpoint": self.secrets.url,
            **PACES,
            **job,
        }
        (self.machine / "job.json").write_text(json.dumps(paper))
        (self.machine / "command").write_text(json.dumps(command))
        (self.machine / "identity.json").write_text(json.dumps({"machine_id": VM["id"]}))

    # --- what can be seen -----------------------------------------------------------------------------------------

    @property
    def console(self) -> str:
        return (self.machine / "console.log").read_text()

    def ended(self, deadline_s: float = 60) -> Beat:
        """The last stored beat, once the agent has ended."""
        assert self.agent is not None
        try:
            self.agent.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the agent goes on:\n{self.console}") from None
        return heartbeat.parse(self.store.get(runfiles.beat(RUN))[0])

    def beat(self) -> Beat | None:
        """The stored beat, as a listing shows it."""
        stored = self.cloud.find(BUCKET, "team/" + runfiles.beat(RUN))
        return None if stored is None else heartbeat.parse(stored.metadata["beat"].encode())

    def log(self) -> bytes:
        keys = [info.key for page in self.store.pages(runfiles.logs(RUN, 1)) for info in page.objects]
        return b"".join(self.store.get(key)[0] for key in keys)
