"""Beyond the suite of all stores: what a door may answer, what breaks off, and a pass that comes to its end."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.life.beats import PushedBeats
from supervisor.agent.store.access import Contact
from supervisor.agent.store.door.client import DoorPass
from supervisor.agent.store.door.store import SMALL_BYTES, DoorStore
from supervisor.agent.store.gcs import GcsStore
from supervisor.agent.store.googleapi import RetryPolicy
from supervisor.agent.watch.beat_state import BeatState
from supervisor.agent.watch.ends import EndReasons
from supervisor.contract.stores.folder import FolderStore
from supervisor.contract.stores.promise import (
    ABSENT,
    ObjectMissing,
    PreconditionFailed,
    StoreForbidden,
    StoreFull,
    StoreUnavailable,
)
from tests.agent.bench import IDENTITY, RUN, ManualClock, job
from tests.cloud.storage import StorageFake
from tests.cloud.web import Request, Reset, Response
from tests.fakes.door import DoorFake, Past

KEY = f"runs/{RUN}/model"
CALLS: dict[str, Callable[[DoorStore], Any]] = {
    "stat": lambda store: store.stat(KEY),
    "get": lambda store: store.get(KEY),
    "read": lambda store: list(store.read(KEY)),
    "list": lambda store: list(store.pages(f"runs/{RUN}/")),
    "put": lambda store: store.put(KEY, b"new"),
    "delete": lambda store: store.delete(KEY),
}


class Bed:
    """A door and a store of the agent before it, whose waits cost no time."""

    def __init__(self, folder: Path, store: Any, past: Past | None = None) -> None:
        self.clock, self.folder, self.inner = ManualClock(), folder, store
        self.door = DoorFake(store, past=past)
        (folder / "pass.json").write_text(json.dumps({**self.door.new_pass(), "renew_at_boottime_s": 1e12}))
        policy = RetryPolicy(30.0, self.clock.sleep, self.clock)
        self.store = DoorStore.at(self.door.store_url, str(folder / "pass.json"), policy=policy)

    def close(self) -> None:
        self.store.close()
        self.door.close()

    def once(
        self, *responses: Any, when: Callable[[Request], bool] = lambda request: True, after: bool = False
    ) -> None:
        """Instead of the next answers; `after`: the door has done what was asked."""
        left = list(responses)

        def trouble(request: Request) -> Response | None:
            if not left or not when(request):
                return None
            response = left.pop(0)
            if after:
                self.door.trouble, kept = (lambda _: None), self.door.trouble
                self.door._respond(request)
                self.door.trouble = kept
            if isinstance(response, Exception):
                raise response
            return response

        self.door.trouble = trouble


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    made = Bed(tmp_path, FolderStore.create(tmp_path / "objects"))
    yield made
    made.close()


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[StorageFake]:
    monkeypatch.delenv("GCE_METADATA_HOST", raising=False)
    fake = StorageFake()
    fake.make_bucket("spot-test")
    yield fake
    fake.close()


@pytest.fixture
def past(tmp_path: Path, cloud: StorageFake) -> Iterator[Bed]:
    """The same before a bucket."""
    inner = GcsStore.at("gs://spot-test/a", cloud.url)
    made = Bed(tmp_path, inner, Past(cloud.url, "spot-test", "a/"))
    yield made
    made.close()
    inner.close()


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("status", [400, 404, 405, 422, 500, 502, 503])
def test_no_answer_but_a_clear_one_says_anything_of_the_object(bed: Bed, name: str, status: int) -> None:
    bed.store.put(KEY, b"x")
    bed.door.trouble = lambda request: Response(status, b"<html>a proxy says something</html>")
    with pytest.raises(StoreUnavailable):
        CALLS[name](bed.store)
    bed.door.trouble = lambda request: None
    assert bed.store.get(KEY)[0] == b"x"


@pytest.mark.parametrize(("status", "error"), [(403, StoreForbidden), (507, StoreFull)])
def test_refusals_have_their_own_errors_and_are_not_repeated(bed: Bed, status: int, error: type[Exception]) -> None:
    bed.door.trouble = lambda request: Response(status, {"code": "ANY"})
    with pytest.raises(error):
        bed.store.put(KEY, b"x")
    assert len(bed.door.asked("PUT")) == 1


def test_an_object_of_another_run_is_refused_and_not_missing(bed: Bed) -> None:
    bed.inner.put("runs/other/baton.json", b"x")
    for call in (bed.store.stat, bed.store.get, bed.store.delete):
        with pytest.raises(StoreForbidden):
            call("runs/other/baton.json")


@pytest.mark.parametrize(
    "body",
    [
        b"torn {", [], {}, {"objects": []}, {"objects": {}, "server_time": 1.0}, {"objects": [1], "server_time": 1.0},
        {"objects": [{"key": f"runs/{RUN}/a", "size": 1, "updated": 1.0}], "server_time": 1.0},
        {"objects": [{"key": "elsewhere", "size": 1, "updated": 1.0, "generation": "1"}], "server_time": 1.0},
        {"objects": [{"key": f"runs/{RUN}/{k}", "size": 1, "updated": 1.0, "generation": "1"} for k in "ba"],
         "server_time": 1.0},
    ],
)  # fmt: skip
def test_a_page_that_is_none_makes_the_whole_listing_worthless(bed: Bed, body: Any) -> None:
    bed.door.trouble = lambda request: Response(200, body)
    with pytest.raises(StoreUnavailable):
        list(bed.store.pages(f"runs/{RUN}/"))


def test_a_read_that_breaks_off_goes_on_in_its_generation_or_fails(bed: Bed) -> None:
    content = os.urandom(700_000)
    bed.store.put(KEY, content)
    generation = bed.store.stat(KEY).generation
    torn = Response(200, content, {"X-Spot-Generation": generation}, cut_after=300_000)
    bed.once(torn, when=lambda request: request.method == "GET")
    assert b"".join(bed.store.read(KEY)) == content
    assert bed.door.asked("GET")[-1].headers["range"] == "bytes=300000-"
    bed.once(torn, when=lambda request: request.method == "GET")
    stream = bed.store.read(KEY)
    assert next(stream)
    bed.inner.put(KEY, os.urandom(700_000))
    with pytest.raises(StoreUnavailable, match="replaced"):
        list(stream)


def test_content_without_a_generation_is_no_answer(bed: Bed) -> None:
    bed.store.put(KEY, b"x")
    bed.once(Response(200, b"x"), when=lambda request: request.method == "GET")
    with pytest.raises(StoreUnavailable, match="generation"):
        bed.store.get(KEY)


@pytest.mark.parametrize("lost", [Reset(), Response(503, {"code": "STORE_UNAVAILABLE"})])
def test_a_write_whose_response_was_lost_counts_if_the_content_is_ours(bed: Bed, lost: Any) -> None:
    bed.once(lost, when=lambda request: request.method == "PUT", after=True)
    info = bed.store.put(KEY, b"mine", ABSENT, {"n": "1"})
    assert info == bed.inner.stat(KEY)
    assert len(bed.door.asked("PUT")) == 3  # one of them is the lost one, done by hand


def test_a_write_whose_response_was_lost_is_not_that_of_another(bed: Bed) -> None:
    """A store that took any 412 after a lost response for its own success would give the baton to two."""
    bed.once(Reset(), when=lambda request: request.method == "PUT")
    bed.inner.put(KEY, b"their")
    with pytest.raises(PreconditionFailed):
        bed.store.put(KEY, b"mine!", ABSENT)
    assert bed.inner.get(KEY)[0] == b"their"


def test_a_delete_whose_response_was_lost_has_deleted(bed: Bed) -> None:
    bed.store.put(KEY, b"x")
    bed.once(Reset(), when=lambda request: request.method == "DELETE", after=True)
    assert bed.store.delete(KEY) is True


# --- past the supervisor ----------------------------------------------------------------------------------------------


def test_large_files_go_past_the_supervisor_and_the_pass_does_not(
    past: Bed, cloud: StorageFake, tmp_path: Path
) -> None:
    large = tmp_path / "model.bin"
    large.write_bytes(os.urandom(SMALL_BYTES + 3_000_001))
    cloud.break_upload(5_000_000)
    info = past.store.put_file(KEY, large, ABSENT)
    assert info == past.store.stat(KEY)
    assert b"".join(past.store.read(KEY)) == large.read_bytes()
    assert not [each for each in cloud.requests if "authorization" in each.headers]
    assert max(len(each.body) for each in past.door.requests) < 1000
    with pytest.raises(PreconditionFailed):
        past.store.put_file(KEY, large, ABSENT)


def test_a_forgotten_upload_begins_again_at_the_door(past: Bed, cloud: StorageFake, tmp_path: Path) -> None:
    large = tmp_path / "model.bin"
    large.write_bytes(os.urandom(SMALL_BYTES + 1))
    cloud.trouble(404, when=lambda request, _: "content-range" in request.headers)
    past.store.put_file(KEY, large)
    assert len(past.door.asked("POST", "/uploads")) == 2
    assert past.inner.stat(KEY).size == SMALL_BYTES + 1


@pytest.mark.parametrize("to", ["http://storage.example.com/x", "ftp://127.0.0.1/x", "//storage.example.com/x", ""])
def test_no_address_without_encryption_is_followed(bed: Bed, to: str) -> None:
    bed.store.put(KEY, b"x")
    bed.door.trouble = lambda request: Response(307, b"", {"Location": to}) if request.method == "GET" else None
    with pytest.raises(StoreUnavailable, match=r"not encrypted|generation|HTTP"):
        list(bed.store.read(KEY))


def test_an_expired_address_is_asked_for_again(past: Bed, cloud: StorageFake) -> None:
    past.store.put(KEY, b"content")
    cloud.trouble(403, when=lambda request, _: "proof" in request.query)
    assert b"".join(past.store.read(KEY)) == b"content"
    assert len(past.door.asked("GET", "model")) == 2


# --- the pass ---------------------------------------------------------------------------------------------------------


def pushing(bed: Bed) -> PushedBeats:
    values = job(server_url=bed.door.url)
    contact = Contact()
    reasons = EndReasons(values, contact, time.monotonic, lambda: None)
    return PushedBeats(
        values,
        BeatState(values, IDENTITY),
        reasons,
        contact=contact,
        follow=lambda followed: None,
        door_pass=bed.store.door_pass,
    )


def test_a_beat_asks_for_a_pass_only_when_it_is_due(bed: Bed) -> None:
    pushed = pushing(bed)
    pushed.step()
    assert bed.door.asked("POST", "heartbeat")[-1].query == {}
    bed.door.expire_passes()
    woken = threading.Event()
    bed.store.door_pass.on_refused = woken.set
    bed.clock.on_sleep = pushed.step  # the thread of the beats, which the refusal wakes
    assert bed.store.put(KEY, b"x").size == 1
    assert woken.is_set()
    assert bed.door.asked("POST", "heartbeat")[-1].query == {"pass": ["1"]}
    pushed.step()
    assert bed.door.asked("POST", "heartbeat")[-1].query == {}
    path = bed.folder / "pass.json"
    assert json.loads(path.read_text())["text"] == bed.store.door_pass.text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_without_a_beat_the_store_is_unavailable_and_nothing_is_missing(bed: Bed) -> None:
    bed.store.put(KEY, b"x")
    bed.door.expire_passes()
    bed.door.beat_status = 503
    pushed = pushing(bed)
    bed.clock.on_sleep = pushed.step
    for call in CALLS.values():
        with pytest.raises(StoreUnavailable, match="HTTP 401"):
            call(bed.store)
    bed.door.beat_status = 200
    pushed.step()
    assert bed.store.get(KEY)[0] == b"x"
    with pytest.raises(ObjectMissing):
        bed.store.get(KEY + "2")


def test_half_of_its_life_counts_from_its_arrival_by_the_supervisors_clock(tmp_path: Path) -> None:
    now = [100.0]
    mine = DoorPass(str(tmp_path / "pass.json"), lambda: now[0])
    assert mine.due()
    server = time.time() - 86_400.0  # its clock, or ours, is a day off
    mine.take({"text": "pass-1", "expires_at": server + 3600.0}, formatdate(server, usegmt=True))
    assert (mine.text, mine.due()) == ("pass-1", False)
    now[0] += 1790.0
    assert not mine.due()
    now[0] += 20.0
    assert mine.due()
    again = DoorPass(str(tmp_path / "pass.json"), lambda: now[0])
    assert (again.text, again.due()) == ("pass-1", True)


@pytest.mark.parametrize("given", [None, {}, {"text": 1, "expires_at": 2}, {"text": "a\nb", "expires_at": 2.0}, []])
def test_what_is_no_pass_changes_nothing(tmp_path: Path, given: Any) -> None:
    mine = DoorPass(str(tmp_path / "pass.json"))
    mine.take({"text": "pass-1", "expires_at": time.time() + 3600}, None)
    mine.take(given, None)
    assert mine.text == "pass-1"


def test_a_refusal_of_an_older_pass_asks_for_nothing(tmp_path: Path) -> None:
    mine = DoorPass(str(tmp_path / "pass.json"))
    mine.take({"text": "pass-2", "expires_at": time.time() + 3600}, None)
    mine.refused("pass-1")
    assert not mine.due()


@pytest.mark.parametrize("url", ["door:http://example.com/v1/door/r", "door:", "door:x", "https://x/v1/door/r"])
def test_a_pass_is_sent_encrypted_or_on_this_machine(tmp_path: Path, url: str) -> None:
    with pytest.raises(ValueError, match=r"https|door"):
        DoorStore.at(url, str(tmp_path / "pass.json"))
