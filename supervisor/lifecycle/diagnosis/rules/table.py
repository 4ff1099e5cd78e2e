"""The one table: every rule about an end or a stall, and the rules about living runs, in the order in which they are
judged within a tier."""

from __future__ import annotations

from supervisor.lifecycle.diagnosis.rule import Rule
from supervisor.lifecycle.diagnosis.rules import code, hangs, living, machine, ours, platform

RULES: tuple[Rule, ...] = (
    *ours.RULES,
    *platform.RULES,
    *code.SETUP,
    *code.STARTS,
    *machine.CARDS,
    *machine.MEMORY,
    *machine.SIGNALS,
    *machine.DISKS,
    *hangs.RULES,
    *code.RULES,
    *ours.RECORDED,
    *code.LAST,
)
# Those that can rest on an end which the supervisor knows by itself.
KNOWN_ENDS = tuple(rule for rule in RULES if any("own.end" in sign.reads for sign in rule.requires))
LIVING: tuple[Rule, ...] = living.RULES
