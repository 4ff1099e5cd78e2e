"""Pushed and stored beats: their responses, their pace, and who may overwrite them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.agent.life.beats import OrdersLook, PushedBeats, PushFailed, Rest, StoredBeats
from supervisor.agent.store.access import BatonKeeper, Contact, WatchedStore
from supervisor.agent.store.gcs import GcsStore
from supervisor.agent.watch.beat_state import BeatState
from supervisor.agent.watch.ends import EndReasons
from supervisor.contract import baton as rules
from supervisor.contract import heartbeat, runfiles
from supervisor.contract.beat_telemetry import MAX_GPUS, compact, encode
from supervisor.services.reading.cost import MONTH_S, READS_PER_BEAT, resting_cost
from tests.agent.bench import HOLDER, IDENTITY, RUN, ManualClock, held, job, store_in
from tests.agent.listening_server import ListeningServer
from tests.benchmarks.machine_told import full
from tests.cloud.storage import StorageFake

KEY = runfiles.beat(RUN)


class Bench:
    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.store = store_in(folder)
        self.keeper = held(self.store)
        self.contact = Contact(self.clock)
        self.job = job(server_file=str(folder / "server.json"), stop_consumed=None)
        self.beat_state = BeatState(self.job, IDENTITY)
        self.end_reasons = EndReasons(self.job, self.contact, self.clock, lambda: None)
        self.stored = StoredBeats(
            self.job,
            WatchedStore(self.store, self.contact),
            keeper=self.keeper,
            beat_state=self.beat_state,
            end_reasons=self.end_reasons,
        )
        self.followed: list[bool] = []
        self.pushed = PushedBeats(
            self.job, self.beat_state, self.end_reasons, contact=self.contact, follow=self.followed.append
        )

    @property
    def beat(self) -> heartbeat.Beat:
        return heartbeat.parse(self.store.inner.get(KEY)[0])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ListeningServer]:
    listening = ListeningServer(tmp_path / "server.json")
    try:
        yield listening
    finally:
        listening.close()


def test_a_stored_beat_is_in_the_metadata_too(bench: Bench) -> None:
    assert bench.stored.step() == 60.0
    data, info = bench.store.inner.get(KEY)
    assert info.metadata["beat"].encode() == data
    assert bench.beat.sequence == 1


def test_a_stored_beat_is_cut_to_the_limit_of_a_bucket_and_a_pushed_beat_is_not(
    bench: Bench, server: ListeningServer
) -> None:
    telemetry = encode(compact(full(MAX_GPUS)))
    bench.beat_state.add_vitals(lambda: telemetry)
    bench.beat_state.note("x", "\U0001f98a" * 300)
    message = bench.beat_state.now.message
    bench.beat_state.update(
        metrics={"\u00e9" * 60 + str(n): -1.2345678901234567e17 for n in range(16)},
        pruned=heartbeat.Pruned(10**15, tuple((10**15, '"' * 40) for _ in range(8))),
        exit=heartbeat.Exit(1, None, False, last_line=message, disk_full=message),
    )
    bench.stored.step()
    stored = bench.store.inner.stat(KEY).metadata["beat"]
    assert len("beat") + len(stored) <= 8192
    assert bench.beat.exit == bench.beat_state.now.exit
    bench.pushed.step()
    assert server.beats[-1].telemetry == telemetry
    assert len(heartbeat.encode(server.beats[-1])) > 8192


def test_a_pushed_beat_that_is_too_large_leaves_out_its_recent_points(bench: Bench, server: ListeningServer) -> None:
    bench.beat_state.update(metrics={"\u00e9" * 60 + str(n): -1.2345678901234567e17 for n in range(16)})
    beat = bench.beat_state.next_beat()._replace(telemetry='"' * 2000, recent='"' * heartbeat.MAX_RECENT_BYTES)
    assert len(heartbeat.encode(beat)) > heartbeat.MAX_BYTES
    bench.pushed.push(beat)
    assert server.beats[-1] == beat._replace(recent="")
    bench.pushed.push(beat._replace(telemetry=""))
    assert server.beats[-1] == beat._replace(telemetry="")


def test_a_beat_in_a_bucket_costs_one_write_and_three_reads(bench: Bench, cloud: StorageFake, store: GcsStore) -> None:
    """The price of a month of beats is computed from these numbers (services/reading/cost.py)."""
    store.put(runfiles.baton(RUN), bench.store.inner.get(runfiles.baton(RUN))[0])
    beats = StoredBeats(
        bench.job,
        store,
        keeper=BatonKeeper(store, RUN, *HOLDER),
        beat_state=bench.beat_state,
        end_reasons=bench.end_reasons,
        orders=OrdersLook(store, bench.job, lambda: True),
    )
    beats.step()
    cloud.counts.clear()
    beats.step()
    assert cloud.counts == {"storage.objects.insert": 1, "storage.objects.get": READS_PER_BEAT}


class Resting:
    """The real stored beats of an agent whose pushes a supervisor acknowledges, on a simulated clock."""

    def __init__(self, bench: Bench, store: GcsStore) -> None:
        store.put(runfiles.baton(RUN), bench.store.inner.get(runfiles.baton(RUN))[0])
        self.clock, self.bench, self.store = bench.clock, bench, store
        self.rest = Rest(60.0, bench.clock)
        self.woken: list[float] = []
        self.orders = OrdersLook(store, bench.job, lambda: True, bench.clock)
        self.stored = StoredBeats(
            bench.job,
            store,
            keeper=BatonKeeper(store, RUN, *HOLDER),
            beat_state=bench.beat_state,
            end_reasons=bench.end_reasons,
            orders=self.orders,
            rest=self.rest,
        )
        self.stored.wake = lambda: self.woken.append(bench.clock())
        bench.beat_state.update(phase=heartbeat.TRAINING)

    def run_for(self, seconds: float, store_s: float | None = 3600.0) -> None:
        """A push every 10 s, and the steps of the stored beats at their own pace. `store_s` None: pushes hang."""
        end, due = self.clock() + seconds, self.clock()
        while self.clock() < end:
            if store_s is not None:
                self.rest.acknowledged(store_s)
                self.orders.named(None)
            if self.clock() >= due:
                due = self.clock() + self.stored.step()
            self.clock.now += 10.0

    def generation(self) -> str:
        return self.store.stat(KEY).generation


@pytest.fixture
def resting(bench: Bench, cloud: StorageFake, store: GcsStore) -> Resting:
    resting = Resting(bench, store)
    resting.run_for(60.0)
    return resting


def test_acknowledged_pushes_cost_what_the_doctor_computes(resting: Resting, cloud: StorageFake) -> None:
    cloud.counts.clear()
    resting.run_for(12 * 3600.0)
    writes, reads = cloud.counts["storage.objects.insert"], cloud.counts["storage.objects.get"]
    of_a_month_usd = (writes * 0.000005 + reads * 0.0000004) * MONTH_S / (12 * 3600.0)
    marker_usd = 4320 * 0.0000004  # the supervisor's own read in its rotation
    assert of_a_month_usd + marker_usd == pytest.approx(resting_cost(60.0, 300.0, 30.0, 600.0).beats_usd, rel=0.02)


def test_a_grant_that_is_withdrawn_wakes_the_stored_beat(resting: Resting) -> None:
    before = resting.generation()
    resting.run_for(600.0)
    assert (resting.woken, resting.generation()) == ([], before)
    resting.rest.acknowledged(None)
    assert resting.woken == [resting.clock()]
    assert resting.stored.step() == 60.0
    assert resting.generation() != before


def test_a_replica_that_grants_nothing_beside_one_that_does_brings_no_more_beats_than_ever(
    resting: Resting, cloud: StorageFake
) -> None:
    cloud.counts.clear()
    for _ in range(30):
        resting.run_for(10.0)
        resting.rest.acknowledged(None)
        if resting.woken:
            resting.woken.clear()
            resting.stored.step()
    assert cloud.counts["storage.objects.insert"] <= 5


def test_pushes_that_hang_end_the_rest_by_themselves(resting: Resting) -> None:
    """No later than a stored beat would be due without a rest: an agent whose run is another's learns of it in time."""
    resting.run_for(600.0)
    before = resting.generation()
    baton = resting.bench.keeper.read()
    resting.store.put(runfiles.baton(RUN), rules.encode(rules.raise_next(baton, "1.2.1", "s", False)))
    resting.run_for(60.0, store_s=None)
    assert resting.generation() != before
    assert resting.bench.end_reasons.ending is not None
    assert resting.bench.end_reasons.ending.reason == heartbeat.SUPERSEDED


