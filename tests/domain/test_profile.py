"""Profiles: an unknown value stays unknown, each known one says where it comes from, and a path has one tier at most.

Each property is checked twice: on the real rules, where it must hold, and on rules that were broken on purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from supervisor.domain import profile as rules
from supervisor.domain.profile import (
    NO_LIMIT,
    UNKNOWN,
    End,
    Fact,
    Profile,
    Source,
    Stops,
    Survival,
    Tier,
    Verb,
    merge,
    survival,
    tier_of,
)
from tests.properties import examples

DAY = "2026-11-26"
TIMES = ("notice_s", "kill_grace_s")
LIMITS = ("session_cap_s", "idle_cap_s", "dead_man_s", "stopped_kept_s")
WORDS = ("detach", "quota", "mirror", "unpaid", "meter_stop")
FLAGS = ("irreversible", "preemptible", "survives_reboot")


def known(value: Any, source: Source = Source.DOCUMENTED, on: str = DAY, note: str = "a page of the platform") -> Any:
    return Fact(value, source, on, note)


def facts(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Fact[Any]]:
    days = st.sampled_from(("2026-01-31", "2026-06-01", DAY))
    notes = st.text("abc", min_size=1, max_size=3)
    sources = st.sampled_from(Source)
    unknown = st.builds(Fact, st.none(), st.none() | sources, st.just(""), st.just("") | notes)
    return st.just(UNKNOWN) | unknown | st.builds(Fact, values, sources, days, notes)


def tiers() -> st.SearchStrategy[tuple[Tier, ...]]:
    lives = facts(st.sampled_from(Survival))
    tier = st.builds(
        Tier,
        st.sampled_from(("root disk", "data disk", "shared")),
        st.sampled_from(((), ("/",), ("~",), ("/data", "/mnt/*/data"))),
        *[lives] * len(End),
        facts(st.integers(0, 10**12)),
    )
    return st.lists(tier, max_size=3, unique_by=lambda each: each.name).map(tuple)


def verbs() -> st.SearchStrategy[tuple[Verb, ...]]:
    verb = st.builds(
        Verb,
        st.sampled_from(("stop", "destroy")),
        end=st.none() | st.sampled_from(End),
        stops_meter=facts(st.sampled_from(Stops)),
        undo=facts(st.booleans()),
    )
    return st.lists(verb, max_size=2, unique_by=lambda each: each.verb).map(tuple)


def profiles() -> st.SearchStrategy[Profile]:
    return st.builds(
        Profile,
        st.just("ssh"),
        st.just("A box"),
        tiers=tiers(),
        verbs=verbs(),
        **{name: facts(st.integers(0, 300)) for name in TIMES},
        **{name: facts(st.sampled_from((3600.0, 86400.0, NO_LIMIT))) for name in LIMITS},
        **{name: facts(st.sampled_from(("", "destroy", "a text"))) for name in WORDS},
        **{name: facts(st.booleans()) for name in FLAGS},
    )


def all_facts(profile: Profile) -> dict[tuple[str, str], Fact[Any]]:
    """(part, field) -> fact, for everything in it."""
    parts: list[tuple[str, Profile | Tier | Verb]] = [("", profile)]
    parts += [(tier.name, tier) for tier in profile.tiers]
    parts += [(verb.verb, verb) for verb in profile.verbs]
    return {(name, field): fact for name, part in parts for field, fact in rules.facts_of(part).items()}


def checked(test: Callable[..., None], *values: st.SearchStrategy[Any], shrinks: bool = True) -> Callable[[], None]:
    """Broken rules need no shrinking."""
    phases = tuple(Phase) if shrinks else (Phase.generate,)
    chosen = settings(
        max_examples=examples(50 if shrinks else 500, 3000), phases=phases, database=None, derandomize=True
    )
    return chosen(given(*values)(test))


# --- each value has a source ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["source", "on", "note"])
def test_a_known_value_needs_its_source_its_day_and_its_note(missing: str) -> None:
    empty = None if missing == "source" else ""
    with pytest.raises(ValueError, match="needs a source, a date and a note"):
        replace(known(30.0), **{missing: empty})


def test_a_false_zero_or_empty_value_is_known_and_needs_them_too() -> None:
    for value in (False, 0, 0.0, ""):
        assert known(value).is_known
        with pytest.raises(ValueError, match="needs a source"):
            Fact(value)


def test_a_day_is_a_day() -> None:
    with pytest.raises(ValueError, match="month"):
        known(1, on="2026-13-01")


def test_a_profile_of_nothing_knows_nothing() -> None:
    profile = Profile("ssh", "A box")
    assert [name for name, fact in profile.facts.items() if fact.is_known] == []
    assert (profile.saving_s, profile.meter_verb) == (None, None)
    plain = {"kind", "title", "tiers", "verbs", "host"}
    assert set(profile.facts) == {field.name for field in fields(Profile)} - plain, "every other field is a fact"


def test_the_time_to_save_is_known_only_where_both_parts_are() -> None:
    profile = Profile("cloud", "A cloud", notice_s=known(120.0), kill_grace_s=known(30.0))
    assert profile.saving_s == 150.0
    assert replace(profile, notice_s=UNKNOWN).saving_s is None
    assert replace(profile, kill_grace_s=UNKNOWN).saving_s is None


# --- one profile from several -----------------------------------------------------------------------------------------


def nothing_is_invented_or_lost(first: Profile, second: Profile) -> None:
    """Each fact of the merged profile is one of the two, and it is known where one of the two is."""
    merged, one, two = all_facts(merge(first, second)), all_facts(first), all_facts(second)
    assert merged.keys() == one.keys() | two.keys()
    for key, fact in merged.items():
        sources = [each[key] for each in (one, two) if key in each]
        assert fact in sources
        assert fact.is_known == any(source.is_known for source in sources)


def measured_beats_user_beats_documented(first: Profile, second: Profile) -> None:
    merged, one, two = all_facts(merge(first, second)), all_facts(first), all_facts(second)
    order = [None, *Source]
    for key, fact in merged.items():
        ranks = [order.index(each[key].source) for each in (one, two) if key in each and each[key].is_known]
        if ranks:
            assert order.index(fact.source) == max(ranks)


def merging_is_a_fold(first: Profile, second: Profile) -> None:
    """Twice is once, and nothing merges with itself into something else."""
    once = merge(first, second)
    assert merge(once, second) == once
    assert merge(first, first) == first
    assert merge(first) == first


MERGING = (nothing_is_invented_or_lost, measured_beats_user_beats_documented, merging_is_a_fold)


@pytest.mark.parametrize("holds", MERGING)
def test_merging(holds: Callable[[Profile, Profile], None]) -> None:
    checked(holds, profiles(), profiles())()


def test_merging_in_steps_is_merging_at_once() -> None:
    def in_steps(first: Profile, second: Profile, third: Profile) -> None:
        assert merge(merge(first, second), third) == merge(first, merge(second, third)) == merge(first, second, third)

    checked(in_steps, profiles(), profiles(), profiles())()


@pytest.mark.parametrize(
    "broken",
    [
        lambda first, second: second,  # the last word wins, also when it says nothing
        lambda first, second: first if first.is_known else second,  # the first word wins
        lambda first, second: first if first.source == Source.USER else second,  # users are never wrong
        lambda first, second: replace(second, value=second.value or first.value or 0, source=Source.USER, on=DAY,
                                      note="a guess"),  # an unknown value becomes 0
    ],
    ids=["the last word", "the first word", "users first", "a guess"],
)  # fmt: skip
def test_a_broken_merge_is_caught(broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "stronger", broken)
    caught = 0
    for holds in MERGING:
        try:
            checked(holds, profiles(), profiles(), shrinks=False)()
        except (AssertionError, ValueError):
            caught += 1
    assert caught


def test_the_newer_of_two_measurements_wins_whatever_the_order() -> None:
    old, new = known(10, Source.MEASURED, "2026-01-31"), known(20, Source.MEASURED, DAY)
    for pair in ((old, new), (new, old)):
        assert rules.stronger(*pair) == new
    assert rules.stronger(known(1), known(2)).value == 2, "of the same day: the second"


def test_a_measured_cap_joins_the_tier_that_a_preset_documents() -> None:
    preset = Profile("ssh", "A box", tiers=(Tier("root disk", ("/",), survives_stop=known(Survival.YES)),))
    measured = Profile("ssh", "", tiers=(Tier("root disk", bytes_cap=known(80_000_000_000, Source.MEASURED)),))
    (tier,) = merge(preset, measured).tiers
    assert (tier.paths, tier.survives_stop.value, tier.bytes_cap.value) == (("/",), Survival.YES, 80_000_000_000)


# --- the survival of a path -------------------------------------------------------------------------------------------

ROOT = Tier("root disk", ("/", "~"), survives_stop=known(Survival.YES), survives_destroy=known(Survival.NO))
DATA = Tier("data disk", ("/root/data",), survives_stop=known(Survival.YES))
RAM = Tier("memory", ("/run",), survives_stop=known(Survival.NO))
EACH = Tier("volume", ("/mnt/*/volume",), survives_destroy=known(Survival.VERIFY))
STORE = Tier("store", ("gs://bucket/runs",), survives_destroy=known(Survival.YES))
BOX = Profile("ssh", "A box", tiers=(ROOT, DATA, RAM, EACH, STORE))


@pytest.mark.parametrize(
    ("path", "tier"),
    [
        ("/", ROOT),
        ("/etc/hosts", ROOT),
        ("/root/data", DATA),
        ("/root/data/", DATA),
        ("//root//./data/run/1", DATA),
        ("/root/database", ROOT),
        ("/root", ROOT),
        ("~", ROOT),
        ("~/proj", ROOT),
        ("/run/x", RAM),
        ("/mnt/a/volume/x", EACH),
        ("/mnt/volume", ROOT),
        ("gs://bucket/runs/one", STORE),
        ("gs://bucket", None),
        ("gs://other/runs", None),
        ("/root/data/../../etc", None),
        ("proj/checkpoints", None),
        ("", None),
        (".", None),
        ("~other/proj", None),
    ],
)
def test_the_tier_of_a_path_is_the_longest_pattern_that_covers_it(path: str, tier: Tier | None) -> None:
    assert tier_of(BOX, path) == tier


def test_without_the_home_a_path_below_the_root_may_be_in_it() -> None:
    system, home = Tier("system", ("/", "/opt")), Tier("home", ("~",))
    profile = Profile("ssh", "A box", tiers=(system, home))
    assert tier_of(profile, "/home/user/x") is None
    assert tier_of(profile, "/home/user/x", home="/home/user") == home
    assert tier_of(profile, "/etc/x", home="/home/user") == system
    assert tier_of(profile, "~/x") == tier_of(profile, "~/x", home="/home/user") == home
    assert tier_of(profile, "/opt/x") == system


def test_where_no_tier_covers_a_path_its_survival_is_unknown() -> None:
    assert survival(BOX, "proj", End.STOP) == UNKNOWN
    assert survival(BOX, "/root/data/x", End.DESTROY) == UNKNOWN, "the tier is known, and this column of it is not"
    assert survival(BOX, "/root/data/x", End.STOP).value is Survival.YES
    assert survival(BOX, "/mnt/a/volume", End.DESTROY).value is Survival.VERIFY
    assert survival(Profile("ssh", "A box"), "/", End.STOP) == UNKNOWN


def test_each_end_is_a_column_of_its_own() -> None:
    facts_ = [known(Survival.YES), known(Survival.NO), known(Survival.VERIFY), UNKNOWN]
    tier = Tier("x", ("/",), *facts_)
    assert [tier.survives(end) for end in End] == facts_


PATHS = st.lists(st.sampled_from(("mnt", "root", "data", "volume", ".", "", "..", "a")), max_size=5).map(
    lambda names: "/" + "/".join(names)
)


def a_folder_is_on_the_tier_of_what_covers_it(path: str, name: str) -> None:
    """A new folder in a folder is on the same tier, or on one with a longer pattern; it never leaves every tier."""
    outer, inner = rules.tier_of(BOX, path), rules.tier_of(BOX, f"{path}/{name}")
    if outer is None:
        assert inner is None
    else:
        assert inner is not None
        assert outer is ROOT or inner is outer


def test_a_folder_in_a_folder() -> None:
    checked(a_folder_is_on_the_tier_of_what_covers_it, PATHS, st.sampled_from(("a", "data", "volume")))()


@pytest.mark.parametrize(
    "broken",
    [
        lambda pattern, parts: pattern == parts,  # only the folder itself
        # the last name does not matter
        lambda pattern, parts: len(parts) >= len(pattern) > 0 and parts[: len(pattern) - 1] == pattern[:-1],
    ],
    ids=["no folder below", "any last name"],
)
def test_a_broken_pattern_is_caught(broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "_covers", broken)
    strategies = PATHS, st.sampled_from(("a", "data", "volume"))
    with pytest.raises(AssertionError):
        checked(a_folder_is_on_the_tier_of_what_covers_it, *strategies, shrinks=False)()
