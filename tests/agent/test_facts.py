"""Facts of one attempt: collected once, written again with the tracker, never too large and without secrets."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.facts import attempt_facts
from supervisor.agent.facts.attempt_facts import KILLED, MAX_BYTES, FactsDuty, collect, encode, seeds, with_hash
from supervisor.agent.machine.masking import Masker
from supervisor.agent.store.access import Contact
from supervisor.agent.watch.ends import EndReasons
from supervisor.contract import heartbeat, runfiles
from tests.agent.bench import RUN, ManualClock, job, store_in

WANDB = "https://wandb.ai/me/digits/runs/3kq9x1ab"


def test_seeds_are_found_in_variables_and_in_the_command() -> None:
    env = {"PYTHONHASHSEED": "0", "SEED": "7", "DATA_SEED": "-3", "WALLET_SEED": "correct horse", "SEEDS": "1"}
    words = ("python", "t.py", "--seed", "42", "--data-seed=5", "trainer.seed=9", "--seedling", "3", "--no-seed")
    assert seeds(words, env) == {
        "PYTHONHASHSEED": "0", "SEED": "7", "DATA_SEED": "-3", "--seed": "42", "--data-seed": "5", "trainer.seed": "9",
    }  # fmt: skip
    assert seeds("python t.py --seed 1 && echo 'x", {}) == {"--seed": "1"}


def test_facts_that_are_too_large_lose_packages_with_a_note() -> None:
    whole = [f"package-{number}==1.0.0" for number in range(20_000)]
    facts = with_hash({"attempt": 1, "packages": whole})
    data = encode(facts)
    cut = json.loads(data)
    assert len(data) <= MAX_BYTES
    assert 0 < len(cut["packages"]) < 20_000
    assert cut["packages"] == whole[: len(cut["packages"])]
    assert cut["packages_note"] == f"the first {len(cut['packages'])} of 20000 packages; the hash is that of all"
    assert cut["packages_sha256"] == facts["packages_sha256"]


def test_a_command_of_200_kb_fits_too() -> None:
    for command in ("x" * 200_000, ("python", "x" * 200_000)):
        facts = collect(job(command=command), "/", {"PATH": ""})
        assert len(encode(facts)) < MAX_BYTES
        assert facts["command"].endswith("… (cut)")


class Scene:
    def __init__(self, folder: Path, **changes: Any) -> None:
        self.store = store_in(folder)
        self.output = folder / "output.log"
        self.output.touch()
        self.job = job(command=(sys.executable, "train.py"), **changes)
        self.end_reasons = EndReasons(self.job, Contact(), ManualClock(), lambda: None)
        self.duty = FactsDuty(
            self.job, self.store, str(self.output), Masker({"HF_TOKEN": "s3cr3t-value"}), self.end_reasons
        )
        self.duty.begin("/", {"PATH": "/usr/bin:/bin"})

    def say(self, line: str) -> None:
        with self.output.open("a") as target:
            target.write(line + "\n")

    @property
    def stored(self) -> Any:
        return json.loads(self.store.inner.get(runfiles.facts(RUN, 1))[0])


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The probe of the command's Python does not run; this thread keeps its priority."""
    probes: list[str] = []

    def answer(*_: Any) -> Any:
        probes.append("asked")
        return {"python": "3.11.4", "packages": ["a==1", "token @ https://x/s3cr3t-value"]}, ""

    monkeypatch.setattr(attempt_facts, "python_facts", answer)
    monkeypatch.setattr(attempt_facts, "_lower_priority", lambda: None)
    return probes


def test_facts_are_written_at_once_and_again_with_the_tracker(tmp_path: Path, quick: list[str]) -> None:
    scene = Scene(tmp_path, code="c" * 64, image_digest="sha256:ab")
    assert scene.duty.step() == attempt_facts.CHECK_S
    first = scene.stored
    assert first["image_digest"] == "sha256:ab"
    assert (first["attempt"], first["code"], first["command"]) == (1, "c" * 64, [sys.executable, "train.py"])
    assert first["packages"] == ["a==1", "token @ https://x/[secret HF_TOKEN]"]
    assert "tracker_url" not in first
    scene.say(f"wandb: View run at {WANDB}?note=s3cr3t-value")
    assert scene.duty.step() is None
    assert scene.stored == {**first, "tracker_url": f"{WANDB}?note=masked-HF_TOKEN"}
    assert quick == ["asked"]


def test_a_given_tracker_is_not_searched(tmp_path: Path, quick: list[str]) -> None:
    scene = Scene(tmp_path, tracker_url="https://tracker.test/1")
    scene.say(WANDB)
    assert scene.duty.step() is None
    assert scene.stored["tracker_url"] == "https://tracker.test/1"


def test_the_watch_ends_after_500_lines_and_after_five_minutes(
    tmp_path: Path, quick: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    for number in range(499):
        scene.say(f"line {number}")
    assert scene.duty.step() == attempt_facts.CHECK_S
    scene.say("line 500")
    scene.say(WANDB)
    assert scene.duty.step() is None
    assert "tracker_url" not in scene.stored

    (tmp_path / "late").mkdir()
    late = Scene(tmp_path / "late")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + attempt_facts.WATCHED_S + 1)
    assert late.duty.step() is None


def test_an_unavailable_store_is_retried_and_the_probe_runs_once(tmp_path: Path, quick: list[str]) -> None:
    scene = Scene(tmp_path)
    scene.store.away = True
    assert scene.duty.step() == attempt_facts.RETRY_S
    scene.store.away = False
    assert scene.duty.step() == attempt_facts.CHECK_S
    assert scene.stored["python"] == "3.11.4"
    assert quick == ["asked"]


def test_a_command_that_ended_at_once_still_leaves_its_facts(tmp_path: Path, quick: list[str]) -> None:
    scene = Scene(tmp_path)
    scene.say(WANDB)
    scene.duty.finish()
    assert scene.duty.step() is None
    assert scene.stored["tracker_url"] == WANDB


def test_an_agent_that_lost_the_baton_writes_no_facts(tmp_path: Path, quick: list[str]) -> None:
    scene = Scene(tmp_path)
    scene.end_reasons.add(heartbeat.SUPERSEDED, may_write=False)
    assert scene.duty.step() is None
    assert quick == []


def test_the_baton_lost_while_the_facts_were_collected_counts_too(
    tmp_path: Path, quick: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, whole = Scene(tmp_path), attempt_facts.collect

    def slow(*place: Any) -> Any:
        scene.end_reasons.add(heartbeat.SUPERSEDED, may_write=False)
        return whole(*place)

    monkeypatch.setattr(attempt_facts, "collect", slow)
    scene.duty.step()
    assert scene.store.calls == []
    assert scene.duty.step() is None


def test_a_probe_that_was_killed_with_the_command_runs_once_more(
    tmp_path: Path, quick: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: tuple[dict[str, Any], str] = ({}, KILLED)
    answers = [killed, ({"python": "3.11.4"}, "")]
    monkeypatch.setattr(attempt_facts, "python_facts", lambda *_: answers.pop(0))
    scene = Scene(tmp_path)
    assert scene.duty.step() == attempt_facts.CHECK_S
    assert scene.store.keys() == []
    scene.duty.finish()
    assert scene.duty.step() is None
    assert scene.stored["python"] == "3.11.4"

    (tmp_path / "twice").mkdir()
    monkeypatch.setattr(attempt_facts, "python_facts", lambda *_: killed)
    twice = Scene(tmp_path / "twice")
    assert [twice.duty.step(), twice.duty.step()] == [attempt_facts.CHECK_S] * 2
    assert twice.stored["absent"]["python"] == KILLED
