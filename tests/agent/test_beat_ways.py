"""Pushed and stored beats: their answers, their pace, and who may overwrite whom."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.agent.life.beats import PushedBeats, PushFailed, StoredBeats
from supervisor.agent.store.access import BatonKeeper, Contact, WatchedStore
from supervisor.agent.store.gcs import GcsStore
from supervisor.agent.watch.beat_state import BeatState
from supervisor.agent.watch.ends import EndReasons
from supervisor.contract import baton as rules
from supervisor.contract import heartbeat, runfiles
from supervisor.contract.beat_telemetry import MAX_GPUS, compact, encode
from supervisor.services.reading.cost import READS_PER_BEAT
from tests.agent.answering import ListeningServer
from tests.agent.desk import HOLDER, IDENTITY, RUN, HandClock, held, job, store_in
from tests.benchmarks.machine_told import full
from tests.cloud.storage import StorageFake

KEY = runfiles.beat(RUN)


class Desk:
    def __init__(self, folder: Path) -> None:
        self.clock = HandClock()
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
        return heartbeat.parse(self.store.calm.get(KEY)[0])


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ListeningServer]:
    found = ListeningServer(tmp_path / "server.json")
    try:
        yield found
    finally:
        found.close()


def test_a_stored_beat_stands_in_the_metadata_too(desk: Desk) -> None:
    assert desk.stored.step() == 60.0
    data, info = desk.store.calm.get(KEY)
    assert info.metadata["beat"].encode() == data
    assert desk.beat.sequence == 1


def test_a_stored_beat_is_cut_to_what_a_bucket_takes_and_a_pushed_one_is_not(
    desk: Desk, server: ListeningServer
) -> None:
    told = encode(compact(full(MAX_GPUS)))
    desk.beat_state.add_vitals(lambda: told)
    desk.beat_state.note("x", "\U0001f98a" * 300)
    said = desk.beat_state.now.message
    desk.beat_state.update(
        metrics={"\u00e9" * 60 + str(n): -1.2345678901234567e17 for n in range(16)},
        pruned=heartbeat.Pruned(10**15, tuple((10**15, '"' * 40) for _ in range(8))),
        exit=heartbeat.Exit(1, None, False, last_line=said, disk_full=said),
    )
    desk.stored.step()
    stored = desk.store.calm.stat(KEY).metadata["beat"]
    assert len("beat") + len(stored) <= 8192
    assert desk.beat.exit == desk.beat_state.now.exit
    desk.pushed.step()
    assert server.beats[-1].telemetry == told
    assert len(heartbeat.encode(server.beats[-1])) > 8192


def test_a_pushed_beat_that_would_be_refused_for_its_size_gives_up_its_recent_points(
    desk: Desk, server: ListeningServer
) -> None:
    desk.beat_state.update(metrics={"\u00e9" * 60 + str(n): -1.2345678901234567e17 for n in range(16)})
    beat = replace(desk.beat_state.next_beat(), telemetry='"' * 2000, recent='"' * heartbeat.MAX_RECENT_BYTES)
    assert len(heartbeat.encode(beat)) > heartbeat.MAX_BYTES
    desk.pushed.push(beat)
    assert server.beats[-1] == replace(beat, recent="")
    desk.pushed.push(replace(beat, telemetry=""))
    assert server.beats[-1] == replace(beat, telemetry="")


def test_a_beat_in_a_bucket_costs_one_write_and_two_reads(desk: Desk, cloud: StorageFake, store: GcsStore) -> None:
    """What the price of a month of beats is computed from (services/reading/cost.py)."""
    store.put(runfiles.baton(RUN), desk.store.calm.get(runfiles.baton(RUN))[0])
    beats = StoredBeats(
        desk.job,
        store,
        keeper=BatonKeeper(store, RUN, *HOLDER),
        beat_state=desk.beat_state,
        end_reasons=desk.end_reasons,
    )
    beats.step()
    cloud.counts.clear()
    beats.step()
    assert cloud.counts == {"storage.objects.insert": 1, "storage.objects.get": READS_PER_BEAT}


def test_the_beat_of_an_earlier_attempt_is_replaced(desk: Desk) -> None:
    desk.store.calm.put(KEY, b"older")
    desk.stored.step()
    assert desk.beat.launch_id == "1.1.1"


def test_a_beat_that_somebody_else_wrote_makes_the_holder_look_and_go_on(desk: Desk) -> None:
    desk.stored.step()
    desk.store.calm.put(KEY, b"strange")
    desk.stored.step()
    assert desk.end_reasons.ending is None
    assert desk.beat.sequence > 1


def test_a_lost_answer_does_not_make_it_mute(desk: Desk) -> None:
    desk.store.lose_answers = 1
    desk.stored.step()
    assert "does not answer" in desk.beat_state.now.message
    desk.stored.step()
    assert desk.beat.sequence == 3  # 1 was written, its answer lost; 2 met it; 3 is on top
    assert desk.beat_state.now.message == ""


def test_whoever_lost_the_baton_writes_no_beat(desk: Desk) -> None:
    desk.stored.step()
    baton = rules.decode(desk.store.calm.get(runfiles.baton(RUN))[0])
    desk.store.calm.put(runfiles.baton(RUN), rules.encode(rules.close(baton, "stopped")))
    before = desk.store.calm.stat(KEY)
    desk.stored.step()
    desk.stored.step()
    assert desk.store.calm.stat(KEY) == before
    ending = desk.end_reasons.ending
    assert ending is not None
    assert (ending.reason, ending.may_write) == (heartbeat.CLOSED, False)


def test_a_fresh_marker_stops_and_its_generation_is_told(desk: Desk) -> None:
    marker = desk.store.calm.put(runfiles.stop_marker(RUN), b"").generation
    desk.stored.step()
    assert desk.beat.stop_generation == marker
    assert desk.end_reasons.ending is not None
    assert desk.end_reasons.ending.reason == heartbeat.STOPPED


def test_a_marker_that_the_baton_has_consumed_is_ignored_and_a_newer_one_is_not(desk: Desk) -> None:
    marker = desk.store.calm.put(runfiles.stop_marker(RUN), b"").generation
    baton = rules.decode(desk.store.calm.get(runfiles.baton(RUN))[0])
    text = json.loads(rules.encode(baton))
    desk.store.calm.put(runfiles.baton(RUN), json.dumps({**text, "stop_consumed": marker}).encode())
    desk.stored.step()
    assert desk.end_reasons.ending is None
    desk.store.calm.put(runfiles.stop_marker(RUN), b"again")
    desk.stored.step()
    assert desk.end_reasons.ending is not None


def test_an_unreadable_marker_stops_nothing(desk: Desk) -> None:
    desk.store.calm.put(runfiles.stop_marker(RUN), b"")
    desk.store.away = True
    desk.stored.step()
    assert desk.end_reasons.ending is None


def test_a_newer_attempt_makes_the_holder_leave(desk: Desk) -> None:
    baton = rules.decode(desk.store.calm.get(runfiles.baton(RUN))[0])
    desk.store.calm.put(runfiles.baton(RUN), rules.encode(rules.raise_next(baton, "1.2.1", "s", False)))
    desk.stored.step()
    ending = desk.end_reasons.ending
    assert ending is not None
    assert (ending.reason, ending.may_write) == (heartbeat.SUPERSEDED, True)


def test_the_answer_sets_the_pace_and_the_log(desk: Desk, server: ListeningServer) -> None:
    server.answer = {"next_s": 25.0, "stop": False, "follow_logs": True}
    assert desk.pushed.step() == 25.0
    assert desk.followed == [True]
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
def test_strange_answers_end_nothing(desk: Desk, server: ListeningServer, answer: object, pace_s: float) -> None:
    server.answer = answer  # type: ignore[assignment]
    assert desk.pushed.step() == pace_s
    assert desk.end_reasons.ending is None


@pytest.mark.parametrize("status", [403, 404, 413, 422, 500, 503])
def test_a_refused_beat_is_no_answer(desk: Desk, server: ListeningServer, status: int) -> None:
    server.status, server.answer = status, {"stop": True}
    desk.clock.now += 100.0
    assert desk.pushed.step() == 10.0
    assert desk.end_reasons.ending is None
    assert desk.contact.silent_s() == 100.0
    server.status = 200
    desk.pushed.step()
    assert desk.contact.silent_s() == 0.0


@pytest.mark.parametrize("text", [None, "", "{}", '{"url": 5}', '{"url": "ftp://x"}', '{"url": "http://127.0.0.1:1"}'])
def test_a_server_file_that_leads_nowhere(desk: Desk, tmp_path: Path, text: "str | None") -> None:
    if text is not None:
        (tmp_path / "server.json").write_text(text)
    with pytest.raises(PushFailed):
        desk.pushed.push(desk.beat_state.next_beat())


def test_the_address_is_read_again_after_a_failure(desk: Desk, tmp_path: Path, server: ListeningServer) -> None:
    path = tmp_path / "server.json"
    right = path.read_text()
    path.write_text('{"url": "http://127.0.0.1:1"}')
    with pytest.raises(PushFailed):
        desk.pushed.push(desk.beat_state.next_beat())
    path.write_text(right)
    assert not desk.pushed.push(desk.beat_state.next_beat()).stop
