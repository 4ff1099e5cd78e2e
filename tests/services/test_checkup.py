"""All checks in parallel: a check that hangs or raises has a line too."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from supervisor.domain.findings import FAIL, OK, Check, Finding
from supervisor.services.doctor.checkup import answers, report


def line(name: str) -> Sequence[Finding]:
    return [Finding(name, OK, "well")]


def test_lines_stay_in_order_whatever_hangs_and_breaks() -> None:
    released = threading.Event()

    def hang() -> Sequence[Finding]:
        released.wait(30)
        return []

    def broken() -> Sequence[Finding]:
        raise KeyError("s3cret")

    checks = [
        Check("first", lambda: line("first")),
        Check("hangs", hang, "google", FAIL, "curl -sI there"),
        Check("breaks", broken),
        Check("nothing", list),
        Check("last", lambda: line("last")),
    ]
    found = answers(checks, 0.2)
    released.set()
    assert [one.name for one in found] == ["first", "hangs", "breaks", "last"]
    hung, broke = found[1], found[2]
    assert (hung.result, hung.fact, hung.fix, hung.group) == (
        FAIL,
        "no response within 0.2 s",
        "curl -sI there",
        "google",
    )
    assert (broke.result, "s3cret" in str(broke)) == (FAIL, False)


def test_checks_run_in_parallel() -> None:
    together = threading.Barrier(3)

    def meet() -> Sequence[Finding]:
        together.wait(20)
        return line("met")

    assert [one.fact for one in answers([Check("met", meet)] * 3, 20.0)] == ["well"] * 3


def test_the_worst_line_is_that_of_the_report() -> None:
    assert report([])["worst"] == "ok"
    assert report([Finding("a", "warn", ""), Finding("b", "ok", "")])["worst"] == "warn"
