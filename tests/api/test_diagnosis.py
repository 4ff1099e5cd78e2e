"""The diagnosis of an attempt over the API: what the rules say of the evidence that was kept, beside what was acted on;
and what is said where it cannot be read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from supervisor.contract import runfiles
from supervisor.contract.heartbeat import Exit
from supervisor.contract.signs import MOUNT, NAN, THROTTLED, OddMetric, Signs, Slow, encode
from supervisor.domain.attempt import Attempt, Moving
from supervisor.domain.causes import SAME_FAILURE, Cause
from supervisor.domain.diagnosis.evidence import Source
from supervisor.domain.diagnosis.verdict import Certainty, Quote, Retry, Verdict, Where
from supervisor.domain.run import Files
from supervisor.domain.status import Status
from supervisor.ports.objectstore import StoreUnavailable
from supervisor.reconciler.acting import records
from supervisor.services.reading.diagnosis import verdict_json
from tests.services.bed import Bed, Client

PATH = "/v1/runs/digits-7/diagnosis"
KILLED = Exit(None, 9, False, 95.0, "", oom_kills=1)


def end(bed: Bed, cause: Cause, status: Status = Status.FAILED, **fields: Any) -> Attempt:
    bed.submit("digits-7")
    bed.train("digits-7")
    live = bed.run("digits-7").attempt
    assert live is not None
    over = replace(live, ended_at=bed.clock.now(), cause=cause, **{"evidence": "as it was decided", **fields})
    bed.end("digits-7", status, attempt=over, cause=cause)
    return over


def keep(bed: Bed, attempt: Attempt, **agent: Any) -> None:
    part = {"version": 1, "when": "end", "launch_id": "1.1.1", **agent}
    bed.objects.put(runfiles.agent_evidence("digits-7", attempt.number), json.dumps(part).encode())
    records.keep_evidence(bed.objects, bed.run("digits-7"), attempt, bed.clock.monotonic, ("listing: up",))


def refused(client: Client, status: int, code: str, path: str = PATH) -> str:
    answer = client.get(path)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    return str(answer.json()["detail"])


def test_a_kill_for_memory_has_its_rule_its_evidence_and_its_remedy(client: Client, bed: Bed) -> None:
    keep(bed, end(bed, Cause.HOST_OOM, exit=KILLED), oom_kills=1)
    shown = client.get(PATH).json()
    verdict = shown["verdict"]
    assert shown["text"] == (
        "digits-7, attempt 1, ended: host_oom (certain). Restarted? No: the same configuration would be killed again."
    )
    assert (verdict["rule"], verdict["cause"], verdict["retry"]) == ("U9.counter", "host_oom", "never")
    assert [quote["text"] for quote in verdict["quotes"]] == ["1"]
    assert {"fewer_workers", "keep_batch"} <= {remedy["word"] for remedy in verdict["remedies"]}
    assert verdict["page"] == "docs/causes/host_oom.md"
    assert (shown["revised"], shown["acted_on"]["detail"]) == (False, "as it was decided")


def test_a_metric_that_is_not_finite_is_a_finding_of_an_attempt_that_goes_on(client: Client, bed: Bed) -> None:
    bed.submit("digits-7")
    run = bed.train("digits-7")
    assert run.pulse is not None
    odd = OddMetric("loss", NAN, 1240, 60.0, 2.31, 1239)
    bed.change("digits-7", pulse=replace(run.pulse, signs=encode(Signs(metrics=(odd,), nonfinite=("loss",)))))
    shown = client.get(PATH).json()
    assert (shown["ended"], shown["verdict"]) == (False, None)
    assert "1 finding; none of them acts" in shown["text"]
    [finding] = shown["findings"]
    assert finding["rule"] == "METRIC.nonfinite"
    assert finding["sentence"] == "loss is NaN since step 1,240; the last finite value was 2.31 at step 1,239"
    assert [remedy["word"] for remedy in finding["remedies"]] == ["lower_rate", "clip_gradients", "resume_before"]


def note(bed: Bed, attempt: int, *packages: str, **more: Any) -> None:
    facts = {"packages": packages, "packages_sha256": "+".join(packages), "image_digest": "sha256:a", **more}
    bed.objects.put(runfiles.facts("digits-7", attempt), json.dumps(facts).encode())


def third_attempt(bed: Bed) -> None:
    bed.submit("digits-7")
    for number in (1, 2, 3):
        bed.train("digits-7", number)
        if number < 3:
            bed.end("digits-7")


def test_what_differs_from_the_attempt_before_is_a_finding(client: Client, bed: Bed) -> None:
    third_attempt(bed)
    note(bed, 1, *(f"p{number}==1" for number in range(5)), "torch==2.3.1", seeds={"--seed": "7"})
    note(bed, 3, *(f"p{number}==2" for number in range(5)), "einops==1", "torch==2.4.0", seeds={"--seed": "8"})
    sentences = {finding["rule"]: finding["sentence"] for finding in client.get(PATH).json()["findings"]}
    assert sentences == {
        "U29.packages": "the packages differ from those of the attempt before: p0 1 → 2, p1 1 → 2, p2 1 → 2, p3 1 → 2, "
        "p4 1 → 2, and 2 more",
        "U36.seeds": "seed --seed: 7 → 8",
    }
    keep(bed, end_third(bed))
    assert {finding["rule"] for finding in client.get(PATH).json()["findings"]} == set(sentences)


def end_third(bed: Bed) -> Attempt:
    live = bed.run("digits-7").attempt
    assert live is not None
    over = replace(live, ended_at=bed.clock.now(), cause=Cause.USER_ERROR, exit=Exit(1, None, False, 5.0, "x"))
    bed.end("digits-7", Status.FAILED, attempt=over, cause=Cause.USER_ERROR)
    return over


@pytest.mark.parametrize(
    ("before", "now", "rules"),
    [
        ({"image_digest": "sha256:a"}, {"image_digest": "sha256:b"}, ["U30.tag"]),  # other packages are expected then
        ({}, {"packages_sha256": "x==1"}, []),
        ({"image_digest": None}, {"image_digest": None}, ["U29.packages"]),
    ],
)
def test_packages_of_another_image_are_no_drift(
    client: Client, bed: Bed, before: dict[str, Any], now: dict[str, Any], rules: list[str]
) -> None:
    third_attempt(bed)
    note(bed, 2, "x==1", **before)
    note(bed, 3, "x==2", **now)
    assert [finding["rule"] for finding in client.get(PATH).json()["findings"]] == rules


def test_facts_that_cannot_be_read_are_named(client: Client, bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    third_attempt(bed)
    note(bed, 3, "x==2")
    keep(bed, end_third(bed))
    read = bed.objects.read

    def away(key: str, *rest: Any) -> Any:
        if key.endswith("facts.json"):
            raise StoreUnavailable("away")
        return read(key, *rest)

    monkeypatch.setattr(bed.objects, "read", away)
    shown = client.get(PATH).json()
    assert shown["unread"] == [{"name": "facts", "why": "the object store does not respond"}]
    assert shown["verdict"]["cause"] == "user_error"


def test_the_same_failure_twice_is_in_the_verdict(client: Client, bed: Bed) -> None:
    third_attempt(bed)
    keep(bed, end_third(bed))
    assert client.get(PATH).json()["verdict"]["rule"] != "SAME.twice"
    bed.change("digits-7", detail=f"exit 1 ({SAME_FAILURE})")
    assert client.get(PATH).json()["verdict"]["rule"] == "SAME.twice"


def test_what_makes_a_run_slow_is_shown_with_its_number_and_the_setting(client: Client, bed: Bed) -> None:
    bed.submit("digits-7")
    run = bed.train("digits-7")
    assert run.pulse is not None
    told = encode(Signs(slow=(Slow(THROTTLED, (64.0, 0.6, 88.0)), Slow(MOUNT, (55.0, 31.0), "nfs4")), up_s=900.0))
    bed.change("digits-7", pulse=replace(run.pulse, signs=told))
    shown = client.get(PATH).json()
    assert "Slow: the GPU is throttled, at 60 % of its usual pace and 88 °C (`on_slow`); 1 more" in shown["text"]
    assert shown["text"].endswith(" 2 findings; none of them acts.")
    bed.change("digits-7", moving=Moving(after_step=100))
    moving = client.get(PATH).json()["text"]
    assert "1 more in `spot why`; it moves at its next checkpoint. " in moving
    assert moving.endswith(" 2 findings; `on_slow: move` acts.")
    by_rule = {finding["rule"]: finding for finding in shown["findings"]}
    assert set(by_rule) == {"U23.throttled", "U8.mount"}
    assert {remedy["setting"] for finding in by_rule.values() for remedy in finding["remedies"]} == {"on_slow", "stage"}
    quotes = {quote["item"]: quote["text"] for quote in by_rule["U8.mount"]["quotes"]}
    assert quotes == {"mount.data": "nfs4", "window.io_pressure": "55.0", "window.gpu_util": "31.0"}
    assert "Slow: " in client.get("/v1/runs/digits-7").json()["status_text"]


def test_fuller_evidence_revises_the_words_and_nothing_else(client: Client, bed: Bed) -> None:
    """Broken variant: the cause of the document stood in the headline, although another one had been acted on."""
    attempt = end(bed, Cause.KILLED, Status.RECOVERING, exit=KILLED)
    keep(bed, attempt, oom_kills=1)
    before = bed.run("digits-7")
    shown = client.get(PATH).json()
    assert shown["text"].startswith("digits-7, attempt 1, ended: killed. Restarted? Yes: the next attempt")
    assert (shown["revised"], shown["verdict"]["cause"]) == (True, "host_oom")
    assert bed.run("digits-7") == before


def test_what_the_end_was_taken_for_is_said_with_its_rule(client: Client, bed: Bed) -> None:
    """The verdict that acted is of the beat; a document that agrees with less certainty takes nothing from it."""
    quotes = (Quote("oom.kills", "1", Source.AGENT),)
    acted = Verdict("U9.x", Certainty.CERTAIN, Cause.HOST_OOM, Where.DATA, True, Retry.NEVER, "killed", quotes)
    attempt = end(bed, Cause.HOST_OOM, exit=KILLED._replace(oom_kills=None), verdict=acted)
    record = "On record, it ended as host_oom (certain, rule U9.x): as it was decided."
    assert refused(client, 404, "EVIDENCE_NOT_FOUND").endswith(record)
    full = {"cgroup": {"memory_bytes": 99.0, "memory_max_bytes": 100.0}}
    keep(bed, attempt, telemetry=full)
    shown = client.get(PATH).json()
    assert (shown["verdict"]["cause"], shown["verdict"]["certainty"]) == ("host_oom", "likely")
    assert "host_oom (certain)" in shown["text"]
    assert shown["acted_on"] == {
        "cause": "host_oom", "detail": "as it was decided", "rule": "U9.x", "certainty": "certain",
    }  # fmt: skip


def test_what_the_platform_recorded_is_not_revised(client: Client, bed: Bed) -> None:
    keep(bed, end(bed, Cause.PREEMPTED, Status.RECOVERING, exit=KILLED), oom_kills=1)
    assert client.get(PATH).json()["revised"] is False


def test_an_end_that_a_person_wanted_needs_no_evidence(client: Client, bed: Bed) -> None:
    end(bed, Cause.STOP_REQUESTED, Status.STOPPED)
    shown = client.get(PATH).json()
    assert (shown["verdict"], shown["ended"]) == (None, True)
    assert shown["text"] == (
        "digits-7, attempt 1, ended: stop_requested. Restarted? No: the run ended as stop_requested."
    )


def test_an_attempt_that_goes_on_needs_no_store(client: Client, bed: Bed) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    bed.objects.fail_reads = True
    shown = client.get(PATH).json()
    assert (shown["ended"], shown["verdict"], shown["acted_on"]) == (False, None, None)
    assert shown["text"].startswith("digits-7, attempt 1, has not ended. Training at step 120 of 1,000")


def test_the_next_attempt_answers_whether_it_was_restarted(client: Client, bed: Bed) -> None:
    attempt = end(bed, Cause.HOST_OOM, Status.RECOVERING, exit=KILLED)
    keep(bed, attempt, oom_kills=1)
    bed.train("digits-7", 2)
    shown = client.get(PATH, params={"attempt": "1"}).json()
    assert shown["text"].endswith("Restarted? Yes: as attempt 2 in local-a.")
    assert client.get(PATH).json()["attempt"] == 2


def test_what_cannot_be_read_is_said_with_what_is_on_record(client: Client, bed: Bed) -> None:
    """Broken variant: a guess from the row alone looked like a verdict."""
    bed.submit("digits-8")
    detail = refused(client, 404, "EVIDENCE_NOT_FOUND", "/v1/runs/digits-8/diagnosis")
    assert detail.startswith("digits-8 has had no machine. Accepted 0 s ago. Next: start in ")
    end(bed, Cause.HOST_OOM)
    record = "On record, it ended as host_oom: as it was decided."
    detail = refused(client, 404, "EVIDENCE_NOT_FOUND")
    assert "is not kept yet. Retry in a moment" in detail
    assert detail.endswith(record)
    bed.objects.put(runfiles.evidence("digits-7", 1), b"{torn")
    detail = refused(client, 404, "EVIDENCE_NOT_FOUND")
    assert "damaged" in detail
    assert detail.endswith(record)
    bed.objects.fail_reads = True
    assert refused(client, 503, "UNAVAILABLE").endswith(f"cannot be read now. Try again. {record}")
    bed.objects.fail_reads = False
    assert "no attempt 9" in refused(client, 404, "EVIDENCE_NOT_FOUND", f"{PATH}?attempt=9")
    refused(client, 422, "INVALID_REQUEST", f"{PATH}?attempt=0")
    refused(client, 404, "RUN_NOT_FOUND", "/v1/runs/nothing/diagnosis")
    bed.objects.delete(runfiles.evidence("digits-7", 1))
    bed.change("digits-7", files=Files(purged_at=bed.clock.now()))
    assert refused(client, 410, "FILES_PURGED").endswith(record)


ODD: list[Any] = [
    {"exit": 7},
    {"agent": [], "exit": {"code": "x"}},
    {"agent": {"disks": 7, "log_hits": {}}, "beat": ""},
]


@pytest.mark.parametrize("odd", ODD)
def test_a_document_that_a_training_wrote_over_is_no_error(client: Client, bed: Bed, odd: dict[str, Any]) -> None:
    end(bed, Cause.USER_ERROR)
    document = {"readings": {"end": [], "release": []}, "log_tail": ["\x1b[2J"], "agent": None, **odd}
    if isinstance(document["agent"], list):
        document["agent"] = {}
    bed.objects.put(runfiles.evidence("digits-7", 1), json.dumps(document).encode())
    assert client.get(PATH).status_code == 200


def test_times_of_the_agent_become_times_of_the_supervisor(bed: Bed) -> None:
    attempt = end(bed, Cause.HOST_OOM, agent_at=1_700_000_000.0, drift_s=2.0)
    quotes = (Quote("a", "x", Source.AGENT, 40.0), Quote("b", "y", Source.PROVIDER, 1_700_000_050.0))
    verdict = Verdict("R", Certainty.CERTAIN, Cause.HOST_OOM, Where.DATA, None, Retry.NEVER, "s", quotes)
    agents, platforms = verdict_json(verdict, attempt)["quotes"]
    assert (agents["at"], agents["up_s"]) == ("2023-11-14T22:14:02.000Z", 40.0)
    assert (platforms["at"], platforms["up_s"]) == ("2023-11-14T22:14:10.000Z", None)
    assert verdict_json(verdict, replace(attempt, agent_at=None))["quotes"][0]["at"] is None
    odd = (1e15, -1e17, float("nan"))
    forged = replace(verdict, quotes=tuple(replace(quote, at=at) for quote in verdict.quotes for at in odd))
    assert {(quote["at"], quote["up_s"]) for quote in verdict_json(forged, attempt)["quotes"]} == {(None, None)}
