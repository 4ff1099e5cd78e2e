"""spot events with the cloud's own among ours, and spot dev preempt where it costs real work."""

from __future__ import annotations

import json

import pytest

from tests.cli.fake_api import a_run, an_event, serve_run

PATH = "/v1/runs/digits-7/events"
CLOUD = {
    "id": None, "run_id": "digits-7", "at": "2026-01-01T02:14:00.000Z", "generation": 1, "attempt": 1,
    "kind": "compute.instances.preempted", "text": "m-a1: Google preempted the machine", "actor": "system",
    "data": {"operation_id": "9", "machine": "m-a1", "zone": "us-east1-c"}, "source": "cloud",
}  # fmt: skip


def page(*events: object, complete: bool = True, unread: str | None = None) -> dict[str, object]:
    return {"events": list(events), "complete": complete, "cloud_unread": unread}


class TestEvents:
    def test_the_clouds_own_stand_among_ours_and_are_marked(self, api, spot) -> None:
        api.respond("GET", PATH, page(an_event(1, "started", "one"), CLOUD, an_event(2, "attempt_ended", "two")))
        ended = spot("events", "digits-7", "--since", "24h")
        assert api.requests[-1].query["cloud"] == ["true"]
        ours, theirs, _ = ended.lines
        assert "cloud:" not in ours
        assert "attempt 1   cloud: preempted     m-a1: Google preempted the machine" in theirs

    def test_they_can_be_left_out(self, api, spot) -> None:
        api.respond("GET", PATH, page(an_event(1, "started", "one")))
        assert spot("events", "digits-7", "--no-cloud").code == 0
        assert "cloud" not in api.requests[-1].query

    def test_what_is_routine_is_shown_on_demand_and_to_programs(self, api, spot) -> None:
        api.respond("GET", PATH, page(an_event(1, "started", "one"), an_event(2, "checkpoints_removed", "3 removed")))
        assert len(spot("events", "digits-7").lines) == 1
        assert len(spot("events", "digits-7", "--all").lines) == 2
        assert len(spot("events", "digits-7", "-o", "jsonl").lines) == 2

    def test_pages_continue_after_our_last_event(self, api, spot) -> None:
        api.respond_in_turn(
            "GET", PATH, page(an_event(7, "started", "one"), CLOUD, complete=False),
            page(an_event(9, "started", "two")),
        )  # fmt: skip
        assert len(spot("events", "digits-7").lines) == 3
        assert [request.query["after"] for request in api.requests] == [["0"], ["7"]]
        assert [request.query["cloud"] for request in api.requests] == [["true"], ["true"]]

    def test_following_asks_the_cloud_once(self, api, spot) -> None:
        api.respond_in_turn("GET", PATH, page(CLOUD), page(an_event(1, "started", "one")))
        running = a_run()
        api.respond_in_turn("GET", "/v1/runs/digits-7", running, running, a_run(status="completed"))
        spot("events", "digits-7", "-f")
        lists = [r for r in api.requests if r.path == PATH and r.headers["accept"] == "application/json"]
        assert [request.query.get("cloud") for request in lists] == [["true"], None, None]

    def test_what_could_not_be_read_is_said_and_ours_come(self, api, spot) -> None:
        api.respond("GET", PATH, page(an_event(1, "started", "one"), unread="Google's own events: HTTP 503"))
        ended = spot("events", "digits-7")
        assert (ended.code, len(ended.lines)) == (0, 1)
        assert "could not be read: Google's own events: HTTP 503" in ended.err

    def test_programs_get_both_and_names_are_ours_only(self, api, spot) -> None:
        api.respond("GET", PATH, page(an_event(1, "started", "one"), CLOUD))
        assert [event["id"] for event in json.loads(spot("events", "digits-7", "-o", "json").out)["events"]] == [
            1, None,
        ]  # fmt: skip
        assert spot("events", "digits-7", "-o", "name").lines == ["1"]


class TestPreempt:
    REFUSED = (409, {"code": "CONFIRM_NEEDED", "title": "x", "detail": "This takes m-a1 away.", "status": 409})
    DONE = (200, {"done": "preempt", "run_id": "digits-7", "machine": "m-a1", "zone": "z", "notice_s": None})

    def bodies(self, api):
        return [body.get("confirm") for body in api.bodies("/v1/dev/preempt")]

    def test_a_rented_machine_is_preempted_only_after_a_yes(self, api, spot, monkeypatch) -> None:
        for answer, confirmed in ((True, [None, True]), (False, [None])):
            api.requests.clear()
            api.responses["POST", "/v1/dev/preempt"] = [self.REFUSED, self.DONE]
            monkeypatch.setattr("supervisor.cli.output.confirmed", lambda text, yes, said=answer: said)
            ended = spot("dev", "preempt", "digits-7")
            assert self.bodies(api) == confirmed
            assert (ended.code == 0) is answer
        assert "Google preempts" not in ended.out

    def test_yes_says_so_at_once(self, api, spot) -> None:
        api.responses["POST", "/v1/dev/preempt"] = self.DONE
        ended = spot("dev", "preempt", "digits-7", "--yes")
        assert self.bodies(api) == [True]
        assert "the VM's own notice" in ended.out

    def test_without_a_terminal_nothing_is_preempted(self, api, spot) -> None:
        api.responses["POST", "/v1/dev/preempt"] = self.REFUSED
        ended = spot("dev", "preempt", "digits-7")
        assert ended.code == 2
        assert "This takes m-a1 away. Continue? Add --yes" in ended.err
        assert self.bodies(api) == [None]

    @pytest.mark.parametrize("status", [403, 503])
    def test_other_refusals_stay_what_they_are(self, api, spot, status: int) -> None:
        api.refuse("POST", "/v1/dev/preempt", status, "DEV_REFUSED", "no")
        assert spot("dev", "preempt", "digits-7").code != 0
        assert len(api.requests) == 1


def test_show_names_the_account_of_the_machines(api, spot) -> None:
    where = {
        "name": "p",
        "number": "123",
        "console_url": "https://console.cloud.google.com/compute/instances?project=p",
        "noun": "project",
        "tool": "gcloud: --project=p",
    }
    serve_run(api, a_run(account=where))
    ended = spot("show", "digits-7")
    assert "project p (number 123)" in ended.out
    assert f"{where['console_url']} · gcloud: --project=p" in ended.out
