"""Incidents: what ends have in common, which are one incident, and whom one stops. Times in seconds."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from supervisor.contract.heartbeat import FINISHED, Exit
from supervisor.domain.causes import Cause
from supervisor.domain.events import Event, EventKind, announced
from supervisor.domain.incidents import Blocked, Common, Incident, Signature
from supervisor.domain.observation import Observation
from supervisor.domain.run import Files, Image, Run
from supervisor.domain.status import Status
from supervisor.lifecycle import incidents
from supervisor.lifecycle.ending.exits import end_in
from supervisor.lifecycle.incidents import (
    Ended,
    blocked_by,
    closed_event,
    ended_of,
    failing_incident,
    grouped,
    host_incident,
    is_over,
    normalized,
    opened_event,
    signatures,
)
from supervisor.lifecycle.offers.choosing import NoOffer, choose
from tests.lifecycle.sample_runs import NOW, WORLD, attempt, beat_of, place, run_in

KEY_ERROR = "KeyError: 'loss'"
CODE, OTHER_CODE = "c" * 64, "d" * 64


def a_run(name: str = "one", owner: str = "alice", code: str | None = CODE, image: str = "", **fields: object) -> Run:
    policy = replace(run_in(Status.FAILED).policy, code=code)
    run = run_in(Status.FAILED, run_id=name, owner=owner, policy=policy, image=Image(digest=image))
    return replace(run, **fields)  # type: ignore[arg-type]


def end(
    name: str = "one",
    cause: Cause = Cause.USER_ERROR,
    text: str = KEY_ERROR,
    *,
    ago: float = 60.0,
    trained: float | None = 20.0,
    zone: str = "us-east1-c",
    machine: str = "",
    owner: str = "alice",
    code: str | None = CODE,
    image: str = "",
) -> Ended:
    """The end of a run's first attempt; one that cannot be part of an incident fails the test."""
    found = ended_of(*ended_run(name, cause, text, ago=ago, trained=trained, zone=zone, owner=owner, code=code,
                                image=image), machine)  # fmt: skip
    assert found is not None
    return found


def ended_run(name: str, cause: Cause, text: str, *, ago: float, trained: float | None, zone: str, owner: str,
              code: str | None, image: str):  # type: ignore[no-untyped-def]  # fmt: skip
    at = NOW - ago
    life = attempt(
        1, zone, ended_at=at, cause=cause, code=code, exit=Exit(1, None, False, 20.0, text) if text else None,
        training_at=None if trained is None else at - trained,
    )  # fmt: skip
    return a_run(name, owner, code, image), life


def nothing_works(_: Signature) -> bool:
    return False


def found(*ends: Ended, stored: tuple[Incident, ...] = (), works: Callable[[Signature], bool] = nothing_works,
          now: float = NOW) -> list[Incident]:  # fmt: skip
    return grouped(ends, stored, works, now)


# --- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("FileNotFoundError: /data/run-1/x.pt", "FileNotFoundError: /mnt/other/y.pt"),
        ("RuntimeError: bad tensor at 0xdeadbeef01", "RuntimeError: bad tensor at 0x7f3a"),
        ("[rank0]: ValueError: batch 17 is empty", "[rank3]: ValueError: batch 9,001 is empty"),
        ("torch.OutOfMemoryError: tried 2.50 GiB", "torch.OutOfMemoryError: tried 512.00 GiB"),
        ("ConnectionError: https://a.example/x?y=1", "ConnectionError: http://b.example"),
        ("AssertionError in job 3f2a9c  twice", "AssertionError in job 77b1  twice"),
    ],
)
def test_texts_that_differ_in_numbers_paths_and_ids_are_the_same(left: str, right: str) -> None:
    assert normalized(left) == normalized(right) != ""


def test_other_texts_differ_and_a_text_that_says_nothing_counts_for_none() -> None:
    texts = [normalized(text) for text in (KEY_ERROR, "KeyError: 'lr'", "ValueError: loss", "No module named 'timm'")]
    assert len(set(texts)) == 4
    assert [normalized(text) for text in ("", "42", "/a/b/c", "exit 1", "0x1 0x2 https://x.y/z")] == [""] * 5
    for hostile in ("word " * 10_000, "w" * 100_000, "/a" * 50_000, "[a]" * 30_000 + " ", "1.1" * 30_000):
        began = time.perf_counter()
        assert len(normalized(hostile)) <= incidents.ERROR_MAX
        assert time.perf_counter() - began < 0.5, hostile[:9]


