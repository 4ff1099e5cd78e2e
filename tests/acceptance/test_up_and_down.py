"""`spot up` and `spot down` as a person types them; and a submit that comes while the supervisor is starting."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.settings.serving_process import serving, starting
from tests.acceptance.daemon import OF_WHO_TESTS, QUICK, kill_if_there, machine_pids
from tests.waiting import wait_for

SPOT = Path(sys.executable).with_name("spot")


class Desk:
    def __init__(self, folder: Path) -> None:
        self.folder, self.data_dir = folder, folder / "data"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OF_WHO_TESTS)}
        self.environ = {**kept, **QUICK, "SPOT_DATA_DIR": str(self.data_dir), "SPOT_PORT": "0", "NO_COLOR": "1"}

    def spot(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(SPOT), *words],
            cwd=self.folder,
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def pid(self) -> int:
        process = serving(self.data_dir)
        assert process is not None
        return process.pid

    def close(self) -> None:
        process = serving(self.data_dir) or starting(self.data_dir)
        if process is not None:
            process.send(signal.SIGKILL)
            wait_for(lambda: not process.lives(), 30, "the supervisor to end")
        for pid in machine_pids(self.data_dir):
            kill_if_there(pid)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_trainings_go_on_from_a_down_to_the_next_up(desk: Desk) -> None:
    (desk.folder / "random.py").write_text("raise SystemExit('a module of the folder was imported')\n")
    first = desk.spot("up")
    assert first.returncode == 0, first.stderr
    pid = desk.pid()
    lines = first.stdout.splitlines()
    assert lines[0].endswith(f"(pid {pid})")
    assert lines[1].endswith("until `spot down` or a restart of the computer.")
    assert lines[2] == f"  log        {desk.data_dir}/serve.log"
    assert os.getsid(pid) == pid, "the end of the terminal must not reach it"
    assert desk.spot("up").stdout.startswith("The supervisor runs already: http://127.0.0.1:")
    assert desk.pid() == pid

    train = (
        "import os, pathlib, time\npathlib.Path('pid').write_text(str(os.getpid()))\n"
        "while not pathlib.Path('gate').exists(): time.sleep(0.05)\n"
    )
    (desk.folder / "random.py").unlink()
    (desk.folder / "train.py").write_text(train)
    assert desk.spot("submit", "--run-id", "my-run", "--", sys.executable, "train.py").returncode == 0
    wait_for(lambda: desk.spot("ls", "-s", "running", "-o", "name").stdout, 60, "the run to be running")
    training = int(wait_for((desk.folder / "pid").read_text, 30, "the training's pid"))
    down = desk.spot("down")
    assert down.returncode == 0, down.stderr
    ended, continues = down.stdout.splitlines()
    assert ended == f"The supervisor of {desk.data_dir} has ended (pid {pid})."
    assert continues == (
        "1 run stays active (my-run). Trainings continue without the supervisor, and an attempt that ends is replaced "
        "only after `spot up`."
    )
    assert training in machine_pids(desk.data_dir)
    again = desk.spot("down")
    assert (again.returncode, again.stdout) == (0, f"No supervisor of {desk.data_dir} is running.\n")
    assert "spot up" in desk.spot("ls").stderr

    assert desk.spot("up").returncode == 0
    (desk.folder / "gate").touch()
    assert desk.spot("wait", "my-run").returncode == 0
    assert "1 attempt)" in desk.spot("show", "my-run").stdout
    assert desk.spot("down").stdout.splitlines()[-1] == "No run was active."


def test_a_submit_waits_for_a_supervisor_that_is_starting(desk: Desk) -> None:
    command = [str(SPOT), "serve"]
    with (desk.folder / "log").open("wb") as log:
        daemon = subprocess.Popen(command, env=desk.environ, stdout=log, stderr=log)
    try:
        submitted = desk.spot("submit", "--run-id", "my-run", "--", "true")
        assert submitted.returncode == 0, submitted.stderr
        assert submitted.stdout.startswith("my-run  ○ pending")
        assert not (desk.data_dir / "starting.json").exists()
        assert desk.spot("wait", "my-run").returncode == 0
    finally:
        daemon.terminate()
        assert daemon.wait(60) == 0


def test_a_start_that_fails_shows_the_end_of_its_log(desk: Desk) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ended = desk.spot("up", "--port", str(taken.getsockname()[1]))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "The supervisor did not start. The end of its log:" in ended.stderr
    assert "Address already in use" in ended.stderr
    assert str(desk.data_dir / "serve.log") in ended.stderr
    assert serving(desk.data_dir) is None
