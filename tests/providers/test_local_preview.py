"""What a plan shows of a launch on this computer is what the launch starts; no value of the environment is in it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.providers.local.provider import LocalPlatform
from tests.providers.local_machines import LocalSubject


def test_the_previewed_process_is_the_one_that_starts(local: LocalSubject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "canary-value")
    monkeypatch.setenv("PLAIN", "canary-value")
    request = local.request()
    shown = LocalPlatform(local.provider, local.data_dir).preview(request)
    assert not local.folder(request).exists(), "nothing is made for it"
    assert "canary-value" not in json.dumps(shown)

    local.provider.launch(request)
    process = Path("/proc") / str(local.pids(request)["agent"])
    argv = (process / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    assert [os.fsdecode(word) for word in argv] == shown["argv"]
    told = (process / "environ").read_bytes().split(b"\0")
    names = {os.fsdecode(entry.partition(b"=")[0]) for entry in told if entry}
    assert names == set(shown["environment"])
    assert "PLAIN" in names
    assert "SOME_API_KEY" not in names
    job = json.loads((local.folder(request) / "job.json").read_text())
    assert {name: job[name] for name in shown["job"]} == shown["job"]


def test_of_a_secret_the_reference_alone_is_shown(local: LocalSubject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "canary-value")
    request = replace(local.request(), secrets={"API_KEY": "env:MY_TOKEN"})
    shown = LocalPlatform(local.provider, local.data_dir).preview(request)
    assert shown["secrets"] == {"API_KEY": "env:MY_TOKEN"}
    assert "canary-value" not in json.dumps(shown)
