"""The agent where it would be the first process of a container: a small parent takes that place.

The kernel gives the first process no default actions for signals, and all orphans: somebody must wait for those, or
they stay as zombies. The agent cannot wait for any child, since its own ones are waited for where they were started.
So the parent passes every signal on at once, waits for whoever dies, and ends as the agent ends.
"""

from __future__ import annotations

import os
import signal

_PASSED_ON = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip


def stand_in() -> None:
    """Returns in the child, which goes on as the agent in a session of its own; the parent never returns. Before any
    thread was started."""
    waited_for = {signal.SIGCHLD, *_PASSED_ON}
    signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    agent = os.fork()
    if agent == 0:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, waited_for)
        return
    while True:
        number = signal.sigwait(waited_for)
        if number == signal.SIGCHLD:
            _bury(agent)
        else:
            os.kill(agent, number)  # never reused: only we could have waited for it


def _bury(agent: int) -> None:
    """One signal may stand for many deaths."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        if pid == agent:
            os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))
