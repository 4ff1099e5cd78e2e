"""The contract of the token store; part of the store's suite."""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.callers import Caps, Scope, Token
from supervisor.domain.events import Event, EventKind
from supervisor.ports.store import Store

NOW = 1_000_000.0
SCOPES = frozenset({Scope.READ, Scope.WRITE})


def a_token(number: int = 1, **fields: object) -> Token:
    made = Token(f"tok-{number}", "ci", "lab", SCOPES, NOW + number, "local")
    return replace(made, **fields)  # type: ignore[arg-type]


def made(store: Store, token: Token, digest: str | None = None) -> Token:
    store.tokens.add(token, digest or f"digest of {token.token_id}", Event(EventKind.TOKEN_CREATED, "made", "local"))
    return token


REVOKED = Event(EventKind.TOKEN_REVOKED, "revoked", "local")


def kinds(store: Store) -> list[str]:
    return [str(stored.event.kind) for stored in store.events(None, 0, 100)]


class TokensSuite:
    def test_the_secret_is_made_once_and_is_no_id(self, store: Store, reopened: Store) -> None:
        assert len(bytes.fromhex(store.secret)) == 32
        assert reopened.secret == store.secret
        assert store.supervisor_id not in store.secret

    def test_a_token_is_found_by_its_digest_and_as_it_was(self, store: Store, reopened: Store) -> None:
        token = made(store, a_token(expires_at=NOW + 60, max_active_runs=7, caps=Caps(20.5, 0.01, plans_only=True)))
        assert reopened.tokens.find("digest of tok-1") == token == reopened.tokens.get("tok-1")
        assert store.tokens.find("another") is None
        assert store.tokens.get("tok-2") is None

    def test_making_and_revoking_are_told_once(self, store: Store) -> None:
        made(store, a_token())
        assert store.tokens.revoke("tok-1", REVOKED, NOW + 9)
        assert not store.tokens.revoke("tok-1", REVOKED, NOW + 10)
        assert not store.tokens.revoke("tok-2", REVOKED, NOW + 10)
        found = store.tokens.get("tok-1")
        assert found is not None
        assert found.revoked_at == NOW + 9
        assert kinds(store) == ["token_created", "token_revoked"]

    def test_no_two_tokens_have_one_digest_and_the_second_leaves_no_event(self, store: Store) -> None:
        event = Event(EventKind.TOKEN_CREATED, "made", "local")
        assert store.tokens.add(a_token(1), "same", event)
        assert not store.tokens.add(a_token(2), "same", event)
        assert store.tokens.get("tok-2") is None
        assert kinds(store) == ["token_created"]

    def test_valid_ones_are_listed_first_each_part_newest_first(self, store: Store) -> None:
        for number in range(1, 6):
            made(store, a_token(number))
        for number in (2, 5):
            store.tokens.revoke(f"tok-{number}", REVOKED, NOW)
        assert [token.token_id for token in store.tokens.newest(9)] == ["tok-4", "tok-3", "tok-1", "tok-5", "tok-2"]
        assert len(store.tokens.newest(3)) == 3

    def test_the_last_use_never_goes_back(self, store: Store, reopened: Store) -> None:
        made(store, a_token(1))
        made(store, a_token(2))
        store.tokens.note_used({"tok-1": NOW + 5, "tok-9": NOW})
        reopened.tokens.note_used({"tok-1": NOW + 4, "tok-2": NOW + 6})
        assert [token.last_used_at for token in store.tokens.newest(9)] == [NOW + 6, NOW + 5]
