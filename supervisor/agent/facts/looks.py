"""Looks at the machine around the command: before it starts, at a stall, and at an end that is a failure.

They cost too much for every beat, and a network disk or a driver may hang in them. So each look is a thread with a
deadline; one that does not return is left behind, and no second one of its kind is started.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from supervisor.agent.facts.start import cards_before, held, mount_under, parse_mounts, start_facts
from supervisor.agent.facts.work import read_work
from supervisor.agent.machine import vitals
from supervisor.agent.machine.cgroup import OomWatch, OwnCgroup
from supervisor.agent.machine.command import Training
from supervisor.agent.machine.folder import MachineFolder, names_in, read_fields, read_text
from supervisor.agent.machine.gpus import GpuReader
from supervisor.agent.machine.job import Job
from supervisor.agent.machine.processes import leftovers, stat_fields
from supervisor.agent.watch.slow import Wanted, Work
from supervisor.contract.beat_telemetry import HARDWARE_XIDS
from supervisor.contract.signs import MAX_XIDS

START_S, CARDS_S, TREE_S, FILES_S, WORK_S = 2.0, 2.0, 2.0, 5.0, 5.0  # deadlines
START, CARDS, OPENED, TREE, FILES, CODE, EDITED, WORK = (
    "start", "cards", "opened cards", "tree", "files", "code", "edited code", "work",
)  # fmt: skip
PROCESSES, THREADS = 64, 16  # at most, of each process
NEWEST, LARGEST, DEPTH = 10, 10, 6
IO = ("read_bytes", "write_bytes", "rchar", "wchar")
ENTRIES = 50_000  # of the command's folders
APART_S = 0.5  # two looks at the newest files
MOSTLY = 0.9  # of a folder in one folder of it: that one is shown in its place
UNFINISHED = (".tmp", ".part")
CODE_SUFFIXES, CODE_FILES, EDITED_SHOWN = (".py", ".sh"), 2000, 10
_PAGE = os.sysconf("SC_PAGE_SIZE")
_log = logging.getLogger("agent")


class Looks:
    """By name. Safe to use from every thread."""

    def __init__(self) -> None:
        self._threads: Dict[str, threading.Thread] = {}
        self._results: Dict[str, Any] = {}
        self._until: Dict[str, float] = {}

    def begin(self, name: str, seconds: float, look: Callable[[], Any]) -> None:
        """Start this look, unless the last one of this name still hangs. Its deadline begins now."""
        last = self._threads.get(name)
        if last is not None and last.is_alive():
            return
        self._results.pop(name, None)

        def run() -> None:
            try:
                self._results[name] = look()
            except Exception as error:  # noqa: BLE001 - a look that fails costs its own facts and nothing else
                _log.info("%s could not be looked at: %s: %s", name, type(error).__name__, error)

        self._until[name] = time.monotonic() + seconds
        thread = self._threads[name] = threading.Thread(target=run, name=name, daemon=True)
        thread.start()

    def result(self, name: str, wait: bool = True) -> Any:
        """What this look has seen, None where it has not returned. `wait`: until its deadline, if necessary."""
        thread = self._threads.get(name)
        if thread is not None and wait:
            thread.join(max(0.0, self._until[name] - time.monotonic()))
        return self._results.get(name)


class Surroundings:
    """What the machine shows around one command. The main thread calls `before` and `at_end`."""

    def __init__(self, job: Job, folder: MachineFolder, *, gpus: GpuReader, oom: OomWatch, training: Training) -> None:
        self._job, self._folder, self._gpus, self.oom = job, folder, gpus, oom
        self._training = training
        self._looks = Looks()
        self._cards_before: Tuple[Tuple[int, int, int], ...] = ()
        self._cwd = ""

    def before(self, cwd: str, env: Mapping[str, str]) -> None:
        """Immediately before the command starts, which waits for the cards' figures: later ones are its own."""
        self.oom.begin()
        self._looks.begin(CARDS, CARDS_S, lambda: cards_before(self._gpus))
        self._cwd = cwd
        self._looks.begin(CODE, START_S, lambda: code_files(cwd))
        self._looks.begin(START, START_S, lambda: start_facts(self._job, self._folder, cwd, env))
        self._cards_before = self._looks.result(CARDS) or ()
        self._looks.begin(OPENED, START_S, self._gpus.count)

    def at_stall(self) -> None:
        self._look(APART_S)

    def at_end(self, failed: bool) -> None:
        """Before the leftovers of the command are killed. `failed`: it ended by itself, with an error."""
        if not failed:
            return
        self._look(0.0)
        self._looks.begin(CARDS, CARDS_S, self._gpus.read)  # collects errors of the last seconds
        self._looks.result(TREE)
        self._looks.result(CARDS)

    def _look(self, apart_s: float) -> None:
        pids = leftovers(self._training.pid, self._folder.marker)
        self._looks.begin(TREE, TREE_S, lambda: tree_rows(pids))
        self._looks.begin(FILES, FILES_S, lambda: files_of(self._folder.roles(), self._folder.root, apart_s))
        before = self._looks.result(CODE, wait=False)
        if before is not None:
            self._looks.begin(EDITED, START_S, lambda: edited(self._cwd, before))

    def work(self, pids: Iterable[int], group: OwnCgroup, wanted: Wanted) -> Optional[Work]:
        """The last finished reading of these processes; the next one begins. Never blocks."""
        last: Optional[Work] = self._looks.result(WORK, wait=False)
        self._looks.begin(WORK, WORK_S, lambda: read_work(sorted(pids), wanted, group, self._gpus))
        return last

    def signs(self) -> Dict[str, Any]:
        """Fields of contract/signs.py that may decide what an end means; without what is not notable."""
        rose_up_s = self.oom.rose_up_s
        signs: Dict[str, Any] = {"xids": telling_xids(self._gpus.xids()), "held": held(self._cards_before)}
        signs = {name: rows for name, rows in signs.items() if rows}
        if rose_up_s is not None:
            signs.update(oom_rose_up_s=rose_up_s, oom_shared=self.oom.shared)
        return signs

    def part(self, wait: bool = True) -> Dict[str, Any]:
        """For the evidence, not yet masked. `wait`: for looks whose time is not over."""
        start, opened = self._looks.result(START, wait), self._looks.result(OPENED, wait)
        if start is not None and opened is not None:
            start = {**start, "cards_opened": opened[0], "cards_fault": opened[1]}
        return {
            "oom": self.oom.facts(),
            "xids": self._gpus.xids(),
            "cards_before": self._cards_before,
            "start": start,
            "tree": self._looks.result(TREE, wait) or [],
            "files": self._looks.result(FILES, wait),
            "code_edited": self._looks.result(EDITED, wait),
        }


