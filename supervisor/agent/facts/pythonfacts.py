"""Which Python the command runs on, and what is installed there: asked of that Python itself, once.

It is the Python that the command names, else the one that its PATH finds. The probe (pythonprobe.py) imports nothing
of the training; it is given up after TIMEOUT_S, and then these facts are not known.
"""

from __future__ import annotations

import json
import os
import pkgutil
import re
import shlex
import shutil
import signal
import subprocess
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

TIMEOUT_S = 20.0
KILLED = "the Python that was asked was killed"
NAMES = ("python", "python_executable", "python_prefix", "packages", "torch", "cuda", "cudnn")
_PYTHON = re.compile(r"(python|pypy)[0-9.]*$")


def python_of(command: Union[str, Tuple[str, ...]], cwd: str, env: Mapping[str, str]) -> Optional[str]:
    """Its path; None when there is none. In a shell command the first word that names a Python counts."""
    for word in (*names_python(command), "python3", "python"):
        path = os.path.join(cwd, word) if os.path.dirname(word) else word
        found = shutil.which(path, path=env.get("PATH", os.defpath))
        if found is not None:
            return found
    return None


def names_python(command: Union[str, Tuple[str, ...]]) -> List[str]:
    """The word of the command that names a Python; empty where none does, as in `torchrun train.py`."""
    words = words_of(command)
    return [
        word
        for word in (words if isinstance(command, str) else words[:1])
        if _PYTHON.match(os.path.basename(word))
    ][:1]


def python_facts(
    command: Union[str, Tuple[str, ...]], cwd: str, env: Mapping[str, str], timeout_s: float = TIMEOUT_S
) -> Tuple[Dict[str, Any], str]:
    """(what is known of NAMES, why the rest is not). A value of None: looked for and not installed."""
    python = python_of(command, cwd, env)
    if python is None:
        return {}, "no python is on the command's PATH"
    script = pkgutil.get_data("supervisor.agent.facts", "pythonprobe.py") or b""
    try:
        done = subprocess.run(
            [python, "-c", script.decode()],
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode == -signal.SIGKILL:
            return {}, KILLED
        told = json.loads(done.stdout.decode("utf-8", "replace").strip().rpartition("\n")[2])
        return {name: told[name] for name in NAMES}, ""
    except subprocess.TimeoutExpired:
        return {}, "%s did not answer within %g s" % (python, timeout_s)
    except OSError as error:
        return {}, "%s cannot be run: %s" % (python, error)
    except (ValueError, KeyError, TypeError):
        return {}, "%s failed when it was asked: %s" % (python, _last_words(done))


def _last_words(done: subprocess.CompletedProcess[bytes]) -> str:
    said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return said[:200] or "exit code %d" % done.returncode


def words_of(command: Union[str, Tuple[str, ...]]) -> List[str]:
    if not isinstance(command, str):
        return list(command)
    try:
        return shlex.split(command)
    except ValueError:  # quotes that do not end
        return command.split()
