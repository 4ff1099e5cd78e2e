"""Stop, resume, go on, approve, change, purge: a question on a page, done by the API, and a notice on its page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor.api.wire.deps import with_tokens
from supervisor.domain.attempt import Bill
from supervisor.domain.callers import LOCAL, Scope
from supervisor.domain.causes import Cause
from supervisor.domain.diagnosis.verdict import Certainty, Retry, Verdict, Where
from supervisor.domain.machines import How
from supervisor.domain.run import Files, Outcome
from supervisor.domain.status import Status
from supervisor.services.access.tokens import TokenRequest, create
from tests.dashboard.document import Element, read
from tests.dashboard.looking import Looking
from tests.fakes.meters import meters_of
from tests.services.bed import Bed

RUN = "/ui/runs/digits-7"
SHA = "ab" * 32


def fields(form: Element) -> dict[str, str]:
    """What a browser sends of it, nothing typed or ticked."""
    inputs = [field for field in form.all("input") if field.attributes.get("type") != "checkbox"]
    return {field.attributes["name"]: field.attributes.get("value", "") for field in inputs}


def sent(looking: Looking, path: str, button: str, **typed: str) -> Any:
    """The answer to the form with this button, as its page gives it."""
    page = looking.page(path)
    (form,) = [form for form in page.all("form", method="post") if form.all("button")[0].text == button]
    return looking.post(form.attributes["action"], {**fields(form), **typed})


def actions(looking: Looking) -> list[str]:
    return [link.text for link in looking.page(RUN).one(id="run-actions").all("a")][:-1]


def test_a_live_run_is_stopped_after_a_question_that_tells_of_its_checkpoint(bed: Bed, looking: Looking) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    assert actions(looking) == ["Stop", "Drill", "Change limits"]
    assert "No checkpoint is safe yet" in looking.page(f"{RUN}/stop").text
    bed.change("digits-7", files=Files(checkpoint_step=100))
    assert "Step 100 is safe already" in looking.page(f"{RUN}/stop").text
    assert bed.run("digits-7").stop is None, "a question changes nothing"
    answer = sent(looking, f"{RUN}/stop", "Stop digits-7")
    assert (answer.status_code, answer.headers["location"]) == (303, f"{RUN}?did=stop")
    assert bed.run("digits-7").stop is not None
    assert "The stop is recorded." in looking.page(f"{RUN}?did=stop").one(id="run-head").one(class_="notice").text
    assert actions(looking) == ["Change limits"]


def test_a_training_is_drilled_and_the_page_has_the_line(bed: Bed, looking: Looking) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    assert "steps since the newest checkpoint" in looking.page(f"{RUN}/drill").text
    answer = sent(looking, f"{RUN}/drill", "Drill digits-7")
    assert (answer.status_code, answer.headers["location"]) == (303, f"{RUN}?did=drill")
    assert bed.run("digits-7").drills.launch_id == "1.1.1"
    assert actions(looking) == ["Stop", "Change limits"], "one drill at a time"
    assert "not drilled yet; a drill is going on" in looking.page(RUN).one(id="run-facts").text
    bed.end("digits-7", Status.STOPPED)
    assert "NOTHING_TO_DRILL" in looking.post(f"{RUN}/drill").text


def test_the_notice_is_one_of_ours_whatever_the_address_says(bed: Bed, looking: Looking) -> None:
    bed.submit("digits-7")
    page = looking.page(f"{RUN}?did=%3Cb%3Eyour+account+is+locked")
    assert "locked" not in page.text
    assert page.one(id="run-head").all("p", class_="notice") == []


@pytest.mark.parametrize(("typed", "generation", "did"), [({}, 2, "resume"), ({"rerun": "true"}, 2, "rerun")])
def test_a_stopped_run_is_resumed(bed: Bed, looking: Looking, typed: dict[str, str], generation: int, did: str) -> None:
    bed.submit("digits-7")
    bed.end("digits-7", Status.STOPPED, settled=True)
    assert actions(looking) == ["Resume", "Purge files"]
    answer = sent(looking, f"{RUN}/resume", "Resume digits-7", **typed)
    assert answer.headers["location"] == f"{RUN}?did={did}"
    run = bed.run("digits-7")
    assert (run.generation, run.rerun) == (generation, did == "rerun")


def test_a_completed_run_starts_over(bed: Bed, looking: Looking) -> None:
    bed.submit("digits-7")
    bed.end("digits-7", Status.COMPLETED, settled=True)
    assert actions(looking) == ["Start over", "Purge files"]
    assert sent(looking, f"{RUN}/resume", "Start digits-7 over").headers["location"] == f"{RUN}?did=rerun"
    assert bed.run("digits-7").rerun is True


def test_a_run_that_asks_goes_on_after_an_answer(bed: Bed, looking: Looking) -> None:
    bed.submit("digits-7")
    asked = bed.train("digits-7").attempt
    assert asked is not None
    verdict = Verdict("U3.signal", Certainty.CERTAIN, Cause.KILLED, Where.MACHINE, True, Retry.ASK, "SIGTERM")
    over = replace(asked, ended_at=bed.clock.now(), gone_at=bed.clock.now(), cause=Cause.KILLED, verdict=verdict)
    ended_try = replace(bed.run("digits-7").try_, ended_at=bed.clock.now())  # type: ignore[type-var]
    bed.change("digits-7", status=Status.WAITING, cause=Cause.KILLED, attempt=over, try_=ended_try)
    assert actions(looking) == ["Go on", "Stop", "Change limits"]
    assert looking.page(RUN).one(class_="duty").text == "You must act."
    assert "It was killed again at the same checkpoint" in looking.page(f"{RUN}/retry").text
    answer = sent(looking, f"{RUN}/retry", "Go on with digits-7")
    assert (answer.status_code, answer.headers["location"]) == (303, f"{RUN}?did=retry")
    assert bed.run("digits-7").status == Status.RECOVERING
    assert bed.events("digits-7")[-1] == "retry_requested"
    assert actions(looking) == ["Stop", "Change limits"]


def awaiting(bed: Bed) -> None:
    bed.submit("digits-7", {"command": ["python", "train.py"], "on_success": "ask"})
    bed.train("digits-7")
    bed.end(
        "digits-7", Status.AWAITING_TEARDOWN, files=Files(outcome=Outcome(SHA, 3, 412_000_000, bed.clock.now(), 1000))
    )


def test_a_teardown_is_approved_for_the_machine_and_the_results_that_were_shown(bed: Bed, looking: Looking) -> None:
    awaiting(bed)
    page = looking.page(RUN)
    assert page.one(class_="duty").text == "You must act: approve the teardown."
    assert "Approve teardown" in actions(looking)
    text = looking.page(f"{RUN}/approve").text
    assert "id-1" in text
    assert "3 files, 412 MB, verified" in text
    answer = sent(looking, f"{RUN}/approve", "Approve: release the machine")
    assert answer.headers["location"] == f"{RUN}?did=approve"
    approval = bed.run("digits-7").approval
    assert approval is not None
    assert (approval.machine_id, approval.results_sha256, approval.accept_loss) == ("id-1", SHA, "")


def test_a_host_is_given_back_by_a_verb_that_was_shown_with_its_price(bed: Bed, looking: Looking) -> None:
    bed.provider.meters = meters_of("local-a", how=How.ASK)
    awaiting(bed)
    (item,) = bed.run("digits-7").retiring
    bed.change("digits-7", retiring=(replace(item, bill=Bill(How.ASK, "terminate", announced=True)),))
    page = looking.page(f"{RUN}/approve")
    assert "its host is billed until somebody stops it" in page.text
    assert "terminate (usual) stops the bill: unknown; leaves nothing that is known" in page.text
    assert [option.text for option in page.all("option")] == ["terminate", "stop"]
    answer = sent(looking, f"{RUN}/approve", "Approve: give local-a back", verb="stop")
    assert answer.headers["location"] == f"{RUN}?did=approve"
    assert looking.page(RUN).one(class_="duty").text == "You must act: approve the teardown.", "a person ends it"
    answer = sent(looking, f"{RUN}/approve", "I have seen that local-a is billed no more")
    assert answer.headers["location"] == f"{RUN}?did=ended"
    approval = bed.run("digits-7").approval
    assert approval is not None
    assert (approval.verb, approval.meter_stopped) == ("stop", True)
    assert looking.page(RUN).one(class_="duty").text.startswith("You need to do nothing: the bill of its host")


def test_results_are_given_up_with_a_reason_only(bed: Bed, looking: Looking) -> None:
    awaiting(bed)
    button = "Give them up and release the machine"
    refused = sent(looking, f"{RUN}/approve", button, accept_loss=" ")
    assert refused.status_code == 422
    assert "#/accept_loss" in read(refused.text).one(role="alert").text
    assert bed.run("digits-7").approval is None
    answer = sent(looking, f"{RUN}/approve", button, accept_loss="superseded by digits-8")
    assert answer.headers["location"] == f"{RUN}?did=loss"
    approval = bed.run("digits-7").approval
    assert approval is not None
    assert approval.accept_loss == "superseded by digits-8"


def test_what_was_shown_is_not_what_is_there_any_more(bed: Bed, looking: Looking) -> None:
    awaiting(bed)
    refused = sent(looking, f"{RUN}/approve", "Approve: release the machine", results_sha256="cd" * 32)
    assert refused.status_code == 409
    alert = read(refused.text).one(role="alert").text
    assert "other results than the request names" in alert
    assert "APPROVAL_MISMATCH" in alert


def test_limits_are_changed_of_the_version_that_was_seen(bed: Bed, looking: Looking) -> None:
    bed.submit("digits-7", {"command": ["python", "train.py"], "limits": {"budget_usd": 25.0}})
    page = looking.page(f"{RUN}/change")
    assert page.one(id="budget_usd").attributes["value"] == "25"
    stale = fields(page.all("form", action=f"{RUN}/change")[0])
    answer = sent(looking, f"{RUN}/change", "Change digits-7", budget_usd="50", zones="local-a")
    assert answer.headers["location"] == f"{RUN}?did=change"
    policy = bed.run("digits-7").policy
    assert (policy.limits.budget_usd, policy.zones) == (50.0, ("local-a",))
    refused = looking.post(f"{RUN}/change", {**stale, "budget_usd": "75"})
    assert refused.status_code == 412
    again = read(refused.text)
    assert "has changed since it was read" in again.one(role="alert").text
    assert again.one(id="budget_usd").attributes["value"] == "75", "what was typed is still there"
    assert sent(looking, f"{RUN}/change", "Change digits-7").headers["location"] == f"{RUN}?did=same"
    assert sent(looking, f"{RUN}/change", "Change digits-7", budget_usd="").status_code == 303
    assert bed.run("digits-7").policy.limits.budget_usd is None


@pytest.mark.parametrize("typed", ["a lot", "nan", "1e999", "-1"])
def test_what_is_no_limit_is_refused_in_place(bed: Bed, looking: Looking, typed: str) -> None:
    bed.submit("digits-7")
    refused = sent(looking, f"{RUN}/change", "Change digits-7", budget_usd=typed)
    assert refused.status_code in (400, 422), refused.text
    assert read(refused.text).one(role="alert").text
    assert bed.run("digits-7").policy.limits.budget_usd is None


def test_a_purge_wants_the_name_typed(bed: Bed, looking: Looking) -> None:
    bed.submit("digits-7")
    bed.end("digits-7", Status.STOPPED, settled=True)
    refused = sent(looking, f"{RUN}/purge", "Purge all files", confirm="digits-8")
    assert refused.status_code == 422
    assert "confirm with exactly this run id" in read(refused.text).one(role="alert").text
    assert bed.run("digits-7").files.purging is False
    answer = sent(looking, f"{RUN}/purge", "Purge all files", confirm="digits-7")
    assert answer.headers["location"] == f"{RUN}?did=purge"
    assert bed.run("digits-7").files.purged_at is not None
    assert actions(looking) == ["Resume"]


def test_who_may_only_read_is_told_so_and_changes_nothing(bed: Bed) -> None:
    bed.submit("digits-7")
    wish = TokenRequest(name="eve", owner=bed.run("digits-7").owner, scopes=frozenset({Scope.READ}))
    looking = Looking(with_tokens(bed.services))
    looking.sign_in(create(bed.parts, wish, LOCAL)["token"])
    refused = sent(looking, f"{RUN}/stop", "Stop digits-7")
    assert refused.status_code == 403
    assert "runs:write" in read(refused.text).one(role="alert").text
    assert bed.run("digits-7").stop is None


def test_another_sites_form_changes_nothing(bed: Bed, looking: Looking) -> None:
    bed.submit("digits-7")
    for deed in ("stop", "resume", "approve", "change", "purge"):
        answer = looking.post(f"{RUN}/{deed}", {}, Origin="http://evil.example")
        assert answer.status_code == 403, deed
    assert bed.run("digits-7").stop is None


def test_a_page_is_not_a_form(bed: Bed, looking: Looking) -> None:
    bed.submit("digits-7")
    assert looking.post(f"{RUN}/events").status_code == 405
    assert looking.get(f"{RUN}/explode").status_code == 404
