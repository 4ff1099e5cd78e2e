"""Pages of experiment trackers, in the lines in which trackers print them."""

from __future__ import annotations

import pytest

from supervisor.agent.facts.attempt_facts import find_tracker

WANDB = "https://wandb.ai/me/digits/runs/3kq9x1ab"


@pytest.mark.parametrize(
    ("line", "page"),
    [
        (f"wandb: 🚀 View run at \x1b[34m{WANDB}\x1b[0m", WANDB),
        ("wandb: ⭐️ View project at https://wandb.ai/me/digits", None),
        ("wandb: View run at http://10.0.0.5:8080/me/p/runs/abc", "http://10.0.0.5:8080/me/p/runs/abc"),
        ("see https://forge.test/me/p/runs/abc", None),
        (
            "🏃 View run calm-fox at: http://mlflow.lab.test:5000/#/experiments/2/runs/0f3a9b.",
            "http://mlflow.lab.test:5000/#/experiments/2/runs/0f3a9b",
        ),
        (
            "COMET INFO: Experiment is live on comet.com https://www.comet.com/me/p/0123456789abcdef0123456789abcdef",
            "https://www.comet.com/me/p/0123456789abcdef0123456789abcdef",
        ),
        ("Open in the app: https://app.neptune.ai/me/p/e/PR-12", "https://app.neptune.ai/me/p/e/PR-12"),
        (
            "* View dashboard by going to: https://huggingface.co/spaces/me/trackio",
            "https://huggingface.co/spaces/me/trackio",
        ),
        ("* View dashboard by going to: https://me-trackio.hf.space/", "https://me-trackio.hf.space/"),
        ("Read https://huggingface.co/docs/transformers first", None),
        ("downloading https://files.test/model.bin", None),
        (f"wandb: {WANDB}?apiKey=0123456789abcdef&x=1", f"{WANDB}?apiKey=removed&x=1"),
        (f"({WANDB}?note=[secret HF_TOKEN])", f"{WANDB}?note=masked-HF_TOKEN"),
    ],
)
def test_the_page_that_a_tracker_prints_is_found(line: str, page: str | None) -> None:
    assert find_tracker(line) == page
