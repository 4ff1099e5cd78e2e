"""The words about a profile: its facts, the survival matrix, the danger clocks and the teardown verbs.

Rows and sentences from pure values, the same in a terminal, on a page and in a message. An unknown value is the word
`unknown`, never a dash or a zero: it is a fact about a platform that nobody has looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from supervisor.domain.profile import (
    NO_LIMIT,
    By,
    Clock,
    Danger,
    End,
    Fact,
    Profile,
    Stops,
    Survival,
    Verb,
    danger_clocks,
)
from supervisor.wording.figures import Look, age_text, count_text, money_text, size_text

UNKNOWN_TEXT = "unknown"
NONE = "none"
NO_LIMIT_TEXT = "no limit"
SURVIVAL_LOOKS: Mapping[str, Look] = {
    "yes": Look("✔", "good", "yes"),
    "no": Look("✗", "bad", "no"),
    "verify first": Look("!", "wait", "verify first"),
    UNKNOWN_TEXT: Look("?", "still", UNKNOWN_TEXT),
}
COLUMNS: Mapping[End, str] = {  # what the files of a tier survive
    End.PROCESS: "end of the process",
    End.REQUEUE: "requeue elsewhere",
    End.STOP: "stop of the machine",
    End.DESTROY: "end of the machine",
}
# Field of a profile -> its label, in the order of the table. The last two are shown only where they are known, or where
# a platform has something to say about them.
LABELS: Mapping[str, str] = {
    "meter_stop": "what stops the bill",
    "irreversible": "that deletes the disk for good",
    "dead_man_s": "ends by itself, at the latest",
    "session_cap_s": "longest session",
    "idle_cap_s": "ends when idle for",
    "stopped_kept_s": "stopped machine is kept for",
    "unpaid": "when the balance is used up",
    "preemptible": "may be preempted",
    "notice_s": "notice",
    "kill_grace_s": "from the signal to the kill",
    "native_requeue": "platform starts it again",
    "detach": "keeps the process alive",
    "survives_connection_drop": "survives a lost connection",
    "survives_reboot": "survives a reboot",
    "quota": "quota",
    "region_lock": "bound to one region",
    "shared_fs": "shared file system",
    "local_nvme": "local NVMe",
    "driver_cuda_max": "newest CUDA of the driver",
    "egress_usd_per_gb": "data out, $/GB",
    "cross_zone_usd_per_gb": "data between zones, $/GB",
    "mirror": "mirror of the Hugging Face Hub",
    "store_reach": "reaches the object store",
    "ssh_copies_files": "SSH copies files",
    "ports_change_on_restart": "ports change at a restart",
}
RARE = frozenset({"ssh_copies_files", "ports_change_on_restart"})


def shown_facts(profile: Profile) -> dict[str, Fact[Any]]:
    """Field -> fact, in the order of LABELS; without the rare ones about which nothing is known."""
    facts = profile.facts
    return {name: facts[name] for name in LABELS if name not in RARE or facts[name].is_known or facts[name].note}


def fact_text(name: str, value: Any) -> str:
    """`30 s`, `no limit`, `yes`, `$0.07`, `none`, `unknown`."""
    if value is None:
        return UNKNOWN_TEXT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "meter_stop" and value == "":
        return "nothing is billed"
    if isinstance(value, str):
        return value or NONE
    if value == NO_LIMIT:
        return NO_LIMIT_TEXT
    return age_text(value) if name.endswith("_s") else price_text(value)


def price_text(usd: float) -> str:
    """`$0.07`; a price with more digits has them."""
    return money_text(usd) if round(usd, 2) == usd else f"${usd:g}"


def source_text(fact: Fact[Any]) -> str:
    """`documented 2026-11-26`; "" = it has no source, because it is unknown."""
    return f"{fact.source} {fact.on}" if fact.source is not None else ""


def cap_text(fact: Fact[int], is_bytes: bool) -> str:
    """`412 GB`, `6,553,600`, `unknown`."""
    if fact.value is None:
        return UNKNOWN_TEXT
    return size_text(fact.value) if is_bytes else count_text(fact.value)


def survival_text(fact: Fact[Survival]) -> str:
    return fact.value or UNKNOWN_TEXT


# --- teardown verbs ---------------------------------------------------------------------------------------------------


def leaves(profile: Profile, verb: Verb) -> list[str]:
    """The tiers that are left after this verb, those to verify with a question mark. None that is known = an empty
    list."""
    if verb.end is None:
        return []
    answers = {tier.name: tier.survives(verb.end).value for tier in profile.tiers}
    marks = {Survival.YES: "", Survival.VERIFY: "?"}
    return [name + marks[answer] for name, answer in answers.items() if answer in marks]


def left_price_text(verb: Verb) -> str:
    """The price of the storage that is left."""
    usd = verb.left_usd_per_gb_month.value
    if usd is None:
        return UNKNOWN_TEXT
    return f"{price_text(usd)} per GB and month" if usd else "nothing"


# --- danger clocks ----------------------------------------------------------------------------------------------------


def clock_texts(profile: Profile, usd_per_h: float | None) -> list[str]:
    """The sentences of `danger_clocks`."""
    return [clock_text(profile, clock) for clock in danger_clocks(profile, usd_per_h)]


def clock_text(profile: Profile, clock: Clock) -> str:
    return _CLOCKS[clock.danger](profile, clock)


def _bills(profile: Profile, clock: Clock) -> str:
    price = "Bills, at an unknown price," if clock.usd_per_h is None else f"Bills {price_text(clock.usd_per_h)}/h"
    if clock.usd_per_h == 0:
        price = "Runs, and costs nothing,"
    if not clock.verb:
        first = f"{price} until it is given back, and it is unknown how"
        if clock.usd_per_h is None:
            first = "It is unknown whether it is billed"
        return f"{first}; {clock.fact.note or 'ask its owner before the launch'}."
    verb = profile.meter_verb
    by_us = verb is not None and verb.by is By.SUPERVISOR
    until = f"until the supervisor ends it ({clock.verb})" if by_us else f"until you end it ({clock.verb})"
    if clock.after_s is None:
        return f"{price} {until}; it is unknown whether anything stops it by itself."
    if clock.after_s == NO_LIMIT:
        return f"{price} {until}; nothing stops it by itself."
    return f"{price} {until}; it ends by itself after {age_text(clock.after_s)} at the latest."


def _stop_still_bills(profile: Profile, clock: Clock) -> str:
    verb = next(verb for verb in profile.verbs if verb.verb == clock.verb)
    if verb.stops_meter.value is Stops.NO:
        return f'"{clock.verb}" does not stop the bill.'
    usd = verb.left_usd_per_gb_month.value
    price = f", at {left_price_text(verb)}" if usd else ""
    return f'"{clock.verb}" stops only a part of the bill: the storage that is left is still billed{price}.'


def _no_undo(profile: Profile, clock: Clock) -> str:
    return f'"{clock.verb or "its end"}" cannot be undone, and deletes the machine\'s own disk.'


def _preempted(profile: Profile, clock: Clock) -> str:
    if clock.after_s is None:
        return "It may be preempted at any time; the time to save is unknown."
    time_text = f"{age_text(clock.after_s)} to save" if clock.after_s else "no time to save"
    return f"It may be preempted at any time, with {time_text}."


_CLOCKS: Mapping[Danger, Callable[[Profile, Clock], str]] = {
    Danger.BILLS: _bills,
    Danger.STOP_STILL_BILLS: _stop_still_bills,
    Danger.NO_UNDO: _no_undo,
    Danger.PREEMPTED: _preempted,
    Danger.SESSION_ENDS: lambda profile, clock: f"A session ends after {age_text(clock.after_s or 0)}.",
    Danger.IDLE_ENDS: lambda profile, clock: f"It ends after {age_text(clock.after_s or 0)} without activity.",
    Danger.STOPPED_DELETED: lambda profile, clock: (
        f"A stopped machine is deleted after {age_text(clock.after_s or 0)}, with its disks."
    ),
    Danger.UNPAID: lambda profile, clock: f"When the balance is used up: {clock.fact.value}.",
}
