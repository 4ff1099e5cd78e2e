"""The stream of an open page: changed rows, made once for all pages; when to refresh; and with which rights."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from supervisor.api import server
from supervisor.api.streams import listener as stream
from supervisor.api.wire.deps import with_tokens
from supervisor.dashboard import live as live_rows
from supervisor.dashboard.live import CHANGED_MAX, SPACING_MS, Rows, framed
from supervisor.dashboard.mounting import mount
from supervisor.dashboard.public_api import Api
from supervisor.domain.callers import LOCAL, Caller, Scope
from supervisor.domain.events import Event, EventKind
from supervisor.services.access.tokens import TokenRequest, create, revoke
from supervisor.services.runs.submit import SubmitRequest, submit
from tests.api.listening import QUICK, Listener, Serving, Told, serving
from tests.dashboard.document import read
from tests.dashboard.looking import Looking
from tests.services.bed import COMMAND, Bed
from tests.waiting import wait_for

STARTED = Event(EventKind.STARTED, "It trains.")


@pytest.fixture
def served(bed: Bed) -> Iterator[Serving]:
    with serving(replace(bed.services, streams=QUICK), mount) as one:
        yield one


def here(page: Listener) -> Listener:
    assert page.status == 200
    page.wait_until_here()
    return page


def looks(page: Listener) -> list[Told]:
    return [block for block in page.told if block.event == "refresh"]


def rows(page: Listener) -> list[str]:
    return [block.event for block in page.told if block.event.startswith("run-")]


def happens(bed: Bed, *run_ids: str) -> int:
    """One event for each, in commits of their own; the id of the last."""
    for run_id in run_ids:
        bed.store.add_events(bed.run(run_id).key, [STARTED], bed.clock.now())
    return bed.store.history.newest()


def wait_look(page: Listener, event_id: int) -> None:
    wait_for(lambda: any(block.id == str(event_id) for block in looks(page)), 20, f"the look for {event_id}")


class Counted:
    """Instead of asking and rendering: rows, and how often each was made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, row: str = "<tr></tr>", refused: int = 0) -> None:
        self.made: list[str] = []
        self._row, self._refused = row, refused
        monkeypatch.setattr(Rows, "_make", lambda rows, api, run_ids: self.make(api, run_ids))

    async def make(self, api: Api, run_ids: Sequence[str]) -> dict[str, bytes] | None:
        self.made += run_ids
        if len(self.made) <= self._refused:
            return None
        return {run_id: framed(f"run-{run_id}", self._row) for run_id in run_ids}


def test_a_page_gets_the_rows_that_it_shows_and_is_told_to_look_at_everything(bed: Bed, served: Serving) -> None:
    bed.submit("mine")
    bed.submit("other")
    page = here(served.listen("/ui/live?runs=mine,unknown"))
    wait_look(page, happens(bed, "other"))
    assert rows(page) == []
    last = happens(bed, "mine")
    wait_look(page, last)
    assert rows(page) == ["run-mine"]
    (told,) = [block for block in page.told if block.event == "run-mine"]
    row = read(told.data).one("tr", id="run-mine")
    assert "pending" in row.text
    assert told.id == ""  # what is lost after it is sent again
    assert page.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert page.headers["Cache-Control"] == "no-store"
    assert page.headers["X-Accel-Buffering"] == "no"
    assert page.headers.get_all("X-Request-Id") is not None
    assert len(page.headers.get_all("X-Request-Id", [])) == 1


def test_the_page_of_one_run_hears_of_that_run_alone(bed: Bed, served: Serving) -> None:
    bed.submit("mine")
    bed.submit("other")
    page = here(served.listen("/ui/live?run=mine"))
    happens(bed, "other")
    last = happens(bed, "mine")
    wait_look(page, last)
    assert [block.id for block in looks(page)] == [str(last)]
    assert rows(page) == []  # it shows none


def test_a_row_is_made_once_for_all_pages(bed: Bed, served: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch, "<tr>\r<td>a\nb</td></tr>")
    bed.submit("mine")
    pages = [here(served.listen("/ui/live?runs=mine")) for _ in range(12)]
    for count in range(1, 4):
        last = happens(bed, "mine")
        for page in pages:
            wait_look(page, last)
            assert rows(page) == ["run-mine"] * count
    assert counted.made == ["mine"] * 3
    assert all(block.data == "<tr>\n<td>a\nb</td></tr>" for block in pages[0].told if block.event == "run-mine")
    # All of them hear the same, and spread what they ask.
    assert {block.data for page in pages for block in looks(page)} == {str(11 * SPACING_MS)}