@pytest.mark.parametrize("changes", [{"phase": heartbeat.FINISHING}, {"notice_s": 30.0}, {"left": heartbeat.STOPPED}])
def test_what_is_more_than_a_step_is_stored_at_once(resting: Resting, changes: dict[str, object]) -> None:
    before = resting.generation()
    resting.bench.beat_state.update(phase=heartbeat.CHECKPOINT)
    resting.stored.step()
    assert resting.generation() == before, "a checkpoint is part of the training"
    resting.bench.beat_state.update(**changes)
    resting.stored.step()
    assert resting.generation() != before


def test_a_marker_is_found_within_five_minutes_of_rest(resting: Resting) -> None:
    resting.store.put(runfiles.stop_marker(RUN), b"")
    resting.run_for(300.0)
    assert resting.bench.end_reasons.ending is not None
    assert resting.bench.end_reasons.ending.reason == heartbeat.STOPPED


@pytest.mark.parametrize("store_s", [None, 0, -1.0, "3600", True, float("nan")])
def test_a_response_that_grants_nothing_lets_nothing_rest(resting: Resting, store_s: object) -> None:
    resting.rest.acknowledged(store_s)
    assert resting.stored.step() == 60.0


def test_a_push_tells_what_its_response_grants(bench: Bench, server: ListeningServer) -> None:
    grants: list[object] = []
    bench.pushed.acknowledged = grants.append
    server.answer = {"next_s": 10.0, "stop": False, "store_s": 3600.0}
    bench.pushed.step()
    server.answer = {"next_s": 10.0, "stop": False}
    bench.pushed.step()
    server.close()
    bench.pushed.step()
    assert grants == [3600.0, None, None]


