"""The spec of a run as it can be submitted again, and what its newest machine is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from supervisor.domain.attempt import Try
from supervisor.domain.errors import NotFound
from supervisor.domain.run import Run
from supervisor.ports.provider import LaunchRejected
from supervisor.services.plan.spec_view import Preview, nothing_sent, show_launch, show_spec
from supervisor.services.reading.evidence import show_facts
from supervisor.services.runs.policy import Spec
from tests.services.bed import Bed

KEY = "sk-ant-" + "api03-" + "A1b2C3d4E5f6G7h8" * 3
PLAIN = {"command": ["python", "train.py"], "env": {"LR": "0.1", "MODE": "fast/slow"}, "labels": {"a/b": "c"}}


def sent(run: Run, try_: Try, spec: Spec) -> Mapping[str, object]:
    return {"name": try_.machine_name, "env": dict(spec.get("env", {})), "nonce": "***"}


def launch(bed: Bed, preview: Preview = sent) -> dict[str, object]:
    return show_launch(bed.parts, bed.services.queries, preview, "digits-7")


def test_the_spec_is_the_one_that_was_submitted(bed: Bed) -> None:
    bed.submit("digits-7", PLAIN)
    told = show_spec(bed.parts, bed.services.queries, "digits-7")
    assert (told["spec"], told["withheld"], told["generation"]) == (PLAIN, [], 1)
    with pytest.raises(NotFound):
        show_spec(bed.parts, bed.services.queries, "nobody")


def test_what_looks_like_a_secret_is_left_out_and_named(bed: Bed) -> None:
    spec = {
        **PLAIN,
        "command": ["python", "train.py", f"--key={KEY}"],
        "env": {"LR": "0.1", "API_TOKEN": "not a key to look at"},
        "allow_plain_secrets": True,
    }
    bed.submit("digits-7", spec)
    told = show_spec(bed.parts, bed.services.queries, "digits-7")
    assert KEY not in str(told)
    assert told["withheld"] == ["#/command/2", "#/env/API_TOKEN"]
    assert told["spec"]["env"]["LR"] == "0.1"
    assert KEY not in str(show_facts(bed.parts, bed.services.queries, "digits-7"))
    bed.train("digits-7")
    assert launch(bed)["launch"] == {"name": "m-a1", "env": {"LR": "0.1", "API_TOKEN": "•••"}, "nonce": "***"}


def test_the_newest_request_is_shown(bed: Bed) -> None:
    bed.submit("digits-7", PLAIN)
    told = launch(bed)
    assert (told["launch"], told["attempt"], told["why"]) == (None, None, "no machine was requested yet")
    bed.train("digits-7", 1)
    bed.clock.advance(1000)
    bed.train("digits-7", 2)
    told = launch(bed)
    assert (told["attempt"], told["machine"], told["why"]) == (2, "m-a2", "")


def test_where_nothing_can_be_shown_it_says_why(bed: Bed) -> None:
    def refuses(run: Run, try_: Try, spec: Spec) -> Mapping[str, object]:
        raise LaunchRejected("this installation has no agent")

    bed.submit("digits-7", PLAIN)
    bed.train("digits-7")
    assert launch(bed, nothing_sent)["why"] == "nothing would be sent"
    assert launch(bed, refuses)["why"] == "this installation has no agent"
    elsewhere = replace(bed.parts, cells={"local": "another"})
    told = show_launch(elsewhere, bed.services.queries, sent, "digits-7")
    assert (told["launch"], told["why"]) == (None, "its machines belong to another supervisor")
