"""A token's cap in dollars: reserved with the run, exact for many at once, kept by every start and every raise."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.domain.callers import Caller
from supervisor.domain.errors import Forbidden, OverDayCap, OverRunCap, SpendUnbounded
from supervisor.services.plan.plan import forecast_submit
from supervisor.services.runs import changing
from supervisor.services.runs.altering import alter
from supervisor.services.runs.money.caps import Charge
from supervisor.services.runs.resume import ResumeRequest, resume
from supervisor.services.runs.submit import SubmitRequest, submit
from supervisor.storage.rows import access
from tests.fakes.callers import MEMBER
from tests.fakes.meters import meters_of
from tests.services.bed import COMMAND, Bed
from tests.services.caps_kills import carry_out, judge_all
from tests.services.caps_sessions import AT_ONCE, DAY, ended, judge, payer, session, spec

DAY_S = 86_400.0


def begin(bed: Bed, caller: Caller, run_id: str, budget: float | None, **more: Any) -> bool:
    try:
        submit(bed.parts, SubmitRequest(spec(budget, **more), run_id), caller)
    except OverDayCap:
        return False
    return True


def counted(bed: Bed, caller: Caller) -> float:
    return bed.store.counted_micro(caller.token_id, bed.clock.now()) / 1e6


def test_twenty_at_once_stay_within_the_day(any_bed: Bed) -> None:
    caller, other = payer(any_bed, usd_per_day=DAY), payer(any_bed, 2, usd_per_day=DAY)
    begin(any_bed, other, "another-tokens", 9.0)
    with ThreadPoolExecutor(8) as pool:
        begun = list(pool.map(lambda n: begin(any_bed, caller, f"run-{n}", 3.0), range(20)))
    assert sum(begun) == 3
    assert counted(any_bed, caller) == 9.0
    assert begin(any_bed, caller, "the-rest", 1.0)
    assert not begin(any_bed, caller, "a-cent-more", 0.01)


def sessions(bed: Bed, count: int) -> list[float]:
    seed = random.randrange(10**6)
    sys.stdout.write(f"seed {seed}\n")
    chance = random.Random(seed)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for number in range(1, count + 1):
            session(bed, number, chance, pool)
    return [judge(bed, number) for number in range(1, count + 1)]


def test_fifty_sessions_of_twenty_at_once_never_go_above(bed: Bed) -> None:
    """The long form, on both databases and with kills, is tests/campaign/test_caps_campaign.py."""
    judge_all(sessions(bed, 50))


def test_a_killed_process_never_goes_above(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/supervisor.db"
    judge_all(carry_out(url, tmp_path, sessions=12, kills=1, processes=1))


def test_what_is_spent_counts_for_a_day_and_the_rest_comes_back(bed: Bed) -> None:
    caller = payer(bed, usd_per_day=DAY)
    assert begin(bed, caller, "one", 8.0)
    assert not begin(bed, caller, "two", 4.0)
    ended(bed, "one", 5.0)
    assert begin(bed, caller, "two", 4.0)
    assert counted(bed, caller) == 9.0
    bed.clock.advance(DAY_S + 60)
    assert counted(bed, caller) == 4.0  # the second one still runs
    assert begin(bed, caller, "three", 6.0)


def test_a_long_run_counts_what_it_spent_today_and_what_it_may_spend(bed: Bed) -> None:
    """At $0.10/h; a variant that counts its whole budget as long as it lives would count $8."""
    caller = payer(bed, usd_per_day=DAY)
    begin(bed, caller, "long", 8.0)
    bed.train("long")
    bed.clock.advance(2 * DAY_S)
    assert counted(bed, caller) == pytest.approx(8.0 - 2.4, abs=0.01)
    run = bed.end("long")
    assert run.attempt is not None
    gone = replace(run.attempt, gone_at=bed.clock.now(), stopped_at=bed.clock.now())
    bed.change("long", attempt=gone, retiring=(), settled=True, money=replace(run.money, cost_usd=4.8))
    assert counted(bed, caller) == pytest.approx(8.0 - 2.4, abs=0.01)  # a reader closes nothing
    assert begin(bed, caller, "next", 7.59)
    assert counted(bed, caller) == pytest.approx(2.4 + 7.59, abs=0.01)


def test_a_long_run_above_its_budget_counts_what_it_has_spent_today(bed: Bed) -> None:
    """Broken variant: its budget alone counted, and the first day had used that up."""
    caller = payer(bed, usd_per_day=DAY)
    begin(bed, caller, "long", 2.0)
    bed.train("long")
    bed.clock.advance(2 * DAY_S)
    assert counted(bed, caller) == pytest.approx(2.4, abs=0.01)


def test_a_machine_on_its_way_out_may_still_spend(bed: Bed) -> None:
    caller = payer(bed, usd_per_day=DAY)
    begin(bed, caller, "one", 8.0)
    bed.train("one")
    bed.end("one")
    assert not begin(bed, caller, "two", 4.0)
    # The next generation of another token: what the old machine still costs is not known, so its budget counts.
    assert resume(bed.parts, "one", ResumeRequest(MEMBER)).changed
    assert counted(bed, caller) == 8.0


def test_what_the_next_generation_spends_is_not_counted_for_the_one_before(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader waits for nobody: the run may be resumed between its look at the allowance and at the run. Broken
    variant: the open allowance grew by what another token's generation spends."""
    caller = payer(bed, usd_per_day=DAY)
    begin(bed, caller, "one", 8.0)
    bed.train("one")
    bed.clock.advance(2 * DAY_S)
    real = access.load

    def resumed(session: Any, keys: Any) -> list[Any]:
        runs = real(session, keys)
        return [replace(run, generation=2, money=replace(run.money, cost_usd=50.0)) for run in runs]

    monkeypatch.setattr(access, "load", resumed)
    assert counted(bed, caller) == pytest.approx(8.0 - 2.4, abs=0.01)


