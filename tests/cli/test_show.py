"""show: the history of the machines, the last beat, where the files lie; and the spec as a file."""

from __future__ import annotations

import yaml

from supervisor.cli.views.show import beat_lines, files_lines, machine_lines
from tests.cli.fake_api import FIRST_ATTEMPT, SECOND_ATTEMPT, a_run, serve_run

SPEC = {"command": ["python", "train.py"], "image": "train:1", "env": {"WORD": "größe"}, "limits": {"budget_usd": 3.5}}


def test_the_three_that_the_older_summary_told(api, spot) -> None:
    serve_run(api, a_run(files_url="gs://b/runs/digits-7/"))
    lines = spot("show", "digits-7").lines
    assert lines[7:] == [
        "machines: 1 spot-ab-a1-t1 in local-a, gone 2026-01-01 02:14:02 · 2 spot-ab-a1-t1 in local-b",
        "last beat 8 s ago, phase training, step 12,300 of 50,000, checkpoint 12,000",
        "files gs://b/runs/digits-7/",
    ]


def test_what_is_not_known_is_left_out() -> None:
    assert beat_lines(a_run(beat=None)) == []
    booting = a_run(beat={"age_s": 3.0, "phase": "boot"}, progress=None, checkpoint_step=None)
    assert beat_lines(booting) == ["last beat 3 s ago, phase boot"]
    assert files_lines(a_run()) == []
    assert machine_lines([]) == []
    ended = {**SECOND_ATTEMPT, "ended_at": FIRST_ATTEMPT["ended_at"]}
    assert machine_lines([ended])[0].endswith("in local-b, not confirmed gone yet")


def test_of_many_machines_the_newest_are_named() -> None:
    many = [{**FIRST_ATTEMPT, "number": number} for number in range(1, 41)]
    (line,) = machine_lines(many)
    assert line.startswith("machines: 35 earlier ones in instances/ · 36 spot-ab-a1-t1 in local-a")


def test_the_spec_is_a_file_that_submit_takes(api, spot, tmp_path) -> None:
    serve_run(api, a_run())
    api.respond("GET", "/v1/runs/digits-7/facts", {"run_id": "digits-7", "spec": SPEC})
    ended = spot("show", "digits-7", "--spec")
    assert yaml.safe_load(ended.out) == SPEC
    assert "größe" in ended.out
    file = tmp_path / "again.yaml"
    file.write_text(ended.out, encoding="utf-8")
    api.respond("POST", "/v1/runs", {**a_run(), "warnings": [], "differs": []}, 201)
    assert spot("submit", str(file), "--provider", "gce").code == 0
    assert api.bodies("/v1/runs")[-1]["spec"] == {**SPEC, "provider": "gce"}


def test_one_view_at_a_time(api, spot) -> None:
    for words in (("--facts", "--spec"), ("--spec", "--evidence"), ("--facts", "--evidence", "1")):
        assert spot("show", "digits-7", *words).code == 2
    assert api.requests == []
