"""Rate limits: a flooding client waits, no other client does, and the tables stay small."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.api.wire.rates import GUESS_BURST, MAX_KEYS, Buckets, Rates, network_of
from supervisor.domain.callers import Caller
from supervisor.domain.errors import Unauthorized
from tests.api.test_owners import PEOPLE
from tests.services.bed import Bed, Client


@given(st.floats(0.1, 1000), st.integers(1, 500), st.lists(st.floats(0, 10, allow_nan=False), max_size=200))
def test_never_more_than_the_burst_and_the_refill(rate_per_s: float, burst: int, pauses: list[float]) -> None:
    buckets, now, taken = Buckets(rate_per_s, burst), 1000.0, 0
    for pause in pauses:
        now += pause
        wait_s = buckets.take("a", now)
        taken += wait_s == 0.0
        assert taken <= burst + (now - 1000.0) * rate_per_s + 1e-6
        if wait_s:
            assert buckets.take("a", now + wait_s * 1.001) == 0.0
            now, taken = now + wait_s * 1.001, taken + 1


def test_looking_takes_nothing() -> None:
    buckets = Buckets(1.0, 1.0)
    assert [buckets.wait_s("a", 0.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert (buckets.take("a", 0.0), buckets.wait_s("a", 0.0), buckets.take("b", 0.0)) == (0.0, 1.0, 0.0)
    assert buckets.wait_s("a", 0.25) == 0.75


def test_the_tables_are_bounded_and_keep_the_latest_keys() -> None:
    buckets = Buckets(1.0, 1.0, max_keys=3)
    for key in "abcd":
        buckets.take(key, 0.0)
    assert len(buckets) == 3
    assert buckets.wait_s("d", 0.0) == 1.0
    assert buckets.wait_s("a", 0.0) == 0.0
    rates = Rates(1.0, 1.0)
    for number in range(MAX_KEYS + 5):
        rates.refused(f"Bearer {number}", f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 0.0)
        rates.request(f"Bearer {number}", f"t-{number}", 0.0)
    assert len(rates._guesses) == len(rates._valid) == MAX_KEYS


@pytest.mark.parametrize(
    ("peer", "place"),
    [("127.0.0.1", "127.0.0.1"), ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"), ("", ""), ("local", "local")],
)
def test_a_network_of_ipv6_is_one_key(peer: str, place: str) -> None:
    assert network_of(peer) == place


class Guarded:
    """A house whose tokens are names; "*" is one that memory has forgotten for a moment."""

    def __init__(self, bed: Bed) -> None:
        self.asked = 0
        self.clock = bed.clock
        self.client = Client(replace(bed.services, identify=self.identify, rates=Rates(10.0, 20)))

    def identify(self, authorization: str, request_id: str) -> Caller:
        self.asked += 1
        if authorization not in PEOPLE:
            raise Unauthorized("no")
        return replace(PEOPLE[authorization], request_id=request_id)

    def get(self, who: str, times: int = 1, path: str = "/v1/meta") -> list[int]:
        headers = {"Authorization": who}
        return [self.client.get(path, headers=headers).status_code for _ in range(times)]


@pytest.fixture
def guarded(bed: Bed) -> Guarded:
    return Guarded(bed)


def test_a_flooding_client_waits_and_others_do_not(guarded: Guarded) -> None:
    assert guarded.get("ann", 25) == [200] * 20 + [429] * 5
    assert guarded.get("bob", 5) == [200] * 5
    assert guarded.get("ann", path="/livez") == [200]
    refused = guarded.client.get("/v1/meta", headers={"Authorization": "ann"})
    assert refused.json()["code"] == "RATE_LIMITED"
    assert refused.headers["retry-after"] == "1"
    assert refused.json()["meta"] == {"retry_after_s": 1}
    guarded.clock.advance(1.0)
    assert guarded.get("ann", 12) == [200] * 10 + [429] * 2


def test_a_beat_has_no_limit(guarded: Guarded) -> None:
    answers = {guarded.client.post("/v1/runs/digits-7/heartbeat", json={}).status_code for _ in range(GUESS_BURST + 30)}
    assert 429 not in answers


def test_guesses_are_slow_and_lock_out_no_valid_token(guarded: Guarded) -> None:
    """A variant without the memory of good tokens shuts Ann out; one that asks first lets guesses ask for ever."""
    assert guarded.get("ann") == [200]
    assert guarded.get("guess", GUESS_BURST + 20) == [401] * GUESS_BURST + [429] * 20
    assert guarded.asked == 1 + GUESS_BURST
    assert guarded.get("ann", 3) == [200] * 3
    assert guarded.get("bob") == [429]  # never seen before, from the place where somebody guesses
    guarded.clock.advance(1.0)
    assert guarded.get("bob", 3) == [200] * 3
    assert guarded.get("guess", 12) == [401] * 10 + [429] * 2


def test_without_tokens_there_is_no_limit(bed: Bed) -> None:
    client = Client(replace(bed.services, rates=Rates(1.0, 1)))
    assert {client.get("/v1/meta").status_code for _ in range(9)} == {200}


def test_no_limit_for_valid_tokens(bed: Bed) -> None:
    rates = Rates(0.0, 1)
    assert {rates.request("ann", "t", 0.0) for _ in range(1000)} == {0.0}
