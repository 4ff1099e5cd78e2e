"""What moves: by two readings, and by the readers on real processes."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.agent.watch import motion as module
from supervisor.agent.watch.motion import (
    CPU,
    FILES,
    GPU,
    IO,
    NET,
    OUTPUT,
    SIGNALS,
    Counters,
    Motion,
    _tcp_bytes,
    read_counters,
)
from supervisor.contract.beat_telemetry import Gpus
from tests.waiting import wait_for

ALL = (*SIGNALS, FILES, OUTPUT)
STILL = Counters({1: 5.0}, {1: 0.0}, {1: 0.0}, {9: 0.0}, Gpus(util_pct=(0.0,)), (1.0, 2.0), 10.0)


def moving(before: Counters, after: Counters, seconds: float = 15.0) -> tuple[str, ...] | None:
    motion = Motion()
    motion.add(100.0, before)
    motion.add(100.0 + seconds, after)
    return motion.moving(100.0, ALL)


@pytest.mark.parametrize(
    ("change", "moves"),
    [
        ({}, ()),
        ({"cpu_s": {1: 5.2}}, ()),  # 1.3 % of a core
        ({"cpu_s": {1: 5.4}}, (CPU,)),
        ({"cpu_s": {1: 5.0, 2: 0.4}}, (CPU,)),  # a process that is new
        ({"cpu_s": {2: 0.0}}, ()),  # one that has ended
        ({"disk_bytes": {1: 70_000.0}}, (IO,)),
        ({"passed_bytes": {1: 70_000.0}}, ()),
        ({"passed_bytes": {1: 2e6}}, (IO,)),
        ({"net_bytes": {9: 9_000.0}}, ()),  # a tracker's report
        ({"net_bytes": {9: 0.0, 10: 20_000.0}}, (NET,)),
        ({"files": (1.0, 3.0)}, (FILES,)),
        ({"output_bytes": 11.0}, (OUTPUT,)),
    ],
)
def test_each_signal_has_its_threshold(change: dict[str, object], moves: tuple[str, ...]) -> None:
    assert moving(STILL, STILL._replace(**change)) == moves  # type: ignore[arg-type]


def test_two_ticks_of_the_kernel_are_no_work_however_short_the_time_is() -> None:
    assert moving(STILL, STILL._replace(cpu_s={1: 5.02}), 0.25) == ()
    assert moving(STILL, STILL._replace(cpu_s={1: 5.03}), 0.25) == (CPU,)


@pytest.mark.parametrize(
    ("before", "after", "moves"),
    [
        (Gpus(util_pct=(100.0,)), Gpus(util_pct=(100.0,)), (GPU,)),  # no power is read
        (Gpus(), Gpus(util_pct=(100.0,), power_w=(90.0,), power_limit_w=(400.0,)), ()),
        (Gpus(), Gpus(util_pct=(0.0, 60.0), power_w=(50.0, 300.0), power_limit_w=(400.0, 400.0)), (GPU,)),
        (Gpus(memory_used_mib=(100.0,)), Gpus(memory_used_mib=(164.0,)), (GPU,)),
        (Gpus(util_pct=(4.0,)), Gpus(util_pct=(4.0,)), ()),
    ],
)
def test_a_busy_card_at_low_power_waits(before: Gpus, after: Gpus, moves: tuple[str, ...]) -> None:
    assert moving(STILL._replace(gpus=before), STILL._replace(gpus=after)) == moves


def test_nothing_is_said_without_the_cpu_and_one_more_signal() -> None:
    assert moving(STILL._replace(cpu_s=None), STILL) is None
    little = STILL._replace(disk_bytes=None, passed_bytes=None, net_bytes=None, gpus=None)
    assert moving(little, little) is None
    card = Gpus(util_pct=(0.0,))
    assert moving(little._replace(gpus=card), little._replace(gpus=card)) == ()


def test_a_card_that_does_not_show_how_busy_it_is_is_not_still() -> None:
    """Broken variant: a part of a card (MIG) has no utilization, so a step that computes on it counted as still."""
    hidden = STILL._replace(gpus=Gpus(util_pct=(None,), memory_used_mib=(9.0,)))
    motion = Motion()
    motion.add(0.0, hidden)
    motion.add(15.0, hidden)
    assert not motion.reads(GPU)
    motion.add(30.0, hidden._replace(gpus=Gpus(util_pct=(None,), memory_used_mib=(99.0,))))
    assert motion.moving(20.0, ALL) == (GPU,)


def test_motion_is_as_old_as_the_reading_that_shows_it() -> None:
    motion = Motion()
    for at, cpu_s in ((0.0, 1.0), (15.0, 9.0), (30.0, 9.0)):
        motion.add(at, STILL._replace(cpu_s={1: cpu_s}))
    assert motion.moved_at(SIGNALS) == 15.0
    assert motion.moved_at((NET,)) is None
    assert (motion.moving(0.0, ALL), motion.moving(15.0, ALL)) == ((CPU,), ())


SCRIPT = "import sys, time\nprint('ready', flush=True)\nsys.stdin.read(1)\nwhile True:\n    pass\n"


@pytest.fixture
def process() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-S", "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        yield child
        child.kill()


def test_a_real_process_is_still_and_then_moves(tmp_path: Path, process: "subprocess.Popen[bytes]") -> None:
    output = tmp_path / "output.log"
    output.write_text("one line\n")

    def read() -> Counters:
        return read_counters([process.pid, 2**22 + 1], [str(tmp_path)], str(output))

    first = read()
    assert moving(first, read()) == ()
    assert process.stdin is not None
    process.stdin.write(b"x")
    process.stdin.flush()
    wait_for(lambda: CPU in (moving(first, read(), 1.0) or ()), 20, "the process to use the CPU")
    output.write_text("one line\ntwo lines\n")
    (tmp_path / "step-1.tmp").write_bytes(b"0" * 100)
    assert {FILES, OUTPUT} <= set(moving(first, read()) or ())


def test_a_client_of_work_elsewhere_is_not_still(tmp_path: Path) -> None:
    """Broken variant: a container that computed for half an hour without a word was ended, because the client that
    waits for it did not move."""
    client = tmp_path / "docker"
    shutil.copy(shutil.which("sleep") or "", client)
    with subprocess.Popen([client, "60"]) as process:
        wait_for(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "docker\n", 10, "the client")
        reading = read_counters([process.pid], [], "")
        process.kill()
    assert reading.disk_bytes is not None
    assert moving(reading, reading) is None


def test_a_command_that_is_larger_than_a_look_is_never_called_still(
    process: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken variant: sockets beyond the first 512 descriptors of a process were not seen, so it did not move."""
    whole = read_counters([process.pid], [], "")
    assert moving(whole, read_counters([process.pid], [], "")) == ()
    monkeypatch.setattr(module, "DESCRIPTORS", 2)
    cut = read_counters([process.pid], [], "")
    assert (cut.cut, cut.net_bytes) == (True, None)
    assert moving(whole, cut) is None
    assert moving(whole, cut._replace(cpu_s={process.pid: 99.0})) == (CPU,), "what is seen to move does"
    monkeypatch.setattr(module, "PROCESSES", 1)
    many = read_counters([process.pid, os.getpid()], [], "")
    assert (many.cut, many.cpu_s, many.disk_bytes) == (True, None, None)


def test_a_flood_of_connections_ends_the_look_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DIAG_S", 0.2)
    monkeypatch.setattr(module, "_add_answers", lambda *_: True)  # a dump without an end

    class Kernel:
        def __enter__(self) -> "Kernel":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def recv(self, _: int) -> bytes:
            return b""

        settimeout = send = recv

    monkeypatch.setattr(module.socket, "socket", lambda *_: Kernel())
    assert _tcp_bytes({1}) is None


def test_the_bytes_of_a_connection_are_counted_by_its_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as near:
        far, _ = listener.accept()
        inode = os.fstat(near.fileno()).st_ino
        before = _tcp_bytes({inode})
        far.sendall(b"0" * 50_000)
        assert len(near.recv(50_000, socket.MSG_WAITALL)) == 50_000
        after = _tcp_bytes({inode})
        far.close()
    assert before is not None
    assert after is not None
    assert after[inode] - before[inode] == 50_000
    assert _tcp_bytes(set()) == {}
