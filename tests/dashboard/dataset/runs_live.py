"""The runs that are not over: one for each way of being underway."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from supervisor.domain.causes import Cause
from supervisor.domain.events import EventKind
from supervisor.domain.run import run_cost_usd
from supervisor.domain.status import Status
from tests.dashboard.dataset import files
from tests.dashboard.dataset.house import A100, EAST, H100, IMAGE, L4, WEST, House
from tests.dashboard.dataset.story import DAY_S, HOUR_S, MINUTE_S, Pace, Story

NOTICE = "preempted with %d s notice"
STOCK_OUT = "ZONE_RESOURCE_POOL_EXHAUSTED: no g2-standard-8 in %s"
LONG_NAME = "segformer-b5-cityscapes-crop1024-bs16-lr6e5-poly-warmup1500-s42"
LOSS = {"loss": (2.31, 0.18), "accuracy": (0.11, 0.94)}


def spec(image: str, *words: str, shape: str = L4, zones: tuple[str, ...] = EAST, **more: Any) -> dict[str, Any]:
    return {
        "provider": "gce", "command": ["python", "-u", "train.py", *words], "image": IMAGE % image,
        "shapes": [shape], "zones": list(zones), **more,
    }  # fmt: skip


def live_runs(house: House) -> None:
    for tell in (_pending, _waiting, _quota, _launching, _digits, _llm, _plain, _silent, _stalling, _long_name):
        tell(house)
    for tell in (_mixture, _saving, _preempted, _orphaned, _stalled, _finishing, _stopping, _to_approve):
        tell(house)


def _pending(house: House) -> None:
    story = house.story(
        "resnet50-lr-sweep-07", 4, "vision", "ci-nightly",
        **spec("resnet:2026-11", "--lr", "0.0125", labels={"team": "vision", "sweep": "lr-11"}),
    )  # fmt: skip
    story.becomes(next_at=house.now + 26)


def _waiting(house: House) -> None:
    story = house.story("probe-2", 3 * HOUR_S, "speech", "notebook-anna", **spec("probe:7", labels={"team": "speech"}))
    for at, zone in ((7 * 60, "us-east1-b"), (60, "us-east1-c"), (60, "us-east1-d")) * 2:
        story.wait(at * 4).ask(zone).refused(Cause.NO_CAPACITY, STOCK_OUT % zone)
    story.becomes(next_at=house.now + 200)


def _quota(house: House) -> None:
    story = house.story(
        "moe-8x1b-ablation-router-z", 52 * MINUTE_S, "research", "ops-laptop",
        **spec("moe:0.9", shape=H100, labels={"team": "research"}, limits={"budget_usd": 400.0}),
    )  # fmt: skip
    words = "Quota PREEMPTIBLE_NVIDIA_H100_GPUS in us-east1 is 0 of 0"
    for zone in EAST:
        story.wait(30).ask(zone).refused(Cause.QUOTA, words)
    story.becomes(next_at=house.now + 600)


def _launching(house: House) -> None:
    story = house.story("digits-9", 5 * HOUR_S, "vision", "ops-laptop", **spec("digits:3", labels={"team": "vision"}))
    story.pace = Pace(3.1, 50_000, 100, LOSS)
    story.life("us-east1-c", 2.2 * HOUR_S, Cause.PREEMPTED, NOTICE % 27)
    story.life("us-east1-b", 1.4 * HOUR_S, Cause.PREEMPTED, NOTICE % 30)
    story.until_ago(110).ask("us-east1-d").obtain()
    assert story.run.attempt is not None
    began = story.run.attempt.started_at
    story.becomes(attempt=replace(story.run.attempt, up_at=began + 20, pull_at=house.now - 50))
    story.beats(
        sequence=3, phase="image", phase_since=house.now - 50, message="driver installed, pulling image (4.1 GB)",
        step=None, telemetry="",
    )  # fmt: skip


def _digits(house: House) -> None:
    """The run of the documents: four attempts, a GPU that did not show up, a stall."""
    story = house.story(
        "digits-7", 6.4 * HOUR_S, "vision", "ops-laptop",
        **spec("digits:3", "--epochs", "40", labels={"team": "vision", "dataset": "digits"}),
    )  # fmt: skip
    story.pace = Pace(2.0, 50_000, 100, LOSS)
    story.life("us-east1-c", 2.2 * HOUR_S, Cause.PREEMPTED, NOTICE % 27)
    story.wait(9).ask("us-east1-b").obtain().wait(20 * MINUTE_S)
    story.lose(Cause.GPU_UNAVAILABLE, "No GPU detected after 1200 s")
    story.wait(20).ask("us-east1-b").refused(Cause.NO_CAPACITY, STOCK_OUT % "us-east1-b")
    story.life("us-east1-d", 1.03 * HOUR_S, Cause.STALLED, "10 polls without progress; GPU 0 %")
    story.wait(22).ask("us-east1-d").obtain().start().train(pace=Pace(1.4, 50_000, 100, LOSS))


def _llm(house: House) -> None:
    """Nine attempts on A100, near the end of its budget."""
    story = house.story(
        "llm-a", 2.2 * DAY_S, "research", "ops-laptop",
        **spec(
            "llm:2026-11-14", "--config", "configs/1b.yaml", shape=A100, env={"WANDB_PROJECT": "llm-a", "SEED": "17"},
            labels={"team": "research", "size": "1b"}, limits={"budget_usd": 80.0}, expect_runtime_s=180_000.0,
        ),
    )  # fmt: skip
    metrics = {"loss": (9.8, 2.71), "perplexity": (8000.0, 15.0), "lr": (0.0003, 0.00006), "grad_norm": (4.0, 0.4)}
    story.pace = Pace(0.62, 120_000, 250, metrics)
    hours = (6.1, 3.4, 0.4, 9.2, 5.0, 7.7, 2.9, 4.6)
    for number, trained_h in enumerate(hours):
        if number == 4:
            _wait_for_room(story)
        zone = (*EAST, WEST)[number % 3]
        cause, words = (Cause.PREEMPTED, NOTICE % (30 - number)) if number != 2 else (Cause.HOST_ERROR, "hostError")
        story.life(zone, trained_h * HOUR_S, cause, words, 40 + 130 * (number % 4))
    story.wait(70).ask("us-east1-d").obtain().start(150, 48).train()
    spent_usd = run_cost_usd(story.run, story.now)
    text = f"{100 * spent_usd / 80:.0f} % of its budget is spent: ${spent_usd:.2f} of $80.00. Then it saves and ends."
    story.tell(EventKind.BUDGET_WARNING, text, spent_usd=round(spent_usd, 2))


def _wait_for_room(story: Story) -> None:
    """Two hours and a half without a machine anywhere."""
    for zone in EAST * 2:
        story.wait(25 * MINUTE_S).ask(zone).refused(Cause.NO_CAPACITY, STOCK_OUT.replace(L4, A100) % zone)


def _plain(house: House) -> None:
    """Trainings with nothing to tell but that they train."""
    rows = (
        ("whisper-medium-nl", "speech", 7.5, 1.4, 60_000, {"wer": (0.61, 0.09), "loss": (3.1, 0.4)}, "us-east1-b"),
        ("sdxl-lora-portrait", "vision", 2.2, 0.9, 9_000, {"loss": (0.31, 0.07)}, WEST),
    )
    for name, owner, hours, pace, total, metrics, zone in rows:
        zones = (zone,) if zone == WEST else EAST
        given = spec(f"{name.partition('-')[0]}:latest", zones=zones, labels={"team": owner})
        story = house.story(name, hours * HOUR_S, owner, "ci-nightly", **given)
        story.wait(20).ask(zone).obtain().start().train(pace=Pace(pace, total, 200, metrics))


def _silent(house: House) -> None:
    story = house.story(
        "gan-64-nightly", 47 * MINUTE_S, "vision", "ci-nightly", **spec("gan:1", labels={"team": "vision"})
    )
    story.wait(15).ask("us-east1-c").obtain().start().train()


def _stalling(house: House) -> None:
    story = house.story(
        "tft-energy-forecast", 3.3 * HOUR_S, "platform", "notebook-anna", **spec("tft:4", labels={"team": "platform"})
    )  # fmt: skip
    story.wait(11).ask("us-east1-d").obtain().start().train(pace=Pace(1.8, 30_000, 500, {"smape": (0.42, 0.12)}))
    stuck = house.now - 150
    story.beats(
        step=story.run.attempt.step_last if story.run.attempt else 0, progress_at=stuck, stall_polls=4,
        stall_counted_at=house.now - 30, steps_per_s=0.0,
        telemetry=re.sub(r'"util_pct":\[\d+', '"util_pct":[0', story.run.pulse.telemetry if story.run.pulse else ""),
    )  # fmt: skip


def _long_name(house: House) -> None:
    story = house.story(
        LONG_NAME, 11 * HOUR_S, "vision", "ops-laptop",
        **spec("segformer:0.14.2-cu128", zones=(WEST,), labels={"team": "vision", "paper": "rebuttal"}),
    )  # fmt: skip
    story.pace = Pace(0.74, 160_000, 1000, {"mIoU": (0.04, 0.83), "loss": (2.9, 0.21)})
    story.life(WEST, 4.1 * HOUR_S, Cause.PREEMPTED, NOTICE % 29)
    story.wait(400).ask(WEST).obtain().start().train()


def _mixture(house: House) -> None:
    """On H100, on demand: nothing else was to be had before its deadline."""
    story = house.story(
        "moe-8x1b-main", 5.2 * HOUR_S, "research", "ops-laptop",
        **spec("moe:0.9", shape=H100, zones=(WEST,), allow_on_demand=True, labels={"team": "research"}),
    )  # fmt: skip
    story.pace = Pace(0.41, 20_000, 100, {"loss": (10.4, 2.9), "router_z": (1.2, 0.02)})
    story.life(WEST, 1.1 * HOUR_S, Cause.PREEMPTED, NOTICE % 24)
    story.wait(30).ask(WEST).refused(Cause.NO_CAPACITY, "ZONE_RESOURCE_POOL_EXHAUSTED: no a3-highgpu-1g")
    story.wait(5).ask(WEST, spot=False).obtain().start().train()


def _saving(house: House) -> None:
    story = house.story(
        "unet-ct-seg-3d", 1.6 * HOUR_S, "vision", "notebook-anna", **spec("unet:2", labels={"team": "vision"})
    )
    story.wait(15).ask("us-east1-b").obtain().start().train(pace=Pace(0.5, 12_000, 500, {"dice": (0.1, 0.88)}))
    story.beats(phase="checkpoint", phase_since=house.now - 22, message="uploading 1.9 GB")


def _lost(house: House, name: str, cause: Cause, words: str, ago_s: float, next_s: float) -> Story:
    given = spec("llm:2026-11-14", shape=A100, labels={"team": "research"}, limits={"budget_usd": 120.0})
    story = house.story(name, 9 * HOUR_S, "research", "ops-laptop", **given)
    story.pace = Pace(0.9, 100_000, 200, {"loss": (9.1, 2.9)})
    story.life("us-east1-d", 1.7 * HOUR_S, Cause.PREEMPTED, NOTICE % 30)
    for zone in ("us-east1-c", "us-east1-b"):
        story.wait(9 * MINUTE_S).ask(zone).refused(Cause.NO_CAPACITY, STOCK_OUT.replace(L4, A100) % zone)
    story.wait(7 * MINUTE_S).ask("us-east1-b").obtain(48).start(520, 170).train(0.9 * HOUR_S)
    story.lose(Cause.HOST_ERROR, "compute.instances.hostError: the host failed")
    story.wait(40).ask("us-east1-d").obtain().start(410, 95).train(1.2 * HOUR_S).lose(Cause.PREEMPTED, NOTICE % 30)
    story.wait(25).ask("us-east1-c").obtain().start(430, 90)
    story.train(house.now - ago_s - story.at).lose(cause, words)
    return story.becomes(next_at=house.now + next_s)


def _preempted(house: House) -> None:
    _lost(house, "llm-b", Cause.PREEMPTED, NOTICE % 27, 9, 4)


def _orphaned(house: House) -> None:
    _lost(house, "llm-c-longctx", Cause.ORPHANED, "the machine is in no listing and 3 beats are missing", 35, 18)


def _stalled(house: House) -> None:
    story = _lost(house, "llm-d-distill", Cause.STALLED, "10 polls without progress; GPU 0 %", 20, 41)
    story.becomes(avoid_zone="")


def _finishing(house: House) -> None:
    story = house.story(
        "xgb-gpu-baseline", 40 * MINUTE_S, "platform", "ci-nightly", **spec("xgb:2", labels={"team": "platform"})
    )  # fmt: skip
    story.wait(15).ask("us-east1-d").obtain().start(70, 4)
    story.train(house.now - 25 - story.at, Pace(8.0, 17_000, 1000, {"auc": (0.62, 0.913)}))
    story.save(25)
    story.beats(phase="finishing", phase_since=house.now - 25, message="2 of 3 files uploaded")


def _stopping(house: House) -> None:
    story = house.story(
        "ddpm-faces-256", 4 * HOUR_S, "vision", "notebook-anna", **spec("ddpm:5", labels={"team": "vision"})
    )
    story.wait(15).ask("us-east1-c").obtain().start().train(pace=Pace(1.1, 80_000, 500, {"fid": (190.0, 21.0)}))
    story.at = house.now - 12
    story.asked_to_stop("ops-laptop").becomes(Status.STOPPING)


def _to_approve(house: House) -> None:
    story = house.story(
        "gpu-box-eval", 3 * HOUR_S, "platform", "ops-laptop",
        **spec("eval:1", shape=A100, on_success="ask", labels={"team": "platform"}, require_pull=False),
    )  # fmt: skip
    story.wait(15).ask("us-east1-b").obtain().start()
    story.train(1.4 * HOUR_S, Pace(4.0, 20_160, 1000, {"bleu": (3.0, 31.5)})).save().verified(
        3, files.RESULTS_BYTES, files.RESULTS_SHA
    )
    story.lose(Cause.FINISHED, "exit code 0", status=Status.AWAITING_TEARDOWN)
    story.becomes(cause=None).keeps_machine(house.now + 20 * HOUR_S, "kept until a person agrees")
