"""The caller of a token: from the cache while it is fresh, then from the database; refused if neither knows it."""

from __future__ import annotations

import logging
import threading
import timeit
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.domain import callers
from supervisor.domain.callers import LOCAL, Caller, Scope, Token
from supervisor.domain.errors import Unauthorized
from supervisor.domain.events import EventKind
from supervisor.ports.store import StoreDown
from supervisor.services.access import identity as module
from supervisor.services.access.identity import AWAY_S, FRESH_S, Identity, unauthorized
from supervisor.services.access.tokens import TokenRequest, create, revoke
from supervisor.storage.store import SqlStore, open_store
from tests.fakes.clock import FakeClock
from tests.services.bed import Bed


class Watched:
    """The bed's tokens; counts queries, and can be made unavailable."""

    def __init__(self, real: Any) -> None:
        self.real, self.asked, self.away = real, 0, False

    def __getattr__(self, name: str) -> Any:
        if self.away:
            raise StoreDown("away")
        return getattr(self.real, name)

    def find(self, digest: str) -> Token | None:
        self.asked += 1
        return self.__getattr__("find")(digest)  # type: ignore[no-any-return]


class StoreWith:
    def __init__(self, real: SqlStore, watched: Watched) -> None:
        self.secret, self.tokens = real.secret, watched


class Desk:
    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.tokens = Watched(bed.store.tokens)
        self.identity = Identity(StoreWith(bed.store, self.tokens), bed.clock)  # type: ignore[arg-type]

    def make(self, name: str = "ci", **wish: Any) -> str:
        return str(create(self.bed.parts, TokenRequest(name, **wish), LOCAL)["token"])

    def ask(self, token: str) -> Caller:
        header = f"Bearer {token}"
        return self.identity.recall(header, "r-1") or self.identity.identify(header, "r-1")

    def revoke(self, token: str) -> None:
        token_id = self.bed.store.tokens.find(callers.digest(self.bed.store.secret, token)).token_id  # type: ignore[union-attr]
        revoke(self.bed.parts, self.identity, token_id, LOCAL)


@pytest.fixture
def desk(any_bed: Bed) -> Desk:
    return Desk(any_bed)


@pytest.fixture
def quick(bed: Bed) -> Desk:
    return Desk(bed)


def refused(ask: Callable[[], object]) -> Unauthorized:
    with pytest.raises(Unauthorized) as error:
        ask()
    return error.value


def test_a_token_stands_for_its_caller(desk: Desk) -> None:
    token = desk.make("ci", owner="lab", scopes=frozenset({Scope.READ}), max_active_runs=3)
    caller = desk.ask(token)
    assert (caller.owner, caller.actor, caller.scopes, caller.max_active_runs) == ("lab", "ci", {Scope.READ}, 3)
    assert caller.request_id == "r-1"
    assert caller.token_id.startswith("tok-")


def test_checking_costs_no_question_while_it_is_fresh(quick: Desk) -> None:
    token = quick.make()
    for _ in range(100):
        quick.ask(token)
    assert quick.tokens.asked == 1
    quick.bed.clock.advance(FRESH_S + 0.1)
    quick.ask(token)
    assert quick.tokens.asked == 2


def test_a_revocation_counts_at_once_here(desk: Desk) -> None:
    token = desk.make()
    desk.ask(token)
    desk.revoke(token)
    refused(lambda: desk.ask(token))


def test_a_revocation_elsewhere_is_felt_within_five_seconds(desk: Desk) -> None:
    token, other = desk.make(), Desk(desk.bed)
    desk.ask(token)
    other.revoke(token)
    desk.bed.clock.advance(5.0)
    refused(lambda: desk.ask(token))


def test_a_token_read_before_a_revocation_is_not_cached_after_it(quick: Desk) -> None:
    """The query is in progress while the token is revoked: this request is accepted, the next one is not."""
    token = quick.make()
    find = quick.tokens.find

    def slow(digest: str) -> Token | None:
        found = find(digest)
        quick.tokens.find = find  # type: ignore[method-assign]
        quick.revoke(token)
        return found

    quick.tokens.find = slow  # type: ignore[method-assign]
    assert quick.ask(token).actor == "ci"
    refused(lambda: quick.ask(token))


def test_a_token_ends_to_the_second_also_in_memory(quick: Desk) -> None:
    token = quick.make(expires_in_s=2.0)
    quick.ask(token)
    quick.bed.clock.advance(1.9)
    quick.ask(token)
    quick.bed.clock.advance(0.1)
    refused(lambda: quick.ask(token))


