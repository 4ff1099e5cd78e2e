"""Claims over the API: one winner, the job as the loop would make it, and each refusal."""

from __future__ import annotations

import http.client
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.api.wire.deps import OF_ONE_RUN, SLOW_THREADS
from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.domain.run import StopRequest
from supervisor.domain.status import Status
from supervisor.ports.claims import Claims, Handover, HandsOver
from supervisor.ports.objectstore import ObjectInfo, StoreUnavailable
from supervisor.ports.provider import LaunchRequest, ProviderUnavailable, SecretRefused
from supervisor.services.access.claims import ClaimBook
from supervisor.services.runs.purge import purge
from tests.api.listening import serving
from tests.fakes.callers import OPS
from tests.services.bed import Bed
from tests.services.door_bed import ME, OTHER, PACES, PUBLIC, RUN_ID, SECRETS, SESSION, DoorBed, make_door


@pytest.fixture
def door(bed: Bed, tmp_path: Path) -> DoorBed:
    return make_door(bed, tmp_path)


def nonce_of(door: DoorBed, run_id: str = RUN_ID) -> str:
    following = batons.decode(door.bed.objects.get(runfiles.baton(run_id))[0]).next
    assert following is not None
    return following.nonce


def test_a_claim_brings_the_job_its_secrets_and_a_pass(door: DoorBed) -> None:
    run = door.launching(env={"LR": "0.1"})
    answer = door.claim(door.ticket(run))
    assert answer.status_code == 200, answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    told = answer.json()
    assert (told["run_id"], told["launch_id"]) == (RUN_ID, "1.1.1")
    assert told["door"] == f"{PUBLIC}/v1/door"
    assert told["secrets"] == SECRETS
    job = told["job"]
    assert (job["store_url"], job["server_url"]) == (f"door:{PUBLIC}/v1/door/{RUN_ID}", PUBLIC)
    assert (job["nonce"], job["env"], job["beat_push_s"]) == (nonce_of(door), {"LR": "0.1"}, PACES.beat_push_s)
    assert told["pass"]["expires_at"] == door.bed.clock.now() + 3600
    assert door.ask("HEAD", f"objects/{runfiles.baton(RUN_ID)}", told["pass"]["text"]).status_code == 200
    assert door.bed.wake.wait(0.0), "the loop looks at once"


def test_the_claim_is_seen_by_the_provider(door: DoorBed) -> None:
    run, book = door.launching(), door.book
    ticket = door.ticket(run)
    assert isinstance(door.provider, HandsOver)
    claims: Claims = book
    assert claims.all() == {}
    door.claim(ticket, session={**SESSION, "gpu": "T4 ×2\n\"'\\"})
    [(key, claim)] = claims.all().items()
    assert key == (RUN_ID, "1.1.1") == (claim.run_id, claim.launch_id)
    assert (claim.claimant, claim.at, claim.seen_at) == (ME, door.bed.clock.now(), door.bed.clock.now())
    assert claim.session == {**SESSION, "gpu": "T4 ?2??'?"}
    claims.drop(RUN_ID, "1.1.1")
    claims.drop(RUN_ID, "1.1.1")
    assert claims.all() == {}


def test_the_same_launch_id_in_two_runs_is_two_claims(door: DoorBed) -> None:
    for run_id in (RUN_ID, "digits-8"):
        assert door.claim(door.ticket(door.launching(run_id))).status_code == 200
    assert set(door.book.all()) == {(RUN_ID, "1.1.1"), ("digits-8", "1.1.1")}
    door.book.drop(RUN_ID, "1.1.1")
    assert set(door.book.all()) == {("digits-8", "1.1.1")}


def test_another_notebook_is_refused_and_the_same_one_may_repeat(door: DoorBed) -> None:
    ticket = door.ticket(door.launching())
    first = door.claim(ticket)
    door.bed.clock.advance(30.0)
    refused = door.claim(ticket, OTHER)
    assert (refused.status_code, refused.json()["code"]) == (409, "TICKET_USED")
    assert door.provider.calls["hand_over"] == 1, "nothing is done for the other one"
    again = door.claim(ticket, session={"platform": "paper", "id": "session-2"})
    assert again.status_code == 200
    assert again.json()["job"] == first.json()["job"]
    [claim] = door.book.all().values()
    assert (claim.claimant, claim.session["id"]) == (ME, "session-1")
    assert claim.seen_at == claim.at + 30.0