def test_a_machine_without_a_price_counts_as_its_whole_budget(bed: Bed) -> None:
    caller = payer(bed, usd_per_day=DAY)
    begin(bed, caller, "one", 8.0)
    ended(bed, "one", 1.0)
    bed.change("one", money=replace(bed.run("one").money, all_known=False))
    assert not begin(bed, caller, "two", 4.0)


def test_no_wait_helps_a_budget_above_the_cap(bed: Bed) -> None:
    with pytest.raises(OverDayCap, match=r"Nothing was started: lower limits\.budget_usd\.$"):
        submit(bed.parts, SubmitRequest(spec(DAY + 1), "one"), payer(bed, usd_per_day=DAY))


def test_a_resume_needs_its_budget_again(bed: Bed) -> None:
    caller = payer(bed, usd_per_day=DAY)
    begin(bed, caller, "one", 6.0)
    ended(bed, "one", 5.0)
    with pytest.raises(OverDayCap, match=r"\$5.00 of that, and this request may spend \$6.00 more"):
        resume(bed.parts, "one", ResumeRequest(caller))
    assert bed.run("one").generation == 1
    assert resume(bed.parts, "one", ResumeRequest(caller, spec(5.0), replace_spec=True)).changed
    assert counted(bed, caller) == 10.0
    # Who starts it pays: a resume by an uncapped token does not forget what the capped one has spent.
    ended(bed, "one", 2.0)
    assert resume(bed.parts, "one", ResumeRequest(MEMBER)).changed
    assert counted(bed, caller) == 7.0


def test_a_raised_budget_is_reserved_and_a_lowered_one_gives_nothing_back(bed: Bed) -> None:
    """Lowering after the money is spent must not make room: a variant that counts the new budget starts a third."""
    caller = payer(bed, usd_per_day=DAY)
    begin(bed, caller, "one", 6.0)

    def change(budget: float | None, by: Caller = caller) -> None:
        alter(bed.parts, "one", {"limits": {"budget_usd": budget}}, None, by)

    change(9.0)
    assert counted(bed, caller) == 9.0
    with pytest.raises(OverDayCap, match=r"lower limits\.budget_usd, or wait until a run ends"):
        change(10.5)
    with pytest.raises(OverDayCap):
        change(10.5, MEMBER)  # within the cap of the token that pays
    change(1.0)
    assert not begin(bed, caller, "two", 4.0)
    change(9.5)
    assert counted(bed, caller) == 9.5
    with pytest.raises(SpendUnbounded):
        change(None)
    assert bed.run("one").policy.limits.budget_usd == 9.5


def test_a_capped_token_does_not_spend_by_the_run_of_another(bed: Bed) -> None:
    caller = payer(bed, usd_per_run=2.0)
    bed.submit("free", spec(5.0))
    with pytest.raises(Forbidden, match="another token pays"):
        alter(bed.parts, "free", {"limits": {"budget_usd": 500.0}}, None, caller)
    alter(bed.parts, "free", {"labels": {"team": "vision"}}, None, caller)
    alter(bed.parts, "free", {"limits": {"budget_usd": 500.0}}, None, MEMBER)


