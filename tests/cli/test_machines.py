"""ls --machines and gc: the machines with their project, and the release of machines without a run."""

from __future__ import annotations

import json

import pytest

from supervisor.cli import output
from supervisor.cli.machines.machines import project
from supervisor.services.machines.gc import Collected
from supervisor.services.machines.machines import MachineList
from supervisor.wording.figures import DASH
from tests.cli.fake_api import squeezed
from tests.cli.fake_machines import FOREIGN, ORPHAN, a_machine, collected, seen
from tests.services.declared import declared

OLD = "spot-99999999-a1-t1 us-east1-c t4 on-demand up 2 h 13 min old-1"


def test_what_the_tests_show_is_what_the_api_shows() -> None:
    declared(MachineList, seen((a_machine(), ORPHAN, FOREIGN)))
    declared(Collected, collected((ORPHAN,)))


def test_a_line_for_each_machine_then_the_sum_and_the_project(api, spot) -> None:
    api.respond("GET", "/v1/machines", seen((a_machine(), ORPHAN), foreign=2))
    ended = spot("ls", "--machines")
    assert [squeezed(line) for line in ended.lines] == [
        "MACHINE WHERE STATE AGE RUN ATT $/H USE",
        "spot-1a2b3c4d-a2-t1 us-east1-c t4 up 2 h 13 min digits-7 2 $0.35 serves attempt 2 of digits-7",
        f"{OLD} {DASH} {DASH} carries our label and serves no live run",
        "2 machines · $0.35/h, and 1 of unknown price now · project rav-ai (123456789012)",
    ]
    assert ended.err.splitlines() == [
        "1 machine of ours without a live run: spot gc",
        "2 machines not ours: spot ls --machines --all",
    ]
    assert api.requests[-1].query == {}


def test_all_shows_foreign_machines(api, spot) -> None:
    api.respond("GET", "/v1/machines", seen((a_machine(), FOREIGN), foreign=1))
    ended = spot("ls", "--machines", "--all")
    assert "not ours: it carries no supervisor's id" in ended.lines[2]
    assert squeezed(ended.lines[2]).startswith(f"somebody-s us-east1-c e2-small on-demand up 2 h 13 min {DASH}")
    assert ended.err == ""
    assert api.requests[-1].query == {"all": ["true"]}


def test_no_machine_though_runs_think_they_have_one_asks_for_the_project(api, spot) -> None:
    missing = [{"run_id": f"r-{n}", "machine": f"m-{n}", "zone": "us-east1-c"} for n in range(5)]
    api.respond("GET", "/v1/machines", seen(missing=missing, unread_zones=["us-east1-d"]))
    ended = spot("ls", "--machines")
    assert ended.lines == ["0 machines · $0.00/h now · project rav-ai (123456789012)"]
    not_read, not_seen, hint = ended.err.splitlines()
    assert not_read == "Not read: us-east1-d. Machines there are not listed."
    assert not_seen.startswith("Missing machines of runs: r-0 (m-0 in us-east1-c), r-1 (m-1")
    assert not_seen.endswith("r-2 (m-2 in us-east1-c) and 2 more.")
    assert hint == (
        "This supervisor uses project rav-ai (123456789012). Does your console or gcloud show another project? "
        "Compare: gcloud config list; gcloud compute instances list --project=rav-ai"
    )


def test_the_project_is_shown_as_far_as_it_is_known() -> None:
    assert project({"provider": "gce", "name": "p", "number": None, "noun": "project"}) == "project p"
    assert project({"provider": "gce", "name": None, "number": None, "noun": "project"}) == "provider gce"
    assert project({"provider": "local", "name": "this computer", "number": None}) == "this computer"


