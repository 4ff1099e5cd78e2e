"""The short way decides as the rules do, in every situation; and a short way without one of its conditions does not."""

from __future__ import annotations

import ast
import inspect
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType

import pytest

from supervisor.domain.observation import Observation, Seen, World
from supervisor.domain.run import Run
from supervisor.lifecycle import decide as deciding
from supervisor.lifecycle.decision import Decision
from supervisor.lifecycle.living.clock_steps import righted
from supervisor.lifecycle.phases import short_way
from tests.lifecycle.training_on import situations_by_chance
from tests.lifecycle.worlds import NOW

ShortWay = Callable[[Run, Observation, World, float], Decision | None]


def check(short: ShortWay, count: int, seed: int) -> float:
    """The share of situations that the short way decides; each of its decisions is the one of the rules."""
    decided = 0
    for situation, obs, world in situations_by_chance(random.Random(seed), count):
        run = righted(situation, world, NOW)
        decision = short(run, obs, world, NOW)
        if decision is not None:
            decided += 1
            by_rules = deciding._by_rules(run, obs, world, NOW)
            assert decision == by_rules, (run, obs, world)
    return decided / count


def test_the_short_way_decides_as_the_rules_do() -> None:
    assert 0.2 < check(short_way.trains_on, 5000, seed=16) < 0.8


def test_decide_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    monkeypatch.setattr(deciding, "_by_rules", lambda run, *_: taken.append(run) or Decision(run))
    for run, obs, world in situations_by_chance(random.Random(1), 300):
        deciding.decide(run, obs, world, NOW)
    assert 60 < len(taken) < 270


def check_new_signs(short: ShortWay) -> None:
    """A beat with other signs than the pulse has is for the rules."""
    decided = 0
    for situation, obs, world in situations_by_chance(random.Random(19), 300):
        run = righted(situation, world, NOW)
        if short(run, obs, world, NOW) is None or run.pulse is None or not isinstance(obs.beat, Seen):
            continue
        decided += 1
        told = replace(obs, beat=replace(obs.beat, value=obs.beat.value._replace(signs="{}")))
        assert short(run, told, world, NOW) is None
        same = replace(run, pulse=replace(run.pulse, signs="{}"))
        assert short(same, told, world, NOW) is not None
    assert decided > 50


def test_new_signs_of_an_end_are_for_the_rules() -> None:
    check_new_signs(short_way.trains_on)
    broken = ModuleType("broken")
    exec(SOURCE.replace("beat.signs != ", "beat.nonce is "), vars(broken))  # noqa: S102
    with pytest.raises(AssertionError):
        check_new_signs(broken.trains_on)


# --- each condition is needed -----------------------------------------------------------------------------------------

FIVE = (
    "_stop_is_as_before", "_machine_is_as_before", "_phase_is_as_before", "_checkpoints_are_as_before", "_is_in_time",
)  # fmt: skip
SOURCE = inspect.getsource(short_way)


def clauses() -> Iterator[tuple[str, int]]:
    """Each part of each `and` of the module: the function, and its place there."""
    for function in ast.parse(SOURCE).body:
        if isinstance(function, ast.FunctionDef):
            conditions = [
                node for node in ast.walk(function) if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And)
            ]
            for number in range(sum(len(node.values) for node in conditions)):
                yield function.name, number


def without(name: str, number: int) -> tuple[ModuleType, str]:
    """The module without this clause, and the clause."""
    tree = ast.parse(SOURCE)
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    place = 0
    for node in ast.walk(function):
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            for at, value in enumerate(node.values):
                if place == number:
                    node.values[at] = ast.Constant(True)
                    broken = ModuleType("broken")
                    exec(compile(ast.fix_missing_locations(tree), "broken", "exec"), vars(broken))  # noqa: S102
                    return broken, ast.unparse(value)
                place += 1
    raise AssertionError(name, number)


def is_caught(broken: ShortWay, seed: int) -> bool:
    try:
        check(broken, 40_000, seed)
    except (AssertionError, AttributeError, TypeError):
        return True
    return False


@pytest.mark.parametrize(("name", "number"), list(clauses()))
def test_a_short_way_without_a_clause_is_caught(name: str, number: int) -> None:
    broken, clause = without(name, number)
    assert is_caught(broken.trains_on, seed=17), clause


@pytest.mark.parametrize("name", FIVE)
def test_a_short_way_without_a_condition_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_way, name, lambda *_: True)
    assert is_caught(short_way.trains_on, seed=18)