def test_a_row_of_before_is_made_again(bed: Bed, served: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run changes between two events, and a page that reconnects receives the earlier one."""
    monkeypatch.setattr(live_rows, "FRESH_S", 0.0)
    counted = Counted(monkeypatch)
    bed.submit("mine")
    last = happens(bed, "mine")
    for count in (1, 2):
        wait_look(served.listen(f"/ui/live?runs=mine&after={last - 1}"), last)
        assert counted.made == ["mine"] * count


def test_where_one_page_is_refused_the_next_one_asks(
    bed: Bed, served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch, refused=2)
    bed.submit("mine")
    pages = [here(served.listen("/ui/live?runs=mine")) for _ in range(4)]
    last = happens(bed, "mine")
    for page in pages:
        wait_look(page, last)
    assert counted.made == ["mine"] * 3
    assert sorted(len(rows(page)) for page in pages) == [0, 0, 1, 1]


def test_a_row_that_cannot_be_shown_ends_no_stream(
    bed: Bed, served: Serving, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(live_rows, "TEMPLATE", "gone.html")
    bed.submit("mine")
    pages = [here(served.listen("/ui/live?runs=mine")) for _ in range(3)]
    last = happens(bed, "mine")
    for page in pages:
        wait_look(page, last)
        assert (rows(page), page.over) == ([], False)
    assert len([one for one in caplog.records if "cannot be made" in one.message]) == 1


def test_when_much_happens_at_once_pages_look_instead(
    bed: Bed, served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    names = [f"run-{number}" for number in range(CHANGED_MAX + 1)]
    for name in names:
        bed.submit(name)
    first = bed.store.history.newest()
    last = happens(bed, *names)
    page = served.listen(f"/ui/live?runs={','.join(names)}&after={first}")
    wait_look(page, last)
    assert (rows(page), counted.made) == ([], [])
    page = served.listen(f"/ui/live?runs={','.join(names)}&after={first + 1}")
    wait_look(page, last)
    assert len(rows(page)) == CHANGED_MAX


def test_a_page_that_comes_back_hears_what_it_missed(bed: Bed, served: Serving) -> None:
    bed.submit("mine")
    first = bed.store.history.newest()
    last = happens(bed, "mine")
    page = served.listen("/ui/live?run=mine&after=0", Last_Event_ID=str(first))  # the header counts
    wait_look(page, last)
    assert len(looks(page)) == 1
    lost = served.listen("/ui/live?runs=", Last_Event_ID="999")
    wait_for(lambda: looks(lost), 20, "the page to look, because it cannot be told what it missed")


def test_scripts_hear_that_the_stream_is_alive(bed: Bed, served: Serving) -> None:
    page = here(served.listen("/ui/live?runs="))
    wait_for(lambda: [block.event for block in page.told].count("ping") >= 2, 20)
    assert all(block.data and block.id for block in page.told if block.event == "ping")
    assert any(block.retry for block in page.told)


@pytest.mark.parametrize(
    "query",
    ["run=a/../b", "runs=Mine", "run=mine&runs=other", "rows=mine", "runs=" + ",".join(["mine"] * 101), "run=x%0Ay"],
)
def test_a_stream_of_nothing_is_refused(looking: Looking, query: str) -> None:
    assert looking.get(f"/ui/live?{query}").status_code == 422


def test_no_page_of_another_site_holds_a_stream_and_a_head_has_an_end(looking: Looking) -> None:
    answer = looking.get("/ui/live?runs=", headers={"Sec-Fetch-Site": "same-site"})
    assert answer.status_code == 403
    answer = looking.request("HEAD", "/ui/live?runs=")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


def test_a_page_that_is_closed_leaves_nothing_behind(bed: Bed, served: Serving) -> None:
    bed.submit("mine")
    pages = [here(served.listen("/ui/live?runs=mine")) for _ in range(3)]
    pages.pop().close()
    wait_for(lambda: len(served.streams._admitted) == 2, 20)
    last = happens(bed, "mine")
    for page in pages:
        wait_look(page, last)
    assert {block.data for page in pages for block in looks(page)} == {str(SPACING_MS)}


def test_what_the_api_refuses_keeps_its_status(looking: Looking) -> None:
    assert looking.get("/ui/live?run=nobody").status_code == 404
    assert looking.get("/ui/live?runs=&after=x").status_code == 422


def test_a_page_hears_what_its_token_may_see_for_as_long_as_it_is_valid(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, scopes = Counted(monkeypatch), frozenset({Scope.READ})
    tokens = {who: create(bed.parts, TokenRequest(who, who, scopes), LOCAL) for who in ("ada", "bob")}
    with serving(with_tokens(replace(bed.services, streams=replace(QUICK, each=1))), mount) as served:

        def open_(who: str) -> Listener:
            name, kept = f"127.0.0.1:{served.port}", tokens[who]["token"] if who else ""
            return served.listen("/ui/live?runs=hers", Host=name, Cookie=f"spot-{served.port}={kept}")

        ada, bob = here(open_("ada")), here(open_("bob"))
        assert open_("bob").status == 429
        assert open_("").status == 401
        submit(bed.parts, SubmitRequest(COMMAND, "hers"), Caller("ada", "ada", scopes))
        wait_for(lambda: looks(ada), 20)
        assert rows(ada) == ["run-hers"]
        revoke(bed.parts, bed.services.identity, tokens["ada"]["token_id"], LOCAL)
        ada.wait_over()
        happens(bed, "hers")
        wait_for(lambda: len([block for block in bob.told if block.event == "ping"]) > 3, 20)
        assert (rows(bob), looks(bob), bob.over, counted.made) == ([], [], False, ["hers"])
        assert open_("ada").status == 401


def test_the_end_of_the_server_does_not_wait_for_open_pages(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "GRACE_S", 60)  # who waited for a page would wait so long
    with serving(bed.services, mount) as served:
        pages = [here(served.listen("/ui/live?runs=")) for _ in range(20)]
        began = time.monotonic()
    assert time.monotonic() - began < 20
    for page in pages:
        page.wait_over()


def test_a_page_that_takes_nothing_is_cut_off(bed: Bed, served: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    Counted(monkeypatch, "<tr>" + "x" * 500_000)
    monkeypatch.setattr(stream, "WAITING_MAX", 20)
    bed.submit("mine")
    lazy = socket.socket()
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    lazy.connect(("127.0.0.1", served.port))
    lazy.sendall(b"GET /ui/live?runs=mine HTTP/1.1\r\nHost: localhost\r\n\r\n")
    quick = here(served.listen("/ui/live?runs="))
    wait_for(lambda: len(served.streams._joined) == 2, 20)

    def tell() -> bool:
        wait_look(quick, happens(bed, "mine"))
        return len(served.streams._admitted) == 1

    wait_for(tell, 30, "it to be cut off")
    lazy.close()
