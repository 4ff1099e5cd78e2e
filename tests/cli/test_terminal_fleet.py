"""At a terminal: the list that is refreshed, the questions before many machines are released, and Ctrl-C after them."""

from __future__ import annotations

import signal

from tests.cli.fake_api import FakeApi, a_page, a_run
from tests.cli.fake_machines import ORPHAN, a_machine, an_active_run, collected, seen
from tests.cli.test_terminal import COLOUR, at_a_terminal


def test_the_list_is_kept_up_to_date_until_ctrl_c(api: FakeApi) -> None:
    api.respond_in_turn("GET", "/v1/runs", a_page(a_run()), a_page(a_run(run_id="second-look")))
    with at_a_terminal(api.url, "watch", "0.2") as terminal:
        text = COLOUR.sub("", terminal.read_until("second-look"))
        assert "digits-7  ● running" in text
        assert "again in 0.2 s. Ctrl-C leaves; the runs continue." in text
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.code() == 130
    assert "Left; the runs continue. To return: spot watch 60" in terminal.text


def test_gc_asks_with_the_sum_and_the_project(api: FakeApi) -> None:
    api.respond_in_turn("POST", "/v1/gc", collected((ORPHAN,)), collected((ORPHAN,)))
    with at_a_terminal(api.url, "gc") as terminal:
        terminal.read_until("Release 1 machine (price unknown) in project rav-ai (123456789012)? [y/N]")
        terminal.type("y\n")
        assert terminal.code() == 0
    assert api.bodies("/v1/gc") == [{"dry_run": True}, {"dry_run": False}]


def test_cleaning_up_asks_and_ctrl_c_shows_what_is_still_stopping(api: FakeApi) -> None:
    api.respond("POST", "/v1/runs", {**a_run(), "warnings": [], "differs": []}, 201)
    api.respond("GET", "/v1/machines", seen((a_machine(),), (an_active_run(),)))
    api.respond("POST", "/v1/runs/digits-7/stop", a_run(status="stopping", status_text="Stopping."))
    with at_a_terminal(api.url, "submit", "--cleanup-all", "--provider", "gce", "--", "x") as terminal:
        terminal.read_until("First stop 1 run ($0.35/h) in project rav-ai (123456789012)? [y/N]")
        terminal.type("y\n")
        terminal.read_until("Ctrl-C leaves.")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.code() == 130
    assert "nothing was submitted. Still stopping: digits-7" in " ".join(terminal.text.split())
    assert sum(request.path == "/v1/runs" and not request.query for request in api.requests) == 0
