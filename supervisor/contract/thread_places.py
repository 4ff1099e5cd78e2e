"""Where a process that hangs waits, from the dump of its threads: `place_of` names one of PLACES.

Shared with the agent: Python 3.8, standard library only. A dump is an entry of `threads` in the agent's evidence: `how`
is `faulthandler` (Python's own stacks, the innermost frame first, with the lines of the user's code) or `proc` (state,
wait channel and system call of each thread, and the kernel's stack where it can be read). `state` beside stacks holds
the same line of /proc for the main thread and for each thread that waits for a disk.

Only the main thread of a process counts: the helpers of every library wait at all times. Its frames are read from the
innermost one outward, up to the first one of the user's code. A wait for a child process says nothing: the child has a
dump of its own. Workers of a pool that wait for work are idle, they do not hang.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Any, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

STOPPED, DISK, COLLECTIVE, GPU_KERNEL = "stopped", "disk", "collective", "gpu_kernel"
NETWORK, INPUT, LOCK, UNKNOWN = "network", "input", "lock", "unknown"
# Of several processes the first of these is the place: the later ones are often only its consequence.
PLACES = (STOPPED, DISK, COLLECTIVE, GPU_KERNEL, NETWORK, INPUT, LOCK, UNKNOWN)
_WITHOUT_STACKS = (STOPPED, DISK, COLLECTIVE, GPU_KERNEL, NETWORK, LOCK, INPUT, UNKNOWN)  # `| tee` waits for a pipe too
_IDLE = ""  # a wait that says nothing: for a child process, or for work
_LIBRARY = re.compile(r"/lib(?:64)?/python3|-packages/|<frozen |<string>")
_FRAME = re.compile(r'  File "(?P<path>.+)", line \d+ in (?P<function>.+)')
_STARTS = re.compile(r"^(?:Current thread|Thread) ")
_THREAD = re.compile(r"^thread \d+: .*?, (?P<state>\w)\b")
_WCHAN = re.compile(r"wchan (\w[\w.]*)")
_SYSCALL = re.compile(r"syscall (\d+)")
# (file, function, place) of library frames, as regular expressions of their ends. Like those below, they are compiled
# at the first dump: an agent of which no training hangs needs none of them.
_FRAMES: Tuple[Tuple[str, str, str], ...] = (
    (r"/torch/utils/data/_utils/worker\.py", "_worker_loop", _IDLE),
    (r"/multiprocessing/pool\.py", "worker", _IDLE),
    (r"/concurrent/futures/process\.py", "_process_worker", _IDLE),
    (r"/multiprocessing/(?:popen_\w+|process)\.py", "poll|wait|join", _IDLE),
    (r"/subprocess\.py", ".*", _IDLE),
    (r"/torch/distributed/(?:elastic|launcher)/.*|/torch/distributed/run\.py", ".*", _IDLE),
    (r"/multiprocessing/resource_tracker\.py", ".*", _IDLE),
    (r"/torch/distributed/(?:distributed_c10d|_functional_collectives|rendezvous)\.py", ".*", COLLECTIVE),
    (r"/(?:horovod|mpi4py|deepspeed/comm)/.*|/jax/experimental/multihost_utils\.py", ".*", COLLECTIVE),
    (r"/threading\.py", "_wait", COLLECTIVE),  # of a barrier, also of one between processes
    (r"/torch/cuda/(?:__init__|streams)\.py", "synchronize|wait", GPU_KERNEL),
    (r"/torch/autograd/\w+\.py", "_engine_run_backward|backward|grad", GPU_KERNEL),
    (r"/(?:socket|ssl)\.py|/http/client\.py|/urllib/request\.py|/asyncio/\w+\.py", ".*", NETWORK),
    (r"/(?:urllib3|requests|httpx|httpcore|aiohttp|botocore|grpc|gcsfs|s3fs|huggingface_hub)/.*", ".*", NETWORK),
    (r"/(?:multiprocessing/queues|queue)\.py", "get", INPUT),
    (r"/multiprocessing/pool\.py", "get|wait|next|map|starmap", INPUT),
    (r"/torch/utils/data/.*|/tensorflow/python/data/.*|/webdataset/.*", ".*", INPUT),
)  # fmt: skip
# Waits of every kind end in these files: a frame further out says for what, else it is a lock.
_LOCKS = re.compile(r"/(?:threading|multiprocessing/synchronize)\.py$")
# In the line of the user's code that calls a function without frames of its own.
_SOURCES: Tuple[Tuple[str, str], ...] = (
    (r"\.item\(\)|\.cpu\(\)|\.tolist\(\)|\.synchronize\(|block_until_ready|device_get", GPU_KERNEL),
    (r"\.recv(?:_into|from)?\(|\.accept\(|urlopen\(", NETWORK),
    (r"\.acquire\(|\bwith\b.*lock|\b(?:flock|lockf)\(", LOCK),
    (r"\.read(?:line|lines|into)?\(", INPUT),
)
# Wait channels and functions of the kernel's stack. The first that matches counts.
_KERNEL: Tuple[Tuple[str, str], ...] = (
    (r"nvidia|\bnv_|\buvm_", GPU_KERNEL),
    (r"nfs|rpc_wait|fuse_|request_wait_answer|folio_wait|io_schedule|jbd2|percpu_rwsem_wait|blk_mq", DISK),
    (r"sk_wait|tcp_|inet_|sock_recv|unix_stream_(?:read|data)|wait_woken|skb_wait", NETWORK),
    (r"futex|lock_inode|posix_lock", LOCK),
    (r"pipe_read|pipe_wait|wait_for_partner|fifo_open", INPUT),
    (r"do_wait\b|sigsuspend|sigtimedwait", _IDLE),
)
_IDLE_COMMANDS = re.compile(r"multiprocessing\.(?:resource_tracker|forkserver)")


class _Frame(NamedTuple):
    path: str
    function: str
    source: str  # "" for a frame of a library


def place_of(dumps: Sequence[Mapping[str, Any]]) -> str:
    """One of PLACES, over all processes of the command. Stacks of Python say more than /proc: a lock or an input there
    counts only where no process has shown stacks with a place."""
    by_stack = [_place(dump) for dump in dumps if dump.get("how") == "faulthandler"]
    by_proc = [_place(dump) for dump in dumps if dump.get("how") != "faulthandler"]
    order = _WITHOUT_STACKS
    if any(place in PLACES[:-1] for place in by_stack):
        by_proc = [place for place in by_proc if place not in (INPUT, LOCK)]
        order = PLACES
    places = {*by_stack, *by_proc}
    return next((place for place in order if place in places), UNKNOWN)


def all_wait(dumps: Sequence[Mapping[str, Any]], places: Sequence[str]) -> bool:
    """Every process that is not idle waits at one of `places`."""
    return bool(dumps) and {_place(dump) for dump in dumps} <= {_IDLE, *places}


def fingerprint(dumps: Sequence[Mapping[str, Any]]) -> Tuple[Tuple[Any, ...], ...]:
    """What is equal in two dumps of processes that have not moved in between: where each main thread waits."""
    return tuple((dump.get("pid"), *_main_thread(_text(dump, "text"))) for dump in dumps)


def _text(dump: Mapping[str, Any], name: str) -> str:
    value = dump.get(name)
    return value if isinstance(value, str) else ""


def _place(dump: Mapping[str, Any]) -> str:
    """Of one process; _IDLE where its wait says nothing."""
    if _IDLE_COMMANDS.search(_text(dump, "command")):
        return _IDLE
    kernel = _text(dump, "state") or _text(dump, "text")
    by_state = _place_of_state(kernel)
    if by_state is not None:
        return by_state
    by_frames = _place_of_frames(_frames(_text(dump, "text"))) if dump.get("how") == "faulthandler" else None
    return _place_of_kernel(kernel) if by_frames is None else by_frames


def _place_of_state(kernel: str) -> Optional[str]:
    """By the letters of the threads' states: T is stopped, D waits for a disk (or inside a driver)."""
    states = [match.group("state") for match in map(_THREAD.match, kernel.splitlines()) if match]
    if "T" in states or "t" in states:
        return STOPPED
    if states == ["Z"]:
        return _IDLE  # it has ended: its parent has not asked how
    if "D" not in states:
        return None
    return GPU_KERNEL if re.search(_KERNEL[0][0], kernel) else DISK