def test_only_ends_that_are_somebodys_fault_have_signatures() -> None:
    """Of every cause: which kinds of signatures its end has, in a run with code and image on a known machine."""
    kinds = {}
    for cause in Cause:
        run, life = ended_run("one", cause, KEY_ERROR, ago=1, trained=20.0, zone="z", owner="o", code=CODE, image="i@s")
        kinds[cause] = "".join(each.kind[0] for each in signatures(run, life, "node-1"))
    assert {cause: text for cause, text in kinds.items() if text} == {
        Cause.USER_ERROR: "ec", Cause.COMMAND_NOT_FOUND: "eci", Cause.IMAGE_ERROR: "eci", Cause.GPU_OOM: "ec",
        Cause.DISK_FULL: "ec", Cause.LAUNCH_REJECTED: "eci", Cause.SETUP_FAILED: "ec",
        Cause.HOST_OOM: "c", Cause.STALLED: "c", Cause.UNKNOWN: "c", Cause.BOOT_TIMEOUT: "imz",
        Cause.GPU_FAULT: "mz", Cause.GPU_UNAVAILABLE: "mz", Cause.HOST_ERROR: "mz", Cause.HOST_REBOOTED: "mz",
    }  # fmt: skip


# --- groups -----------------------------------------------------------------------------------------------------------


def test_three_runs_alike_within_an_hour_are_one_incident_with_all_that_they_share() -> None:
    ends = [end(name, ago=ago) for name, ago in (("one", 3500.0), ("two", 1800.0), ("three", 1.0))]
    [incident] = found(*ends)
    assert [each.kind for each in incident.common] == [Common.ERROR, Common.CODE]
    assert (incident.runs, incident.cause, incident.blocks) == (("one", "two", "three"), "user_error", True)
    assert found(*ends[:2]) == []
    assert found(*ends, now=NOW + 200) == [], "the first is more than an hour old"
    assert found(end("one"), end("one"), end("two")) == [], "two runs"


def test_the_largest_group_first_and_the_code_rather_than_its_image() -> None:
    same_code = [end(f"code-{n}", text=f"{word}Error: x", image="i@s") for n, word in enumerate(("Key", "Type", "Os"))]
    same_image = [end(f"image-{n}", Cause.IMAGE_ERROR, "", code=None, image="i@s", trained=None) for n in range(4)]
    incidents_found = found(*same_code, *same_image)
    assert [[each.kind for each in incident.common] for incident in incidents_found] == [[Common.IMAGE], [Common.CODE]]
    assert [len(incident.runs) for incident in incidents_found] == [4, 3]


def test_three_preemptions_are_ordinary_and_three_failed_boots_are_not() -> None:
    lost = ended_run("one", Cause.PREEMPTED, "", ago=1, trained=9, zone="z", owner="o", code=CODE, image="i@s")
    assert ended_of(*lost, "") is None
    boots = [end(f"run-{n}", Cause.BOOT_TIMEOUT, "", code=f"{n}" * 64, image=f"i@{n}", trained=None) for n in range(3)]
    [incident] = found(*boots)
    assert ([each.kind for each in incident.common], incident.blocks) == ([Common.ZONE], False)


def test_it_depends_neither_on_the_order_nor_on_repeats() -> None:
    ends = [end(f"run-{n}", owner=f"owner-{n % 2}", ago=n * 7.0) for n in range(9)]
    ends += [end(f"boot-{n}", Cause.BOOT_TIMEOUT, "", ago=n * 9.0, trained=None) for n in range(4)]
    first = found(*ends)
    assert len(first) == 2
    for seed in range(20):
        mixed = [*ends, *ends[:3]]
        random.Random(seed).shuffle(mixed)
        assert found(*mixed) == first