def test_every_refusal_has_the_same_words_and_no_token_in_them(quick: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    gone, ended, strange = quick.make(), quick.make(expires_in_s=1.0), callers.write(b"\x01" * 32)
    quick.revoke(gone)
    quick.bed.clock.advance(2.0)
    wrong = [strange[:-1] + ("A" if strange[-1] != "A" else "B"), "", "sup_", "x" * 5000, "sup_\udcff", strange + " x"]
    told = {str(refused(lambda text=text: quick.ask(text))) for text in [gone, ended, strange, *wrong]}
    for header in ("", "Bearer", "Basic dTpw", strange, f"bearer{strange}", f"Token {strange}"):
        told.add(str(refused(lambda header=header: quick.identity.identify(header, ""))))
    assert told == {str(unauthorized())}
    for text in (gone, ended, strange):
        assert text not in str(told) + caplog.text


def test_well_formed_tokens_cost_one_query_each_mistyped_ones_none(quick: Desk) -> None:
    gone, ended, strange = quick.make(), quick.make(expires_in_s=1.0), callers.write(b"\x01" * 32)
    quick.ask(ended)
    quick.revoke(gone)
    quick.bed.clock.advance(2.0)
    for text, questions in ((gone, 1), (ended, 1), (strange, 1), ("sup_" + "x" * 49, 0)):
        before = quick.tokens.asked
        refused(lambda text=text: quick.ask(text))
        assert quick.tokens.asked - before == questions


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER  "])
def test_the_scheme_is_written_in_any_case(quick: Desk, scheme: str) -> None:
    assert quick.identity.identify(scheme + quick.make(), "").actor == "ci"


def test_while_the_database_is_away_only_recent_tokens_are_valid(quick: Desk) -> None:
    known, unknown = quick.make("known"), quick.make("unknown")
    quick.ask(known)
    quick.tokens.away = True
    for _ in range(5):
        quick.bed.clock.advance(FRESH_S + 1)
        assert quick.ask(known).actor == "known"
        with pytest.raises(StoreDown):
            quick.ask(unknown)
    refused(lambda: quick.ask("sup_mistyped"))
    quick.bed.clock.advance(AWAY_S)
    with pytest.raises(StoreDown):
        quick.ask(known)
    quick.tokens.away = False
    assert quick.ask(unknown).actor == "unknown"


def test_an_unavailable_database_is_not_queried_at_each_request(quick: Desk) -> None:
    token = quick.make()
    quick.ask(token)
    quick.tokens.away = True
    quick.bed.clock.advance(FRESH_S + 1)
    before = quick.tokens.asked
    for _ in range(50):
        quick.ask(token)
    assert quick.tokens.asked == before + 1


def test_memory_is_bounded(quick: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KEPT", 3)
    for number in range(10):
        quick.ask(quick.make(f"n{number}"))
    assert len(quick.identity._entries) <= 3


def test_the_last_use_is_written_later_and_survives_a_database_that_is_away(desk: Desk) -> None:
    token = desk.make()
    desk.ask(token)
    used_at = desk.bed.clock.now()

    def last() -> float | None:
        return desk.bed.store.tokens.newest(1)[0].last_used_at

    assert last() is None
    desk.tokens.away = True
    with pytest.raises(StoreDown):
        desk.identity.write_used()
    desk.tokens.away = False
    desk.identity.write_used()
    assert last() == used_at
    desk.identity.write_used()  # nothing new: nothing is written
    assert last() == used_at


def test_at_the_end_of_the_process_the_last_use_is_written(quick: Desk) -> None:
    quick.identity.start()
    quick.ask(quick.make())
    quick.identity.stop()
    assert quick.bed.store.tokens.newest(1)[0].last_used_at == quick.bed.clock.now()
    assert not [thread for thread in threading.enumerate() if thread.name == "tokens"]


def test_a_token_of_another_database_is_strange_here_also_where_its_row_was_copied(quick: Desk, tmp_path: Path) -> None:
    with closing(open_store(f"sqlite:///{tmp_path}/other.db", migrate=True)) as other:
        token = quick.make()
        [row] = quick.bed.store.tokens.newest(1)
        digest = callers.digest(quick.bed.store.secret, token)
        other.tokens.add(row, digest, LOCAL.event(EventKind.TOKEN_CREATED, "copied"))
        elsewhere = Identity(other, FakeClock())
        refused(lambda: elsewhere.identify(f"Bearer {token}", ""))


def test_a_check_from_memory_is_quick(quick: Desk) -> None:
    """Far below the cost of a request; a check in the database would take ten times as long."""
    header = f"Bearer {quick.make()}"
    quick.identity.identify(header, "")
    best_s = min(timeit.repeat(lambda: quick.identity.recall(header, "r"), number=200, repeat=5)) / 200
    assert best_s < 100e-6
    assert quick.tokens.asked == 1


def test_one_that_does_not_forget_would_be_seen(quick: Desk) -> None:
    """The broken variant: the test of a revocation would fail here."""
    quick.identity.forget = lambda token_id: None  # type: ignore[method-assign]
    token = quick.make()
    quick.ask(token)
    quick.revoke(token)
    assert quick.ask(token).actor == "ci"


def test_the_caller_of_another_request_carries_its_own_id(quick: Desk) -> None:
    header = f"Bearer {quick.make()}"
    one, two = quick.identity.identify(header, "a"), quick.identity.recall(header, "b")
    assert two == replace(one, request_id="b")
