"""spot gpus: each card with its holder, and the command that brings one back."""

from __future__ import annotations

import json

from supervisor.wording.figures import DASH

WHY = "set aside: its driver says that it is lost (seen by machine m-a1 of run digits-7, 2026-11-23 06:18 UTC)"
ASIDE = {"why": "its driver says that it is lost", "machine": "m-a1", "run_id": "digits-7", "since": "2026-11-23"}
BAD = {
    "uuid": "GPU-a", "index": 0, "name": "NVIDIA L4", "holder": None, "ours": False, "set_aside": ASIDE, "state": WHY,
}  # fmt: skip
GOOD = {**BAD, "uuid": "GPU-b", "index": 1, "set_aside": None, "state": "free"}
GONE = {**BAD, "uuid": "GPU-c", "index": None, "name": None}


def test_each_card_is_a_line_and_a_bad_one_has_its_way_back(api, spot) -> None:
    api.respond("GET", "/v1/gpus", {"gpus": [BAD, GOOD, GONE]})
    ended = spot("gpus")
    lines = [" ".join(line.split()) for line in ended.lines]
    assert lines[0] == "GPU NAME UUID STATE"
    assert lines[1] == f"0 NVIDIA L4 GPU-a {WHY}"
    assert lines[2] == "1 NVIDIA L4 GPU-b free"
    assert lines[3].startswith(f"{DASH} {DASH} GPU-c set aside")
    assert "When it works again: spot gpus --back GPU-a" in ended.err
    assert "GPU-b" not in ended.err
    assert json.loads(spot("gpus", "-o", "json").out)["gpus"] == [BAD, GOOD, GONE]


def test_a_person_brings_a_card_back(api, spot) -> None:
    api.respond("POST", "/v1/gpus/back", {"gpu": "GPU-a"})
    ended = spot("gpus", "--back", "GPU-a")
    assert ended.out == "GPU-a is back: the next run that needs a GPU may use it.\n"
    assert api.bodies("/v1/gpus/back") == [{"gpu": "GPU-a"}]


def test_a_card_that_is_not_set_aside_is_refused(api, spot) -> None:
    api.refuse("POST", "/v1/gpus/back", 422, "INVALID_REQUEST", "This GPU is not set aside.")
    ended = spot("gpus", "--back", "GPU-b")
    assert ended.code != 0
    assert "This GPU is not set aside." in ended.err
