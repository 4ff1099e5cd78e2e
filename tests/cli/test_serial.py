"""spot serial: the end of a machine's console, with a line that says whose and from when."""

from __future__ import annotations

TEXT = "".join(f"line {n}\n" for n in range(1, 501))


def answer(live: bool = True, text: str = TEXT) -> dict[str, object]:
    return {
        "run_id": "digits-7", "attempt": 3, "machine": "spot-1-a3-t1", "zone": "us-east1-c", "live": live, "text": text,
    }  # fmt: skip


def test_the_last_lines(api, spot) -> None:
    api.say("GET", "/v1/runs/digits-7/console", answer())
    ended = spot("serial", "digits-7")
    assert ended.code == 0
    assert ended.out.splitlines()[0] == "line 301"
    assert ended.out.splitlines()[-1] == "line 500"
    assert "spot-1-a3-t1 in us-east1-c, attempt 3, now" in ended.err
    assert len(spot("serial", "digits-7", "-n", "2").out.splitlines()) == 2


def test_what_was_kept_says_so_and_nothing_has_its_own_exit(api, spot) -> None:
    api.say("GET", "/v1/runs/digits-7/console", answer(live=False))
    assert "as it was kept" in spot("serial", "digits-7", "-a", "3").err
    assert api.asked[-1].query == {"attempt": ["3"]}
    api.refuse("GET", "/v1/runs/digits-7/console", 404, "EVIDENCE_NOT_FOUND", "digits-7 has no machine yet.")
    assert spot("serial", "digits-7").code == 5
