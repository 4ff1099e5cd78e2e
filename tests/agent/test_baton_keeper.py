"""Claiming and changing the baton despite lost responses, races, outages and torn contents."""

from pathlib import Path

import pytest

from supervisor.agent.store.access import BatonKeeper, GaveUp, StandDown, claim, superseded
from supervisor.contract import baton as rules
from supervisor.contract import heartbeat, runfiles
from supervisor.contract.baton import Baton, BatonRefused, Holder, Pointer
from supervisor.contract.stores.promise import StoreUnavailable
from tests.agent.bench import HOLDER, RUN, ManualClock, held, patient, store_in
from tests.agent.failing_store import FailingStore

KEY = runfiles.baton(RUN)
POINTER = Pointer(5, "runs/digits-7/checkpoints/5-a1/", ())


@pytest.fixture
def store(tmp_path: Path) -> FailingStore:
    return store_in(tmp_path)


def lay(store: FailingStore, baton: Baton) -> BatonKeeper:
    store.inner.put(KEY, rules.encode(baton))
    return BatonKeeper(store, RUN, *HOLDER)


def lying(store: FailingStore) -> Baton:
    return rules.decode(store.inner.get(KEY)[0])


def waiting_baton() -> Baton:
    """Attempt 1 is next; another agent holds."""
    baton = rules.raise_next(rules.create("sup-1", 1), "1.1.1", "secret", False)
    return baton._replace(holder=Holder(0, "1.0.1", "local:other:1:1"))


def do_claim(keeper: BatonKeeper, clock: ManualClock, notes: "list[str] | None" = None, until: float = 1e9) -> Baton:
    tell = (lambda text: None) if notes is None else notes.append
    return claim(keeper, patient(clock, until), tell)


def test_a_free_baton_is_claimed_at_once(store: FailingStore) -> None:
    keeper = lay(store, rules.raise_next(rules.create("sup-1", 1), "1.1.1", "secret", False))
    assert do_claim(keeper, ManualClock()).holder == Holder(1, *HOLDER)


def test_the_next_agent_waits_150_seconds_on_its_own_clock(store: FailingStore) -> None:
    clock, notes = ManualClock(), []
    do_claim(lay(store, waiting_baton()), clock, notes)
    assert 1150.0 <= clock.now < 1152.0
    assert notes[0] == "waiting for the previous machine to leave"
    assert notes[-1] == ""


def test_the_next_agent_claims_when_the_holder_has_left(store: FailingStore) -> None:
    clock = ManualClock()
    keeper = lay(store, waiting_baton())

    def leave_after_10_s() -> None:
        if clock.now >= 1010.0:
            baton = lying(store)
            if baton.holder is not None and baton.holder.attempt == 0:
                store.inner.put(KEY, rules.encode(baton._replace(holder=baton.holder._replace(left=True))))

    clock.on_sleep = leave_after_10_s
    do_claim(keeper, clock)
    assert clock.now < 1013.0


def test_an_outage_delays_the_claim_and_decides_nothing(store: FailingStore) -> None:
    clock = ManualClock()
    keeper = lay(store, rules.raise_next(rules.create("sup-1", 1), "1.1.1", "secret", False))
    store.away = True

    def back_after_an_hour() -> None:
        store.away = clock.now < 4600.0

    clock.on_sleep = back_after_an_hour
    assert do_claim(keeper, clock).holder == Holder(1, *HOLDER)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"supervisor_id": 1}', b"\xff"])
def test_a_torn_baton_is_unreadable_and_never_a_verdict(store: FailingStore, content: bytes) -> None:
    store.inner.put(KEY, content)
    with pytest.raises(StoreUnavailable):
        BatonKeeper(store, RUN, *HOLDER).read()
    clock = ManualClock()
    with pytest.raises(GaveUp):
        do_claim(BatonKeeper(store, RUN, *HOLDER), clock, until=1100.0)


def test_a_missing_baton_is_unreadable_too(store: FailingStore) -> None:
    with pytest.raises(StoreUnavailable):
        BatonKeeper(store, RUN, *HOLDER).read()


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda b: rules.close(b, "stopped"), heartbeat.CLOSED),
        (lambda b: rules.raise_next(b, "1.2.1", "secret", False), heartbeat.SUPERSEDED),
        (lambda b: b._replace(holder=Holder(1, "1.1.1", "local:other:1:1")), heartbeat.SUPERSEDED),
    ],
)
def test_an_outdated_agent_stands_down_and_writes_nothing(store: FailingStore, change: object, left: str) -> None:
    baton = change(waiting_baton())  # type: ignore[operator]
    with pytest.raises(StandDown) as refused:
        do_claim(lay(store, baton), ManualClock())
    assert refused.value.left == left
    assert lying(store) == baton


def test_a_lost_response_is_success_when_the_baton_says_so(store: FailingStore) -> None:
    clock, keeper = ManualClock(), held(store)
    store.lose_answers = 1
    after = patient(clock).call("x", keeper.change, rules.move_checkpoint, POINTER)
    assert after.checkpoint == POINTER
    assert after.previous == ()
    assert [call for call in store.calls if call[0] == "put"] == [("put", KEY)]


def test_a_race_is_decided_on_the_fresh_content(store: FailingStore) -> None:
    keeper = held(store)
    raced: list[str] = []

    def close_it_first(key: str) -> None:
        if not raced:
            raced.append(key)
            store.inner.put(KEY, rules.encode(rules.close(lying(store), "stopped")))

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
