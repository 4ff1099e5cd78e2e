"""Play one scenario file on a stage, line by line. A failure shows the line and the history up to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

from supervisor.domain.errors import SpotError
from tests.scenarios import user_verbs, world_verbs
from tests.scenarios.cloud_verbs import cloud
from tests.scenarios.expectations import CHANGE_BY_TIME, unmet
from tests.scenarios.repeats import announced_twice
from tests.scenarios.script import Line, ScenarioError, line_of, lines_of, seconds, yes
from tests.scenarios.stage import Settings, Stage

CHECK_S = 1.0  # how often `wait until` checks its facts, where anything may have changed them


def wait(stage: Stage, line: Line) -> None:
    """wait 5min | wait until NAME fact=value ... within=10min"""
    if line.word(0, "how long") != "until":
        stage.run_for(seconds(line.words[0]))
        return
    limit_s = next((seconds(option.value) for option in line.options if option.name == "within"), 3600.0)
    wanted = replace(
        line, words=line.words[1:], options=tuple(option for option in line.options if option.name != "within")
    )
    end, go_on = stage.clock.monotonic() + limit_s, stage.run_for
    by_time = any(option.name in CHANGE_BY_TIME for option in wanted.options)
    while problems := unmet(stage, wanted):
        left_s = end - stage.clock.monotonic()
        if left_s <= 0:
            raise ScenarioError(f"not within {limit_s:.0f} s: " + "; ".join(problems))
        checks = 1 if by_time or go_on == stage.run_for else math.ceil(min(stage.quiet_s, left_s) / CHECK_S)
        go_on(max(1, checks) * CHECK_S)
        go_on = stage.go_on


def expect(stage: Stage, line: Line) -> None:
    """expect NAME|world|events [NAME]|alerts [NAME] fact=value ..."""
    problems = unmet(stage, line)
    if problems:
        raise ScenarioError("; ".join(problems))


def refused(stage: Stage, line: Line) -> None:
    """refused CODE VERB ...: this verb is refused with that error"""
    code, verb = line.word(0, "an error code"), line.word(1, "a verb")
    try:
        VERBS[verb](stage, replace(line, verb=verb, words=line.words[2:]))
    except SpotError as error:
        if error.code != code:
            raise ScenarioError(f"refused with {error.code}, expected {code}") from None
        return
    raise ScenarioError(f"was not refused with {code}")


def faults(stage: Stage, line: Line) -> None:
    """faults ~TEXT: an error that the loop survives is part of this story"""
    text = " ".join(line.words)
    if not any(text in fault for fault in stage.faults.seen):
        raise ScenarioError(f"no error contains {text!r}; errors: {stage.faults.seen}")
    stage.faults.seen.clear()


VERBS: dict[str, Callable[[Stage, Line], None]] = {
    "wait": wait,
    "expect": expect,
    "refused": refused,
    "faults": faults,
    "cloud": cloud,
    **user_verbs.VERBS,
    **world_verbs.VERBS,
}


def settings_of(lines: list[Line]) -> Settings:
    """The first line may be `settings poll=30s zones=a,b,c ...`."""
    if lines[0].verb != "settings":
        return Settings()
    kinds = {field.name: field.type for field in fields(Settings)}
    values: dict[str, object] = {}
    for name, text in lines[0].values().items():
        if name not in kinds:
            raise ScenarioError(f"there is no setting {name!r}")
        values[name] = (
            tuple(text.split(","))
            if name == "zones"
            else text
            if name == "meter"
            else int(text)
            if kinds[name] == "int"
            else yes(text)
            if text in ("yes", "no")
            else seconds(text)
        )
    return Settings(**values)


def play_lines(stage: Stage, text: str) -> None:
    for number, line_text in enumerate(text.splitlines(), 1):
        line = line_of(number, line_text)
        assert line is not None
        VERBS[line.verb](stage, line)


def play(path: Path, folder: Path) -> None:
    """Raises AssertionError with the line, what was wrong, and the history up to it."""
    lines = lines_of(path)
    stage = Stage(folder, settings_of(lines))
    lines = lines[1:] if lines[0].verb == "settings" else lines
    try:
        for line in lines:
            try:
                if line.verb not in VERBS:
                    raise ScenarioError(f"there is no verb {line.verb!r}")
                VERBS[line.verb](stage, line)
            except (ScenarioError, SpotError, AssertionError) as error:
                raise AssertionError(f"{path.name}:{line.number}: {line.text}\n  {error}\n{history(stage)}") from None
        if stage.faults.seen:
            raise AssertionError(f"{path.name}: errors that no scenario expects:\n" + "\n".join(stage.faults.seen))
        stage.rows.down = False
        twice = announced_twice(stage)
        if twice:
            raise AssertionError(f"{path.name}: {twice}\n{history(stage)}")
        stage.check_ledgers()
    finally:
        stage.close()


def history(stage: Stage) -> str:
    """Every event so far, in seconds since the beginning."""
    began = stage.clock.monotonic() - 1000.0
    wall = stage.clock.now() - began
    stage.rows.down = False
    events = [
        f"  {stored.at - wall:9.1f} s  {stored.run_id or '-':<10} {stored.event.kind:<18} {stored.event.text}"
        for stored in stage.rows.events(None, 0, 2000)
    ]
    faults = [f"  fault: {fault}" for fault in stage.faults.seen]
    return "\n".join([f"  history (now {began:.1f} s):", *events, *faults])
