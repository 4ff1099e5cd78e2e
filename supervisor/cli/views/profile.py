"""A profile for people: the danger clocks, what survives which end, the ways to give a machine back, and every fact.

All words come from the API, which takes them from wording/profile.py. A line that does not fit a narrow terminal loses
its last column, which is the least important one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from supervisor.cli.client import Json
from supervisor.cli.output import Table, check_lines, colored, labeled, paragraphs, safe, when
from supervisor.wording.figures import DASH, money
from supervisor.wording.profile import SURVIVAL_LOOKS

_ENDS: Mapping[str, str] = {  # title of a column -> field of `survives`
    "PROCESS END": "end_of_process",
    "REQUEUE": "requeue_elsewhere",
    "STOP": "machine_stop",
    "DESTROY": "machine_destroy",
}


def _survives(end: str) -> Callable[[Json], str]:
    def cell(tier: Json) -> str:
        text = tier["survives"][end]["text"]
        return colored(text, SURVIVAL_LOOKS[text].tone) if text in SURVIVAL_LOOKS else safe(text)

    return cell


def _source(fact: Json) -> str:
    return f"{safe(fact['source'])} {safe(fact['date'])}" if fact["source"] else DASH


_TIERS = Table(
    "name",
    {
        "FILES ON": lambda tier: safe(tier["name"]),
        **{title: _survives(end) for title, end in _ENDS.items()},
        "SIZE": lambda tier: safe(tier["bytes_cap"]["text"]),
        "INODES": lambda tier: safe(tier["inodes_cap"]["text"]),
        # The columns of a tier usually have one source: that of the end of the machine stands for all.
        "SOURCE": lambda tier: _source(tier["survives"]["machine_destroy"]),
    },
    spare=("INODES", "SIZE"),
)
_VERBS = Table(
    "verb",
    {
        "VERB": lambda verb: safe(verb["verb"]),
        "BY": lambda verb: safe(verb["by"] or DASH),
        "STOPS THE BILL": lambda verb: safe(verb["stops_meter"]["text"]),
        "UNDO": lambda verb: safe(verb["undo"]["text"]),
        "STILL BILLED": lambda verb: safe(verb["left_usd_per_gb_month"]["text"]),
        "SOURCE": lambda verb: _source(verb["stops_meter"]),
    },
)


# Of a run: what each verb stops, what it leaves, and whether it can be undone.
_OFFERED = Table(
    "verb",
    {
        "VERB": lambda verb: safe(verb["verb"]) + (" (usual)" if verb["usual"] else ""),
        "STOPS THE BILL": lambda verb: safe(verb["stops_meter"]["text"]),
        "LEAVES": lambda verb: ", ".join(map(safe, verb["leaves"])) or "nothing known",
        "UNDO": lambda verb: safe(verb["undo"]["text"]),
        "STILL BILLED": lambda verb: safe(verb["left_usd_per_gb_month"]["text"]),
    },
)
_HOW: Mapping[str, str] = {
    "command": "a command of the settings",
    "webhook": "a webhook of the settings",
    "ask": "you, by hand",
    "release": "the supervisor releases the machine",
}
_METERS = Table(
    "host",
    {
        "HOST": lambda meter: safe(meter["host"]),
        "$/H": lambda meter: money(meter["usd_per_h"]),
        "SINCE": lambda meter: when(meter["since"]) if meter["since"] else DASH,
        "ENDED BY": lambda meter: f"{safe(meter['verb'])}, {_HOW.get(meter['how'], safe(meter['how']))}",
        "STATE": lambda meter: safe(meter["state"].replace("_", " ")),
        "RUNS": lambda meter: ", ".join(map(safe, meter["runs"])) or DASH,
    },
    spare=("ENDED BY",),
)


def teardown_lines(teardown: Json) -> list[str]:
    """How the machine of a run is given back: every verb, and by whom."""
    how = _HOW.get(teardown["how"], safe(teardown["how"]))
    confirms = "a later read confirms it" if teardown["confirms"] else "you confirm it"
    end = f"Done by: {how}; {confirms}." if teardown["host"] else f"Done by: {how}."
    return [*_OFFERED.lines(teardown["verbs"]), end]


def meter_lines(meters: Sequence[Json]) -> list[str]:
    """Hosts that are billed until somebody stops them."""
    return ["Hosts that are billed until somebody stops them:", *_METERS.lines(meters)] if meters else []


def danger_lines(profile: Json) -> list[str]:
    """One line for each danger clock."""
    return [line for clock in profile["clocks"] for line in check_lines("warn", safe(clock["text"]))]


def survival_lines(profile: Json) -> list[str]:
    """The survival matrix, and where the tiers lie."""
    tiers = profile["tiers"]
    if not tiers:
        return []
    places = [f"  {safe(tier['name'])}: {'  '.join(map(safe, tier['paths']))}" for tier in tiers if tier["paths"]]
    return [*_TIERS.lines(tiers), *paragraphs(places, "    ")]


def profile_lines(profile: Json) -> list[str]:
    """All of it, in paragraphs."""
    parts = []
    if profile["clocks"]:
        priced = f"at the price of {safe(profile['offer'])}" if profile["offer"] else "without an offer"
        parts.append([f"Dangers, {priced}:", *danger_lines(profile)])
    if profile["tiers"]:
        parts.append(["What survives which end:", *survival_lines(profile)])
    if profile["verbs"]:
        leaves = paragraphs((text for verb in profile["verbs"] for text in _leaves(verb)), "    ")
        parts.append(["How a machine is given back:", *_VERBS.lines(profile["verbs"]), *leaves])
    if profile["facts"]:
        parts.append(["Facts:", *labeled(_fact_rows(profile))])
    return [line for part in parts for line in ("", *part)][1:]


def other_lines(profile: Json, general: Json) -> list[str]:
    """What one zone has otherwise than the provider."""
    kinds = ("clocks", "tiers", "verbs", "facts")
    return profile_lines({**profile, **{kind: _others(profile[kind], general[kind]) for kind in kinds}})


def _others(parts: Sequence[Json], general: Sequence[Json]) -> list[Json]:
    return [part for part in parts if part not in general]


def _leaves(verb: Json) -> list[str]:
    name, left = safe(verb["verb"]), ", ".join(map(safe, verb["leaves"])) or "nothing that is known"
    by_hand = [f"  {name} by hand: {safe(verb['command'])}"] if verb["command"] else []
    return [f"  {name} leaves {left}", *by_hand]


def _fact_rows(profile: Json) -> list[tuple[str, str]]:
    """(label and source, value); an unknown value has its note."""
    facts = profile["facts"]
    width = max(len(safe(fact["label"])) for fact in facts)
    return [(f"{safe(fact['label']):<{width}}  {_source(fact):<21}", _value(fact)) for fact in facts]


def _value(fact: Json) -> str:
    if fact["value"] is None and fact["note"]:
        return f"{safe(fact['text'])}; {safe(fact['note'])}"
    return safe(fact["text"])
