"""spot attach and spot tunnel with a real sshd: a window in the machine's folder, and a port of the host."""

from __future__ import annotations

import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.providers.ssh.platform import SshPlatform
from supervisor.providers.ssh.settings import SshSettings
from tests.agent.file_server import FileServer
from tests.cli.fake_api import FakeApi, serving
from tests.cli.test_terminal import at_a_terminal
from tests.contracts.provider_subject import ref
from tests.providers.ssh_machines import SshSubject
from tests.waiting import wait_for


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[SshSubject]:
    (tmp_path / "tmux").mkdir()  # a tmux server of its own, which ends with the host
    subject = SshSubject(tmp_path, {"SetEnv": f"TMUX_TMPDIR={tmp_path / 'tmux'}"})
    yield subject
    subject.end_all()


@pytest.fixture
def api(lab: SshSubject) -> Iterator[FakeApi]:
    """It responds as the supervisor of a live run does."""
    request = lab.request()
    machine = lab.up(request)
    files = {"ssh_config": str(lab.config), "ssh_known_hosts": str(lab.known_hosts)}
    platform = SshPlatform(lab.provider, SshSettings(**{**lab.settings, **files}))
    login = platform.login(ref(request, machine.machine_id))
    (lab.folder(request) / "work").mkdir(exist_ok=True)
    (lab.folder(request) / "work" / "output.log").write_text("step 41 of 100\n")
    with serving() as fake:
        answer = {"machine": request.name, "zone": "gpu1", "command": login.command, "folder": login.folder}
        answer |= {"ssh_config": login.ssh_config, "ssh_known_hosts": login.ssh_known_hosts}
        fake.respond("GET", "/v1/runs/llm-a/login", {"run_id": "llm-a", **answer})
        yield fake


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
def test_a_window_in_the_folder_of_the_machine(lab: SshSubject, api: FakeApi, shell: str) -> None:
    with at_a_terminal(api.url, "attach", "llm-a", SHELL=shell) as terminal:
        terminal.read_until("step 41 of 100")
        terminal.type("pwd; exit\n")
        terminal.read_until(str(lab.folder(lab.request())))
        assert terminal.code() == 0


def test_a_port_of_the_host_is_here_until_the_end(api: FakeApi) -> None:
    board = FileServer()
    board.files["x"] = b"the board of the training"
    here = FileServer()  # only to get a port that is free
    port = int(here.url("").split(":")[2].strip("/"))
    here.close()
    there = board.url("").split(":")[2].strip("/")

    def read() -> bytes | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/x", timeout=5) as response:
                return bytes(response.read())
        except OSError:
            return None

    try:
        with at_a_terminal(api.url, "tunnel", "llm-a", there, "--local", str(port)) as terminal:
            assert wait_for(read, what="the tunnel") == b"the board of the training"
            terminal.process.send_signal(signal.SIGINT)  # as Ctrl-C does
            terminal.code()
        assert read() is None
    finally:
        board.close()
