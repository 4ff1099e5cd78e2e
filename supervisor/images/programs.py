"""Other programs (gcloud, docker): started in a session of their own, so that Ctrl-C reaches us and not them; their
lines are passed on without secrets; and none outlives its time, or us.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from supervisor.images.reasons import masked
from supervisor.images.request import Say

_LINES = 400  # of the output, kept to find the reason in
_LEAVE_S = 10.0


@dataclass(frozen=True)
class Ended:
    """`code` None: its time was over, and it was ended."""

    code: int | None
    text: str


class NotInstalled(Exception):
    pass


def run(
    argv: Sequence[str], limit_s: float, line: Say, environment: Mapping[str, str] | None = None
) -> Ended:
    """Each line of both outputs goes to `line`. NotInstalled where there is no such program. On KeyboardInterrupt, and
    on every other exception, the program and what it started are ended first."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except (FileNotFoundError, PermissionError) as error:
        raise NotInstalled(argv[0]) from error
    kept: deque[str] = deque(maxlen=_LINES)
    reader = threading.Thread(target=_read, args=(process, kept, line), daemon=True)
    reader.start()
    try:
        code: int | None = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        _end(process)
    reader.join(_LEAVE_S)
    return Ended(code, "\n".join(kept))


def _read(process: subprocess.Popen[str], kept: deque[str], line: Say) -> None:
    assert process.stdout is not None
    with process.stdout, suppress(ValueError):
        for words in process.stdout:
            text = masked(words.rstrip())
            kept.append(text)
            line(text)


def _end(process: subprocess.Popen[str]) -> None:
    """TERM to its group, KILL to what is left of it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LEAVE_S)
