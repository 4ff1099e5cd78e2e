"""Every attack of the tables against one real process: its answer is the documented one, and the house stands after it.

Nothing that was sent may be stored or told, no secret may come out, and every reader, a stream and /metrics go on. The
quick readers are asked after each attack, all of them after each table of attacks that are read beyond their head and
after all other tables. `make campaign` asks all of them after each table, and after each attack of the first kind.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from supervisor.api.wire.rates import GUESS_BURST, GUESSES_PER_S
from tests.attacks import bytes_on_the_wire as raw
from tests.attacks import pages, requests
from tests.attacks.floods import DEAF, HALF_HEADS, SLOW_BODIES, deaf, endless, half_head, held, p99_s, slow_body
from tests.attacks.house import House, attacked, listen, unread
from tests.attacks.wire import ask, send, together
from tests.properties import examples, is_campaign

READ = (requests.bodies, requests.keys, requests.beats, requests.addresses)  # beyond their head
HEADS = (
    requests.lists, requests.door, requests.tokens, requests.strangers, raw.names, raw.sites, raw.methods, raw.paths,
    raw.heads, raw.smuggling, raw.no_http, pages.forms, pages.addresses, pages.entering,
)  # fmt: skip
QUICK = ["/livez", "/metrics", "/v1/runs?page_size=1000", "/v1/events?newest_first=true&limit=500"]


def wrong_of(house: House, paths: list[str], name: str, data: bytes, expected: str) -> Iterator[str]:
    answers = send(house.port, data)
    if answers[0].told not in expected.split("|"):
        yield f"{name}: {answers[0].told} instead of {expected}; {answers[0].body[:200]!r}"
    if len(answers) > 1:
        yield f"{name}: a second request came through, {answers[1].told}"
    if any(answer.status >= 500 or "set-cookie" in answer.headers for answer in answers):
        yield f"{name}: {answers}"
    yield from (f"{name}: then {what}" for what in house.look(paths))


def of_tables(house: House, paths: list[str]) -> Iterator[str]:
    count = 0
    for table in (*READ, *HEADS):
        thorough = table in READ and is_campaign()
        after_each = [path for path in paths if not path.startswith("/ui/")] if thorough else QUICK
        for name, data, expected in table(house):
            yield from wrong_of(house, after_each, name, data, expected)
            count += 1
        if table in READ or table is HEADS[-1] or is_campaign():
            yield from (f"{table.__name__}: then {what}" for what in house.look(paths))
    assert count >= 150, count


def of_floods(house: House) -> Iterator[str]:
    """While they last, each request of another client gets its response; in `make campaign`, where the computer does
    nothing else, their p99 stays below a second."""
    for name, flood in (
        ("half heads", held(house, HALF_HEADS, half_head)), ("slow bodies", held(house, SLOW_BODIES, slow_body)),
        ("deaf listeners", held(house, DEAF, deaf)), ("a body without end", endless(house)),
    ):  # fmt: skip
        with flood:
            waited_s = p99_s(house, examples(50, 150))
            if waited_s >= 1.0 and is_campaign():
                yield f"{name}: others wait {waited_s:.2f} s"
            yield from (f"{name}: then {what}" for what in house.look(QUICK))


def of_guesses(house: House) -> Iterator[str]:
    """Tokens are guessed with another forwarded address each time: no more of them are looked up than the limit says,
    however slow this computer is. A client with a valid token continues."""
    guesses = [ask("GET", "/v1/runs", f"X-Forwarded-For: 10.0.0.{n}", token=f"sup_{n}") for n in range(250)]
    began_at = time.monotonic()
    told = Counter(answer.told for answer in together(house.port, guesses))
    most = GUESS_BURST + GUESSES_PER_S * (time.monotonic() - began_at) + 1
    if told["401 UNAUTHORIZED"] > most or told["401 UNAUTHORIZED"] + told["429 RATE_LIMITED"] != len(guesses):
        yield f"{dict(told)} for {len(guesses)} guesses"
    yield from (f"guesses: then {what}" for what in house.look(QUICK))


def test_no_attack_comes_through(tmp_path: Path) -> None:
    with attacked(tmp_path / "data") as house:
        everything = house.readers()
        assert unread(everything) == []
        assert house.look(everything) == []
        runs = sorted(run["run_id"] for run in house.daemon.call("GET", "/v1/runs")["runs"])
        stream = listen(house, house.tokens["reader"])
        paths = [path for path in everything if path != "/v1/doctor"]  # it takes as long as all others together
        wrong = [*of_tables(house, paths), *of_floods(house), *of_guesses(house)]
        assert wrong == [], "\n".join(wrong)
        found = house.daemon.call("GET", "/v1/runs")["runs"]
        assert sorted(run["run_id"] for run in found) == runs, "nothing was submitted"
        assert {run["stop"] for run in found if run["run_id"] == house.theirs} == {None}, "nor stopped"
        assert any(b"&lt;!channel&gt;" in told.body for told in house.said), "the last line of the failed run"
        assert not any(b"<!channel>" in told.body or b"<script" in told.body for told in house.said)
        assert not stream.over
        house.submit(house.tokens["mallory"], "after-it-all", {"command": "true", "zones": ["local-c"]})
        stream.wait(1)
        stream.close()
        assert house.look(everything) == []
        assert_the_look_bites(house)


def assert_the_look_bites(house: House) -> None:
    """A reader that fails, a secret that is told and an unforeseen error are found."""
    assert house.look(["/v1/nothing"]) == ["GET /v1/nothing: 404 NOT_FOUND"]
    with (house.daemon.data_dir / "serve.log").open("a") as log:
        log.write(f"\n{house.tokens['reader']}\nTraceback (most recent call last):\n")
    assert house.look(QUICK) == ["secret number 2 is told", "the log has b'Traceback'"]
    assert unread(QUICK) != []
