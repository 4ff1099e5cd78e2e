"""What commands have printed: colours, progress bars, tracebacks, and lines of those who like trouble."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from supervisor.domain.attempt import Attempt
from supervisor.domain.causes import Cause
from tests.dashboard.dataset.story import Point, Story

LINES_MOST = 1500
HOSTILE = (
    "<script>alert('log')</script> <img src=x onerror=alert(1)>",
    "\x1b]0;a title of the terminal\x07\x1b[2J\x1b[31mred that never ends",
    "a bell \x07, a backspace \x08\x08, a NUL \x00 and a right-to-left \u202egnp.exe",
    "x" * 5000,
)
ENDS = {
    Cause.PREEMPTED: (
        "[agent] notice of preemption: 30 s left",
        "[agent] SIGTERM sent; final checkpoint",
        "saving checkpoint … done in 4.1 s",
    ),
    Cause.HOST_OOM: ("Killed", "[agent] the kernel killed 1 process for memory"),
    Cause.STALLED: ("[agent] no progress for 300 s: the threads of 3 processes are kept",),
    Cause.FINISHED: ("\x1b[32mdone\x1b[0m: results written to $SPOT_RESULTS_DIR",),
}
TRACEBACKS = {
    Cause.USER_ERROR: ('  File "/workspace/train.py", line 11, in <module>', "    import timm"),
    Cause.GPU_OOM: (
        '  File "/workspace/train.py", line 188, in main',
        "    loss = model(**batch).loss",
        '  File "/opt/conda/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1751, in _wrapped_call_impl',
    ),
}


def of_attempt(story: Story, attempt: Attempt) -> bytes:
    points = [point for point in story.points if point.attempt == attempt.number]
    return "".join(f"{line}\n" for line in _lines(story, attempt, points)).encode() + (
        b"bytes that are no text: \xff\xfe\xfd\n" if story.run.run_id == "xss-probe" else b""
    )


def console(attempt: Attempt) -> bytes:
    began = f"[    0.000000] Linux version 6.1.0-28-cloud-amd64 ({attempt.machine_name})"
    lines = (
        began,
        "[    4.211032] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.124.06",
        f"spot-start: machine {attempt.machine_id} in {attempt.placement.zone}, launch {attempt.launch_id}",
        "spot-start: driver 570.124.06 answers, 1 card",
        "spot-start: pulling the image … 4.1 GB in 41 s",
        "spot-start: the agent begins",
    )
    return "".join(f"{line}\n" for line in lines).encode()


def _lines(story: Story, attempt: Attempt, points: list[Point]) -> Iterator[str]:
    spec = story.spec
    yield f"[agent] attempt {attempt.number} on {attempt.machine_name} ({attempt.placement.zone})"
    yield f"[agent] $ {' '.join(spec['command'])}"
    if attempt.step_from is not None:
        yield f"[agent] resumed from step {attempt.step_from}"
    yield "\x1b[1mTorch 2.8.0, CUDA 12.8, 1 card\x1b[0m"
    if story.run.run_id == "xss-probe":
        yield from HOSTILE
    saved = attempt.step_from
    for point in points[-LINES_MOST // 2 :]:
        yield from _point(point, saved)
        saved = point.pulse.checkpoint_step or saved
    yield from _end(attempt)


def _point(point: Point, saved: int | None) -> Iterator[str]:
    pulse = point.pulse
    clock = datetime.fromtimestamp(point.at, UTC).strftime("%H:%M:%S")
    if pulse.step is None:
        yield f"{clock} epoch still going; generator and critic are at it"
        return
    told = " ".join(f"{name}={figure:.4f}" for name, figure in pulse.metrics.items())
    yield f"{clock} \x1b[36mINFO\x1b[0m step {pulse.step}/{pulse.total} {told}"
    if pulse.sequence % 5 == 0:
        bars = (f"eval: {10 * n:3d}%|{'█' * n}{' ' * (10 - n)}| {6 * n}/60" for n in (2, 6, 10))
        yield "\r".join(bars)
    if pulse.checkpoint_step is not None and pulse.checkpoint_step != saved:
        yield f"{clock} \x1b[33mcheckpoint\x1b[0m {pulse.checkpoint_step} saved"


def _end(attempt: Attempt) -> Iterator[str]:
    if attempt.ended_at is None or attempt.cause is None:
        return
    if attempt.cause in TRACEBACKS:
        yield "Traceback (most recent call last):"
        yield from TRACEBACKS[attempt.cause]
    if attempt.exit is not None and attempt.exit.last_line:
        yield f"\x1b[31m{attempt.exit.last_line}\x1b[0m"
    yield from ENDS.get(attempt.cause, ())
