"""What began the end: the error of the process that failed first, not what followed, was caught, or is only quoted."""

from __future__ import annotations

import pytest

from supervisor.contract.logs import beginning as module
from supervisor.contract.logs.beginning import beginning
from supervisor.contract.logs.matcher import scan

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."
FULL = "OSError: [Errno 28] No space left on device"
TRACEBACK = "Traceback (most recent call last):"
HANDLING = "During handling of the above exception, another exception occurred:"
DIRECT = "The above exception was the direct cause of the following exception:"
FRAME = ('  File "/app/train.py", line 12, in step', "    loss = model(batch)", "           ^^^^^^^^^^^^")
QUOTES_OOM = ('  File "/app/train.py", line 30, in step', '    raise KeyError("CUDA out of memory" in text)')
KEY = "KeyError: 'loss'"
STEPS = tuple(f"step {number}" for number in range(20))


def trace(error: str, *frames: str, prefix: str = "", header: str = "") -> list[str]:
    lines = [TRACEBACK, *(frames or FRAME), error]
    return [(header if number == 0 else "") + prefix + line for number, line in enumerate(lines)]


def began(lines: list[str], code: int | None = 1) -> tuple[str, str]:
    return beginning(scan("\n".join(lines).encode()), code=code)


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[rank0]: ",
        "[default0]:",
        "0: ",
        "(train pid=4711) ",
        "[1,0]<stderr>:",
        "web-1  | ",
        "2026-11-26T12:00:00.12Z ",
    ],
)
def test_an_error_after_words_that_were_caught_is_the_error(prefix: str) -> None:
    assert began([OOM, "smaller batch", *STEPS, *trace(KEY, prefix=prefix)]) == ("", KEY)
    assert began([*trace(OOM), "smaller batch", *STEPS, *trace(KEY, prefix=prefix)]) == ("", KEY)


def test_a_logger_prefixes_the_first_line_only() -> None:
    assert began([OOM, *trace(KEY, header="2026-11-26 12:00:00,123 - train - ERROR - failed: ")]) == ("", KEY)
    assert began([OOM, *trace(KEY, header="ERROR:root:")]) == ("", KEY)


def test_a_box_of_rich() -> None:
    box = [
        "╭───────────────── Traceback (most recent call last) ─────────────────╮",
        "│ /app/train.py:12 in step                                            │",
        "│ ❱ 12     if 'CUDA out of memory' in str(error):                     │",
        "│ ╭──────────── locals ────────────╮                                  │",
        "│ │ error = MemoryError()          │                                  │",
        "│ ╰────────────────────────────────╯                                  │",
        "╰─────────────────────────────────────────────────────────────────────╯",
        KEY,
    ]
    assert began([OOM, *STEPS, *box]) == ("", KEY)
    for prefix in ("[rank1]: ", "0: ", "2026-11-26T12:00:00.123456789Z ", "(train pid=4711) "):
        assert began([OOM, *STEPS, *(prefix + line for line in box)]) == ("", KEY), prefix


def test_source_lines_of_a_traceback_are_no_hits() -> None:
    assert began(trace(KEY, *QUOTES_OOM)) == ("", KEY)
    assert scan("\n".join(trace(KEY, *QUOTES_OOM)).encode()).seen() == []


@pytest.mark.parametrize("link", [HANDLING, DIRECT])
def test_the_known_cause_of_a_chain_began_the_end(link: str) -> None:
    chain = [*trace(FULL), "", link, "", *trace("RuntimeError: save failed")]
    assert began(chain) == ("no_space", FULL)
    assert began([*trace(KEY), "", link, "", *trace("ValueError: no")]) == ("", "ValueError: no")
    assert began([FULL, link, *trace("E: no")]) == ("no_space", FULL)


def test_the_more_exact_of_two_patterns_on_one_line() -> None:
    library = "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory"
    assert began(trace(library)) == ("import_failed", library)
    native = "  what():  std::bad_alloc: cudaErrorMemoryAllocation: out of memory"
    assert began(["terminate called after throwing an instance of 'x::bad_alloc'", native], code=134)[0] == "gpu_oom"


def test_a_message_of_several_lines() -> None:
    lines = [*trace("hydra.errors.InstantiationException: Error in call to target 'm.Net':"),
             "ModuleNotFoundError(\"No module named 'flash_attn'\")"]  # fmt: skip
    assert began(lines)[0] == "module_missing"
    inner = [*trace("ModuleNotFoundError: Caught ModuleNotFoundError in DataLoader worker process 0."),
             "Original " + TRACEBACK, *FRAME, "ModuleNotFoundError: No module named 'x'"]  # fmt: skip
    assert began(inner) == ("module_missing", "ModuleNotFoundError: No module named 'x'")