def two_tabs(door: DoorBed) -> dict[str, httpx.Response]:
    """Claimant -> response; both have seen that nobody was there before."""
    ticket, both = door.ticket(door.launching()), threading.Barrier(2)
    hand_over = door.provider.hand_over
    answers: dict[str, httpx.Response] = {}

    def together(request: LaunchRequest) -> Handover:
        handover = hand_over(request)
        both.wait(20)
        return handover

    door.provider.hand_over = together  # type: ignore[method-assign]

    def tab(claimant: str) -> None:
        answers[claimant] = door.claim(ticket, claimant)

    tabs = [threading.Thread(target=tab, args=(claimant,)) for claimant in (ME, OTHER)]
    for thread in tabs:
        thread.start()
    for thread in tabs:
        thread.join(30)
    return answers


def test_of_two_tabs_at_once_one_wins(door: DoorBed) -> None:
    answers = two_tabs(door)
    assert sorted(answer.status_code for answer in answers.values()) == [200, 409]
    [claim] = door.book.all().values()
    assert answers[claim.claimant].status_code == 200


def test_a_claim_without_a_condition_is_caught(door: DoorBed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: both tabs would train."""
    put = door.bed.objects.put

    def careless(key: str, data: bytes, if_generation: str | None = None, metadata: Any = None) -> ObjectInfo:
        return put(key, data, None, metadata)

    monkeypatch.setattr(door.bed.objects, "put", careless)
    assert [answer.status_code for answer in two_tabs(door).values()] == [200, 200]


def test_claims_that_hang_take_no_thread_from_people_and_no_place_from_other_runs(door: DoorBed) -> None:
    tickets = [door.ticket(door.launching(run_id)) for run_id in (RUN_ID, "digits-8")]
    hand_over, go, waiting = door.provider.hand_over, threading.Event(), threading.Semaphore(0)

    def slow(request: LaunchRequest) -> Handover:
        waiting.release()
        assert go.wait(60)
        return hand_over(request)

    door.provider.hand_over = slow  # type: ignore[method-assign]
    with serving(door.services) as served, ThreadPoolExecutor(2 * OF_ONE_RUN) as notebooks:

        def ask(method: str, path: str, ticket: str = "", longest_s: float = 60) -> int:
            body = json.dumps({"ticket": ticket, "claimant": ME}) if ticket else ""
            with closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=longest_s)) as connection:
                connection.request(method, path, body, {"Content-Type": "application/json"})
                return connection.getresponse().status

        try:
            claims = [
                notebooks.submit(ask, "POST", "/v1/claims", ticket) for ticket in tickets for _ in range(OF_ONE_RUN)
            ]
            assert all(waiting.acquire(timeout=30) for _ in claims)
            assert ask("POST", "/v1/claims", tickets[0]) == 503
            assert len(claims) >= SLOW_THREADS
            assert ask("GET", "/v1/machines", longest_s=10) == 200
        finally:
            go.set()
        assert {claimed.result() for claimed in claims} == {200}


def test_a_kill_between_claim_and_answer_leaves_the_claim_to_its_notebook(door: DoorBed) -> None:
    ticket = door.ticket(door.launching())
    door.bed.objects.lose_answers = 1  # the object is there, and nobody has heard of it
    assert door.claim(ticket).status_code == 503
    assert door.claim(ticket, OTHER).json()["code"] == "TICKET_USED"
    assert door.claim(ticket).status_code == 200


# --- refusals ---------------------------------------------------------------------------------------------------------


def refused(door: DoorBed, ticket: str) -> tuple[int, str]:
    answer = door.claim(ticket)
    assert door.book.all() == {}, "nothing is claimed"
    return answer.status_code, answer.json()["code"]


def test_a_ticket_of_nobody(door: DoorBed) -> None:
    door.launching()
    assert refused(door, "ticket_digits-7_1.1.1_9999999999_" + "0" * 64) == (403, "TICKET_REFUSED")
    assert refused(door, "") == (403, "TICKET_REFUSED")
    assert refused(door, door.pass_of()) == (403, "TICKET_REFUSED")
    assert door.provider.calls["hand_over"] == 0


def test_an_old_ticket(door: DoorBed) -> None:
    ticket = door.ticket(door.launching(), for_s=60.0)
    door.bed.clock.advance(61.0)
    assert refused(door, ticket) == (410, "TICKET_EXPIRED")


@pytest.mark.parametrize("how", ["ended", "next", "stopping", "terminal", "baton"])
def test_a_launch_that_is_over(door: DoorBed, how: str) -> None:
    run = door.launching()
    ticket, now = door.ticket(run), door.bed.clock.now()
    assert run.try_ is not None
    if how == "ended":
        door.bed.change(RUN_ID, try_=replace(run.try_, ended_at=now), status=Status.RECOVERING)
    elif how == "next":
        door.launching(number=2)
    elif how == "stopping":
        door.bed.change(RUN_ID, stop=StopRequest("ann", now), status=Status.STOPPING)
    elif how == "terminal":
        door.bed.end(RUN_ID)
    else:
        raised = batons.decode(door.bed.objects.get(runfiles.baton(RUN_ID))[0])
        later = batons.raise_next(raised, "1.2.1", "n", True)
        door.bed.objects.put(runfiles.baton(RUN_ID), batons.encode(later))
    assert refused(door, ticket) == (409, "LAUNCH_OVER")


def test_the_provider_may_refuse_at_the_claim(door: DoorBed) -> None:
    ticket = door.ticket(door.launching())
    door.provider.refusal = SecretRefused("WANDB_API_KEY cannot be read")
    assert refused(door, ticket) == (409, "HANDOVER_REFUSED")
    door.provider.refusal = ProviderUnavailable("away")
    assert refused(door, ticket) == (503, "UNAVAILABLE")
    door.provider.refusal = None
    assert door.claim(ticket).status_code == 200


def test_a_provider_that_hands_nothing_over(door: DoorBed) -> None:
    ticket = door.ticket(door.launching())
    object.__setattr__(door.door.parts, "providers", {"local": door.bed.provider})
    assert refused(door, ticket) == (403, "TICKET_REFUSED")


def test_a_store_that_is_away_says_nothing(door: DoorBed) -> None:
    ticket = door.ticket(door.launching())
    door.bed.objects.fail_reads = True
    assert door.claim(ticket).status_code == 503
    with pytest.raises(ProviderUnavailable):
        door.book.all()
    door.bed.objects.fail_reads, door.bed.objects.fail_writes = False, True
    assert door.claim(ticket).status_code == 503
    with pytest.raises(ProviderUnavailable):
        door.book.drop(RUN_ID, "1.1.1")


def test_a_torn_claim_is_not_absent(door: DoorBed) -> None:
    ticket = door.ticket(door.launching())
    door.bed.objects.put(runfiles.claim(door.bed.store.supervisor_id, RUN_ID, "1.1.1"), b"{")
    with pytest.raises(ProviderUnavailable):
        door.book.all()
    assert door.claim(ticket).status_code == 503


def test_a_torn_baton_is_no_word_about_the_launch(door: DoorBed) -> None:
    ticket = door.ticket(door.launching())
    door.bed.objects.put(runfiles.baton(RUN_ID), b"{")
    assert door.claim(ticket).json()["code"] == "UNAVAILABLE"


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"claimant": "x"}, 422),
        ({"claimant": ME + "\n"}, 422),
        ({"session": {"id": 5}}, 422),
        ({"session": {"id": "x" * 201}}, 422),
        ({"session": {f"n{index}": "" for index in range(21)}}, 422),
        ({"session": {"a" * 41: ""}}, 422),
        ({"ticket": "x" * 300}, 422),
        ({"more": 1}, 422),
        ({"session": {"id": "x" * 20_000}}, 413),
    ],
)
def test_a_claim_has_a_form_and_a_size(door: DoorBed, change: dict[str, Any], status: int) -> None:
    body = {"ticket": door.ticket(door.launching()), "claimant": ME, "session": {}, **change}
    answer = door.client.post("/v1/claims", json=body)
    assert answer.status_code == status
    assert door.book.all() == {}


def test_the_largest_session_fits_into_a_claim(door: DoorBed) -> None:
    session = {f"n{index:02}" + "x" * 37: '"\\é\n' * 50 for index in range(20)}
    assert door.claim(door.ticket(door.launching()), session=session).status_code == 200
    [claim] = door.book.all().values()
    assert claim.session == dict.fromkeys(session, "????" * 50)


def test_without_a_public_address_there_is_no_door(bed: Bed, door: DoorBed) -> None:
    from tests.services.bed import Client

    closed = Client(bed.services)
    body = {"ticket": door.ticket(door.launching()), "claimant": ME}
    assert closed.post("/v1/claims", json=body).json()["code"] == "NOT_FOUND"
    assert closed.get("/v1/door/agent.pyz").json()["code"] == "NOT_FOUND"
    headers = {"Authorization": f"Bearer {door.pass_of()}"}
    assert closed.get(f"/v1/door/{RUN_ID}/objects?prefix=runs/{RUN_ID}/", headers=headers).status_code == 404


# --- when a session was seen ------------------------------------------------------------------------------------------


def test_a_session_is_seen_at_the_door_and_by_its_beats(door: DoorBed) -> None:
    run = door.launching()
    answer = door.claim(door.ticket(run)).json()
    begun = door.bed.clock.now()

    def seen_s() -> float:
        return door.book.all()[RUN_ID, "1.1.1"].seen_at - begun

    door.bed.clock.advance(20.0)
    assert seen_s() == 0.0
    door.ask("GET", f"objects/{runfiles.orders(RUN_ID)}", answer["pass"]["text"])
    assert seen_s() == 20.0
    door.bed.clock.advance(20.0)
    assert door.push(answer["job"]["nonce"]).status_code == 200
    door.bed.clock.advance(5.0)
    assert seen_s() == 40.0
    door.bed.clock.advance(5.0)
    door.ask("GET", f"objects/{runfiles.orders(RUN_ID)}", "pass_x")
    door.ask("GET", f"objects/{runfiles.orders(RUN_ID)}", door.pass_of(launch_id="1.2.1"))
    assert seen_s() == 40.0, "neither a foreign text nor another launch"


def test_another_process_knows_the_claim_alone(door: DoorBed) -> None:
    door.claim(door.ticket(door.launching()))
    begun = door.bed.clock.now()
    door.bed.clock.advance(50.0)
    other = ClaimBook(door.book.signer, door.bed.objects, door.bed.clock)
    assert other.all()[RUN_ID, "1.1.1"].seen_at == begun


# --- passes with beats ------------------------------------------------------------------------------------------------


def test_a_beat_brings_a_new_pass(door: DoorBed) -> None:
    answer = door.claim(door.ticket(door.launching())).json()
    nonce, old = answer["job"]["nonce"], answer["pass"]["text"]
    assert "pass" not in door.push(nonce).json()
    door.bed.clock.advance(4000.0)
    assert door.ask("HEAD", f"objects/{runfiles.baton(RUN_ID)}", old).status_code == 401
    fresh = door.push(nonce, "?pass=1", sequence=2).json()
    assert fresh["pass"]["expires_at"] == door.bed.clock.now() + 3600
    assert door.ask("HEAD", f"objects/{runfiles.baton(RUN_ID)}", fresh["pass"]["text"]).status_code == 200


def test_a_pass_needs_the_nonce_of_its_launch(door: DoorBed) -> None:
    door.launching()
    refused = door.push("guess", "?pass=1")
    assert (refused.status_code, refused.json()["code"]) == (403, "NONCE_REFUSED")
    assert "pass" not in refused.json()
    assert door.push(nonce_of(door), "?pass=2").status_code == 422


# --- the end of claims ------------------------------------------------------------------------------------------------


def test_a_purge_forgets_the_claims_of_its_run_alone(door: DoorBed) -> None:
    for run_id in (RUN_ID, "digits-70"):
        door.claim(door.ticket(door.launching(run_id)))
    door.bed.change(RUN_ID, status=Status.STOPPED, try_=None, settled=True)
    purge(door.door.parts, RUN_ID, RUN_ID, OPS)
    assert set(door.book.all()) == {("digits-70", "1.1.1")}


def test_claims_that_nobody_drops_do_not_grow_for_ever(door: DoorBed) -> None:
    for number in range(1, 60):
        assert door.claim(door.ticket(door.launching(number=number))).status_code == 200
    kept = {int(launch_id.split(".")[1]) for _, launch_id in door.book.all()}
    assert kept == set(range(10, 60))


def test_a_delete_that_fails_does_not_cost_the_claim(door: DoorBed, monkeypatch: pytest.MonkeyPatch) -> None:
    ticket = door.ticket(door.launching())

    def away(prefix: str, *more: object) -> object:
        raise StoreUnavailable(prefix)

    monkeypatch.setattr(door.bed.objects, "pages", away)
    assert door.claim(ticket).status_code == 200
