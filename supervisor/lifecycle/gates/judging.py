"""The entry of the gates: `judge` makes a verdict for every check of a gate out of `Facts`.

A provider, the CLI's smoke and the services fill the parts of `Facts` that they have read; everything else stays None
and is judged as unknown. Nothing here reads anything:

    facts = Facts(run="digits-7", provider="lab", at=now, by="gpu1", audit=Audit(free_bytes=80 * 10**9, ...))
    passage = may_go_on(Gate.AUDIT, judge(facts, Gate.AUDIT), run.waivers, now)

`passage.go` says whether the run may go on, `passage.stopped_by` has the verdicts that hold it, each with its fact, its
fix and its error code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from supervisor.domain.gates.checks import Gate
from supervisor.domain.gates.verdicts import Verdict
from supervisor.lifecycle.gates import access, audit, launch, monitor, smoke, teardown
from supervisor.lifecycle.gates.rules import Reader, Rules, verdict

_RULES: Mapping[Gate, tuple[str, Rules]] = {
    Gate.AUDIT: ("audit", audit.RULES),
    Gate.ACCESS: ("access", access.RULES),
    Gate.SMOKE: ("smoke", smoke.RULES),
    Gate.LAUNCH: ("launch", launch.RULES),
    Gate.MONITOR: ("monitor", monitor.RULES),
    Gate.VERIFY: ("results", teardown.RESULTS_RULES),
    Gate.TEARDOWN: ("teardown", teardown.TEARDOWN_RULES),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that the gates judge, by gate. `run`, `provider`: names, for the texts. `at`: epoch seconds of the
    reading; `by`: who read it."""

    run: str
    provider: str
    at: float
    by: str = "supervisor"
    audit: audit.Audit = field(default_factory=audit.Audit)
    access: access.Access = field(default_factory=access.Access)
    smoke: smoke.Smoke = field(default_factory=smoke.Smoke)
    launch: launch.Launch = field(default_factory=launch.Launch)
    monitor: monitor.Monitor = field(default_factory=monitor.Monitor)
    results: teardown.Results = field(default_factory=teardown.Results)
    teardown: teardown.Teardown = field(default_factory=teardown.Teardown)


def judge(facts: Facts, *gates: Gate) -> tuple[Verdict, ...]:
    """One verdict for each check of these gates, in the order of the list; without gates, of all."""
    reader = Reader(facts.at, facts.by, {"run": facts.run, "provider": facts.provider})
    verdicts = []
    for gate in gates or tuple(Gate):
        part, rules = _RULES[gate]
        for check, rule in rules.items():
            item = verdict(check, rule, getattr(facts, part), reader)
            verdicts.append(item if gate != Gate.VERIFY else teardown.give_up(item, facts.results.accepted_loss))
    return tuple(verdicts)
