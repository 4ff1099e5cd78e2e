"""What every test stands on. Fixtures of one room live beside its tests; those that many rooms share are plugins."""

import gc
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.components import require_component
from tests.network_guard import refuse_the_network

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background by a shell: commands of the tests would inherit that and never hear a Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

__all__ = ["require_component"]

# A submit takes the environment that is active in the shell: here none, whatever shell the tests are started from.
for _variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
    os.environ.pop(_variable, None)

# `python3` is a program: the shim of pyenv is a script of bash that costs more than the Python that it starts.
_OWN_PYTHON = str(Path(sys.base_prefix, "bin"))
os.environ["PATH"] = os.pathsep.join(
    _OWN_PYTHON if folder.endswith("/.pyenv/shims") else folder for folder in os.environ["PATH"].split(os.pathsep)
)

# Files of tests are in memory where there is enough of it. On a disk the file system takes a fifth of the CPU of many
# tests (ext4 looks for an inode that was not freed just now), and each commit of SQLite waits. No test is about a power
# cut: they kill processes, and the kernel keeps what a killed process has written.
IN_MEMORY = Path("/dev/shm")  # noqa: S108 - folders in it are made by mkdtemp and by pytest
MEMORY_BYTES = 4 << 30
if "TMPDIR" not in os.environ and IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free >= MEMORY_BYTES:
    os.environ["TMPDIR"], tempfile.tempdir = str(IN_MEMORY), None

gc.disable()  # until all tests are collected: what is imported stays

pytest_plugins = ["tests.integration.postgres_server", "tests.workers"]

refuse_the_network()

# No deadline: on two busy cores a slow example says nothing. One failure is enough: many tests break a rule on purpose,
# and the search for a second one takes as long again. In CI the same examples each time, so that a change is judged by
# what it changed; on a desk and in campaigns new ones.
settings.register_profile("desk", deadline=None, report_multiple_bugs=False)
settings.register_profile("ci", settings.get_profile("desk"), derandomize=True)
settings.register_profile("fuzz", settings.get_profile("desk"), max_examples=1000)
settings.register_profile("campaign", settings.get_profile("desk"), max_examples=5000)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


def pytest_collection_finish() -> None:
    """Thousands of collected tests stay to the end: the garbage collector has no need to walk them again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    gc.enable()


def _loggers() -> list[logging.Logger]:
    known = logging.root.manager.loggerDict.values()
    return [logging.root, *(one for one in known if isinstance(one, logging.Logger))]


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Commands and servers that run in this process set up the process's log; the next test hears all of its own."""
    handlers = list(logging.root.handlers)
    before = {logger.name: (logger.level, logger.disabled) for logger in _loggers()}
    yield
    for logger in _loggers():
        level, logger.disabled = before.get(logger.name, (logging.NOTSET, False))
        if logger.level != level:
            logger.setLevel(level)  # clears what every logger remembers of it: not for nothing
    for handler in [one for one in logging.root.handlers if one not in handlers]:
        logging.root.removeHandler(handler)
