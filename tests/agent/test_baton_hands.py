"""Claiming and changing the baton among lost answers, races, outages and torn contents."""

from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.agent.store.access import BatonKeeper, GaveUp, StandDown, claim, superseded
from supervisor.contract import baton as rules
from supervisor.contract import heartbeat, runfiles
from supervisor.contract.baton import Baton, BatonRefused, Holder, Pointer
from supervisor.contract.stores.promise import StoreUnavailable
from tests.agent.desk import HOLDER, RUN, HandClock, held, patient, store_in
from tests.agent.stormy_store import StormyStore

KEY = runfiles.baton(RUN)
POINTER = Pointer(5, "runs/digits-7/checkpoints/5-a1/", ())


@pytest.fixture
def store(tmp_path: Path) -> StormyStore:
    return store_in(tmp_path)


def lay(store: StormyStore, baton: Baton) -> BatonKeeper:
    store.calm.put(KEY, rules.encode(baton))
    return BatonKeeper(store, RUN, *HOLDER)


def lying(store: StormyStore) -> Baton:
    return rules.decode(store.calm.get(KEY)[0])


def waiting_baton() -> Baton:
    """Attempt 1 is next; somebody else holds."""
    baton = rules.raise_next(rules.create("sup-1", 1), "1.1.1", "secret", False)
    return replace(baton, holder=Holder(0, "1.0.1", "local:other:1:1"))


def do_claim(keeper: BatonKeeper, clock: HandClock, told: "list[str] | None" = None, until: float = 1e9) -> Baton:
    tell = (lambda text: None) if told is None else told.append
    return claim(keeper, patient(clock, until), tell)


def test_a_free_baton_is_claimed_at_once(store: StormyStore) -> None:
    keeper = lay(store, rules.raise_next(rules.create("sup-1", 1), "1.1.1", "secret", False))
    assert do_claim(keeper, HandClock()).holder == Holder(1, *HOLDER)


def test_the_newcomer_waits_its_150_seconds_on_its_own_clock(store: StormyStore) -> None:
    clock, told = HandClock(), []
    do_claim(lay(store, waiting_baton()), clock, told)
    assert 1150.0 <= clock.now < 1152.0
    assert told[0] == "waiting for the previous machine to leave"
    assert told[-1] == ""


def test_the_newcomer_claims_when_the_holder_has_left(store: StormyStore) -> None:
    clock = HandClock()
    keeper = lay(store, waiting_baton())

    def leave_after_10_s() -> None:
        if clock.now >= 1010.0:
            baton = lying(store)
            if baton.holder is not None and baton.holder.attempt == 0:
                store.calm.put(KEY, rules.encode(replace(baton, holder=replace(baton.holder, left=True))))

    clock.on_sleep = leave_after_10_s
    do_claim(keeper, clock)
    assert clock.now < 1013.0


def test_an_outage_is_waited_for_and_says_nothing(store: StormyStore) -> None:
    clock = HandClock()
    keeper = lay(store, rules.raise_next(rules.create("sup-1", 1), "1.1.1", "secret", False))
    store.away = True

    def back_after_an_hour() -> None:
        store.away = clock.now < 4600.0

    clock.on_sleep = back_after_an_hour
    assert do_claim(keeper, clock).holder == Holder(1, *HOLDER)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"supervisor_id": 1}', b"\xff"])
def test_a_torn_baton_is_unreadable_and_never_a_verdict(store: StormyStore, content: bytes) -> None:
    store.calm.put(KEY, content)
    with pytest.raises(StoreUnavailable):
        BatonKeeper(store, RUN, *HOLDER).read()
    clock = HandClock()
    with pytest.raises(GaveUp):
        do_claim(BatonKeeper(store, RUN, *HOLDER), clock, until=1100.0)


def test_a_missing_baton_is_unreadable_too(store: StormyStore) -> None:
    with pytest.raises(StoreUnavailable):
        BatonKeeper(store, RUN, *HOLDER).read()


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda b: rules.close(b, "stopped"), heartbeat.CLOSED),
        (lambda b: rules.raise_next(b, "1.2.1", "secret", False), heartbeat.SUPERSEDED),
        (lambda b: replace(b, holder=Holder(1, "1.1.1", "local:other:1:1")), heartbeat.SUPERSEDED),
    ],
)
def test_whoever_is_not_wanted_stands_down_and_writes_nothing(store: StormyStore, change: object, left: str) -> None:
    baton = change(waiting_baton())  # type: ignore[operator]
    with pytest.raises(StandDown) as refused:
        do_claim(lay(store, baton), HandClock())
    assert refused.value.left == left
    assert lying(store) == baton


def test_a_lost_answer_is_success_when_the_baton_says_so(store: StormyStore) -> None:
    clock, keeper = HandClock(), held(store)
    store.lose_answers = 1
    after = patient(clock).call("x", keeper.change, rules.move_checkpoint, POINTER)
    assert after.checkpoint == POINTER
    assert after.previous == ()
    assert [call for call in store.calls if call[0] == "put"] == [("put", KEY)]


def test_a_race_is_decided_on_the_fresh_content(store: StormyStore) -> None:
    keeper = held(store)
    raced: list[str] = []

    def close_it_first(key: str) -> None:
        if not raced:
            raced.append(key)
            store.calm.put(KEY, rules.encode(rules.close(lying(store), "stopped")))

    store.before_put = close_it_first
    with pytest.raises(BatonRefused):
        keeper.change(rules.move_checkpoint, POINTER)
    assert lying(store).checkpoint is None


def test_which_next_is_newer() -> None:
    baton = rules.create("sup-1", 1)
    assert not superseded(baton, "1.9.1")
    baton = rules.raise_next(baton, "1.10.1", "secret", False)
    assert superseded(baton, "1.9.1")
    assert not superseded(baton, "1.10.1")