def test_the_beat_of_an_earlier_attempt_is_replaced(bench: Bench) -> None:
    bench.store.inner.put(KEY, b"older")
    bench.stored.step()
    assert bench.beat.launch_id == "1.1.1"


def test_a_beat_of_another_writer_makes_the_holder_read_the_baton_and_continue(bench: Bench) -> None:
    bench.stored.step()
    bench.store.inner.put(KEY, b"strange")
    bench.stored.step()
    assert bench.end_reasons.ending is None
    assert bench.beat.sequence > 1


def test_a_lost_response_does_not_stop_the_beats(bench: Bench) -> None:
    bench.store.lose_answers = 1
    bench.stored.step()
    assert "does not answer" in bench.beat_state.now.message
    bench.stored.step()
    assert bench.beat.sequence == 3  # 1 was written, its response lost; 2 met a conflict with it; 3 replaced it
    assert bench.beat_state.now.message == ""


def test_an_agent_that_lost_the_baton_writes_no_beat(bench: Bench) -> None:
    bench.stored.step()
    baton = rules.decode(bench.store.inner.get(runfiles.baton(RUN))[0])
    bench.store.inner.put(runfiles.baton(RUN), rules.encode(rules.close(baton, "stopped")))
    before = bench.store.inner.stat(KEY)
    bench.stored.step()
    bench.stored.step()
    assert bench.store.inner.stat(KEY) == before
    ending = bench.end_reasons.ending
    assert ending is not None
    assert (ending.reason, ending.may_write) == (heartbeat.CLOSED, False)


def test_a_new_marker_stops_and_the_beat_shows_its_generation(bench: Bench) -> None:
    marker = bench.store.inner.put(runfiles.stop_marker(RUN), b"").generation
    bench.stored.step()
    assert bench.beat.stop_generation == marker
    assert bench.end_reasons.ending is not None
    assert bench.end_reasons.ending.reason == heartbeat.STOPPED


