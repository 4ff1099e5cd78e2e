"""Plays one scenario file on a stage, line by line; what fails is shown with the line and the history up to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

from supervisor.domain.errors import SpotError
from tests.scenarios import deeds_of_people, deeds_of_the_world
from tests.scenarios.deeds_of_the_cloud import cloud
from tests.scenarios.expectations import unmet
from tests.scenarios.script import Line, ScenarioError, lines_of, seconds, yes
from tests.scenarios.stage import Settings, Stage
from tests.scenarios.telling import told_twice

LOOK_S = 1.0  # how finely `wait until` looks


def wait(stage: Stage, line: Line) -> None:
    """wait 5min | wait until NAME fact=value ... within=10min"""
    if line.word(0, "how long") != "until":
        stage.run_for(seconds(line.words[0]))
        return
    limit_s = next((seconds(option.value) for option in line.options if option.name == "within"), 3600.0)
    wanted = replace(line, words=line.words[1:], options=tuple(one for one in line.options if one.name != "within"))
    end = stage.clock.monotonic() + limit_s
    while problems := unmet(stage, wanted):
        if stage.clock.monotonic() >= end:
            raise ScenarioError(f"not within {limit_s:.0f} s: " + "; ".join(problems))
        stage.run_for(LOOK_S)


def expect(stage: Stage, line: Line) -> None:
    """expect NAME|world|events [NAME]|alerts [NAME] fact=value ..."""
    problems = unmet(stage, line)
    if problems:
        raise ScenarioError("; ".join(problems))


def refused(stage: Stage, line: Line) -> None:
    """refused CODE VERB ...: this deed is answered with that error"""
    code, verb = line.word(0, "an error code"), line.word(1, "a deed")
    try:
        DEEDS[verb](stage, replace(line, verb=verb, words=line.words[2:]))
    except SpotError as error:
        if error.code != code:
            raise ScenarioError(f"refused with {error.code}, expected {code}") from None
        return
    raise ScenarioError(f"was not refused with {code}")


def faults(stage: Stage, line: Line) -> None:
    """faults ~TEXT: an error that the loop survives is part of this story"""
    text = " ".join(line.words)
    if not any(text in one for one in stage.faults.seen):
        raise ScenarioError(f"no error says {text!r}; seen: {stage.faults.seen}")
    stage.faults.seen.clear()


DEEDS: dict[str, Callable[[Stage, Line], None]] = {
    "wait": wait,
    "expect": expect,
    "refused": refused,
    "faults": faults,
    "cloud": cloud,
    **deeds_of_people.DEEDS,
    **deeds_of_the_world.DEEDS,
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
            tuple(text.split(",")) if name == "zones" else yes(text) if text in ("yes", "no") else seconds(text)
        )
    return Settings(**values)


def play(path: Path, folder: Path) -> None:
    """Raises AssertionError with the line, what was wrong, and the history up to it."""
    lines = lines_of(path)
    stage = Stage(folder, settings_of(lines))
    lines = lines[1:] if lines[0].verb == "settings" else lines
    try:
        for line in lines:
            try:
                if line.verb not in DEEDS:
                    raise ScenarioError(f"there is no verb {line.verb!r}")
                DEEDS[line.verb](stage, line)
            except (ScenarioError, SpotError, AssertionError) as error:
                raise AssertionError(f"{path.name}:{line.number}: {line.text}\n  {error}\n{history(stage)}") from None
        if stage.faults.seen:
            raise AssertionError(f"{path.name}: errors that no scenario expects:\n" + "\n".join(stage.faults.seen))
        stage.rows.away = False
        twice = told_twice(stage)
        if twice:
            raise AssertionError(f"{path.name}: {twice}\n{history(stage)}")
    finally:
        stage.close()


def history(stage: Stage) -> str:
    """Every event so far, in seconds since the beginning."""
    began = stage.clock.monotonic() - 1000.0
    wall = stage.clock.now() - began
    stage.rows.away = False
    told = [
        f"  {one.at - wall:9.1f} s  {one.run_id or '-':<10} {one.event.kind:<18} {one.event.text}"
        for one in stage.rows.events(None, 0, 2000)
    ]
    return "\n".join([f"  history (now {began:.1f} s):", *told, *(f"  fault: {one}" for one in stage.faults.seen)])