def test_of_several_ranks_the_first_one_failed_by_itself() -> None:
    nccl = "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, remote process exited"
    peer = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:1234"
    launcher = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
    first, others = trace(KEY, prefix="[rank3]: "), [trace(nccl, prefix=f"[rank{rank}]: ") for rank in (0, 1, 2)]
    lines = [*first, *others[0], *others[1], *others[2], *trace(peer, prefix="[rank5]: "), *trace(launcher), "bye"]
    assert began(lines) == ("", KEY)
    oom_first = [*trace(OOM, prefix="[rank3]: "), *trace("ValueError: unknown", prefix="[rank0]: "), *trace(launcher)]
    assert began(oom_first) == ("gpu_oom", OOM)
    assert began([*others[0], *trace(launcher)]) == ("", nccl)
    assert began(trace(launcher))[1].startswith("torch.distributed")


def test_lines_of_several_ranks_stand_between_each_other() -> None:
    one, two = trace(OOM, prefix="[rank1]: "), trace("ValueError: no", prefix="[rank0]: ")
    mixed = [line for pair in zip(one, two, strict=True) for line in pair]
    assert began(mixed) == ("gpu_oom", OOM)
    steps = [line for pair in zip(one, STEPS, strict=False) for line in pair]
    assert began([*steps, *one[len(steps) // 2 :]]) == ("gpu_oom", OOM)


def test_what_python_only_reports_did_not_end_the_command() -> None:
    ignored = ["Exception ignored in: <function A.__del__ at 0x7f>", *trace("AttributeError: gone")]
    assert began([*trace(KEY), *ignored]) == ("", KEY)
    assert began([*trace(OOM), *ignored]) == ("gpu_oom", OOM)
    at_exit = ["Error in atexit._run_exitfuncs:", *trace("BrokenPipeError: [Errno 32] Broken pipe")]
    assert began([*trace(KEY), *at_exit]) == ("", KEY)
    in_thread = ["Exception in thread Thread-3 (watch):", *trace("ValueError: no")]
    assert began([*trace(KEY), *in_thread]) == ("", KEY)
    assert began(in_thread) == ("", "ValueError: no")
    logged = ["--- Logging error ---", *trace("ValueError: no")]
    assert began([*trace(KEY), *logged]) == ("", KEY)


def test_words_after_an_uncaught_error_are_not_its_cause() -> None:
    """Code 1 is Python's own; after another one the process died in native code."""
    lines = [*trace(KEY), *STEPS[:6], FULL]
    assert began(lines, code=1) == ("", KEY)
    assert began(lines, code=134) == ("no_space", FULL)


def test_what_stands_long_before_the_end_did_not_cause_it() -> None:
    quiet = [f"item {number}" for number in range(60)]
    assert began([*trace(KEY), *quiet]) == ("", "")
    assert began([OOM, *quiet]) == ("", "")
    # The lines of other ranks' tracebacks do not count.
    others = [
        line
        for rank in range(12)
        for line in trace("RuntimeError: Connection closed by peer", prefix=f"[rank{rank}]: ")
    ]
    assert began([*trace(OOM), *others]) == ("gpu_oom", OOM)


def test_what_the_training_survived_did_not_end_it() -> None:
    log = "\n".join([*trace(OOM), *STEPS, "stopped by the schedule"]).encode()
    assert beginning(scan(log), code=1) == ("gpu_oom", OOM)
    assert beginning(scan(log), since=log.index(b"step 0"), code=1) == ("", "")


def test_a_carriage_return_and_colors_hide_no_traceback() -> None:
    assert began([line + "\r" for line in [OOM, *STEPS, *trace(KEY)]]) == ("", KEY)
    assert began([OOM, *STEPS, *("\x1b[31m" + line + "\x1b[0m" for line in trace(KEY))]) == ("", KEY)


def test_errors_without_words_of_their_own() -> None:
    assert began(trace("KeyboardInterrupt")) == ("", "KeyboardInterrupt")
    assert began(trace("mypkg.errors.bad_config")) == ("", "mypkg.errors.bad_config")
    assert began([*trace(OOM)[:-1], "INFO: still here", OOM]) == ("gpu_oom", OOM)
    assert began(["  + Exception Group Traceback (most recent call last):", '  |   File "a.py", line 1, in <module>',
                  "  | ExceptionGroup: several (2 sub-exceptions)"])[1].startswith("ExceptionGroup")  # fmt: skip


def test_a_chooser_that_takes_the_last_of_all_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken variant."""
    monkeypatch.setattr(module, "_chosen", lambda own: next(iter(own[::-1]), None))
    with pytest.raises(AssertionError):
        test_of_several_ranks_the_first_one_failed_by_itself()