def test_a_later_end_joins_without_another_incident_and_again_changes_nothing() -> None:
    [opened] = found(*(end(name) for name in ("one", "two", "three")))
    stored = replace(opened, id=7)
    [grown] = found(end("four", text="TypeError: another text of the same code"), stored=(stored,))
    assert (grown.id, grown.runs[-1]) == (7, "four")
    assert found(*(end(name) for name in ("one", "two", "three")), stored=(stored,)) == []
    many = stored
    for n in range(300):
        many = (found(end(f"more-{n}", ago=300.0 - n), stored=(many,)) or [many])[0]
    assert len(many.members) == incidents.MEMBERS_MAX
    assert many.last_at == NOW - 1.0, "the quiet day is counted from the last one all the same"


def test_an_owner_sees_no_error_text_of_another_with_the_same_image() -> None:
    text = "ValueError: the secret of alice"
    [opened] = found(*(end(name, text=text, code=None, image="python@sha") for name in ("one", "two", "three")))
    other = end("four", text="OSError: of bob", owner="bob", code=None, image="python@sha")
    [joined] = found(other, stored=(replace(opened, id=7),))
    assert set(joined.runs) == {"one", "two", "three", "four"}
    assert joined.seen_by("bob").common == (Signature(Common.IMAGE, "python@sha"),)
    assert joined.seen_by("alice").common == joined.common


def test_ends_before_the_closing_open_no_other_incident() -> None:
    ends = [end(name) for name in ("one", "two", "three")]
    [opened] = found(*ends)
    closed = replace(opened, id=7, closed_at=NOW - 30)
    assert found(*ends, stored=(closed,)) == []
    assert found(*ends, end("four", ago=1), end("five", ago=1), stored=(closed,)) == []
    [again] = found(*ends, *(end(f"again-{n}", ago=1) for n in range(3)), stored=(closed,))
    assert (again.id, len(again.runs)) == (0, 3)


def test_random_hours_are_stable_whenever_the_leader_changes() -> None:
    """At every moment: an end is in one incident at most, grouping again changes nothing, and a leader that groups
    only now knows of no more and no fewer alerts than one that has grouped after each end."""
    for seed in range(60):
        chance = random.Random(seed)
        ends = [
            end(
                f"run-{chance.randrange(12)}", chance.choice((Cause.USER_ERROR, Cause.BOOT_TIMEOUT, Cause.GPU_FAULT)),
                chance.choice((KEY_ERROR, "OSError: full", "TypeError: x")), ago=chance.uniform(0.0, 3000.0),
                owner=chance.choice(("alice", "bob")), code=chance.choice((CODE, OTHER_CODE)),
                machine=chance.choice(("", "box")), zone=chance.choice(("a", "b")),
            )
            for _ in range(chance.randrange(25))
        ]  # fmt: skip
        stored: dict[int, Incident] = {}
        for so_far in sorted({each.member.at for each in ends}):
            now_there = [each for each in ends if each.member.at <= so_far]
            for incident in grouped(now_there, [*stored.values()], nothing_works, so_far):
                number = incident.id or len(stored) + 1
                stored[number] = replace(incident, id=number)
        members = [(each.run_id, each.at) for incident in stored.values() for each in incident.members]
        assert len(members) == len(set(members)), seed
        assert found(*ends, stored=tuple(stored.values())) == [], seed
        assert bool(found(*ends)) == bool(stored), seed


# --- what they stop ---------------------------------------------------------------------------------------------------


def opened(*ends: Ended, works: Callable[[Signature], bool] = nothing_works) -> Incident:
    [incident] = found(*ends, works=works)
    return replace(incident, id=7)


def test_code_that_failed_at_once_in_three_runs_of_an_owner_is_stopped_for_that_owner() -> None:
    blocked = blocked_by([opened(*(end(name) for name in ("one", "two", "three")))])
    assert failing_incident(a_run("four"), blocked) == (Signature(Common.CODE, CODE), 7)
    assert failing_incident(a_run("four", code=OTHER_CODE), blocked) is None
    assert failing_incident(a_run("four", owner="bob"), blocked) is None, "alice's failures stop no run of bob"
    assert failing_incident(a_run("four", reported=True), blocked) is None, "it has worked before"
    assert failing_incident(a_run("four"), Blocked()) is None


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ([end(f"{n}", trained=300.0) for n in range(3)], "it ran for minutes"),
        ([end(f"{n}", Cause.GPU_OOM, "OutOfMemoryError") for n in range(3)], "another machine may have more memory"),
        ([end(f"{n}", Cause.COMMAND_NOT_FOUND, "no such file: pyhton") for n in range(3)], "the command is wrong"),
        ([end(f"{n}", owner=f"owner-{n}") for n in range(3)], "one run of each of three owners"),
        ([end(f"{n}", code=f"{n}" * 64) for n in range(3)], "three codes with one text"),
    ],
)
def test_less_than_that_is_an_alert_and_stops_nothing(ends: list[Ended], why: str) -> None:
    incident = opened(*ends)
    assert not incident.blocks, why
    assert not blocked_by([incident])