def test_hosts_that_are_billed_until_somebody_stops_them(api, spot) -> None:
    meter = {
        "provider": "lab", "host": "gpu1", "how": "ask", "verb": "terminate", "confirms": False, "usd_per_h": 1.2,
        "state": "to_end", "text": "", "since": "2026-11-26T06:00:00.000Z", "runs": ["digits-7"],
    }  # fmt: skip
    idle = {**meter, "host": "gpu2", "usd_per_h": None, "state": "idle", "since": None, "runs": []}
    api.respond("GET", "/v1/machines", {**seen(()), "meters": [meter, idle]})
    title, _, first, second = spot("ls", "--machines").lines[-4:]
    assert title == "Hosts that are billed until somebody stops them:"
    assert squeezed(first) == "gpu1 $1.20 2026-11-26 06:00Z terminate, you, by hand to end digits-7"
    assert squeezed(second) == f"gpu2 {DASH} {DASH} terminate, you, by hand idle {DASH}"


def test_machines_for_programs(api, spot) -> None:
    answer = seen((a_machine(), ORPHAN))
    api.respond("GET", "/v1/machines", answer)
    assert json.loads(spot("ls", "--machines", "-o", "json").out) == answer
    assert spot("ls", "--machines", "-o", "name").lines == ["spot-1a2b3c4d-a2-t1", "spot-99999999-a1-t1"]


@pytest.mark.parametrize("words", [("ls", "--machines", "-s", "running"), ("ls", "--all")])
def test_options_that_mean_nothing_together_are_refused(api, spot, words) -> None:
    assert spot(*words).code == 2
    assert api.requests == []


def test_machines_that_cannot_be_read_are_an_error_with_its_words(api, spot) -> None:
    api.refuse("GET", "/v1/machines", 503, "UNAVAILABLE", "The machines of gce cannot be read now.")
    ended = spot("ls", "--machines")
    assert ended.code == 1
    assert "cannot be read now" in ended.err


class TestGc:
    def test_a_dry_run_only_tells(self, api, spot) -> None:
        api.respond("POST", "/v1/gc", collected((a_machine(use="orphan", serves=None),), foreign=2, serving=1))
        ended = spot("gc", "--dry-run")
        assert ended.lines[-1] == "1 machine would be released, $0.35/h."
        assert ended.err == "2 machines not ours: never touched.\n"
        assert api.bodies("/v1/gc") == [{"dry_run": True}]

    def test_nothing_to_release(self, api, spot) -> None:
        api.respond("POST", "/v1/gc", collected(serving=3, unread_zones=["z"]))
        ended = spot("gc", "--yes")
        assert ended.lines == ["Nothing to release: 3 machines in use."]
        assert ended.err == "Not read, so nothing there is touched: z.\n"
        assert api.bodies("/v1/gc") == [{"dry_run": True}]

    def test_without_a_terminal_nothing_is_released(self, api, spot) -> None:
        api.respond("POST", "/v1/gc", collected((ORPHAN,)))
        ended = spot("gc")
        assert ended.code == 2
        assert "Add --yes" in ended.err
        assert api.bodies("/v1/gc") == [{"dry_run": True}]

    def test_the_user_may_say_no(self, api, spot, monkeypatch) -> None:
        questions = []
        monkeypatch.setattr(output, "confirmed", lambda question, yes: questions.append(question))
        api.respond("POST", "/v1/gc", collected((ORPHAN, a_machine(use="orphan"))))
        assert spot("gc").code == 130
        assert questions == ["Release 2 machines ($0.35/h, and 1 of unknown price) in project rav-ai (123456789012)?"]
        assert api.bodies("/v1/gc") == [{"dry_run": True}]

    def test_released_and_what_was_refused(self, api, spot) -> None:
        refused = {**ORPHAN, "machine": "m-2", "why": "the platform did not accept the request; it may be repeated"}
        young = {**ORPHAN, "machine": "m-3", "why": "serves no live run, but is younger than 30 s"}
        api.respond_in_turn("POST", "/v1/gc", collected((ORPHAN,)), collected((ORPHAN,), (refused, young)))
        ended = spot("gc", "--yes")
        assert ended.code == 1
        assert ended.lines[-2:] == ["1 machine released, price unknown.", "2 machines left for the reason in USE."]
        assert api.bodies("/v1/gc") == [{"dry_run": True}, {"dry_run": False}]
        api.respond_in_turn("POST", "/v1/gc", collected((ORPHAN,)), collected((ORPHAN,), (young,)))
        assert spot("gc", "-y", "-o", "name").out == "spot-99999999-a1-t1\n"
