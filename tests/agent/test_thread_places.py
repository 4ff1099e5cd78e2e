"""Where a hanging process waits: real dumps (hangs/*.json, made by hangs/make.py) and stacks of known libraries."""

import json
from pathlib import Path
from typing import Any

import pytest

from supervisor.contract import thread_places
from supervisor.contract.thread_places import COLLECTIVE, GPU_KERNEL, PLACES, all_wait, fingerprint, place_of

REAL = sorted((Path(__file__).parent / "hangs").glob("*.json"))
SITE = "/home/user/venv/lib/python3.11/site-packages"


def real(name: str) -> list[dict[str, Any]]:
    path = next(path for path in REAL if path.stem == name)
    return list(json.loads(path.read_text()))


def stack(*frames: str, pid: int = 7) -> dict[str, Any]:
    """`frames`: "file:function" or "file:function:source", the innermost first."""
    lines = ["Current thread 0x0 (most recent call first):"]
    for frame in frames:
        path, function, *source = frame.split(":")
        lines += [f'  File "{path}", line 10 in {function}', *(f"    {text}" for text in source)]
    return {"pid": pid, "command": "python train.py", "how": "faulthandler", "text": "\n".join(lines)}


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_the_name_of_a_real_dump_is_its_place(path: Path) -> None:
    assert place_of(json.loads(path.read_text())) == path.stem.partition("-")[0]


def test_all_places_have_a_real_dump_but_the_card() -> None:
    assert {path.stem.partition("-")[0] for path in REAL} == {*PLACES} - {GPU_KERNEL}


ALLREDUCE = stack(
    f"{SITE}/torch/distributed/distributed_c10d.py:all_reduce",
    f"{SITE}/torch/distributed/c10d_logger.py:wrapper",
    "/home/user/train.py:train:dist.all_reduce(loss)",
)
ITEM = stack("/home/user/train.py:train:total += loss.item()", "/home/user/train.py:<module>:train()")
WORKER = stack(
    "/usr/lib/python3.11/multiprocessing/connection.py:poll",
    "/usr/lib/python3.11/multiprocessing/queues.py:get",
    f"{SITE}/torch/utils/data/_utils/worker.py:_worker_loop",
)
LOADER = stack(
    "/usr/lib/python3.11/threading.py:wait",
    "/usr/lib/python3.11/queue.py:get",
    f"{SITE}/torch/utils/data/dataloader.py:_try_get_data",
    "/home/user/train.py:train:for batch in loader",
)
READS = stack("/usr/lib/python3.11/ssl.py:read", f"{SITE}/urllib3/response.py:read", "/home/user/data.py:load:get()")
BACKWARD = stack(f"{SITE}/torch/autograd/graph.py:_engine_run_backward", "/home/user/train.py:train:loss.backward()")
LAUNCHER = stack("/usr/lib/python3.11/subprocess.py:_try_wait", "/home/user/launch.py:main:child.wait()")
ELASTIC = stack(
    f"{SITE}/torch/distributed/elastic/agent/server/api.py:_invoke_run", f"{SITE}/torch/distributed/run.py:run"
)


@pytest.mark.parametrize(
    ("dumps", "place"),
    [
        ([ALLREDUCE], "collective"),
        ([ITEM], "gpu_kernel"),
        ([BACKWARD], "gpu_kernel"),
        ([LOADER, WORKER], "input"),
        ([LOADER, READS], "network"),
        ([ITEM, WORKER, WORKER], "gpu_kernel"),
        ([WORKER], "unknown"),
        ([ELASTIC, ITEM, ALLREDUCE], "collective"),
        ([LAUNCHER, READS], "network"),
        ([{**ALLREDUCE, "state": "thread 7: python, D (disk sleep), wchan folio_wait_bit, syscall 0"}], "disk"),
        ([{**ITEM, "state": "thread 7: python, D (disk sleep), wchan nvidia_ioctl, syscall 16"}], "gpu_kernel"),
        ([stack('/home/user/train.py:<module>:open("feed", "rb").read()')], "input"),
        ([stack("/home/user/train.py:<module>:fcntl.flock(second, fcntl.LOCK_EX)")], "lock"),
        ([stack("/home/user/train.py:<module>:os.read(reader, 100)")], "input"),
        ([], "unknown"),
        ([{"pid": 1, "how": "faulthandler", "text": "no stack at all"}], "unknown"),
        ([{"how": None, "text": 7, "state": []}], "unknown"),
    ],
)
def test_stacks_of_known_libraries(dumps: list[dict[str, Any]], place: str) -> None:
    assert place_of(dumps) == place


def test_only_the_main_thread_counts() -> None:
    """The broken variant: a helper that waits for a lock, as every library has one, would be the place."""
    helper = 'Thread 0x1 (most recent call first):\n  File "/usr/lib/python3.11/threading.py", line 3 in wait\n'
    helper += '  File "/usr/lib/python3.11/threading.py", line 5 in _bootstrap\n\n'
    for text in (helper + READS["text"], READS["text"].replace("Current thread", "Thread") + "\n\n" + helper):
        assert place_of([{**READS, "text": text}]) == "network"
    assert place_of([{**READS, "text": helper}]) == "lock"


def test_a_lock_is_the_place_only_where_no_frame_says_for_what() -> None:
    wait = "/usr/lib/python3.11/threading.py:wait"
    assert place_of([stack(wait, "/home/user/train.py:train:gate.wait()")]) == "lock"
    assert place_of([stack(wait, "/usr/lib/python3.11/queue.py:get", "/home/user/train.py:train:q.get()")]) == "input"


def test_a_program_that_reads_from_the_hanging_one_is_not_the_place() -> None:
    tee = {"pid": 9, "how": "proc", "text": "thread 9: tee, S (sleeping), wchan anon_pipe_read, syscall 0 0x0"}
    assert place_of([tee, *real("lock-unregistered")]) == "lock"
    assert place_of([tee, *real("lock")]) == "lock"
    assert place_of([tee]) == "input"


def test_all_wait_asks_every_process_that_is_not_idle() -> None:
    assert all_wait([ITEM, ALLREDUCE, LAUNCHER], (COLLECTIVE, GPU_KERNEL))
    assert not all_wait([ITEM, READS], (COLLECTIVE, GPU_KERNEL))
    assert not all_wait([], (COLLECTIVE, GPU_KERNEL))


def test_equal_dumps_have_equal_fingerprints() -> None:
    helper = ITEM["text"].replace("Current thread", "Thread 0x5\n\nCurrent thread")
    assert fingerprint([ITEM]) == fingerprint([{**ITEM, "text": helper}]), "helpers do not count"
    assert fingerprint([ITEM]) != fingerprint([ALLREDUCE])
    assert fingerprint([ITEM]) != fingerprint([{**ITEM, "pid": 8}])
    proc = real("network-unregistered")
    later = [{**proc[0], "text": proc[0]["text"].replace("0x1000", "0x2000").replace("+0x89", "+0x90")}]
    assert fingerprint(proc) == fingerprint(later), "arguments do not count"


def test_no_expression_is_slow_on_a_hostile_line() -> None:
    hostile = [
        stack(f"/lib/python3/{'a/' * 2000}.py:{'f' * 4000}:{'with ' * 1000}"),
        {"how": "proc", "text": "thread 1: " * 2000},
    ]
    assert place_of(hostile) in PLACES
    assert len(thread_places.fingerprint(hostile)) == 2
