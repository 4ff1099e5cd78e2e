"""The words about a profile: each field has a label, each danger a sentence, and an unknown value is never a number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.domain.profile import (
    NO_LIMIT,
    UNKNOWN,
    By,
    Clock,
    Danger,
    End,
    Profile,
    Stops,
    Survival,
    Tier,
    Verb,
    danger_clocks,
)
from supervisor.wording import profile as words
from supervisor.wording.profile import (
    LABELS,
    RARE,
    clock_texts,
    fact_text,
    leaves,
    left_price_text,
    shown_facts,
    source_text,
)
from tests.domain.test_profile import known, profiles
from tests.properties import examples

BOX = Profile(
    "ssh",
    "A box",
    meter_stop=known("give back"),
    session_cap_s=known(NO_LIMIT),
    idle_cap_s=known(NO_LIMIT),
    dead_man_s=known(NO_LIMIT),
    verbs=(Verb("give back", End.DESTROY, By.PERSON, stops_meter=known(Stops.YES)),),
)


def test_every_field_has_a_label_and_a_place() -> None:
    assert set(LABELS) == set(BOX.facts)
    assert len(set(LABELS.values())) == len(LABELS)


def test_what_nobody_has_looked_at_is_shown_as_unknown_except_the_rare_fields() -> None:
    shown = shown_facts(BOX)
    assert set(LABELS) - set(shown) == RARE
    assert {fact_text(name, fact.value) for name, fact in shown.items() if not fact.is_known} == {"unknown"}
    assert "ssh_copies_files" in shown_facts(replace(BOX, ssh_copies_files=known(False)))


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("notice_s", 30.0, "30 s"),
        ("notice_s", 0.0, "0 s"),
        ("stopped_kept_s", 1_296_000.0, "15 d"),
        ("session_cap_s", NO_LIMIT, "no limit"),
        ("session_cap_s", None, "unknown"),
        ("egress_usd_per_gb", 0.0, "$0.00"),
        ("egress_usd_per_gb", 0.085, "$0.085"),
        ("mirror", "", "none"),
        ("meter_stop", "", "nothing is billed"),
        ("meter_stop", "destroy", "destroy"),
        ("preemptible", False, "no"),
    ],
)
def test_a_value_in_words(name: str, value: Any, text: str) -> None:
    assert fact_text(name, value) == text


def test_the_source_stands_beside_each_value() -> None:
    assert source_text(known(1)) == "documented 2026-11-26"
    assert source_text(UNKNOWN) == ""


# --- danger clocks ----------------------------------------------------------------------------------------------------


def test_a_box_that_nothing_stops() -> None:
    assert clock_texts(BOX, 1.2) == ["Bills $1.20/h until you end it (give back); nothing stops it by itself."]


def test_a_price_that_nobody_knows_is_no_number() -> None:
    (text,) = clock_texts(BOX, None)
    assert text == "Bills, at an unknown price, until you end it (give back); nothing stops it by itself."


def test_a_limit_of_its_own_and_one_that_nobody_knows() -> None:
    ours = replace(BOX, verbs=(replace(BOX.verbs[0], by=By.SUPERVISOR),), dead_man_s=known(86400.0))
    assert clock_texts(ours, 0.21) == [
        "Bills $0.21/h until the supervisor ends it (give back); it ends by itself after 24 h at the latest."
    ]
    (text,) = clock_texts(replace(BOX, idle_cap_s=UNKNOWN), 0.21)
    assert text.endswith("it is unknown whether anything stops it by itself.")
    free = clock_texts(replace(ours, dead_man_s=UNKNOWN, session_cap_s=known(30_600.0)), 0.0)[0]
    assert free.startswith("Runs, and costs nothing, until the supervisor ends it (give back); it ends by itself ")
    (text,) = clock_texts(Profile("ssh", "A box"), 0.0715)
    assert text == "Bills $0.0715/h until it is given back, and it is unknown how; ask its owner before the launch."


def test_every_other_danger_has_its_sentence() -> None:
    part = Verb("stop", stops_meter=known(Stops.PARTLY), left_usd_per_gb_month=known(0.2))
    useless = Verb("shut down", stops_meter=known(Stops.NO))
    rental = replace(
        BOX, irreversible=known(True), preemptible=known(True), notice_s=known(0.0), kill_grace_s=known(5.0),
        session_cap_s=known(43200.0), idle_cap_s=known(5400.0), stopped_kept_s=known(1_296_000.0),
        unpaid=known("all data is deleted"), verbs=(*BOX.verbs, part, useless),
    )  # fmt: skip
    assert clock_texts(rental, 0.4)[1:] == [
        '"stop" stops only a part of the bill: the storage that is left is still billed, at $0.20 per GB and month.',
        '"shut down" does not stop the bill.',
        '"give back" cannot be undone, and deletes the machine\'s own disk.',
        "It may be preempted at any time, with 5 s to save.",
        "A session ends after 12 h.",
        "It ends after 1 h 30 min without activity.",
        "A stopped machine is deleted after 15 d, with its disks.",
        "When the balance is used up: all data is deleted.",
    ]
    assert clock_texts(replace(rental, kill_grace_s=known(0.0)), 0.4)[4].endswith("with no time to save.")
    assert clock_texts(replace(rental, kill_grace_s=UNKNOWN), 0.4)[4].endswith("the time to save is unknown.")


def _sentences(profile: Profile, usd_per_h: float | None) -> None:
    """Each clock of any profile is one whole sentence without an unknown number in it."""
    texts = clock_texts(profile, usd_per_h)
    assert len(texts) == len(danger_clocks(profile, usd_per_h))
    for text in texts:
        assert text.endswith(".")
        assert text[0].isupper() or text[0] == '"'
        assert not any(word in text for word in ("None", "nan", "inf", "{", "  "))


def test_each_clock_of_any_profile_is_a_sentence() -> None:
    prices = st.none() | st.floats(0, 100)
    settings(max_examples=examples(50, 2000), database=None)(given(profiles(), prices)(_sentences))()


def _raw_number(profile: Profile, clock: Clock) -> str:
    return f"It ends after {clock.after_s} s."


def _half_a_sentence(profile: Profile, clock: Clock) -> str:
    return "bills"


@pytest.mark.parametrize("broken", [_raw_number, _half_a_sentence])
def test_a_broken_sentence_is_caught(broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "_CLOCKS", dict.fromkeys(Danger, broken))
    with pytest.raises(AssertionError):
        _sentences(BOX, None)


# --- teardown verbs ---------------------------------------------------------------------------------------------------


def test_a_verb_leaves_what_survives_its_end() -> None:
    tiers = (
        Tier("system disk", survives_stop=known(Survival.YES), survives_destroy=known(Survival.NO)),
        Tier("volume", survives_stop=known(Survival.YES), survives_destroy=known(Survival.VERIFY)),
        Tier("shared", survives_stop=UNKNOWN, survives_destroy=known(Survival.YES)),
    )
    profile = replace(BOX, tiers=tiers)
    assert leaves(profile, Verb("stop", End.STOP)) == ["system disk", "volume"]
    assert leaves(profile, Verb("destroy", End.DESTROY)) == ["volume?", "shared"]
    assert leaves(profile, Verb("phone call")) == []


def test_the_price_of_what_is_left() -> None:
    assert left_price_text(Verb("stop", left_usd_per_gb_month=known(0.2))) == "$0.20 per GB and month"
    assert left_price_text(Verb("stop", left_usd_per_gb_month=known(0.0))) == "nothing"
    assert left_price_text(Verb("stop")) == "unknown"
