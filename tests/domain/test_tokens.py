"""The form of tokens, and their stored digest."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.domain import callers
from supervisor.domain.callers import Scope, Token

SECRET, OTHER = "ab" * 32, "cd" * 32
ANY = st.binary(min_size=32, max_size=32)


@given(ANY)
def test_what_is_written_is_a_token(random: bytes) -> None:
    text = callers.write(random)
    assert text.startswith("sup_")
    assert len(text) == 53
    assert callers.is_token(text)


@given(ANY, st.integers(4, 52), st.sampled_from("abcXYZ019-_"))
def test_one_wrong_letter_is_noticed_without_a_database(random: bytes, place: int, letter: str) -> None:
    """CRC-32 finds each single change; a check of the characters alone finds none."""
    text = callers.write(random)
    wrong = text[:place] + letter + text[place + 1 :]
    assert callers.is_token(wrong) == (wrong == text)


@given(st.text(max_size=80))
def test_no_other_text_is_a_token(text: str) -> None:
    assert not callers.is_token(text)


@pytest.mark.parametrize(
    "change", [str.upper, lambda text: text + "\n", lambda text: " " + text, lambda text: text[4:]]
)
def test_a_token_is_taken_as_it_was_written_only(change) -> None:
    assert not callers.is_token(change(callers.write(b"\x07" * 32)))


def test_two_that_differ_in_one_bit_have_nothing_in_common() -> None:
    one, two = callers.write(b"\x00" * 32), callers.write(b"\x00" * 31 + b"\x01")
    assert callers.digest(SECRET, one) != callers.digest(SECRET, two)


def test_what_is_kept_is_keyed_by_the_database() -> None:
    text = callers.write(b"\x01" * 32)
    kept = callers.digest(SECRET, text)
    assert len(kept) == 64
    assert kept != callers.digest(OTHER, text)
    assert f"{zlib.crc32(text.encode()):08x}" not in kept


def test_too_little_chance_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        callers.write(b"\x00" * 31)


@pytest.mark.parametrize(
    ("expires_at", "revoked_at", "valid"),
    [(None, None, True), (100.0, None, False), (100.1, None, True), (None, 1.0, False), (200.0, 150.0, False)],
)
def test_when_a_token_counts(expires_at: float | None, revoked_at: float | None, valid: bool) -> None:
    made = Token("tok-1", "ci", "lab", frozenset({Scope.READ}), 1.0, "local", expires_at, revoked_at=revoked_at)
    assert made.valid(100.0) is valid


def test_the_caller_is_who_the_token_says() -> None:
    caller = Token("tok-1", "ci", "lab", frozenset({Scope.READ}), 1.0, "local", max_active_runs=3).caller("r-1")
    assert (caller.owner, caller.actor, caller.token_id, caller.request_id) == ("lab", "ci", "tok-1", "r-1")
    assert (caller.may(Scope.READ), caller.may(Scope.WRITE), caller.admin) == (True, False, False)
    assert caller.max_active_runs == 3