def telling_xids(xids: Sequence[Tuple[int, int, float]]) -> Tuple[Tuple[int, int, float], ...]:
    """As many as a beat carries: the hardware's first, then the newest; in order of time."""
    by_weight = sorted(xids, key=lambda xid: (xid[1] in HARDWARE_XIDS, xid[2]))
    return tuple(sorted(by_weight[-MAX_XIDS:], key=lambda xid: xid[2]))


# --- processes ----------------------------------------------------------------------------------------------------


def tree_rows(pids: Iterable[int]) -> List[Dict[str, Any]]:
    """State, wait channel, memory, bytes of its IO, and threads ([id, name, state, wait channel]) of each process."""
    rows: List[Dict[str, Any]] = []
    for pid in sorted(pids)[:PROCESSES]:
        with suppress(OSError, ValueError, IndexError):  # it has ended
            fields = stat_fields(pid)
            io = read_fields("/proc/%d/io" % pid)
            row: Dict[str, Any] = {
                "pid": pid,
                "parent": int(fields[1]),
                "state": fields[0],
                "wchan": read_text("/proc/%d/wchan" % pid).strip(),
                "rss_bytes": int(fields[21]) * _PAGE,
                "threads": _thread_rows(pid),
            }
            row.update((name, int(io[name])) for name in IO if name in io)
            rows.append(row)
    return rows


def _thread_rows(pid: int) -> List[List[Any]]:
    rows: List[List[Any]] = []
    for thread in sorted(int(name) for name in names_in("/proc/%d/task" % pid) if name.isdigit())[:THREADS]:
        folder = "/proc/%d/task/%d/" % (pid, thread)
        name, stat = read_text(folder + "comm").strip(), read_text(folder + "stat").rpartition(")")[2].split()
        if stat:
            rows.append([thread, name, stat[0], read_text(folder + "wchan").strip()])
    return rows


# --- files --------------------------------------------------------------------------------------------------------


def files_of(folders: Mapping[str, str], root: str, apart_s: float, deadline_s: float = FILES_S) -> Dict[str, Any]:
    """What the command wrote: its newest files ([path, bytes, seconds since the last write, bytes that it grew within
    `apart_s`]), and unfinished ones. `largest`: folders of a full disk. `complete` False: the time was too short."""
    until = time.monotonic() + deadline_s
    rows, complete = _files(folders, until)
    unfinished = [size for _, path, size in rows if _is_unfinished(path)]
    newest = sorted(rows, reverse=True)[:NEWEST]
    time.sleep(max(0.0, min(apart_s, until - time.monotonic())))
    now = time.time()
    result: Dict[str, Any] = {
        "newest": [[path, size, round(now - mtime, 1), _size(path, size) - size] for mtime, path, size in newest],
        "unfinished": len(unfinished),
        "unfinished_bytes": sum(unfinished),
        "complete": complete,
    }
    full = [path for role, path in folders.items() if vitals.full_disks({role: path})]
    if full:
        result["largest"], all_read = largest_folders(full[0], (root, os.path.expanduser("~/.cache"), "/tmp"), until)  # noqa: S108
        result["complete"] = complete and all_read
    return result


