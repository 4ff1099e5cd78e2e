"""When two zones are asked for one machine, what the loser costs, and what its absence proves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.domain import ledger
from supervisor.domain.actions import Launch, Release
from supervisor.domain.attempt import Attempt, Retiring, Try
from supervisor.domain.causes import Cause
from supervisor.domain.ledger import Use
from supervisor.domain.machines import Machine, MachineState, Offer, Outlook, ZoneRecord, offer_key
from supervisor.domain.observation import BEATS, MACHINES, Absent, CreateFailed, Observation, Part, Seen, Unknown, World
from supervisor.domain.policies import KeepRule, Knobs, Policy
from supervisor.domain.run import Run, run_cost_usd
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.ending.retiring import retire
from supervisor.lifecycle.living.clock_steps import righted
from supervisor.lifecycle.phases.racing import never_races
from supervisor.wording.run import status_text
from tests.lifecycle.sample_runs import NOW, ZONES, attempt, place, run_in

POLICY = Policy(zones=ZONES, shapes=("g2-standard-8",), race=2)
OFFERS = tuple(
    Offer(replace(place(zone), spot=spot), 0.6, 1.8, minimum_s=60.0) for spot in (True, False) for zone in ZONES
)
NONE_LEFT = ZoneRecord(1, NOW - 1, "no_capacity", "none")
SCARCE = {offer_key(place(zone)): NONE_LEFT for zone in ZONES}
WORLD = World(
    Knobs("the-supervisor"), offers={"gce": OFFERS}, zones=SCARCE, fresh=frozenset({BEATS, MACHINES}),
    races=frozenset({"gce"}),
)  # fmt: skip
READ = Observation(stop=Absent(), baton=Absent(), beat=Absent())


# Machines live for ten minutes and worked a moment ago: both zones would grant, and the loser costs a tenth of a life.
SHORT_LIVES = {key: Outlook(600.0, 0.001, up_at=NOW - 0.5) for key in SCARCE}


def calls(run: Run, world: World = WORLD) -> list[str]:
    """The zones of the create calls that the first decision makes."""
    decision = decide(run, READ, world, NOW)
    return [action.try_.placement.zone for action in decision.actions if isinstance(action, Launch)]


def test_two_zones_are_asked() -> None:
    out = decide(run_in(Status.PENDING, policy=POLICY), READ, WORLD, NOW).run
    assert out.open_try is not None
    assert out.open_rival is not None
    assert (out.open_try.launch_id, out.open_rival.launch_id, out.open_rival.beside) == ("1.1.1", "1.1.2", "1.1.1")
    assert out.counters.tries == 2
    text = status_text(out, NOW)
    assert "in us-east1-b and in us-east1-c (the first machine is used)" in text


@pytest.mark.parametrize(
    ("policy", "world"),
    [
        (replace(POLICY, race=1), WORLD),
        (replace(POLICY, keep=KeepRule(True)), WORLD),
        (replace(POLICY, spot=False), replace(WORLD, zones={})),
        (POLICY, replace(WORLD, races=frozenset())),
        (POLICY, replace(WORLD, outlooks=SHORT_LIVES)),
        (
            POLICY,
            replace(WORLD, offers={"gce": (OFFERS[0], *(replace(each, price_usd_per_h=0.7) for each in OFFERS[1:]))}),
        ),
        (POLICY, replace(WORLD, unread=frozenset(ZONES[1:]))),
        (replace(POLICY, zones=ZONES[:1]), WORLD),
        (replace(POLICY, providers=("gce", "lent")), replace(WORLD, sources={"gce": MACHINES, "lent": "lent"})),
    ],
)
def test_else_one_zone_is_asked(policy: Policy, world: World) -> None:
    assert calls(run_in(Status.PENDING, policy=policy), world) == [ZONES[0]]


@pytest.mark.parametrize(
    ("record", "asked"),
    [
        (replace(NONE_LEFT, stocked_out_at=NOW - 181), True),
        (replace(NONE_LEFT, stocked_out_at=NOW - 179), False),
        (replace(NONE_LEFT, stocked_out_at=NOW - 900, lost_at=(NOW - 60,)), False),
        (replace(NONE_LEFT, cause="quota", stocked_out_at=NOW - 900), False),
    ],
)
def test_a_zone_that_cools_down_is_asked_as_the_second_unless_it_was_down_just_now(
    record: ZoneRecord, asked: bool
) -> None:
    zones = SCARCE | {offer_key(place(zone)): replace(record, cool_until=NOW + 100) for zone in ZONES[1:]}
    assert calls(run_in(Status.PENDING, policy=POLICY), replace(WORLD, zones=zones)) == list(ZONES[: 1 + asked])


def test_the_refusal_of_the_second_shows_that_its_zone_is_down_and_cools_nothing() -> None:
    """Also after the first one has refused. The second one's quota may be what the first one took."""
    raced = decide(run_in(Status.PENDING, policy=POLICY), READ, WORLD, NOW).run
    first, second = raced.open_try, raced.open_rival
    assert first is not None
    assert second is not None
    refusals = {call: Seen(CreateFailed(call.launch_id, Cause.NO_CAPACITY, "none")) for call in (first, second)}
    key = offer_key(second.placement)
    of_second = decide(raced, replace(READ, rival_create=refusals[second]), WORLD, NOW + 5).lessons
    assert of_second == ((key, replace(NONE_LEFT, stocked_out_at=NOW + 5)),)
    of_first = decide(raced, replace(READ, create=refusals[first]), WORLD, NOW + 5)
    assert [record is not None and record.cool_until > NOW + 100 for _, record in of_first.lessons] == [True]
    both = decide(of_first.run, replace(READ, create=refusals[second]), WORLD, NOW + 5)
    assert both.lessons == of_second
    full = Seen(CreateFailed(second.launch_id, Cause.QUOTA, "GPUS_ALL_REGIONS", scope="project"))
    assert decide(raced, replace(READ, rival_create=full), WORLD, NOW + 5).lessons == ()


