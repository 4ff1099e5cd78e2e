"""Memory: a real limit of a control group, its kernel's kills, and ends that only look like them."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack

from tests.acceptance.cgroups import ENTER, memory_group
from tests.diagnosis.makers.answers import HOST_OOM, HOST_OOM_LIKELY, KILLED, KNOWN_ERROR, STOPPED, USER_ERROR, not_
from tests.diagnosis.makers.lives import Life, Live

REPORT = """
import os, sys, time
import spot_progress
for step in range(1, 4):
    spot_progress.report(step, total=500, loss=1.0 / step)
    print(f"step {step} loss {1 / step:.3f}", flush=True)
    time.sleep(0.05)
"""
VICTIM = """
from pathlib import Path
def victim():
    Path("/proc/self/oom_score_adj").write_text("1000")
def eat():
    victim()
    held = []
    while True:
        held.append(bytearray(b"x" * (8 << 20)))
"""
MAIN = REPORT + VICTIM + "print('loads its data', flush=True)\neat()\n"
CHINESE = REPORT + VICTIM + "print('正在加载数据集 …', flush=True)\neat()\n"
GERMAN = REPORT + VICTIM + "print('Lade die Daten für Fold 3', flush=True)\neat()\n"
POOL = (
    REPORT
    + VICTIM
    + """
from concurrent.futures import ProcessPoolExecutor
if __name__ == "__main__":
    with ProcessPoolExecutor(2) as pool:
        print(pool.submit(eat).result())
"""
)
CHILD = (
    REPORT
    + VICTIM
    + """
import subprocess
if len(sys.argv) > 1:
    eat()
subprocess.run([sys.executable, __file__, "worker"], check=True)
"""
)
FORKED = (
    REPORT
    + VICTIM
    + """
pid = os.fork()
if pid == 0:
    eat()
_, status = os.waitpid(pid, 0)
if os.WIFSIGNALED(status):
    raise RuntimeError(f"DataLoader worker (pid(s) {pid}) exited unexpectedly, it is killed by signal: Killed. ")
"""
)
BARE = (
    REPORT
    + VICTIM
    + """
pid = os.fork()
if pid == 0:
    eat()
_, status = os.waitpid(pid, 0)
print("worker", pid, "ended with", status, flush=True)
sys.exit(1)
"""
)
ROOMY = REPORT + "time.sleep(60)\n"
LIMITED = (
    REPORT
    + """
import resource
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
import numpy
numpy.ones((1 << 14, 1 << 14))
"""
)
WORKER_BY_HAND = (
    REPORT
    + """
import signal
pid = os.fork()
if pid == 0:
    time.sleep(60)
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
raise RuntimeError(f"DataLoader worker (pid {pid}) is killed by signal: Killed. ")
"""
)
NEIGHBOR = VICTIM + "eat()\n"


def grouped(life: Life, stack: ExitStack) -> tuple[str, ...]:
    """The agent and its command in a group with 320 MB."""
    group = stack.enter_context(memory_group(f"spot-corpus-{os.getpid()}-{time.monotonic_ns()}"))
    if group is None:
        raise OSError("no memory group can be made here")
    return ("sh", "-c", ENTER, str(group))


def kill(life: Life, number: int = signal.SIGKILL) -> None:
    life.at_step(3)
    os.kill(life.command_pid(), number)


def stop_by_kill(life: Life) -> None:
    life.at_step(3)
    life.stop_marker()


def in_group(name: str, text: str, how: str) -> Live:
    return Live(name, HOST_OOM, lambda life: life.python(text), how=how, wrapper=grouped)


CASES = (
    in_group("main-process", MAIN, "the main process allocates until the kernel kills it"),
    in_group("main-process-chinese", CHINESE, "the same, with a log in Chinese"),
    in_group("main-process-german", GERMAN, "the same, with a log in German"),
    in_group("pool-worker", POOL, "a worker of a process pool is killed by the kernel"),
    in_group("subprocess-worker", CHILD, "a child process is killed; the parent checks its exit"),
    in_group("forked-worker", FORKED, "a forked worker is killed; the parent raises the loader's words"),
    Live(
        "forked-worker-quiet", HOST_OOM_LIKELY, lambda life: life.python(BARE),
        how="a forked worker is killed; the parent prints its status and exits with 1", wrapper=grouped,
    ),
    Live(
        "child-of-a-shell", HOST_OOM,
        lambda life: f"cd /tmp && {' '.join(life.python(MAIN))}; exit $?",
        how="a shell reports its child's kill by the kernel as 137", wrapper=grouped,
    ),
    Live(
        "shell-script", HOST_OOM,
        lambda life: ["bash", life.script(f"set -e\n{' '.join(life.python(MAIN))}\necho done\n", "run.sh")],
        how="bash prints `Killed` for its child", wrapper=grouped,
    ),
    Live(
        "killed-by-hand", not_(KILLED, "U9"), lambda life: life.python(ROOMY), kill,
        how="SIGKILL by another process in a group whose counter stands still", wrapper=grouped,
    ),
    Live(
        "killed-by-hand-no-group", not_(KILLED, "U9"), lambda life: life.python(ROOMY), kill,
        how="SIGKILL by another process, no limit of memory",
    ),
    Live(
        "worker-killed-by-hand", not_(USER_ERROR, "U9"), lambda life: life.python(WORKER_BY_HAND),
        how="a worker is killed by hand; the counter stands still", wrapper=grouped,
    ),
    Live(
        "limit-of-the-process", not_(KNOWN_ERROR, "U9"), lambda life: life.python(LIMITED),
        how="RLIMIT_AS: an allocation fails with an exception, nothing is killed", wrapper=grouped,
    ),
    Live(
        "own-stop-with-kill", not_(STOPPED, "U9", "U3"), lambda life: life.toy("--wait-at", "3", "--on-term", "ignore"),
        stop_by_kill, how="a stop; the command ignores TERM and gets our KILL", job={"stop_grace_s": 0.5},
    ),
    Live(
        "own-stop-with-term", not_(STOPPED, "U3"), lambda life: life.toy("--wait-at", "3", "--on-term", "die"),
        stop_by_kill, how="a stop; the command dies of our TERM",
    ),
    Live(
        "own-stop-exit-143", not_(STOPPED, "U3"), lambda life: life.toy("--wait-at", "3", "--on-term", "save"),
        stop_by_kill, how="a stop; the command saves and exits with 143",
    ),
)  # fmt: skip
