"""Tickets and passes: each opens what its signature says, until its time, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.contract import runfiles
from supervisor.domain.errors import PassExpired, PassRefused, SpotError, TicketExpired, TicketRefused
from supervisor.services.access import passes
from supervisor.services.access.passes import (
    READ_WHOLE_BYTES,
    Kind,
    Signer,
    Verb,
    most_bytes,
    opens,
    opens_prefix,
    read_pass,
    read_ticket,
    write_pass,
    write_ticket,
)

OURS = Signer("5d" * 32, "supervisor-1")
RUN, LAUNCH, NOW = "digits-7", "1.2.3", 1000.0
runs = st.from_regex(r"\A[a-z][a-z0-9-]{0,20}[a-z0-9]\Z")
launches = st.tuples(*[st.integers(1, 999)] * 3).map(lambda numbers: "{}.{}.{}".format(*numbers))

Reader = Callable[[Signer, str, str, float], object]  # (signer, text, run id of the door, now)


def ticket_for(signer: Signer, text: str, run_id: str, now: float) -> object:
    return read_ticket(signer, text, now)


def pass_for(signer: Signer, text: str, run_id: str, now: float) -> object:
    return read_pass(signer, f"Bearer {text}", run_id, now)


@given(run_id=runs, launch_id=launches, for_s=st.floats(1, 1e6))
def test_a_ticket_says_what_it_was_written_for(run_id: str, launch_id: str, for_s: float) -> None:
    text = write_ticket(OURS, run_id, launch_id, NOW + for_s)
    grant = read_ticket(OURS, text, NOW)
    assert (grant.run_id, grant.launch_id) == (run_id, launch_id)
    assert NOW + for_s - 1 < grant.expires_at <= NOW + for_s
    assert len(text) <= passes.TEXT_MAX


def test_a_pass_lives_for_an_hour() -> None:
    text, expires_at = write_pass(OURS, RUN, LAUNCH, NOW)
    assert expires_at == NOW + 3600
    assert read_pass(OURS, f"bearer {text}", RUN, NOW + 3599).launch_id == LAUNCH
    with pytest.raises(PassExpired):
        read_pass(OURS, f"Bearer {text}", RUN, NOW + 3600)


# --- the attacks: each is a text that must be refused -----------------------------------------------------------------


def attacks(ticket: bool) -> dict[str, tuple[str, str, float]]:
    """name -> (text, run id of the door, now)."""
    text = write_ticket(OURS, RUN, LAUNCH, NOW + 60) if ticket else write_pass(OURS, RUN, LAUNCH, NOW)[0]
    expires_s = text.split("_")[3]
    other_kind = write_pass(OURS, RUN, LAUNCH, NOW)[0] if ticket else write_ticket(OURS, RUN, LAUNCH, NOW + 60)
    word = "ticket" if ticket else "pass"
    foreign = Signer("5e" * 32, "supervisor-1"), Signer("5d" * 32, "supervisor-2")
    mac = text.rpartition("_")[2]
    return {
        "expired": (text, RUN, NOW + 1e6),
        "expires later": (text.replace(f"_{expires_s}_", f"_{int(expires_s) + 3600}_"), RUN, NOW),
        "of another run": (text.replace(RUN, "digits-8"), "digits-8", NOW),
        "of another launch": (text.replace(LAUNCH, "1.2.4"), RUN, NOW),
        "the other kind": (other_kind, RUN, NOW),
        "the other kind by name": (word + "_" + other_kind.partition("_")[2], RUN, NOW),
        "with another secret": (foreign[0].write(Kind(word), RUN, LAUNCH, NOW + 60), RUN, NOW),
        "of another supervisor": (foreign[1].write(Kind(word), RUN, LAUNCH, NOW + 60), RUN, NOW),
        "without a signature": (text.removesuffix(mac), RUN, NOW),
        "half a signature": (text[:-1], RUN, NOW),
        "another signature": (text[:-1] + ("0" if text[-1] != "0" else "1"), RUN, NOW),
        "a longer one": (text + "\n", RUN, NOW),
        "not ASCII": (text[:-1] + "é", RUN, NOW),
        "nothing": ("", RUN, NOW),
        "very long": (text + "0" * 100_000, RUN, NOW),
    } | ({} if ticket else {"at the door of another run": (text, "digits-8", NOW)})


def let_in(signer: Signer, ticket: bool) -> list[str]:
    """The attacks that come through."""
    read: Reader = ticket_for if ticket else pass_for
    through = []
    for name, (text, run_id, now) in attacks(ticket).items():
        try:
            read(signer, text, run_id, now)
        except (TicketRefused, TicketExpired, PassRefused, PassExpired):
            continue
        through.append(name)
    return through


@pytest.mark.parametrize("ticket", [True, False])
def test_every_other_text_is_refused(ticket: bool) -> None:
    assert let_in(OURS, ticket) == []


class Forgetful(Signer):
    """Signs less than it says."""

    leaves_out = ""

    def _signature(self, kind: Kind, run_id: str, launch_id: str, expires_s: int) -> str:
        values = {"run": run_id, "launch": launch_id, "expiry": str(expires_s), "kind": str(kind)}
        values |= {self.leaves_out: ""}
        as_ticket = Kind.TICKET if not values["kind"] else kind
        expiry = int(values["expiry"] or 0)
        return super()._signature(as_ticket, values["run"], values["launch"], expiry)


@pytest.mark.parametrize(
    ("leaves_out", "attack"),
    [
        ("expiry", "expires later"),
        ("run", "of another run"),
        ("launch", "of another launch"),
        ("kind", "the other kind by name"),
    ],
)
def test_a_signature_that_leaves_something_out_is_caught(
    monkeypatch: pytest.MonkeyPatch, leaves_out: str, attack: str
) -> None:
    monkeypatch.setattr(Forgetful, "leaves_out", leaves_out)
    forgetful = Forgetful(OURS.secret, OURS.supervisor_id)
    monkeypatch.setattr(f"{__name__}.OURS", forgetful)
    for ticket in (True, False):
        assert attack in let_in(forgetful, ticket)


@pytest.mark.parametrize("ticket", [True, False])
def test_a_reader_without_a_clock_is_caught(monkeypatch: pytest.MonkeyPatch, ticket: bool) -> None:
    read = read_ticket if ticket else read_pass
    monkeypatch.setattr(f"{__name__}.{read.__name__}", lambda *given: read(*given[:-1], 0.0))
    assert let_in(OURS, ticket) == ["expired"]


def test_a_door_that_compares_no_run_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = passes.read_pass

    def careless(signer: Signer, authorization: str, run_id: str, now: float) -> object:
        return real(signer, authorization, authorization.split("_")[1] if "_" in authorization else run_id, now)

    monkeypatch.setattr(f"{__name__}.read_pass", careless)
    assert let_in(OURS, ticket=False) == ["at the door of another run"]


@given(text=st.text(max_size=300), run_id=runs)
def test_no_text_is_an_unexpected_error(text: str, run_id: str) -> None:
    for read in (ticket_for, pass_for):
        with pytest.raises(SpotError):
            read(OURS, text, run_id, NOW)


def test_only_a_launch_of_a_run_gets_a_ticket() -> None:
    for run_id, launch_id in (("Digits", LAUNCH), (RUN, "1.2"), ("digits_7", LAUNCH)):
        with pytest.raises(ValueError, match="not a"):
            write_ticket(OURS, run_id, launch_id, NOW)


# --- what a pass opens ------------------------------------------------------------------------------------------------

READ, WRITE, DELETE = Verb.READ, Verb.WRITE, Verb.DELETE
CODE = "c0" * 32
ALL, READS = {READ, WRITE, DELETE}, {READ}


@pytest.mark.parametrize(
    ("key", "verbs"),
    [
        (runfiles.baton(RUN), ALL),
        (runfiles.checkpoint(RUN, 100, 2) + "model.pt", ALL),
        (runfiles.saved_result(RUN, LAUNCH, 1, "manifest.json"), ALL),
        (runfiles.results(RUN, 1) + "out.npz", ALL),
        (runfiles.log_chunk(RUN, 2, 1), ALL),
        (runfiles.metrics(RUN, 2), ALL),
        (runfiles.exit_record(RUN, 2), ALL),
        (runfiles.facts(RUN, 2), ALL),
        (runfiles.agent_evidence(RUN, 2), ALL),
        (runfiles.applied(RUN, 2), ALL),
        (runfiles.command_result(RUN, "ab" * 8), ALL),
        (runfiles.beat(RUN), {READ, WRITE}),
        (runfiles.boot_beat(RUN), {READ, DELETE}),
        (runfiles.code(CODE), READS),
        (runfiles.stop_marker(RUN), READS),
        (runfiles.orders(RUN), READS),
        (runfiles.delta(RUN, 3, CODE), READS),
        (runfiles.evidence(RUN, 1), READS),
        (runfiles.manifest(RUN), READS),
        (runfiles.instance(RUN, 1), READS),
        (runfiles.console(RUN, 1), READS),
        (runfiles.stop_marker(RUN) + "/x", READS),
        (runfiles.instance(RUN, 1) + "/x", READS),
        (runfiles.baton(RUN) + "/x", READS),
        (runfiles.command_result(RUN, "ab" * 8) + "/x", READS),
        (runfiles.evidences(RUN).rstrip("/"), READS),
        (runfiles.synced(RUN).rstrip("/"), READS),
        (runfiles.code("c1" * 32), set()),
        (runfiles.code_index(CODE), set()),
        (runfiles.beat("digits-70"), set()),
        (runfiles.boot_beat("digits-8"), set()),
        (runfiles.baton("digits-70"), set()),
        (runfiles.canary("supervisor-1"), set()),
        (runfiles.agent(CODE), set()),
        (runfiles.claim("supervisor-1", RUN, LAUNCH), set()),
        ("runs/digits-7", set()),
        ("", set()),
    ],
)
def test_what_a_pass_opens(key: str, verbs: set[Verb]) -> None:
    assert {verb for verb in Verb if opens(RUN, verb, key, CODE)} == verbs


def test_what_the_supervisor_reads_whole_has_a_bound() -> None:
    whole = [runfiles.baton(RUN), runfiles.exit_record(RUN, 2), runfiles.prepared(RUN, 2), runfiles.beat(RUN)]
    whole.append(runfiles.saved_result(RUN, LAUNCH, 1, "manifest.json"))
    assert {most_bytes(RUN, key) for key in whole} == {READ_WHOLE_BYTES}
    in_pieces = [runfiles.checkpoint(RUN, 100, 2) + "instances/1.json", runfiles.results(RUN, 1) + "baton.json"]
    in_pieces += [runfiles.saved_result(RUN, LAUNCH, 1, CODE), runfiles.log_chunk(RUN, 2, 1)]
    assert {most_bytes(RUN, key) for key in in_pieces} == {None}


@pytest.mark.parametrize(
    ("prefix", "opened"),
    [
        ("runs/digits-7/", True),
        ("runs/digits-7/checkpoints/", True),
        ("runs/digits-7/log", True),
        ("runs/digits-7", False),
        ("runs/digits-70/", False),
        ("runs/", False),
        ("beats/digits-7", False),
        ("code/", False),
        ("claims/", False),
        ("", False),
    ],
)
def test_which_listings_a_pass_opens(prefix: str, opened: bool) -> None:
    assert opens_prefix(RUN, prefix) is opened