def _place_of_kernel(kernel: str) -> str:
    main = kernel.split("\nthread ", maxsplit=1)[0]
    return next((place for words, place in _KERNEL if re.search(words, main)), UNKNOWN)


def _place_of_frames(frames: Sequence[_Frame]) -> Optional[str]:
    """None: the frames do not say it."""
    inner = list(takewhile(lambda frame: _LIBRARY.search(frame.path), frames))
    places = [place for frame in inner for place in _places_of_frame(frame)]
    if _IDLE in places:
        return _IDLE
    if places:
        return places[0]
    source = frames[len(inner)].source if len(inner) < len(frames) else ""
    called = next((place for words, place in _SOURCES if re.search(words, source)), None)
    return called or (LOCK if any(_LOCKS.search(frame.path) for frame in inner) else None)


def _places_of_frame(frame: _Frame) -> Iterator[str]:
    for path, function, place in _FRAMES:
        if re.search("(?:%s)$" % path, frame.path) and re.fullmatch(function, frame.function):
            yield place
            return


def _frames(text: str) -> List[_Frame]:
    """Of the main thread, the innermost first."""
    frames: List[_Frame] = []
    for line in _main_thread(text):
        match = _FRAME.match(line)
        if match is not None:
            frames.append(_Frame(match.group("path"), match.group("function"), ""))
        elif frames and line.startswith("    "):
            frames[-1] = frames[-1]._replace(source=line.strip())
    return frames


def _main_thread(text: str) -> Tuple[str, ...]:
    """Its lines. Stacks: of the last thread that `threading` did not start, else of the last one. /proc: state, wait
    channel and system call without their arguments."""
    if text.startswith("thread "):
        first = text.partition("\n")[0]
        matches = [pattern.search(first) for pattern in (_THREAD, _WCHAN, _SYSCALL)]
        return tuple(match.group(1) if match else "" for match in matches)
    threads: List[List[str]] = []
    for line in text.splitlines():
        if _STARTS.match(line):
            threads.append([])
        elif threads:
            threads[-1].append(line)
    own = [lines for lines in threads if not any("threading.py" in line and "_bootstrap" in line for line in lines)]
    return tuple((own or threads or [[]])[-1])
