"""spot serial: the end of a machine's console, with a line that says whose and from when."""

from __future__ import annotations

TEXT = "".join(f"line {n}\n" for n in range(1, 501))


def answer(live: bool = True, text: str = TEXT) -> dict[str, object]:
    return {
        "run_id": "digits-7", "attempt": 3, "machine": "spot-1-a3-t1", "zone": "us-east1-c", "live": live, "text": text,
    }  # fmt: skip


def test_the_last_lines(api, spot) -> None:
    api.respond("GET", "/v1/runs/digits-7/console", answer())
    ended = spot("serial", "digits-7")
    assert ended.code == 0
    assert ended.out.splitlines()[0] == "line 301"
    assert ended.out.splitlines()[-1] == "line 500"
    assert "spot-1-a3-t1 in us-east1-c, attempt 3, now" in ended.err
    assert len(spot("serial", "digits-7", "-n", "2").out.splitlines()) == 2


def test_200_lines_are_200_lines_however_long_they_are(api, spot) -> None:
    whole = "".join(f"line {n} {'x' * 1000}\n" for n in range(1, 501))
    api.respond_in_turn("GET", "/v1/runs/digits-7/console", answer(text=whole[-65_536:]), answer(text=whole))
    lines = spot("serial", "digits-7", "200").out.splitlines()
    assert (len(lines), lines[0][:8], lines[-1][:8]) == (200, "line 301", "line 500")
    assert [request.query.get("limit") for request in api.requests] == [None, ["1048576"]]


def test_a_short_console_is_read_once(api, spot) -> None:
    api.respond("GET", "/v1/runs/digits-7/console", answer(text="one\ntwo\n"))
    assert spot("serial", "digits-7", "200").out == "one\ntwo\n"
    api.respond("GET", "/v1/runs/digits-7/console", answer(text="x" * 1000 + "\n" + "y\n" * 40_000))
    assert spot("serial", "digits-7", "200").out == "y\n" * 200
    assert len(api.requests) == 2


def test_what_was_kept_says_so_and_nothing_has_its_own_exit(api, spot) -> None:
    api.respond("GET", "/v1/runs/digits-7/console", answer(live=False))
    assert "as it was kept" in spot("serial", "digits-7", "-a", "3").err
    assert api.requests[-1].query == {"attempt": ["3"]}
    api.refuse("GET", "/v1/runs/digits-7/console", 404, "EVIDENCE_NOT_FOUND", "digits-7 has no machine yet.")
    assert spot("serial", "digits-7").code == 5