def _files(folders: Mapping[str, str], until: float) -> Tuple[List[Tuple[float, str, int]], bool]:
    """((time of the last write, path, bytes) of plain files, whether these are all). A folder is read entry by entry:
    one that has used up the inodes of its disk holds millions."""
    rows: List[Tuple[float, str, int]] = []
    waiting = list(folders.values())
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if time.monotonic() > until or len(rows) + len(waiting) >= ENTRIES:
                    return rows, False
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        rows.append((status.st_mtime, entry.path, status.st_size))
    return rows, True


def _is_unfinished(path: str) -> bool:
    name = os.path.basename(path)
    return name.endswith(UNFINISHED) or name.startswith(".")


def _size(path: str, otherwise: int) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return otherwise


def code_files(top: str) -> Dict[str, Tuple[int, int]]:
    """Path below `top` -> (time of the last write, bytes) of the files of code, CODE_FILES at most. Links and hidden
    folders are left out."""
    files: Dict[str, Tuple[int, int]] = {}
    waiting, read = [top], 0
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop(0)) as entries:
            for entry in entries:
                read += 1
                if read > ENTRIES or len(files) >= CODE_FILES:
                    return files
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        waiting += [] if entry.name.startswith((".", "__pycache__")) else [entry.path]
                    elif entry.name.endswith(CODE_SUFFIXES) and entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        files[os.path.relpath(entry.path, top)] = (status.st_mtime_ns, status.st_size)
    return files


def edited(top: str, before: Mapping[str, Tuple[int, int]]) -> List[str]:
    """Files of the start that were written since, or are not there any more. New files are the command's own."""
    paths = []
    for path, status in sorted(before.items()):
        try:
            now = os.lstat(os.path.join(top, path))
        except FileNotFoundError:
            paths.append(path)
        except OSError:
            pass  # unread is not edited
        else:
            paths += [path] if (now.st_mtime_ns, now.st_size) != status else []
    return paths[:EDITED_SHOWN]


def largest_folders(path: str, first: Sequence[str], until: float) -> Tuple[List[List[Any]], bool]:
    """([folder, bytes] of the disk that holds `path`, the largest first; whether all of it was read). `first`: where to
    begin, because the time is short."""
    mount = mount_under(os.path.realpath(path), parse_mounts(read_text("/proc/self/mountinfo", max_bytes=1 << 20)))
    top = "/" if mount is None else mount.point
    device, sizes, complete = os.stat(path).st_dev, _Sizes(top), True
    for start in (*first, top):
        for folder in _walk(start, device, sizes.visited):
            if time.monotonic() > until:
                complete = False
                break
            sizes.add(folder)
    return sizes.largest(), complete


def _walk(start: str, device: int, visited: Dict[Tuple[int, int], str]) -> Iterator[str]:
    """Folders of this file system that were not visited yet."""
    waiting = [os.path.realpath(start)]
    while waiting:
        folder = waiting.pop(0)
        with suppress(OSError):
            status = os.lstat(folder)
            if status.st_dev != device or (status.st_dev, status.st_ino) in visited:
                continue
            visited[(status.st_dev, status.st_ino)] = folder
            with os.scandir(folder) as entries:
                waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
            yield folder


class _Sizes:
    """Bytes below each folder, to a depth of DEPTH below `top`."""

    def __init__(self, top: str) -> None:
        self._top = top.rstrip("/")
        self._sizes: Dict[str, int] = {}
        self.visited: Dict[Tuple[int, int], str] = {}

    def add(self, folder: str) -> None:
        """The plain files directly in it. A file with several names counts once for each."""
        size = 0
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    if not entry.is_dir(follow_symlinks=False):
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
        if not (folder + "/").startswith(self._top + "/"):
            return  # the same file system at another mount
        parts = folder[len(self._top) :].strip("/").split("/")[:DEPTH]
        for depth in range(len(parts) + 1):
            above = "/".join([self._top, *parts[:depth]]).rstrip("/") or "/"
            self._sizes[above] = self._sizes.get(above, 0) + size

    def largest(self) -> List[List[Any]]:
        """Without folders that are mostly one folder below them."""
        below: Dict[str, int] = {}
        for folder, size in self._sizes.items():
            above = os.path.dirname(folder)
            if folder != above:
                below[above] = max(below.get(above, 0), size)
        rows = [(size, path) for path, size in self._sizes.items() if size and below.get(path, 0) < MOSTLY * size]
        return [[path, size] for size, path in sorted(rows, reverse=True)[:LARGEST]]
