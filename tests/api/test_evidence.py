"""Evidence over the API: as it was kept, or why there is none and whether it will come."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from supervisor.contract import runfiles
from supervisor.domain.attempt import Attempt
from supervisor.domain.run import Files
from supervisor.domain.status import Status
from supervisor.reconciler.acting import records
from supervisor.services.reading.evidence import Evidence
from tests.services.bed import Bed, Client
from tests.services.declared import declared

PATH = "/v1/runs/digits-7/attempts/1/evidence"


@pytest.fixture
def attempt(bed: Bed) -> Attempt:
    """Of a run that has ended; its machine may still be there."""
    bed.submit("digits-7")
    bed.train("digits-7")
    bed.end("digits-7", Status.FAILED)
    found = bed.run("digits-7").attempt
    assert found is not None
    return found


def keep(bed: Bed, attempt: Attempt) -> None:
    records.keep_evidence(bed.objects, bed.run("digits-7"), attempt, bed.clock.monotonic, ("listing: up",))


def refused(client: Client, path: str = PATH) -> Any:
    answer = client.get(path)
    assert (answer.status_code, answer.json()["code"]) == (404, "EVIDENCE_NOT_FOUND")
    return answer.json()["detail"]


def test_evidence_is_shown_as_it_was_kept(client: Client, bed: Bed, attempt: Attempt) -> None:
    keep(bed, attempt)
    told = client.get(PATH)
    assert told.status_code == 200
    shown = told.json()
    assert (shown["run_id"], shown["attempt"], shown["readings"]["release"]) == ("digits-7", 1, ["listing: up"])
    assert shown["agent"] is None
    assert shown["agent_missing"] == "the agent left none"
    part = b'{"version": 1, "when": "end", "launch_id": "1.1.1", "log_tail": ["bye"], "news": {"deep": [1]}}'
    bed.objects.put(runfiles.agent_evidence("digits-7", 1), part)
    keep(bed, attempt)
    again = client.get(PATH).json()
    assert again["agent"]["news"] == {"deep": [1]}
    assert again["log_tail"] == ["bye"]


def test_missing_evidence_says_whether_it_will_come(client: Client, bed: Bed, attempt: Attempt) -> None:
    assert "is not kept yet. Retry in a moment" in refused(client)
    bed.objects.put(runfiles.evidence("digits-7", 1), b"{torn")
    assert "damaged" in refused(client)
    bed.objects.delete(runfiles.evidence("digits-7", 1))
    bed.change("digits-7", settled=True)
    assert "none will come" in refused(client)
    for number in ("2", "0", "x", "01", "1e0"):
        assert f"digits-7 has no attempt {number}." in refused(client, f"/v1/runs/digits-7/attempts/{number}/evidence")


def test_purged_evidence_says_nothing_of_later_attempts(client: Client, bed: Bed) -> None:
    """Broken variant: of an attempt that goes on after a purge it was said that its evidence was purged."""
    bed.submit("digits-7")
    bed.train("digits-7")
    bed.clock.advance(60)
    bed.end("digits-7", Status.FAILED, files=Files(purged_at=bed.clock.now()))
    bed.clock.advance(60)
    assert client.get(PATH).json()["code"] == "FILES_PURGED"
    bed.resume("digits-7")
    bed.clock.advance(120)
    bed.train("digits-7", 2)
    assert client.get(PATH).json()["code"] == "FILES_PURGED"
    assert "is not over" in refused(client, "/v1/runs/digits-7/attempts/2/evidence")


def test_the_evidence_of_a_live_attempt_comes_at_its_end(client: Client, bed: Bed) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    assert "is not over. Its evidence is kept when it ends" in refused(client)


def test_an_unavailable_store_is_not_missing_evidence(client: Client, bed: Bed, attempt: Attempt) -> None:
    keep(bed, attempt)
    bed.objects.fail_reads = True
    answer = client.get(PATH)
    assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")


def test_an_unknown_run(client: Client) -> None:
    answer = client.get(PATH)
    assert (answer.status_code, answer.json()["code"]) == (404, "RUN_NOT_FOUND")


def test_every_field_that_is_composed_is_in_the_schema(bed: Bed, attempt: Attempt) -> None:
    from supervisor.contract.heartbeat import Exit
    from supervisor.lifecycle.evidence.attempt_evidence import Found, compose, encoded

    over = replace(attempt, exit=Exit(1, None, False, 2.0, "boom", oom_kills=None))
    declared(Evidence, json.loads(encoded(compose(bed.run("digits-7"), over, Found(), (), None))))