def test_a_marker_that_the_baton_has_consumed_is_ignored_and_a_newer_one_is_not(bench: Bench) -> None:
    marker = bench.store.inner.put(runfiles.stop_marker(RUN), b"").generation
    baton = rules.decode(bench.store.inner.get(runfiles.baton(RUN))[0])
    text = json.loads(rules.encode(baton))
    bench.store.inner.put(runfiles.baton(RUN), json.dumps({**text, "stop_consumed": marker}).encode())
    bench.stored.step()
    assert bench.end_reasons.ending is None
    bench.store.inner.put(runfiles.stop_marker(RUN), b"again")
    bench.stored.step()
    assert bench.end_reasons.ending is not None


def test_an_unreadable_marker_stops_nothing(bench: Bench) -> None:
    bench.store.inner.put(runfiles.stop_marker(RUN), b"")
    bench.store.away = True
    bench.stored.step()
    assert bench.end_reasons.ending is None


def test_a_newer_attempt_makes_the_holder_leave(bench: Bench) -> None:
    baton = rules.decode(bench.store.inner.get(runfiles.baton(RUN))[0])
    bench.store.inner.put(runfiles.baton(RUN), rules.encode(rules.raise_next(baton, "1.2.1", "s", False)))
    bench.stored.step()
    ending = bench.end_reasons.ending
    assert ending is not None
    assert (ending.reason, ending.may_write) == (heartbeat.SUPERSEDED, True)


def test_the_response_sets_the_pace_and_the_log(bench: Bench, server: ListeningServer) -> None:
    server.answer = {"next_s": 25.0, "stop": False, "follow_logs": True}
    assert bench.pushed.step() == 25.0
    assert bench.followed == [True]
    assert server.paths == ["/v1/runs/digits-7/heartbeat"]
    assert server.beats[0].nonce == "secret"


@pytest.mark.parametrize(
    ("answer", "pace_s"),
    [
        ({"next_s": 1e9}, 300.0),
        ({"next_s": -5}, 0.1),
        ({"next_s": "soon"}, 10.0),
        ({}, 10.0),
        ({"stop": "yes"}, 10.0),
        ([], 10.0),
    ],
)
def test_strange_responses_end_nothing(bench: Bench, server: ListeningServer, answer: object, pace_s: float) -> None:
    server.answer = answer  # type: ignore[assignment]
    assert bench.pushed.step() == pace_s
    assert bench.end_reasons.ending is None


@pytest.mark.parametrize("status", [403, 404, 413, 422, 500, 503])
def test_a_refused_beat_is_no_response(bench: Bench, server: ListeningServer, status: int) -> None:
    server.status, server.answer = status, {"stop": True}
    bench.clock.now += 100.0
    assert bench.pushed.step() == 10.0
    assert bench.end_reasons.ending is None
    assert bench.contact.silent_s() == 100.0
    server.status = 200
    bench.pushed.step()
    assert bench.contact.silent_s() == 0.0


@pytest.mark.parametrize("text", [None, "", "{}", '{"url": 5}', '{"url": "ftp://x"}', '{"url": "http://127.0.0.1:1"}'])
def test_a_server_file_that_leads_nowhere(bench: Bench, tmp_path: Path, text: "str | None") -> None:
    if text is not None:
        (tmp_path / "server.json").write_text(text)
    with pytest.raises(PushFailed):
        bench.pushed.push(bench.beat_state.next_beat())


def test_the_address_is_read_again_after_a_failure(bench: Bench, tmp_path: Path, server: ListeningServer) -> None:
    path = tmp_path / "server.json"
    right = path.read_text()
    path.write_text('{"url": "http://127.0.0.1:1"}')
    with pytest.raises(PushFailed):
        bench.pushed.push(bench.beat_state.next_beat())
    path.write_text(right)
    assert bench.pushed.push(bench.beat_state.next_beat())["stop"] is False