@pytest.mark.parametrize(
    ("policy", "unable", "says"),
    [
        (replace(POLICY, race=1), ["local"], ""),
        (POLICY, [], ""),
        (POLICY, ["local"], "local does not bill by the second"),
        (replace(POLICY, zones=("a",)), [], "two zones at least"),
        (replace(POLICY, spot=False), [], "spot machines"),
        (replace(POLICY, keep=KeepRule(True)), [], "no keep: machine"),
    ],
)
def test_a_race_that_can_never_begin_is_refused_at_the_submit(policy: Policy, unable: list[str], says: str) -> None:
    why = never_races(policy, unable)
    assert says in why
    assert bool(why) == bool(says)


# --- the loser --------------------------------------------------------------------------------------------------------

LOSER = Try(1, 2, "1.1.2", "m-2", place(ZONES[1]), NOW - 30, 0.6, 1.8, minimum_s=60.0, beside="1.1.1")
ITEM = Retiring(LOSER.ref, "1.1.2", NOW, NOW, "lost", call=LOSER)


def with_loser() -> Run:
    live = attempt(1, ZONES[0], launch_id="1.1.1", started_at=NOW, price_usd_per_h=0.6, step_from=None)
    return run_in(Status.RUNNING, policy=POLICY, attempt=live, retiring=(ITEM,))


def seen(state: MachineState = MachineState.UP) -> Seen[Machine]:
    return Seen(Machine("id-2", "m-2", ZONES[1], state, "the-supervisor", "digits-7", "1.1.2"))


@pytest.mark.parametrize(
    ("part", "at", "stays"),
    [
        (Absent(), NOW + 179, True),
        (Absent(), NOW + 181, False),
        (Absent(age_s=20.0), NOW + 190, True),
        (Unknown("the zone cannot be read"), NOW + 86_400, True),
    ],
)
def test_its_absence_proves_nothing_before_its_call_has_ended(part: Part[Machine], at: float, stays: bool) -> None:
    out = retire(with_loser(), Observation(retiring=(part,)), at)
    assert bool(out.run.retiring) == stays
    assert (out.actions, out.events, out.parted) == ((), (), ())


def test_a_clock_that_was_set_back_does_not_make_the_wait_longer() -> None:
    ahead = replace(with_loser(), retiring=(replace(ITEM, since=NOW + 3600, until=NOW + 3600),))
    assert righted(ahead, WORLD, NOW).retiring[0].lost_until == NOW + 180


def test_it_is_deleted_when_it_is_seen_and_billed_from_then_on() -> None:
    run = with_loser()
    first = retire(run, Observation(retiring=(seen(),)), NOW)
    assert [type(action) for action in first.actions] == [Release]
    assert first.run.money.cost_usd == pytest.approx(0.6 / 60)  # the least that the platform bills for
    later = retire(first.run, Observation(retiring=(seen(),)), NOW + 1800)
    assert run_cost_usd(later.run, NOW + 1800) == pytest.approx(2 * 0.3)
    gone = retire(later.run, Observation(retiring=(Absent(),)), NOW + 1830)
    assert gone.run.retiring == ()
    assert gone.run.money.cost_usd == pytest.approx(0.3)
    assert gone.parted == ()  # it has the number of the attempt that runs
    assert gone.run.attempt == run.attempt


