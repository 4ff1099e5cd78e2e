"""What the runs have left in the object store: logs, consoles, checkpoints, results, evidence, facts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import FileEntry, Pointer
from supervisor.contract.beat_telemetry import decode, to_json
from supervisor.contract.runfiles import manifest_sha256
from supervisor.domain.attempt import Attempt
from supervisor.domain.causes import Cause
from supervisor.lifecycle.evidence import attempt_evidence as evidence
from tests.dashboard.dataset import logs
from tests.dashboard.dataset.house import House
from tests.dashboard.dataset.story import Story

MODEL = bytes(4_000_000)
METRICS = b'{"accuracy": 0.9412, "loss": 0.1874, "steps": 50000}\n'
CARD = "# A model\nTrained on spot machines, résumé kept. \U0001f680\n".encode()
CONTENTS = {"model.safetensors": MODEL, "metrics.json": METRICS, "README.md": CARD}
STACK = """Thread 0x00007f1c (most recent call first):
  File "/opt/conda/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 1243 in _try_get_data
  File "/workspace/data/stream.py", line 88 in __iter__
  File "/workspace/train.py", line 214 in main
"""


def _entry(name: str, content: bytes) -> FileEntry:
    return FileEntry(name, len(content), hashlib.sha256(content).hexdigest())


RESULTS = tuple(_entry(name, content) for name, content in CONTENTS.items())
RESULTS_BYTES = sum(entry.size for entry in RESULTS)
RESULTS_SHA = manifest_sha256(RESULTS)
PART = RESULTS[2:]
PART_SHA = manifest_sha256(PART)
WEIGHTS = _entry("model.pt", MODEL)


def put_files(house: House, story: Story) -> None:
    run = story.run
    attempts = attempts_of(story)
    for attempt in attempts:
        if attempt.running_at is not None or attempt.ended_at is None:
            _put_log(house, story, attempt)
        if attempt.ended_at is not None:
            _put_evidence(house, story, attempt)
        if attempt.running_at is not None:
            facts = json.dumps(_facts(story, attempt)).encode()
            house.put(attempt.running_at, runfiles.facts(run.run_id, attempt.number), facts)
    if attempts:
        _put_baton(house, story, attempts[-1])


def attempts_of(story: Story) -> list[Attempt]:
    """Each as it was left."""
    found: dict[int, Attempt] = {}
    for run in (*(step.run for step in story.steps), story.run):
        if run.attempt is not None:
            found[run.attempt.number] = run.attempt
    return list(found.values())


def _put_log(house: House, story: Story, attempt: Attempt) -> None:
    text, run = logs.of_attempt(story, attempt), story.run
    third = len(text) // 3
    end = attempt.ended_at or house.now
    for number, piece in enumerate((text[:third], text[third : 2 * third], text[2 * third :]), start=1):
        house.put(end, runfiles.log_chunk(run.run_id, attempt.number, number), piece)
    if attempt.ended_at is not None:
        house.put(end, runfiles.console(run.run_id, attempt.number), logs.console(attempt))
    else:
        house.platform.consoles[attempt.machine_name] = logs.console(attempt)


def _put_evidence(house: House, story: Story, attempt: Attempt) -> None:
    run, end = story.run, attempt.ended_at or house.now
    told = attempt.cause not in (Cause.ORPHANED, Cause.GPU_UNAVAILABLE)
    tail = tuple(logs.of_attempt(story, attempt).decode("utf-8", "replace").splitlines()[-40:])
    key = runfiles.console(run.run_id, attempt.number)
    part = _agent_part(story, attempt) if told else None
    found = evidence.Found(part, "" if told else "its machine was gone before it could write", tail, key)
    document = evidence.compose(run, attempt, found, (f"listing: {attempt.machine_name} is gone",), None)
    house.put(end, runfiles.evidence(run.run_id, attempt.number), evidence.encoded(document))


def _agent_part(story: Story, attempt: Attempt) -> dict[str, Any]:
    last = [point.pulse for point in story.points if point.attempt == attempt.number]
    telemetry = decode(last[-1].telemetry) if last else None
    stalled, killed = attempt.cause is Cause.STALLED, attempt.cause is Cause.HOST_OOM
    dump = {"pid": 412, "command": "python -u train.py", "how": "faulthandler", "text": STACK}
    names = ("python -u train.py", "python -u train.py (loader 0)", "python -u train.py (loader 1)")
    return {
        "version": 1, "when": "end", "written_at": "", "run_id": story.run.run_id, "attempt": attempt.number,
        "launch_id": attempt.launch_id, "machine_id": attempt.machine_id,
        "exit": None if attempt.exit is None else attempt.exit._asdict(),
        "left": "noticed" if attempt.cause is Cause.PREEMPTED else None, "signals_sent": [15] if stalled else [],
        "oom_kills": 1 if killed else 0, "boot": {"at_start": "b-1", "now": "b-1"}, "disks": {},
        "telemetry": None if telemetry is None else to_json(telemetry),
        "stall": {"step": attempt.step_last, "without_progress_s": 301.0, "threads": [dump]} if stalled else None,
        "processes": [
            {"pid": 412 + n, "ppid": 1, "state": "S", "command": name, "rss_bytes": (12 - 4 * n) * 1024**3}
            for n, name in enumerate(names)
        ],
        "trimmed": [],
    }  # fmt: skip


def _facts(story: Story, attempt: Attempt) -> dict[str, Any]:
    newer = attempt.number > 2
    packages = ["numpy==2.1.3", "torch==2.8.0", f"transformers==4.5{int(newer)}.0", "wandb==0.19.1"]
    return {
        "attempt": attempt.number, "code": None, "image_digest": story.run.image.digest,
        "command": story.spec["command"],
        "packages": packages, "packages_sha256": hashlib.sha256("".join(packages).encode()).hexdigest(),
        "python": "3.11.9", "python_executable": "/opt/conda/bin/python", "torch": "2.8.0", "cuda": "12.8",
        "driver": "570.124.06", "gpus": [attempt.placement.shape.replace("g2-standard-8", "NVIDIA L4")],
        "cpu": "Intel(R) Xeon(R) CPU @ 2.20GHz", "cores": 8, "kernel": "6.1.0-28-cloud-amd64", "seeds": {"SEED": "17"},
    }  # fmt: skip


def _put_baton(house: House, story: Story, last: Attempt) -> None:
    run, pointers = story.run, tuple(_checkpoints(house, story, last))
    prefix, done = runfiles.results(run.run_id, run.generation), None
    if run.files.outcome is not None:
        entries = RESULTS if not run.files.outcome.missing else PART
        for entry in entries:
            house.put(run.files.outcome.verified_at, prefix + entry.name, CONTENTS[entry.name])
        done = batons.Done(last.launch_id, prefix, entries, last.step_last, last.step_last, 3600.0)
    baton = batons.Baton(
        house.store.supervisor_id, run.generation, checkpoint=pointers[0] if pointers else None,
        previous=pointers[1:], done=done,
    )  # fmt: skip
    house.put(last.ended_at or house.now, runfiles.baton(run.run_id), batons.encode(baton))


def _checkpoints(house: House, story: Story, last: Attempt) -> Iterator[Pointer]:
    """The newest three."""
    newest, every = story.run.files.checkpoint_step, story.pace.every if story.pace is not None else 1
    for back in range(3):
        step = (newest or 0) - back * every
        if step > 0:
            prefix = runfiles.checkpoint(story.run.run_id, step, last.number)
            house.put((last.ended_at or house.now) - 60.0 * back, prefix + WEIGHTS.name, MODEL)
            yield Pointer(step, prefix, (WEIGHTS,))
