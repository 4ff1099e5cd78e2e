"""The presets of rentals: each file is complete, each known value names its page, and a wrong file is refused."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

import pytest

from supervisor.domain.profile import (
    NO_LIMIT,
    Danger,
    End,
    Profile,
    Source,
    Stops,
    Survival,
    danger_clocks,
    facts_of,
    merge,
    survival,
    tier_of,
)
from supervisor.providers.ssh.presets import GENERIC, PresetInvalid, measured, names, of_user, preset, read
from tools.project_files import ROOT

TEXT = (ROOT / "supervisor/providers/ssh/presets/runpod.toml").read_text()
RUMOR = '[pages.rumor]\ntitle = "x"\non = "2026-01-01"'
RENTALS = ("autodl", "lambda", "paperspace", "runpod", "vast")
YES, NO, VERIFY = Survival.YES, Survival.NO, Survival.VERIFY


def test_the_rentals_of_the_seeds_have_a_preset() -> None:
    assert names() == tuple(sorted((*RENTALS, GENERIC)))


@pytest.mark.parametrize("name", names())
def test_each_known_value_names_a_page_and_each_unknown_one_says_why(name: str) -> None:
    profile = preset(name)
    for field, fact in profile.facts.items():
        assert fact.note, field
        if fact.is_known:
            assert fact.source is Source.DOCUMENTED
            assert date.fromisoformat(fact.on) <= date(2026, 11, 26), field
    for part in (*profile.tiers, *profile.verbs):
        assert all(fact.note for fact in facts_of(part).values() if fact.is_known)


@pytest.mark.parametrize("name", names())
def test_each_preset_says_where_files_lie_and_how_the_bill_ends(name: str) -> None:
    profile = preset(name)
    assert profile.meter_verb is not None
    assert profile.meter_verb.stops_meter.value in (Stops.YES, Stops.PARTLY)
    assert tier_of(profile, "/home/user/run") == tier_of(profile, "~/run"), "the home is on the disk of the system"
    assert survival(profile, "~/run", End.DESTROY).value is NO
    assert survival(profile, "/dev/shm/x", End.DESTROY).value is NO  # noqa: S108
    assert not [tier for tier in profile.tiers if tier.bytes_cap.is_known or tier.inodes_cap.is_known]
    assert all("measure it: df -i" in tier.inodes_cap.note for tier in profile.tiers)


@pytest.mark.parametrize("name", names())
def test_nobody_has_measured_what_only_a_machine_can_tell(name: str) -> None:
    profile = preset(name)
    assert not profile.driver_cuda_max.is_known
    assert not profile.store_reach.is_known


def stop_and_end(name: str, path: str) -> tuple[Survival | None, Survival | None]:
    profile = preset(name)
    return survival(profile, path, End.STOP).value, survival(profile, path, End.DESTROY).value


@pytest.mark.parametrize(
    ("name", "path", "expected"),
    [
        ("autodl", "/root/autodl-tmp/run", (YES, NO)),
        ("autodl", "/root/autodl-fs/run", (YES, YES)),
        ("runpod", "/root/run", (NO, NO)),
        ("runpod", "/workspace/run", (YES, VERIFY)),
        ("vast", "/root/run", (YES, NO)),
        ("lambda", "/home/ubuntu/run", (None, NO)),
        ("lambda", "/lambda/nfs/data/run", (None, YES)),
        ("paperspace", "/home/paperspace/run", (YES, NO)),
        ("generic", "/data/run", (YES, NO)),
    ],
)
def test_what_survives_a_stop_and_what_survives_the_end(name: str, path: str, expected: Any) -> None:
    assert stop_and_end(name, path) == expected


@pytest.mark.parametrize("name", RENTALS)
def test_a_stop_that_is_still_billed_is_a_danger(name: str) -> None:
    clocks = [clock.danger for clock in danger_clocks(preset(name), None)]
    assert Danger.BILLS in clocks
    assert Danger.STOP_STILL_BILLS in clocks


def test_the_dangers_that_only_one_platform_has() -> None:
    clocks = {name: {clock.danger: clock for clock in danger_clocks(preset(name), 1.0)} for name in names()}
    assert clocks["autodl"][Danger.STOPPED_DELETED].after_s == 15 * 86400
    assert clocks["runpod"][Danger.PREEMPTED].after_s == 5
    assert clocks["vast"][Danger.PREEMPTED].after_s == 0
    assert clocks["generic"][Danger.BILLS].after_s == NO_LIMIT
    assert clocks["vast"][Danger.BILLS].after_s is None, "the owner's maximum duration may end it"
    assert Danger.NO_UNDO not in clocks["autodl"]
    assert all(Danger.NO_UNDO in clocks[name] for name in ("lambda", "paperspace", "runpod", "vast", "generic"))


def test_transfers_and_ports_differ() -> None:
    assert preset("runpod").ssh_copies_files.value is False
    assert preset("autodl").ssh_copies_files.value is True
    assert preset("vast").ssh_copies_files.value is None
    assert preset("runpod").ports_change_on_restart.value is True
    assert preset("autodl").mirror.value == "https://hf-mirror.com"
    assert preset("runpod").mirror.value == ""


# --- values of users and machines -------------------------------------------------------------------------------------


def test_what_a_user_says_beats_the_page_and_what_was_measured_beats_both() -> None:
    said = of_user({"ssh_copies_files": "true", "egress_usd_per_gb": "1", "idle_cap_s": "no limit"}, "2026-11-20")
    seen = measured({"egress_usd_per_gb": 0.05, "store_reach": "relay"}, "2026-11-01", "100 MB to the bucket")
    profile = merge(preset("runpod"), said, seen)
    assert (profile.kind, profile.title) == ("ssh", "RunPod")
    assert profile.ssh_copies_files.value is True
    assert profile.idle_cap_s.value == NO_LIMIT
    assert (profile.egress_usd_per_gb.value, profile.egress_usd_per_gb.source) == (0.05, Source.MEASURED)
    assert profile.store_reach.value == "relay"
    assert profile.verbs == preset("runpod").verbs


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"nonsense": 1}, "nonsense: a profile has no such field"),
        ({"title": "x"}, "title: a profile has no such field"),
        ({"notice_s": "30"}, "notice_s: '30' is not of the type float"),
        ({"notice_s": True}, "notice_s: True is not of the type float"),
        ({"notice_s": -1}, "notice_s: -1 is not a number of at least 0"),
        ({"notice_s": float("nan")}, "not a number of at least 0"),
        ({"preemptible": "no"}, "preemptible: 'no' is not of the type bool"),
        ({"mirror": 1}, "mirror: 1 is not of the type str"),
    ],
)
def test_a_value_of_another_type_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(PresetInvalid, match=re.escape(words)):
        measured(values, "2026-11-20", "by hand")


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("nonsense", "1", "nonsense: a profile has no such field"),
        ("notice_s", "soon", "notice_s: 'soon' is not of the type float"),
        ("notice_s", "-1", "notice_s: -1.0 is not a number of at least 0"),
        ("preemptible", "no", "preemptible: 'no' is not of the type bool"),
        ("store_reach", "by boat", "'by boat' is not a valid Reach"),
    ],
)
def test_a_text_of_another_type_is_refused(field: str, text: str, words: str) -> None:
    with pytest.raises(PresetInvalid, match=re.escape(words)):
        of_user({field: text}, "2026-11-20")


def test_another_name_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(PresetInvalid, match="there is no preset 'ec2': expected autodl, generic, lambda"):
        preset("ec2")


# --- broken files -----------------------------------------------------------------------------------------------------


def test_the_file_as_it_is_can_be_read() -> None:
    assert read(TEXT, "runpod") == preset("runpod")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (("quota = { note", "# quota = { note"), "quota: each is named"),
        (("[facts]", "[facts]\nmood = { note = 'good' }"), "mood"),
        (("value = 5, page", "value = 'five', page"), "kill_grace_s: 'five'"),
        (("value = 5, page", "value = nan, page"), "not a number of at least 0"),
        (('value = 5, page = "profile"', "value = 5"), "page '' is not in [pages]"),
        (('value = 5, page = "profile"', 'value = 5, page = "hearsay"'), "page 'hearsay' is not in [pages]"),
        (('quota = { note = "see the console" }', 'quota = { value = "" }'), "note is missing"),
        (('quota = { note = "see the console" }', 'quota = { note = "x", page = "ssh" }'), "page is not expected"),
        (('stop = "no"', 'stop = "perhaps"'), "'perhaps' is not a valid Survival"),
        (('stop = "no"', 'nap = "no"'), "nap is not expected"),
        (('end = "stop"', 'end = "sleep"'), "SLEEP"),
        (('by = "command"', 'by = "magic"'), "MAGIC"),
        (('stops_meter = "partly"', 'stops_meter = "mostly"'), "'mostly' is not a valid Stops"),
        (('on = "2026-06-20"', 'on = "2026-06-31"'), "day is out of range"),
        (("[pages.ssh]", f"{RUMOR}\n\n[pages.ssh]"), "no value names the pages rumor"),
        (('title = "RunPod"', 'subject = "RunPod"'), "subject is not expected"),
        (('paths = ["/workspace"]', "inodes_cap = 200000"), "inodes_cap is not expected"),
        (("[facts]", "[facts"), "preset broken"),
    ],
)  # fmt: skip
def test_a_broken_file_is_refused_with_its_fault(wrong: tuple[str, str], words: str) -> None:
    assert wrong[0] in TEXT
    with pytest.raises(PresetInvalid, match=re.escape(words)):
        read(TEXT.replace(*wrong, 1), "broken")


def test_a_profile_is_a_value_that_is_read_once() -> None:
    assert isinstance(preset("lambda"), Profile)
    assert preset("lambda") is preset("lambda")
