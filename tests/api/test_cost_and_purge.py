"""The routes of cost and purge: what they show, and refusals with their codes."""

from __future__ import annotations

import csv
import io

import pytest

from tests.services.bed import Bed, Client
from tests.services.test_billed import scene
from tests.services.test_cost import filled
from tests.services.test_ledger import three_runs
from tests.services.test_purge import RUN, over

PURGE = f"/v1/runs/{RUN}/purge"


def test_costs_have_the_shape_of_the_document(bed: Bed, client: Client) -> None:
    filled(bed)
    assert client.get("/v1/cost?page_size=10&status=running").status_code == 200
    assert client.get(f"/v1/runs/{RUN}/cost").json()["stored_bytes"] is not None
    bed.objects.fail_reads = True
    assert client.get(f"/v1/runs/{RUN}/cost").json()["stored_bytes"] is None


def test_an_unknown_parameter_or_run_is_refused(client: Client) -> None:
    assert client.get("/v1/cost?statuss=running").json()["code"] == "INVALID_REQUEST"
    assert client.get("/v1/cost?cursor=x").json()["code"] == "CURSOR_INVALID"
    assert client.get("/v1/runs/nobody-1/cost").json()["code"] == "RUN_NOT_FOUND"
    assert client.post("/v1/runs/nobody-1/purge", json={"confirm": "nobody-1"}).status_code == 404


def test_a_purge_responds_with_the_run_and_what_it_deleted(bed: Bed, client: Client) -> None:
    over(bed)
    answer = client.post(PURGE, json={"confirm": RUN})
    assert answer.status_code == 200
    run = answer.json()
    assert (run["deleted_files"], run["deleted_bytes"], run["purging"], run["checkpoint_step"]) == (7, 22, False, None)
    assert run["purged_at"] is not None
    events = client.get(f"/v1/runs/{RUN}/events").json()["events"]
    purges = [(event["actor"], event["data"]) for event in events if event["kind"] == "purged"]
    request_id = answer.headers["x-request-id"]
    begun = {"before": {"purging": False}, "after": {"purging": True}}
    ended = {
        "before": {"purged_at": None, "checkpoint_step": 100},
        "after": {"purged_at": answer.json()["purged_at"], "checkpoint_step": None},
    }
    assert purges == [
        ("local", {"request_id": request_id, **begun}),
        ("local", {"files": 7, "size_bytes": 22, "request_id": request_id, **ended}),
    ]
    gone = client.get(f"/v1/runs/{RUN}/logs?attempt=1")
    assert (gone.status_code, gone.json()["code"]) == (410, "FILES_PURGED")
    for files in ("files", "files/results/g1/model.pt"):
        gone = client.get(f"/v1/runs/{RUN}/{files}")
        assert (gone.status_code, gone.json()["code"]) == (410, "FILES_PURGED")
    gone = client.get(f"/v1/runs/{RUN}/attempts/1/evidence")
    assert "purged" in gone.json()["detail"]
    again = client.post(PURGE, json={"confirm": RUN})
    assert again.json()["deleted_files"] == 0


@pytest.mark.parametrize("body", [{}, {"confirm": "digits-8"}, {"confirm": RUN, "force": True}, {"confirm": 7}])
def test_without_the_name_nothing_is_deleted(bed: Bed, client: Client, body: object) -> None:
    over(bed)
    answer = client.post(PURGE, json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST")
    assert not bed.run(RUN).files.purging


def test_a_live_run_and_one_that_is_being_purged_are_conflicts(bed: Bed, client: Client) -> None:
    filled(bed)
    answer = client.post(PURGE, json={"confirm": RUN})
    assert (answer.status_code, answer.json()["code"]) == (409, "PURGE_REFUSED")
    assert "running" in answer.json()["detail"]


def test_an_interrupted_purge_forbids_a_resume_until_it_is_finished(bed: Bed, client: Client) -> None:
    over(bed)
    bed.objects.fail_writes = True
    cut = client.post(PURGE, json={"confirm": RUN})
    assert (cut.status_code, cut.json()["code"]) == (503, "UNAVAILABLE")
    refused = client.post(f"/v1/runs/{RUN}/resume", json={})
    assert (refused.status_code, refused.json()["code"]) == (409, "PURGE_RUNNING")
    bed.objects.fail_writes = False
    assert client.post(PURGE, json={"confirm": RUN}).status_code == 200
    assert client.post(f"/v1/runs/{RUN}/resume", json={}).status_code == 202


def test_a_table_for_a_spreadsheet(bed: Bed, client: Client) -> None:
    three_runs(bed)
    answer = client.get("/v1/ledger?by=group", headers={"Accept": "text/csv"})
    assert answer.headers["content-disposition"] == "attachment; filename=ledger-by-group.csv"
    lines = list(csv.DictReader(io.StringIO(answer.text)))
    assert [line["group"] for line in lines] == ["", "sweep"]
    assert float(lines[1]["productive_s"]) == 280
    assert lines[1]["save_s"] == "", "not measured is not 0"
    assert client.get("/v1/ledger?by=group&format=csv").text == answer.text
    assert client.get("/v1/ledger?by=week").json()["code"] == "INVALID_REQUEST"


def test_the_bill_is_off_until_a_setting_names_it(client: Client) -> None:
    refused = client.get("/v1/ledger/billed")
    assert (refused.status_code, refused.json()["code"]) == (409, "NOT_SUPPORTED")
    assert client.get("/v1/ledger/billed?since=x").json()["code"] == "INVALID_REQUEST"
    assert client.get("/v1/ledger/billed?again=x").json()["code"] == "INVALID_REQUEST"


def test_the_bill_as_json_and_as_csv(bed: Bed, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    billed, _, _ = scene(bed)
    monkeypatch.setattr(bed.services.billed, "_parts", billed._parts)
    told = client.get("/v1/ledger/billed")
    assert (told.status_code, told.json()["rows"][0]["reason"]) == (200, "agrees")
    bare = client.get("/v1/ledger/billed?format=csv")
    assert bare.text.startswith("day,run,ours_s,billed_s,")
    assert bare.headers["content-disposition"] == "attachment; filename=billed.csv"


def test_words_in_the_csv_are_those_of_json(bed: Bed, client: Client) -> None:
    three_runs(bed)
    rows = list(csv.DictReader(io.StringIO(client.get("/v1/ledger?by=run&format=csv").text)))
    assert {row["lower_bound"] for row in rows} == {"false"}
