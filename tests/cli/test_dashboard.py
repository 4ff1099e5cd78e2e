"""watch 60: all runs every 60 seconds, and one run at this pace."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from supervisor.cli.runs import watch
from tests.cli.fake_api import a_page, a_run, serve_run


@pytest.fixture
def slept(monkeypatch) -> list[float]:
    """How long was waited, without waiting: only a wait lets time pass, however slow this computer is."""
    waits: list[float] = []
    monkeypatch.setattr(watch, "time", SimpleNamespace(sleep=waits.append, monotonic=lambda: sum(waits)))
    return waits


def test_all_runs_every_so_many_seconds(api, spot, slept) -> None:
    api.respond_in_turn("GET", "/v1/runs", a_page(a_run()), a_page(a_run(status="completed"), a_run(run_id="two-2")))
    ended = spot("watch", "60", "--timeout", "90s")
    assert ended.code == 0
    assert re.fullmatch(r"\d\d:\d\d:\d\d UTC", ended.lines[0])
    assert ended.lines[1].startswith("RUN ")
    assert ended.lines[2].startswith("digits-7  ● running")
    assert ended.lines[3].startswith("2 running or recovering, 1 waiting · $3.41/h now")
    assert "✔ completed" in ended.out
    assert "two-2" in ended.out
    assert slept == [60, 30]


def test_a_pace_is_kept_and_ctrl_c_leaves(api, spot, monkeypatch) -> None:
    api.respond("GET", "/v1/runs", a_page())
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(watch.time, "sleep", sleep)
    ended = spot("watch", "2.5")
    assert (ended.code, waits) == (130, [2.5, 2.5, 2.5])
    assert ended.out.count("There is no run yet.") == 3
    assert "Left; the runs continue." in ended.err


def test_one_run_so_often(api, spot, monkeypatch) -> None:
    serve_run(api, a_run())
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        serve_run(api, a_run(status="completed"))

    monkeypatch.setattr(watch.time, "sleep", sleep)
    assert spot("watch", "digits-7", "60").code == 0
    assert waits == [60.0]


@pytest.mark.parametrize("words", [("60", "60"), ("0",), ("-5",), ("1e9",), ("6o",), ("digits-7", "soon"), ("nan",)])
def test_what_is_no_pace_is_refused(api, spot, words) -> None:
    assert spot("watch", *words).code in (2, 5)
    assert not any(request.path.startswith("/v1/runs/digits") for request in api.requests)
