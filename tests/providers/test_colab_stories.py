"""Stories of Colab: tickets, tabs, the client and its login, sessions that end, and what a restart knows of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.contract.identifiers import launch_id
from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineState
from supervisor.domain.profile import End, Reach, Survival, survival
from supervisor.domain.status import Status
from supervisor.lifecycle.gates.places import stopping
from supervisor.ports.claims import HandsOver, PastedCell
from supervisor.ports.provider import (
    LaunchPending,
    LaunchRejected,
    LaunchRequest,
    NoCapacity,
    NotSupported,
    ProviderUnavailable,
    QuotaExceeded,
)
from supervisor.providers.colab.cell import cell_of, in_background, notebook
from supervisor.providers.colab.doctor import findings
from supervisor.providers.colab.profile import profile
from supervisor.providers.colab.provider import RENEW_S, TICKET_S
from supervisor.providers.colab.settings import STORE, ColabSettings
from tests.contracts.provider_subject import ref
from tests.fakes.notebook_claims import ClaimRefused
from tests.lifecycle.sample_runs import NOW, WORLD, run_in
from tests.providers.colab_subject import DAY, ColabSubject

URL = "https://spot.example.com"


@pytest.fixture
def colab(tmp_path: Path) -> ColabSubject:
    return ColabSubject(tmp_path)


@pytest.fixture
def pasted(tmp_path: Path) -> ColabSubject:
    return ColabSubject(tmp_path, colab_ways=("cell",))


def waits(subject: ColabSubject, request: LaunchRequest) -> None:
    with pytest.raises(LaunchPending):
        subject.provider.launch(request)


class TestPastedCells:
    def test_two_tabs_run_the_same_cell_and_one_claims(self, pasted: ColabSubject) -> None:
        request = pasted.request()
        waits(pasted, request)
        first = pasted.paste(request, "tab-1")
        with pytest.raises(ClaimRefused, match="TICKET_USED"):
            pasted.paste(request, "tab-2")
        assert pasted.paste(request, "tab-1") == first, "a lost response may be repeated"
        machine = pasted.listed(request)
        assert machine is not None
        assert (machine.state, machine.machine_id) == (MachineState.UP, "tab-1")

    def test_a_ticket_lives_for_a_while_and_the_next_one_is_made_when_somebody_asks(self, pasted: ColabSubject) -> None:
        request = pasted.request()
        waits(pasted, request)
        first = pasted.provider.cell(request)
        assert first.expires_at == pasted.clock.now() + TICKET_S
        pasted.clock.advance(TICKET_S - RENEW_S - 1)
        assert pasted.provider.cell(request) == first, "nobody's copied cell changes under the hand"
        pasted.clock.advance(RENEW_S + 2)
        with pytest.raises(ClaimRefused, match="TICKET_EXPIRED"):
            pasted.open(first.text)
        second = pasted.provider.cell(request)
        assert second.text != first.text
        assert pasted.open(second.text).run_id == "digits"

    def test_a_wait_of_hours_sends_nothing_of_its_own(self, pasted: ColabSubject) -> None:
        request = replace(pasted.request(), repeated=True)
        waits(pasted, request)
        pasted.provider.machines()
        with pasted.claims.unreadable():
            waits(pasted, request)

    def test_a_closed_notebook_is_doubted_once_two_beats_are_missing(self, pasted: ColabSubject) -> None:
        request = pasted.request()
        pasted.up(request)
        pasted.clock.advance(170)
        pasted.claims.seen("digits")
        pasted.clock.advance(170)
        assert (m := pasted.listed(request)) is not None
        assert m.doubt is None
        pasted.clock.advance(60)
        assert (m := pasted.listed(request)) is not None
        assert m.doubt is not None
        assert m.doubt.cause is Cause.PREEMPTED

    def test_after_a_restart_silence_counts_from_the_restart(self, pasted: ColabSubject) -> None:
        request = pasted.request()
        pasted.up(request)
        pasted.clock.advance(3600)
        pasted.provider = pasted.fresh()
        assert (m := pasted.listed(request)) is not None
        assert m.doubt is None

    def test_a_pasted_cell_is_another_launchs_alone(self, pasted: ColabSubject) -> None:
        """Launch ids repeat in every run: the claim of one run is no machine of another."""
        mine, other = pasted.request(), pasted.request(run="other")
        waits(pasted, mine)
        waits(pasted, other)
        pasted.paste(mine)
        assert (m := pasted.listed(other)) is not None
        assert m.state is MachineState.ASKED

    def test_its_session_is_free_for_the_next_launch_after_a_release(self, pasted: ColabSubject) -> None:
        request = pasted.request()
        machine = pasted.up(request)
        pasted.provider.release(ref(request, machine.machine_id))
        assert pasted.provider.machines().machines == ()
        assert pasted.claims.all() == {}
        following = pasted.request(attempt=2)
        assert following.launch_id == launch_id(1, 2, 1)
        assert pasted.up(following).launch_id == following.launch_id


class TestClient:
    def test_it_makes_one_session_runs_the_cell_once_and_ends_it(self, colab: ColabSubject) -> None:
        request = colab.request()
        machine = colab.up(request)
        colab.provider.launch(replace(request, repeated=True))
        colab.provider.release(ref(request, machine.machine_id))
        words = [word for call in colab.account.calls for word in call if word in ("new", "exec", "stop")]
        assert words == ["new", "exec", "stop"]
        assert colab.account.assignments == {}
        assert "--gpu" not in str(colab.account.calls), "the shape is cpu"
        (text,) = colab.cells
        compile(text, "cell", "exec")

    def test_each_shape_has_its_words(self, tmp_path: Path) -> None:
        subject = ColabSubject(tmp_path, colab_shapes=("t4",))
        subject.up(subject.request())
        assert [subject.account.assignments[name] for name in subject.account.assignments] == ["T4"]

    @pytest.mark.parametrize(
        ("fails", "error"),
        [
            ({"rejected": ("T4",)}, QuotaExceeded),
            ({"most": 0}, NoCapacity),
            ({"signed_in": False}, LaunchRejected),
            ({"fails": {"new": "[colab] Keep-alive pre-flight failed: your OAuth credentials"}}, LaunchRejected),
        ],
    )
    def test_a_definite_refusal_leaves_nothing(
        self, tmp_path: Path, fails: dict[str, object], error: type[Exception]
    ) -> None:
        subject = ColabSubject(tmp_path, colab_shapes=("t4",))
        for name, value in fails.items():
            setattr(subject.account, name, value)
        with pytest.raises(error):
            subject.provider.launch(subject.request())
        assert subject.provider.machines().machines == ()

    @pytest.mark.parametrize("word", ["sessions", "new", "exec"])
    def test_a_call_without_a_clear_answer_is_repeated(self, colab: ColabSubject, word: str) -> None:
        request = colab.request()
        colab.account.fails[word] = "requests.exceptions.ReadTimeout: Read timed out."
        with pytest.raises(ProviderUnavailable):
            colab.provider.launch(request)
        del colab.account.fails[word]
        colab.up(replace(request, repeated=True))
        assert len(colab.account.assignments) == 1

    def test_without_a_login_an_empty_list_is_no_list(self, colab: ColabSubject) -> None:
        """The client answers "no active sessions" where it is not signed in and has none of its own."""
        request = colab.request()
        machine = colab.up(request)
        colab.account.end(request.name)
        colab.provider.machines()  # the client prunes it, and says so
        colab.provider = colab.fresh()
        colab.account.signed_in = False
        found = colab.provider.find(ref(request, machine.machine_id))
        assert found is not None
        assert found.doubt is None

    def test_a_session_that_colab_ended_is_doubted_at_once(self, colab: ColabSubject) -> None:
        request = colab.request()
        colab.up(request)
        colab.provider.machines()
        colab.account.end(request.name)
        for _ in range(3):  # the client tells it once; later answers would prove nothing
            assert (m := colab.listed(request)) is not None
            assert m.doubt is not None
            assert m.doubt.cause is Cause.PREEMPTED

    def test_a_banner_and_sessions_of_others_are_read_over(self, colab: ColabSubject) -> None:
        colab.account.banner = "\n[colab] A new version of Colab CLI is available: 9.9 (current: 0.6.0)\n\n"
        colab.account.assignments["m-s-kkb-use1b1-2lrd6"] = "CPU"  # made in a browser
        request = colab.request()
        assert colab.up(request).state is MachineState.UP
        colab.provider.release(ref(request))
        assert list(colab.account.assignments) == ["m-s-kkb-use1b1-2lrd6"], "ours is ours"

    def test_a_refused_keep_alive_is_seen_by_the_doctor(self, colab: ColabSubject) -> None:
        lines = {line.name: line for line in findings(colab.provider.client, colab.settings, "")}
        assert (lines["client"].result, lines["keep-alive"].result) == ("ok", "ok")
        colab.up(colab.request())
        colab.account.refused = True
        lines = {line.name: line for line in findings(colab.provider.client, colab.settings, "")}
        assert lines["keep-alive"].result == "warn"
        assert "403" in lines["keep-alive"].fact or "4xx" in lines["keep-alive"].fact
        colab.account.signed_in = False
        lines = {line.name: line for line in findings(colab.provider.client, colab.settings, "")}
        assert lines["client"].fact == "it is not signed in"

    def test_an_address_that_no_notebook_reaches(self, pasted: ColabSubject) -> None:
        lines = {line.name: line for line in findings(None, pasted.settings, "http://127.0.0.1:8787")}
        assert lines["address"].result == "fail"


class TestHandover:
    def test_the_provider_is_both_kinds_of_the_port(self, colab: ColabSubject) -> None:
        assert isinstance(colab.provider, HandsOver)
        assert isinstance(colab.provider, PastedCell)

    def test_the_job_leaves_before_the_cap_and_asks_for_its_gpu(self, tmp_path: Path) -> None:
        subject = ColabSubject(tmp_path, colab_shapes=("t4",))
        request = replace(subject.request(), machine_max_s=86400.0)
        job = subject.provider.hand_over(request).job
        assert (job["machine_max_s"], job["expiry_s"], job["gpus"]) == (42600.0, 600.0, 1)
        short = subject.provider.hand_over(replace(request, machine_max_s=3600.0)).job
        assert (short["machine_max_s"], short["expiry_s"]) == (3600.0, 0.0)

    def test_secrets_are_in_the_handover_and_in_no_cell(self, pasted: ColabSubject) -> None:
        reference = pasted.keep_secret("a very secret value")
        request = replace(pasted.request(), secrets={"API_KEY": reference})
        waits(pasted, request)
        handover = pasted.provider.hand_over(request)
        assert handover.secrets == {"API_KEY": "a very secret value"}
        cell = pasted.provider.cell(request)
        assert "a very secret value" not in repr(handover) + cell.text + cell.notebook + repr(handover.job)

    def test_nobody_pastes_a_cell_of_the_client(self, colab: ColabSubject) -> None:
        with pytest.raises(NotSupported, match="started by the client"):
            colab.provider.cell(colab.request())

    def test_the_cell_has_the_address_the_hash_and_the_ticket_alone(self, tmp_path: Path) -> None:
        archive = tmp_path / "agent.pyz"
        archive.write_bytes(b"an agent")
        text = cell_of(URL, archive, "t1cket", "digits")
        compile(text, "cell", "exec")
        assert all(word in text for word in (URL, "t1cket", "runtime.unassign()"))
        compile(in_background(text, "m-a1"), "exec", "exec")
        assert '"gpuType": "T4"' in notebook(text, "digits", "t4")
        assert "gpuType" not in notebook(text, "digits", "cpu")


@pytest.mark.parametrize("path", ["/content/objects", "/content/drive/MyDrive/spot", "/content"])
def test_what_lies_in_the_session_is_no_store(path: str) -> None:
    """NB4, and of a mounted Drive NB1: nobody here can list it, so what is written there never counts."""
    assert not STORE.pattern.fullmatch(f"file://{path}")
    for store in ("file:///srv/content", "file:///contents/spot", "gs://bucket/spot"):
        assert STORE.pattern.fullmatch(store)
    answer = survival(profile(ColabSettings(), DAY), path, End.DESTROY).value
    assert answer is (Survival.VERIFY if "drive" in path else Survival.NO)


@pytest.mark.parametrize(("store", "is_refused"), [("file:///content/objects", True), ("file:///srv/objects", False)])
def test_the_first_gate_refuses_a_store_that_machines_open_on_the_session(
    pasted: ColabSubject, store: str, is_refused: bool
) -> None:
    """What goes through the door is apart from every session, whatever its path; a store of their own is not."""
    world, place = replace(WORLD, store_url=store), pasted.request().placement
    run, known = run_in(Status.PENDING), pasted.provider.profile()
    opened = replace(known, store_reach=replace(known.store_reach, value=Reach.DIRECT))
    stops = [verdict.check for verdict in stopping(run, place, opened, world, NOW)]
    assert ("checkpoint_tier" in stops) == is_refused
    through_the_door = [verdict.check for verdict in stopping(run, place, known, world, NOW)]
    assert "checkpoint_tier" not in through_the_door