def test_an_image_stops_runs_without_code_and_those_that_cannot_start_in_it() -> None:
    blocked = blocked_by([opened(*(end(f"{n}", code=None, image="i@s") for n in range(3)))])
    assert failing_incident(a_run("four", code=None, image="i@s"), blocked) == (Signature(Common.IMAGE, "i@s"), 7)
    with_code = [end(f"{n}", code=f"{n}" * 64, image="i@s", text=f"{'abc'[n] * 9}") for n in range(3)]
    assert found(*with_code) == [], "somebody corrects his code again and again: the image is not to blame"


def test_what_another_run_works_with_is_not_stopped() -> None:
    assert not opened(*(end(f"{n}") for n in range(3)), works=lambda each: each.value == CODE).blocks


def test_a_closed_incident_stops_nothing_and_one_that_stops_something_stays_open() -> None:
    incident = opened(*(end(f"{n}") for n in range(3)))
    assert not blocked_by([replace(incident, closed_at=NOW)])
    assert not is_over(incident, NOW + 30 * 86_400)
    free = replace(incident, blocks=False)
    assert (is_over(free, NOW + 86_000), is_over(free, NOW + 86_400)) == (False, True)


def test_a_machine_with_two_faults_of_its_gpu_within_a_day_is_set_aside() -> None:
    twice = [end(name, Cause.GPU_FAULT, "", zone="box", machine="box", ago=ago) for name, ago in
             (("one", 80_000.0), ("two", 5.0))]  # fmt: skip
    incident = opened(*twice)
    blocked = blocked_by([incident])
    assert ([each.kind for each in incident.common], incident.blocks) == ([Common.MACHINE], True)
    assert (host_incident(place("box"), blocked), host_incident(place("other"), blocked)) == (7, None)
    assert found(twice[1]) == []
    cloud = [end(name, Cause.GPU_FAULT, "") for name in ("one", "two")]
    assert found(*cloud) == [], "machines of a cloud do not come back"


def test_words_of_a_command_set_no_machine_aside() -> None:
    """Broken variant: an owner whose training printed an error of ECC twice took the machine from all others."""
    words = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    ends = []
    for name in ("one", "two"):
        run, life = ended_run(
            name, Cause.GPU_FAULT, words, ago=5, trained=20.0, zone="box", owner="o", code=CODE, image=""
        )
        by_words = end_in(run, beat_of(life, 12, FINISHED, exit=life.exit), Observation(), WORLD)
        assert by_words is not None
        assert by_words.cause == Cause.GPU_FAULT
        ends.append(ended_of(run, replace(life, verdict=by_words.verdict), "box"))
    assert found(*filter(None, ends)) == []


def test_an_incident_that_begins_to_stop_launches_says_so_once_more() -> None:
    slow = [end(f"slow-{n}", trained=300.0) for n in range(3)]
    incident = opened(*slow)
    later = [end(f"fast-{n}", ago=9.0 - n) for n in range(3)]
    [grown] = found(*later, stored=(incident,))
    assert (incident.blocks, grown.blocks) == (False, True)


