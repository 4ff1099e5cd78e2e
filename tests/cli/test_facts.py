"""`spot show RUN --facts`; docs/evidence.md shows its real output for this response."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor.wording.figures import DASH
from tests.cli.conftest import Ended
from tests.cli.fake_api import FakeApi, a_run

PAGE = Path(__file__).parents[2] / "docs" / "evidence.md"
FACTS: dict[str, Any] = {
    "version": 1, "run_id": "digits-7", "attempt": 2, "launch_id": "1.2.1",
    "command": ["python", "train.py", "--seed", "7"], "code": "3f2ac0de" * 8, "image_digest": None,
    "python": "3.11.4", "python_executable": "/opt/conda/envs/digits/bin/python",
    "python_prefix": "/opt/conda/envs/digits", "conda_env": "/opt/conda/envs/digits", "virtual_env": None,
    "packages": [f"package-{number}==1.0" for number in range(212)], "packages_sha256": "9f1cbead" * 8,
    "torch": "2.3.1+cu121", "cuda": "12.1", "cudnn": "8.9.2.26", "driver": "550.54.15",
    "gpus": ["NVIDIA L4", "NVIDIA L4"], "seeds": {"--seed": "7", "PYTHONHASHSEED": "0"},
    "tracker_url": "https://wandb.ai/me/digits/runs/3kq9x1ab", "cpu": "Intel(R) Xeon(R) CPU @ 2.20GHz", "cores": 24,
    "memory_bytes": 101_384_900_608, "kernel": "6.1.0-18-cloud-amd64", "absent": {},
}  # fmt: skip
OLDER = {**FACTS, "attempt": 1, "torch": "2.3.0+cu121", "packages_sha256": "51d00a11" * 8}
ANSWER: dict[str, Any] = {
    "run_id": "digits-7", "spec": {"command": FACTS["command"]}, "command": FACTS["command"],
    "code": FACTS["code"], "image": None,
    "attempts": [
        {"attempt": 1, "generation": 1, "cause": "preempted", "facts": OLDER},
        {"attempt": 2, "generation": 1, "cause": "finished", "facts": FACTS},
    ],
    "differs": [
        {
            "attempt": 2, "against": 1, "fact": "packages", "was": "51d00a11" * 8, "is": "9f1cbead" * 8,
            "packages": {
                "changed": [{"was": "torch==2.3.0", "is": "torch==2.3.1"}], "added": ["tqdm==4.66.4"],
                "removed": ["progressbar2==4.4.2"], "left_out": 0,
            },
        },
        {
            "attempt": 2, "against": 1, "fact": "torch", "was": "2.3.0+cu121", "is": "2.3.1+cu121",
            "packages": None,
        },
    ],
}  # fmt: skip

Spot = Callable[..., Ended]


@pytest.fixture
def shown(spot: Spot, api: FakeApi) -> Callable[..., Ended]:
    def show(answer: Any, *words: str) -> Ended:
        api.respond("GET", "/v1/runs/digits-7", a_run(status="completed", cause="finished"))
        api.respond("GET", "/v1/runs/digits-7/facts", answer)
        return spot("show", "digits-7", "--facts", *words)

    return show


def test_the_page_shows_what_the_command_prints(shown: Callable[..., Ended]) -> None:
    printed = shown(ANSWER).out
    block = PAGE.read_text(encoding="utf-8").partition("$ spot show digits-7 --facts\n")[2].partition("```")[0]
    assert block == printed


def test_json_is_what_the_api_said(shown: Callable[..., Ended]) -> None:
    assert json.loads(shown(ANSWER, "-o", "json").out) == ANSWER


def test_what_is_not_known_says_why(shown: Callable[..., Ended]) -> None:
    answer = copy.deepcopy(ANSWER)
    facts = answer["attempts"][1]["facts"]
    for name in ("packages", "packages_sha256", "torch", "cudnn", "tracker_url"):
        del facts[name]
    facts["absent"] = {"packages": "no python is on the command's PATH", "torch": "\x1b[2Jno"}
    facts["seeds"] = {}
    answer["attempts"].append({"attempt": 3, "generation": 1, "cause": None, "facts": None})
    out = shown(answer).out
    assert "packages  not known: no python is on the command's PATH\n" in out
    assert "torch     not known: no\n" in out
    assert "seeds     none\n" in out
    assert "tracker" not in out
    (row,) = [line.split() for line in out.splitlines() if line.startswith("3 ")]
    assert row == ["3", *[DASH] * 7]


def test_equal_attempts_and_no_facts_at_all(shown: Callable[..., Ended]) -> None:
    assert "none: all attempts ran on the same facts" in shown({**ANSWER, "differs": []}).out
    empty = {**ANSWER, "attempts": [], "differs": []}
    assert "No facts are known yet" in shown(empty).out


def test_strange_facts_are_printed_and_never_raise(shown: Callable[..., Ended]) -> None:
    answer = copy.deepcopy(ANSWER)
    strange = {"code": 7, "packages": "x", "seeds": 3, "gpus": {"a": 1}, "memory_bytes": "much", "absent": []}
    answer["attempts"][1]["facts"] = strange
    ended = shown(answer)
    assert (ended.code, "much" in ended.out) == (0, True)