def test_the_caps_of_a_deleted_token_are_not_raised(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention deletes tokens that ended long ago. Broken variant: a change of a run without its payer had no cap."""
    caller = payer(bed, usd_per_day=DAY)
    begin(bed, caller, "one", 2.0)
    monkeypatch.setattr(type(bed.store.tokens), "get", lambda tokens, token_id: None)
    with pytest.raises(Forbidden, match="was deleted, so nobody knows its caps"):
        alter(bed.parts, "one", {"limits": {"budget_usd": 500.0}}, None, MEMBER)
    alter(bed.parts, "one", {"labels": {"team": "vision"}}, None, MEMBER)
    assert bed.run("one").policy.limits.budget_usd == 2.0


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "limits/budget_usd"),
        ({"on_success": "keep", "limits": {"budget_usd": 1.0}}, "on_success"),
        ({"on_failure": "keep", "limits": {"budget_usd": 1.0}}, "on_failure"),
        ({"require_pull": True, "limits": {"budget_usd": 1.0}}, "require_pull"),
        ({"keep": "machine", "limits": {"budget_usd": 1.0}}, "keep"),
    ],
)
def test_a_run_that_nothing_bounds_is_refused(bed: Bed, given: dict[str, Any], field: str) -> None:
    caller = payer(bed, usd_per_day=DAY)
    with pytest.raises(SpendUnbounded) as refusal:
        submit(bed.parts, SubmitRequest({**COMMAND, **given}, "one"), caller)
    assert refusal.value.errors[0][0] == f"#/spec/{field}"
    assert bed.store.find("one") is None
    assert refusal.value.code == "SPEND_UNBOUNDED"


@pytest.mark.parametrize("endless", ["irreplaceable", "meters"])
def test_a_provider_whose_bill_no_budget_ends_is_refused(bed: Bed, endless: str) -> None:
    if endless == "irreplaceable":
        bed.provider.traits = replace(bed.provider.traits, irreplaceable=True)
    else:
        bed.provider.meters = meters_of("local-a")
    with pytest.raises(SpendUnbounded, match="billed until a person ends that") as refusal:
        submit(bed.parts, SubmitRequest(spec(1.0), "one"), payer(bed, usd_per_day=DAY))
    assert refusal.value.errors[0][0] == "#/spec/provider"
    assert bed.store.find("one") is None
    bed.submit("free", spec(1.0))  # a token without a cap may use it


def test_an_unknown_price_is_refused(bed: Bed) -> None:
    caller = payer(bed, usd_per_run=2.0)
    bed.provider.offered = tuple(replace(offer, price_usd_per_h=None) for offer in bed.provider.offered)
    with pytest.raises(SpendUnbounded, match="price of"):
        submit(bed.parts, SubmitRequest(COMMAND, "one"), caller)


def test_a_cap_of_a_run_is_its_budget_over_all_generations(bed: Bed) -> None:
    caller = payer(bed, usd_per_run=5.0)
    submit(bed.parts, SubmitRequest(COMMAND, "one"), caller)
    assert bed.run("one").policy.limits.budget_usd == 5.0
    assert bed.store.spec(bed.run("one").key) == COMMAND
    submit(bed.parts, SubmitRequest(COMMAND, "one"), caller)  # the same request again
    with pytest.raises(OverRunCap, match=r"budget of \$6.00 is too high: this token may spend \$5.00 a run"):
        submit(bed.parts, SubmitRequest(spec(6.0), "two"), caller)
    with pytest.raises(OverRunCap):
        alter(bed.parts, "one", {"limits": {"budget_usd": 5.5}}, None, MEMBER)
    alter(bed.parts, "one", {"zones": ["local-a"]}, None, caller)
    assert bed.run("one").policy.limits.budget_usd == 5.0
    ended(bed, "one", 3.5)
    resume(bed.parts, "one", ResumeRequest(caller))
    assert bed.run("one").policy.limits.budget_usd == 1.5
    ended(bed, "one", 1.5)
    with pytest.raises(OverRunCap, match=r"has cost \$5.00 before"):
        resume(bed.parts, "one", ResumeRequest(caller))


def test_a_plan_is_refused_as_its_submit(bed: Bed) -> None:
    caller = payer(bed, usd_per_day=DAY)
    begin(bed, caller, "one", 8.0)
    with pytest.raises(OverDayCap):
        forecast_submit(bed.parts, SubmitRequest(spec(4.0), "two"), caller, bed.clock.now())
    assert forecast_submit(bed.parts, SubmitRequest(spec(2.0), "two"), caller, bed.clock.now()).would == "create"


@pytest.mark.parametrize("broken", ["counts ended runs only", "forgets what was spent"])
def test_a_broken_count_goes_above(bed: Bed, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """The sessions above see it."""
    right = access._sum

    def count(session: Any, rows: list[Any], now: float) -> int:
        ends = broken == "counts ended runs only"
        return right(session, [row for row in rows if (row.spent_micro is not None) == ends], now)

    monkeypatch.setattr(access, "_sum", count)
    with pytest.raises(AssertionError):
        sessions(bed, 10)


def test_a_check_before_the_transaction_goes_above(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: what counts is read outside of the transaction that writes the run."""
    right, reader = changing.reserve, bed.store.counted_micro

    class Early:
        def __init__(self, tx: Any) -> None:
            self.allowance_micro, self.allow = tx.allowance_micro, tx.allow
            self.counted_micro = reader

    def reserve(tx: Any, run: Any, charge: Charge, now: float) -> None:
        right(Early(tx), run, charge, now)  # type: ignore[arg-type]

    monkeypatch.setattr(changing, "reserve", reserve)
    with pytest.raises(AssertionError, match="session"):
        sessions(bed, 20)