def test_it_is_the_gate_that_stops_and_a_waiver_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    from supervisor.domain.gates.verdicts import Waiver
    from supervisor.domain.machines import Offer
    from supervisor.domain.profile import Profile

    incident = opened(*(end(f"{n}") for n in range(3)))
    offer = Offer(place(), 1.0, None)
    world = replace(
        WORLD, offers={"gce": (offer,)}, profiles={("gce", "us-east1-c"): Profile("gce", "gce")},
        blocked=blocked_by([incident]),
    )  # fmt: skip
    run = replace(a_run("four", image="i@s"), status=Status.PENDING, files=Files())

    def choice(run: Run, **more: object) -> object:
        return choose(run, replace(world, judged={}, choices={}, **more), NOW)  # type: ignore[arg-type]

    stopped = choice(run)
    assert isinstance(stopped, NoOffer)
    assert (stopped.cause, stopped.stopped, stopped.until) == (Cause.LAUNCH_REJECTED, "KNOWN_TO_FAIL", None)
    assert "incident 7" in stopped.detail
    assert choice(replace(run, waivers=(Waiver("known_to_fail", "we know", "ops", NOW),))) == offer
    assert choice(replace(run, owner="bob")) == offer
    assert choice(run, blocked=None) == offer, "what was not read stops nothing"
    monkeypatch.setattr(incidents, "blocked_by", lambda _: Blocked())
    assert choice(run, blocked=incidents.blocked_by([incident])) == offer


# --- the alert --------------------------------------------------------------------------------------------------------


def test_the_alert_says_how_many_why_what_is_common_which_runs_and_what_to_do() -> None:
    names = [f"run-{n}" for n in range(7)]
    event = opened_event(opened(*(end(name, ago=60.0 * n) for n, name in enumerate(names))))
    assert event.text == (
        "Incident 7: 7 runs ended as user_error with the same error: KeyError: 'loss'. Also in common: the code "
        "cccccccccccc. All within 6 min. Runs: run-6, run-5, run-4, run-3, run-2 and 2 more. Runs that would start "
        "with this code wait. Submit a corrected code, or start them all the same: spot incidents close 7."
    )
    assert announced(event) == "incident"
    assert (event.data["count"], event.data["blocks"], event.data["run_ids"]) == (7, True, names[::-1])


def test_of_the_runs_that_it_stops_none_asks_a_person_once_more() -> None:
    def waiting(code: str) -> str | None:
        return announced(Event(EventKind.WAITING, "Needs you.", data={"cause": "launch_rejected", "code": code}))

    assert (waiting("KNOWN_TO_FAIL"), waiting("PLACE_QUARANTINED"), waiting("DRIVER_TOO_OLD")) == (
        "waiting", "waiting", "needs_person",
    )  # fmt: skip


def test_the_other_sentences() -> None:
    faults = opened(*(end(n, Cause.GPU_FAULT, "", zone="box", machine="box") for n in ("one", "two")))
    assert "2 runs on the machine box ended as gpu_fault. " in opened_event(faults).text
    assert opened_event(faults).text.endswith("When it works again: spot incidents close 7.")
    boots = opened(*(end(f"{n}", Cause.BOOT_TIMEOUT, "", code=None, trained=None) for n in range(3)))
    assert "3 runs in zone us-east1-c ended as boot_timeout. " in opened_event(boots).text
    text = closed_event(replace(boots, closed_at=NOW)).text
    assert text == ("Incident 7 is closed: no further run for a day. 3 runs in zone us-east1-c ended as boot_timeout.")
    assert announced(closed_event(boots)) == "incident_closed"


# --- broken variants --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "broken", "caught_by"),
    [
        ("RUNS_MIN", 2, test_three_runs_alike_within_an_hour_are_one_incident_with_all_that_they_share),
        ("WINDOW_S", 7200.0, test_three_runs_alike_within_an_hour_are_one_incident_with_all_that_they_share),
        ("_closed_at", lambda *_: {}, test_ends_before_the_closing_open_no_other_incident),
        ("has_worked", lambda *_: False,
         test_code_that_failed_at_once_in_three_runs_of_an_owner_is_stopped_for_that_owner),
        ("_OF_PLACE", frozenset(Cause), test_only_ends_that_are_somebodys_fault_have_signatures),
        ("BLOCKING_FAULTS", 1, test_a_machine_with_two_faults_of_its_gpu_within_a_day_is_set_aside),
        ("FAULTS_WINDOW_S", 3600.0, test_a_machine_with_two_faults_of_its_gpu_within_a_day_is_set_aside),
        ("_common", lambda group: group[0].signatures,
         test_the_largest_group_first_and_the_code_rather_than_its_image),
    ],
)  # fmt: skip
def test_a_broken_rule_is_caught(
    name: str, broken: object, caught_by: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, name, broken)
    with pytest.raises((AssertionError, ValueError)):
        caught_by()
