"""The runs that are over, well and badly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from supervisor.contract.heartbeat import Exit
from supervisor.domain.causes import Cause
from supervisor.domain.run import run_cost_usd
from supervisor.domain.status import Status
from tests.dashboard.dataset import files
from tests.dashboard.dataset.house import A100, EAST, House
from tests.dashboard.dataset.runs_live import LOSS, NOTICE, spec
from tests.dashboard.dataset.story import DAY_S, HOUR_S, Pace, Story

HOSTILE = "<script>alert('label')</script>"
RIGHT_TO_LEFT = "\u202egnp.exe \U0001f680 'quoted' \"twice\" &amp; </td>"


def ended_runs(house: House) -> None:
    for tell in (_long, _two_lives, _one_life, _third, _partial, _no_module, _gpu_oom, _no_progress):
        tell(house)
    for tell in (_by_marker, _by_person, _over_budget):
        tell(house)


def _story(house: House, name: str, age_s: float, owner: str, image: str, **more: Any) -> Story:
    labels = {"team": owner, **more.pop("labels", {})}
    return house.story(name, age_s, owner, more.pop("actor", "ci-nightly"), **spec(image, labels=labels, **more))


def completed(story: Story) -> Story:
    story.save().verified(3, files.RESULTS_BYTES, files.RESULTS_SHA).lose(
        Cause.FINISHED, "exit code 0", Exit(0, None, False, 3600.0)
    )
    return story.over(Status.COMPLETED, Cause.FINISHED)


def _long(house: House) -> None:
    """A whole night: nine attempts, every zone."""
    story = _story(house, "llm-z-night", 3.4 * DAY_S, "research", "llm:2026-11-14", shape=A100)
    story.pace = Pace(1.1, 90_000, 250, {"loss": (9.9, 2.8), "perplexity": (9000.0, 16.4)})
    for number, hours in enumerate((1.2, 3.9, 0.3, 5.1, 2.2, 0.7, 4.4, 3.3)):
        cause = (Cause.PREEMPTED, Cause.PREEMPTED, Cause.ORPHANED)[number % 3]
        words = NOTICE % 30 if cause is Cause.PREEMPTED else "the machine is in no listing and 3 beats are missing"
        story.life(EAST[(number * 2) % 3], hours * HOUR_S, cause, words, 15 + 200 * (number % 3))
    story.wait(12).ask("us-east1-b").obtain().start().train(3.4 * HOUR_S)
    completed(story)


def _two_lives(house: House) -> None:
    story = _story(house, "digits-5", 26 * HOUR_S, "vision", "digits:3", actor="ops-laptop")
    story.pace = Pace(3.1, 50_000, 100, LOSS)
    story.life("us-east1-c", 2.9 * HOUR_S, Cause.PREEMPTED, NOTICE % 30)
    completed(story.wait(9).ask("us-east1-d").obtain().start().train(1.62 * HOUR_S))


def _one_life(house: House) -> None:
    story = _story(house, "old-1", 8 * DAY_S, "platform", "smoke:1")
    completed(story.wait(9).ask("us-east1-d").obtain().start().train(0.4 * HOUR_S, Pace(7.0, 10_000, 500, LOSS)))


def _third(house: House) -> None:
    story = _story(house, "whisper-small-nl", 31 * HOUR_S, "speech", "whisper:latest", actor="notebook-anna")
    trained = story.wait(9).ask("us-east1-b").obtain().start().train(5.2 * HOUR_S, Pace(1.6, 30_000, 500, LOSS))
    completed(trained)


def _partial(house: House) -> None:
    story = _story(house, "detr-coco-eval", 17 * HOUR_S, "vision", "detr:8", results=[{"path": "metrics.json"}])
    story.wait(9).ask("us-east1-b").obtain().start().train(2.1 * HOUR_S, Pace(1.2, 9_000, 500, {"mAP": (0.1, 0.41)}))
    story.save().verified(1, files.PART[0].size, files.PART_SHA, ("metrics.json",))
    story.lose(Cause.FINISHED, "exit code 0").over(Status.PARTIAL, Cause.FINISHED, "metrics.json")


def _no_module(house: House) -> None:
    story = _story(house, "vit-l-finetune", 2.4 * HOUR_S, "vision", "vit:0.3", actor="notebook-anna")
    last = "ModuleNotFoundError: No module named 'timm'"
    story.wait(12).ask("us-east1-c").obtain().start(101, 0).wait(40)
    story.lose(Cause.USER_ERROR, f"exit code 1: {last}", Exit(1, None, False, 40.0, last))
    story.over(Status.FAILED, Cause.USER_ERROR, last)


def _gpu_oom(house: House) -> None:
    story = _story(house, "llama-8b-qlora-bs64", 5.5 * HOUR_S, "research", "llama:8", actor="ops-laptop")
    story.wait(12).ask("us-east1-d").obtain().start(140, 2)
    attempt = story.run.attempt
    assert attempt is not None
    story.becomes(attempt=replace(attempt, step_last=3), reported=True)
    last = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB, 0.90 GiB free of 22.5 GiB."
    words = "tried to allocate 2.50 GiB, 0.90 GiB free of 22.5 GiB"
    story.wait(61).lose(Cause.GPU_OOM, words, Exit(1, None, False, 61.0, last)).over(
        Status.FAILED, Cause.GPU_OOM, words
    )


def _no_progress(house: House) -> None:
    story = _story(house, "pointnet-lidar-v2", 12 * HOUR_S, "vision", "pointnet:2", actor="ops-laptop")
    story.pace = Pace(1.1, 40_000, 200, {"iou": (0.1, 0.71)})
    story.life("us-east1-d", 3.0 * HOUR_S, Cause.PREEMPTED, NOTICE % 30)
    rows = (
        (Cause.STALLED, "10 polls without progress; GPU 0 %"),
        (Cause.HOST_OOM, "31.8 GiB of 32 GiB used, 1 process killed by the kernel"),
        (Cause.HOST_OOM, "31.9 GiB of 32 GiB used, 2 processes killed by the kernel"),
    )
    for cause, words in rows:
        story.wait(60).ask("us-east1-c").obtain().start().train(150).lose(cause, words)
    counters = replace(story.run.counters, no_progress=3)
    story.becomes(counters=counters).over(Status.FAILED, Cause.NO_PROGRESS)


def _by_marker(house: House) -> None:
    story = _story(house, "gan-64-tuesday", 15 * HOUR_S, "vision", "gan:1")
    story.wait(12).ask("us-east1-b").obtain().start().train(5 * HOUR_S, Pace(0.47, 60_000, 100, {"g_loss": (3.0, 0.8)}))
    story.asked_to_stop("marker", "marker").becomes(Status.STOPPING).wait(48)
    story.lose(Cause.STOP_REQUESTED, "stop marker seen", status=Status.STOPPING)
    story.over(Status.STOPPED, Cause.STOP_REQUESTED)


def _by_person(house: House) -> None:
    """Its labels are hostile."""
    labels = {"note": HOSTILE, "file": RIGHT_TO_LEFT, "long": "x" * 250}
    story = _story(house, "xss-probe", 20 * HOUR_S, "platform", "probe:7", labels=labels, actor="notebook-anna")
    metrics = {"<img src=x onerror=alert(1)>": (1.0, 0.2), "loss": (2.0, 0.5)}
    story.wait(12).ask("us-east1-d").obtain().start().train(0.5 * HOUR_S, Pace(2.0, 10_000, 100, metrics))
    story.asked_to_stop("notebook-anna").becomes(Status.STOPPING).wait(31)
    story.lose(Cause.STOP_REQUESTED, "stopped", status=Status.STOPPING)
    story.over(Status.STOPPED, Cause.STOP_REQUESTED)


def _over_budget(house: House) -> None:
    story = _story(
        house, "clip-vit-b32-laion", 2.2 * DAY_S, "research", "clip:1", shape=A100, limits={"budget_usd": 20.0}
    )
    story.pace = Pace(0.8, 200_000, 500, {"loss": (6.1, 1.9)})
    story.life("us-east1-b", 6.2 * HOUR_S, Cause.PREEMPTED, NOTICE % 30)
    story.wait(12).ask("us-east1-c").obtain().start().train(7.34 * HOUR_S)
    words = f"${run_cost_usd(story.run, story.at):.2f} spent, budget $20.00"
    story.lose(Cause.BUDGET, words).over(Status.FAILED, Cause.BUDGET, words)
