"""Ends from outside: signals of others, limits of CPU time, notices, a machine that restarted, a closed session."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from functools import partial

from tests.diagnosis.cases import Expected
from tests.diagnosis.makers.answers import HANGUP, KILLED, PREEMPTED, TIME_LIMIT, USER_ERROR, not_
from tests.diagnosis.makers.lives import Life, Live
from tests.diagnosis.makers.real.memory import REPORT, ROOMY, kill

CPU = (
    REPORT
    + """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (1, 5))
while True:
    pass
"""
)
HARD_CPU = CPU.replace("(1, 5)", "(1, 1)")
FAULT = REPORT + "import os, signal\nos.kill(os.getpid(), signal.NAME)\n"
SEGFAULT = REPORT + "import faulthandler\nfaulthandler.enable()\nimport ctypes\nctypes.string_at(0)\n"
ABORT = REPORT + "sys.stdout.flush()\nos.abort()\n"
HANDLER = (
    REPORT
    + """
import signal
def leave(number, frame):
    print("got signal", number, ": saving and leaving", flush=True)
    sys.exit(128 + number)
signal.signal(signal.SIGTERM, leave)
time.sleep(60)
"""
)
INTERRUPTED = (
    REPORT
    + """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
time.sleep(60)
"""
)
SESSION = (
    REPORT
    + """
import pty, signal, subprocess
child = subprocess.run(["true"])
signal.signal(signal.SIGHUP, signal.SIG_DFL)
controller, worker = pty.openpty()
pid = os.fork()
if pid == 0:
    # The session of a terminal: when its controlling side is closed, the kernel sends SIGHUP to its leader.
    os.close(controller)
    os.setsid()
    import fcntl, termios
    fcntl.ioctl(worker, termios.TIOCSCTTY, 0)
    time.sleep(60)
    os._exit(0)
os.close(worker)
time.sleep(0.3)
os.close(controller)
_, status = os.waitpid(pid, 0)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])
os.kill(os.getpid(), os.WTERMSIG(status))
time.sleep(5)
"""
)
LAUNCHER = (
    REPORT
    + """
import signal, subprocess
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
time.sleep(0.2)
child.terminate()
child.wait()
raise subprocess.CalledProcessError(child.returncode, ["train_worker.py", "--rank", "1"])
"""
)
RESUMED = REPORT + "time.sleep(1.5)\nprint('done', flush=True)\n"


def by(number: int) -> object:
    return partial(kill, number=number)


def freeze_and_go(life: Life) -> None:
    life.at_step(3)
    pid = life.command_pid()
    os.kill(pid, signal.SIGSTOP)
    life.beat_with("a later beat", lambda beat: beat.up_s is not None and beat.sequence > 8)
    os.kill(pid, signal.SIGCONT)


def notice(life: Life) -> None:
    life.at_step(3)
    life.notice(8.0)


def signaled(name: str, number: int, answer: Expected, text: str = ROOMY) -> Live:
    how = f"{signal.Signals(number).name} by another process"
    return Live(name, answer, lambda life: life.python(text), by(number), how)


def shell(life: Life) -> str:
    return f"true && {' '.join(life.python(ROOMY))}; exit $?"


def kill_child(life: Life, number: int = signal.SIGKILL) -> None:
    life.at_step(3)
    [child] = [pid for pid in life.survivors() if b"train.py" in _command(pid) and b"sh\0" not in _command(pid)[:8]][:1]
    os.kill(child, number)


def _command(pid: int) -> bytes:
    with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as source:
        return source.read()
    return b""


CASES = (
    signaled("kill", signal.SIGKILL, KILLED),
    signaled("term", signal.SIGTERM, KILLED),
    signaled("hang-up", signal.SIGHUP, HANGUP),
    signaled("interrupt-default", signal.SIGINT, KILLED, REPORT + "import signal\n"
             "signal.signal(signal.SIGINT, signal.SIG_DFL)\ntime.sleep(60)\n"),
    signaled("interrupt-exception", signal.SIGINT, KILLED, INTERRUPTED),
    Live("kill-below-a-shell", KILLED, shell, kill_child, "SIGKILL of a shell's child: 137"),
    Live("term-below-a-shell", KILLED, shell, partial(kill_child, number=signal.SIGTERM), "SIGTERM of a shell's child: 143"),
    Live("hang-up-below-a-shell", HANGUP, shell, partial(kill_child, number=signal.SIGHUP), "SIGHUP of a shell's child: 129"),
    Live("session-closed", HANGUP, lambda life: life.python(SESSION), how="a terminal's session is closed under its process"),
    Live("cpu-time", TIME_LIMIT, lambda life: life.python(CPU), how="RLIMIT_CPU, soft: SIGXCPU"),
    Live("cpu-time-hard", KILLED, lambda life: life.python(HARD_CPU), how="RLIMIT_CPU, hard: the kernel sends SIGKILL"),
    Live("segfault", not_(USER_ERROR, "U3"), lambda life: life.python(SEGFAULT), how="a real segmentation fault"),
    Live("abort", not_(USER_ERROR, "U3"), lambda life: life.python(ABORT), how="abort() of the command itself"),
    Live("bus-error", not_(USER_ERROR, "U3"), lambda life: life.python(FAULT.replace("NAME", "SIGBUS")), how="SIGBUS raised by itself"),
    Live("floating-point", not_(USER_ERROR, "U3"), lambda life: life.python(FAULT.replace("NAME", "SIGFPE")), how="SIGFPE raised by itself"),
    Live("worker-ended-by-its-launcher", not_(USER_ERROR, "U3"), lambda life: life.python(LAUNCHER),
         how="TERM by the user's own launcher; the launcher's error ends the command"),
    Live("notice", PREEMPTED, lambda life: life.toy("--wait-at", "3", "--on-term", "save"), notice,
         how="a preemption notice in the machine; the command saves and leaves", job={"notice_s": 8.0}),
    Live("notice-ignored", PREEMPTED, lambda life: life.toy("--wait-at", "3", "--on-term", "ignore"), notice,
         how="a preemption notice; the command ignores TERM", job={"notice_s": 8.0}),
)  # fmt: skip
