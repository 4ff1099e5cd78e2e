"""Our figures beside the bill: figures by hand, each reason, and what is not compared."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from supervisor.domain.errors import NotSupportedHere, Unavailable
from supervisor.domain.findings import OK, WARN
from supervisor.ports.platform import Bill, BillKind, BillLine
from supervisor.ports.provider import ProviderUnavailable
from supervisor.services.reading import matching
from supervisor.services.reading.billed import DAYS, Billed, csv_text
from supervisor.services.reading.matching import Ours, Owners, compare
from tests.services.bed import Bed

DAY = "2026-11-20"
KEY = (DAY, "a-1")
KNOWN = Owners({("a-1", "1.1.1"): True, ("a-1", "1.1.2"): False}, {"m-1": ("a-1", "1.1.1")})


def at(day: str, hour: float = 0.0) -> float:
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() + 3600 * hour


SETTLED = at("2026-11-21")


def line(usd: float, kind: BillKind = BillKind.MACHINE, seconds: float | None = None, **more: object) -> BillLine:
    base = BillLine(DAY, kind, "s", "a-1", "1.1.1", "m-1", "z-a", seconds, usd, 0.0)
    return replace(base, **more)  # type: ignore[arg-type]


def bill(*lines: BillLine, settled: float | None = SETTLED) -> Bill:
    return Bill(at("2026-11-01"), at("2026-11-22"), settled, lines)


def row(ours: Ours, *lines: BillLine, settled: float | None = SETTLED) -> matching.BilledRow:
    rows, unknown = compare({KEY: ours}, bill(*lines, settled=settled), KNOWN, "s")
    assert not unknown
    [only] = [each for each in rows if (each["day"], each["run_id"]) == KEY]
    return only


TWO_HOURS = Ours(7200.0, 2.0)


def test_the_figures_of_a_day_by_hand() -> None:
    """2 h at $1: billed 1.40 + 0.50 for cores and memory, 0.25 for the disk, 0.10 for traffic, 0.20 of credits."""
    disk = line(0.25, BillKind.DISK, supervisor_id="", run_id="", launch_id="")  # by the machine's name
    lines = [line(1.4, seconds=7200.0), line(0.5, credits=-0.2), disk, line(0.1, BillKind.TRAFFIC)]
    assert row(TWO_HOURS, *lines) == {
        "day": DAY, "run_id": "a-1", "ours_s": 7200.0, "billed_s": 7200.0, "ours_usd": 2.0, "lower_bound": False,
        "billed_usd": 2.05, "difference_usd": 0.05, "reason": "disks",
        "parts": {"machine": 1.9, "disk": 0.25, "address": 0, "traffic": 0.1, "other": 0, "credits": -0.2, "races": 0},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([line(2.01, seconds=7200.0)], "agrees"),  # 1 % of $2 is 2 cents
        ([line(2.0, seconds=7200.0, credits=-0.5)], "credits"),
        ([line(2.0, seconds=7200.0), line(0.5, BillKind.TRAFFIC)], "traffic"),
        ([line(2.0, seconds=7200.0), line(0.5, BillKind.OTHER)], "other"),
        ([line(2.0, seconds=7200.0), line(0.5, launch_id="1.1.2", machine_name="m-2", seconds=900.0)], "races"),
        ([line(2.0, seconds=7200.0, credits=-0.5), line(0.3, BillKind.TRAFFIC)], "several"),
        ([line(2.0, seconds=7200.0), line(0.4, BillKind.DISK)], "disks"),
        ([line(1.5, seconds=7200.0)], "price"),
        ([line(1.5, seconds=5400.0)], "time"),
        ([line(1.5)], "unexplained"),
        ([], "not_billed"),
    ],
)
def test_each_reason(lines: Sequence[BillLine], reason: str) -> None:
    assert row(TWO_HOURS, *lines)["reason"] == reason


def test_a_day_that_is_not_whole_is_not_compared() -> None:
    for settled in (None, SETTLED - 1.0):
        told = row(TWO_HOURS, line(0.5, seconds=1800.0), settled=settled)
        assert (told["reason"], told["billed_usd"], told["billed_s"], told["difference_usd"], told["parts"]) == (
            "not_exported", None, None, None, None,
        )  # fmt: skip


def test_another_currency_counts_with_its_rate_or_not_at_all() -> None:
    """$2 are 1 unit at half a unit for a dollar."""
    assert row(TWO_HOURS, line(1.0, seconds=7200.0, currency="EUR", rate=0.5))["reason"] == "agrees"
    for rate in (None, 0.0):
        told = row(TWO_HOURS, line(1.0, currency="EUR", rate=rate), line(1.0))
        assert (told["reason"], told["billed_usd"]) == ("currency", None)


def test_an_attempt_without_a_price_has_no_difference() -> None:
    told = row(Ours(7200.0, 0.0, priced=False), line(2.0, seconds=7200.0))
    assert (told["reason"], told["difference_usd"], told["lower_bound"]) == ("price_unknown", None, True)


def test_lines_of_nobody_and_of_others() -> None:
    ours = line(0.4, run_id="gone-1", launch_id="1.1.1", machine_name="m-9")
    theirs = replace(ours, supervisor_id="other")
    nobody = replace(ours, supervisor_id="", run_id="", launch_id="")
    assert compare({}, bill(ours, theirs, nobody), KNOWN, "s") == ([], [ours])


def test_broken_comparisons_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_credits(each: BillLine) -> tuple[float, float] | None:
        return each.cost, 0.0

    with monkeypatch.context() as broken:
        broken.setattr(matching, "line_usd", without_credits)
        with pytest.raises(AssertionError):
            test_each_reason([line(2.0, seconds=7200.0, credits=-0.5)], "credits")
        with pytest.raises(AssertionError):
            test_another_currency_counts_with_its_rate_or_not_at_all()


# --- with the database ------------------------------------------------------------------------------------------------


@dataclass
class FakeBills:
    lines: tuple[BillLine, ...] = ()
    settled: float | None = None
    trouble: str = ""
    reads: list[tuple[float, float, str]] = field(default_factory=list)
    terms = "a bill in a file; a read costs nothing"

    def read(self, since: float, until: float, supervisor_id: str) -> Bill:
        self.reads.append((since, until, supervisor_id))
        if self.trouble:
            raise ProviderUnavailable(self.trouble)
        return Bill(since, until, self.settled, self.lines)


def billed_of(bed: Bed, bills: FakeBills) -> Billed:
    return Billed(replace(bed.parts, bills={"local": bills}), bed.services.queries)


def scene(bed: Bed) -> tuple[Billed, FakeBills, str]:
    """A run that trained for 160 s on a day that is over: at $0.10 an hour, $0.004444."""
    bed.submit("a-1")
    bed.train("a-1")
    bed.clock.advance(100.0)
    bed.end("a-1")
    start = bed.run("a-1").attempt
    assert start is not None
    bed.change("a-1", attempt=replace(start, gone_at=bed.clock.now()), retiring=())
    day = matching.day_of(start.started_at)
    bed.clock.advance(4 * 86_400.0)
    ours = bed.parts.store.supervisor_id
    lines = (
        BillLine(day, BillKind.MACHINE, ours, "a-1", "1.1.1", "m-a1", "local-a", 160.0, 0.0045, 0.0),
        BillLine(day, BillKind.MACHINE, ours, "gone-1", "1.1.1", "m-gone", "local-a", 1800.0, 0.4, -0.1),
    )
    bills = FakeBills(lines, bed.clock.now() - 86_400.0)
    return billed_of(bed, bills), bills, day


def test_the_table_of_a_database(bed: Bed) -> None:
    billed, bills, day = scene(bed)
    told = billed.show(None, again=False)
    [only] = told["rows"]
    assert (only["day"], only["run_id"], only["ours_s"], only["billed_s"]) == (day, "a-1", 160.0, 160.0)
    assert (only["ours_usd"], only["billed_usd"], only["reason"]) == (0.004444, 0.0045, "agrees")
    [machine] = told["unknown"]
    assert (machine["name"], machine["billed_usd"], machine["first_day"]) == ("m-gone", 0.3, day)
    [(since, until, supervisor_id)] = bills.reads
    assert (until - since, until % 86_400, supervisor_id) == (DAYS * 86_400, 0, bed.parts.store.supervisor_id)
    table = list(csv.reader(io.StringIO(csv_text(told))))
    assert [len(each) for each in table] == [16] * 3
    assert table[2][1:8] == ["gone-1", "", "1800.0", "", "0.3", "0.3", "unknown_to_us"]
    assert billed.show(bed.clock.now() - 86_400.0, again=False)["rows"] == [], "since then"


def test_a_try_without_an_attempt_is_known(bed: Bed) -> None:
    billed, bills, _ = scene(bed)
    run = bed.run("a-1")
    assert run.try_ is not None
    bed.change("a-1", try_=replace(run.try_, number=2, launch_id="1.1.2", machine_name="m-a1-t2"))
    bills.lines = (*bills.lines[:1], replace(bills.lines[0], launch_id="1.1.2", machine_name="m-a1-t2", cost=0.7))
    told = billed.show(None, again=False)
    assert (told["rows"][0]["reason"], told["unknown"]) == ("races", [])


def test_a_read_is_used_for_a_day(bed: Bed) -> None:
    billed, bills, _ = scene(bed)
    billed.show(None, again=False)
    bed.clock.advance(86_399.0)
    billed.show(None, again=False)
    assert len(bills.reads) == 1
    billed.show(None, again=True)
    bed.clock.advance(86_400.0)
    billed.show(None, again=False)
    assert len(bills.reads) == 3


def test_what_could_not_be_read_is_an_error(bed: Bed) -> None:
    billed, bills, _ = scene(bed)
    bills.trouble = "the page is missing"
    with pytest.raises(Unavailable, match=r"could not be read: the page is missing\. Nothing was compared"):
        billed.show(None, again=False)
    bills.trouble = ""
    assert billed.show(None, again=False)["rows"], "the next request reads it"
    with pytest.raises(NotSupportedHere, match=r"docs/cost.md"):
        Billed(bed.parts, bed.services.queries).show(None, again=False)


def test_the_line_of_the_doctor_reads_nothing(bed: Bed) -> None:
    billed, bills, _ = scene(bed)
    [check] = billed.checks()
    [finding] = check.ask()
    assert (finding.result, "not read since the start" in finding.fact, bills.reads) == (OK, True, [])
    billed.show(None, again=False)
    finding = billed.finding()
    assert finding.result == WARN
    assert "1 machine billed and unknown to us, $0.30: m-gone" in finding.fact
    assert Billed(bed.parts, bed.services.queries).checks() == []
