"""Prints what the production rule costs on the measured traces, beside baselines and a bound, and fails below a target.

`--held-out` also prints the table of each machine type, and what neighbors of the frozen numbers cost: whether another
choice of numbers would be better on the other five types.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from statistics import fmean

from supervisor.lifecycle.rungs.numbers import FROZEN, Numbers
from tools.policy import guessing, races, relocations, traces, zones
from tools.policy.bound import bound_usd
from tools.policy.replay import Outcome, Rule, greedy, on_demand, production, replay, uniform_progress
from tools.policy.traces import Case, H

PUBLISHED_USD = {"on-demand": 147.39, "greedy": 119.03, "Uniform Progress": 101.68}
TARGET_USD = 95.50
WORST_CELL = 0.005  # dearer than Uniform Progress
H100_TARGETS_USD = {1.5: 600.0, 1.2: 755.0}
H100_RECORD_USD = {1.5: 606.38, 1.2: 766.16}
Cell = tuple[str, int, float]


def main(arguments: list[str]) -> int:
    cases = list(traces.cases())
    rules = {"on-demand": on_demand, "greedy": greedy, "Uniform Progress": uniform_progress, "the rule": production()}
    rules["with own lives"] = production(alone=True)
    outcomes = {name: _replayed(cases, rule) for name, rule in rules.items()}
    for name, results in outcomes.items():
        published = f", published {PUBLISHED_USD[name]:.2f}" if name in PUBLISHED_USD else ""
        print(f"{name:18}${_mean(results):7.2f}, {_misses(results)} of {len(results):,} missed{published}")
    bound = fmean(bound_usd(case.up, case.changeover_h * H) for case in cases)
    print(f"{'no plan is below':18}${bound:7.2f} (published optimum 92.21)")
    dearer, cell = _worst_cell(cases, outcomes["the rule"], outcomes["Uniform Progress"])
    print(f"worst cell against Uniform Progress: {dearer:+.2%} in {cell}")
    h100, h100_misses = _h100()
    lines, without_machine = relocations.report()
    of_races, missed_by_races = races.report()
    print("\n".join([*lines, *of_races]))
    guesses = guessing.report(cases[::10])
    print(guesses.line)
    if "--held-out" in arguments:
        _print_held_out(cases)
    mean, misses = _mean(outcomes["the rule"]), _misses(outcomes["the rule"])
    failures = [
        *_above("the mean", mean, TARGET_USD),
        *(f"{misses + h100_misses} deadlines were missed" for _ in range(misses + h100_misses > 0)),
        *(f"{cell} is {dearer:.2%} dearer than Uniform Progress" for _ in range(dearer > WORST_CELL)),
        *(text for ratio, usd in h100.items() for text in _above(f"H100 at {ratio}", usd, H100_TARGETS_USD[ratio])),
        *without_machine,
        *missed_by_races,
        *guesses.failures,
    ]
    print("\n".join(f"MISSED: {text}" for text in failures) or "every target is kept")
    summary = {
        "cases": len(cases),
        "mean_usd": round(mean, 2),
        "misses": misses,
        "uniform_progress_usd": round(_mean(outcomes["Uniform Progress"]), 2),
        "optimum_usd": round(bound, 2),
        "h100_1_5_usd": round(h100[1.5], 2),
        "h100_1_2_usd": round(h100[1.2], 2),
        "guessing_usd": round(guesses.usd, 2),
    }
    print(json.dumps(summary))
    return 1 if failures else 0


def _h100() -> tuple[dict[float, float], int]:
    every = [zones.as_recorded(zone) for zone in traces.zones()]
    six = [zone for zone in every if zone.name in zones.SIX]
    usd, missed = {}, 0
    for ratio, record in H100_RECORD_USD.items():
        usd[ratio], misses = zones.mean_outcome(every, ratio)
        of_six, misses_of_six = zones.mean_outcome(six, ratio)
        missed += misses + misses_of_six
        print(
            f"H100 at {ratio}: ${usd[ratio]:.2f} over 13 zones; over the six zones of the record ${of_six:.2f}, the "
            f"record with paid probes ${record:.2f}"
        )
    return usd, missed


def _replayed(cases: Iterable[Case], rule: Rule) -> list[Outcome]:
    return [replay(case.up, case.changeover_h * H, rule) for case in cases]


def _mean(outcomes: Iterable[Outcome]) -> float:
    return fmean(outcome.usd for outcome in outcomes)


def _misses(outcomes: Iterable[Outcome]) -> int:
    return sum(outcome.missed for outcome in outcomes)


def _above(what: str, usd: float, target: float) -> list[str]:
    return [f"{what} is ${usd:.2f}, ${usd - target:.2f} above the target ${target:.2f}"] if usd > target else []


def _by_cell(cases: list[Case], outcomes: list[Outcome]) -> dict[Cell, float]:
    costs: dict[Cell, list[float]] = {}
    for case, outcome in zip(cases, outcomes, strict=True):
        costs.setdefault(case.cell, []).append(outcome.usd)
    return {cell: fmean(usd) for cell, usd in costs.items()}


def _worst_cell(cases: list[Case], ours: list[Outcome], others: list[Outcome]) -> tuple[float, Cell]:
    mine, theirs = _by_cell(cases, ours), _by_cell(cases, others)
    return max((mine[cell] / theirs[cell] - 1, cell) for cell in mine)


def _neighbors() -> list[Numbers]:
    steps: list[Callable[[float], Numbers]] = [
        lambda factor: replace(FROZEN, reserve_s=FROZEN.reserve_s * factor),
        lambda factor: replace(FROZEN, idle_share=FROZEN.idle_share * factor),
        lambda factor: replace(FROZEN, restart_share=FROZEN.restart_share * factor),
        lambda factor: replace(FROZEN, slack_price=FROZEN.slack_price * factor),
        lambda factor: replace(FROZEN, spot_life_s=FROZEN.spot_life_s * factor),
    ]
    return [FROZEN, *(step(factor) for step in steps for factor in (2 / 3, 3 / 2))]


def _print_held_out(cases: list[Case]) -> None:
    """For each machine type: the best of the neighbors on the other five, and what it costs on this one."""
    tables = [(numbers, _by_cell(cases, _replayed(cases, production(numbers)))) for numbers in _neighbors()]
    for numbers, table in tables:
        print(f"${fmean(table.values()):.2f} with {numbers}")
    held_out = []
    for machine in sorted({case.machine for case in cases}):
        best = min(tables, key=lambda row: fmean(usd for cell, usd in row[1].items() if cell[0] != machine))
        own, frozen = (fmean(usd for cell, usd in row[1].items() if cell[0] == machine) for row in (best, tables[0]))
        held_out.append(own)
        print(f"{machine}: ${frozen:.2f}; with the best numbers of the other five ${own:.2f}")
    print(f"held out: ${fmean(held_out):.2f}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