def test_its_seconds_are_lost_in_the_ledger() -> None:
    """While it is billed, when it is gone, and when the next attempt began in between: its row has the number of the
    winner, and hides it nowhere."""
    run = with_loser()
    winner = run.attempt
    assert winner is not None
    for at, part, lost_s in ((NOW, seen(), 60.0), (NOW + 1800, seen(), 1800.0), (NOW + 1830, Absent(), 1800.0)):
        run = retire(run, Observation(retiring=(part,)), at).run
        assert_closes(run, [], at, lost_s)
        ended = replace(winner, ended_at=NOW + 5, stopped_at=NOW + 5, cause=Cause.PREEMPTED)
        second = attempt(2, ZONES[2], launch_id="1.2.1", started_at=NOW + 5, price_usd_per_h=0.6, step_from=None)
        money = replace(run.money, cost_usd=run.money.cost_usd + 0.6 * 5 / 3600)
        assert_closes(replace(run, attempt=second, money=money), [ended], max(at, NOW + 5), max(lost_s, 60.0))
    assert run.retiring == ()


def assert_closes(run: Run, stored: list[Attempt], now: float, lost_s: float) -> None:
    sums = ledger.ledger_of(run, stored, now)
    assert sums.billed_usd == pytest.approx(run_cost_usd(run, now))
    assert sums.usd[Use.LOST] == pytest.approx(0.6 * lost_s / 3600)
    assert sums.seconds[Use.LOST] == pytest.approx(lost_s)


def test_a_request_that_the_platform_still_looks_for_is_canceled_and_costs_nothing() -> None:
    out = retire(with_loser(), Observation(retiring=(seen(MachineState.ASKED),)), NOW)
    assert [type(action) for action in out.actions] == [Release]
    assert (out.run.money.cost_usd, out.run.retiring[0].call) == (0.0, LOSER)


def test_its_try_ends_as_lost_in_the_commit_that_obtains_the_winner() -> None:
    raced = decide(run_in(Status.PENDING, policy=POLICY), READ, WORLD, NOW).run
    assert raced.open_try is not None
    up = Machine("id-1", raced.open_try.machine_name, ZONES[0], MachineState.UP, "the-supervisor", "digits-7", "1.1.1")
    out = decide(raced, replace(READ, machine=Seen(up), rival=Unknown("not read now")), WORLD, NOW + 5).run
    assert out.live_attempt is not None
    assert out.rival is not None
    assert (out.live_attempt.launch_id, out.rival.outcome, out.open_rival) == ("1.1.1", Cause.RACE_LOST, None)
    assert [item.launch_id for item in out.retiring] == ["1.1.2"]


# --- less knowledge, fewer actions ------------------------------------------------------------------------------------

STATES = (MachineState.ASKED, MachineState.UP, MachineState.ENDING)


def part_of(call: Try | None, state: MachineState | None) -> Part[Machine]:
    assert call is not None
    if state is None:
        return Absent()
    return Seen(
        Machine("m", call.machine_name, call.placement.zone, state, "the-supervisor", "digits-7", call.launch_id)
    )


def effects(run: Run, first: Part[Machine], rival: Part[Machine], at: float) -> set[tuple[str, str]]:
    obs = replace(READ, machine=first, rival=rival, lookup=Absent())
    actions = decide(run, obs, replace(WORLD, observing_since={MACHINES: NOW}), at).actions
    deeds = [action for action in actions if isinstance(action, Launch | Release)]
    return {
        (type(deed).__name__, deed.try_.machine_name if isinstance(deed, Launch) else deed.ref.name) for deed in deeds
    }


@pytest.mark.parametrize("at", [NOW + 5, NOW + 2000])
@pytest.mark.parametrize("first", [None, *STATES])
@pytest.mark.parametrize("rival", [None, *STATES])
def test_what_cannot_be_read_adds_no_action(first: MachineState | None, rival: MachineState | None, at: float) -> None:
    run = decide(run_in(Status.PENDING, policy=POLICY), READ, WORLD, NOW).run
    a, b = part_of(run.open_try, first), part_of(run.open_rival, rival)
    whole, unread = effects(run, a, b, at), Unknown("the zone cannot be read")
    assert effects(run, unread, b, at) <= whole
    assert effects(run, a, unread, at) <= whole
    if first is None and rival is None and at < NOW + 60:
        assert len(whole) == 2  # both calls are repeated
