"""Facts for expectations: `expect NAME status=running causes=preempted,finished`, `expect events recovered=1`."""

from __future__ import annotations

import json
import operator
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton
from supervisor.domain.attempt import Attempt
from supervisor.domain.events import EventKind
from supervisor.domain.run import Run, run_cost_usd
from supervisor.lifecycle.ending.ending import newest_checkpoint
from supervisor.ports.objectstore import ObjectMissing
from supervisor.wording.forecast import needs_person
from supervisor.wording.run import status_text
from tests.scenarios.script import Line, Option, ScenarioError, seconds
from tests.scenarios.stage import Stage

ORDER = {"<=": operator.le, ">=": operator.ge}


@dataclass(frozen=True)
class Story:
    """Everything about one run that an expectation may read."""

    stage: Stage
    run: Run
    attempts: list[Attempt]

    @property
    def last(self) -> Attempt:
        if not self.attempts:
            raise ScenarioError("there is no attempt yet")
        return self.attempts[-1]

    @property
    def baton(self) -> Baton | None:
        try:
            return batons.decode(self.stage.objects.get(runfiles.baton(self.run.run_id))[0])
        except ObjectMissing:
            return None

    @property
    def now(self) -> float:
        return self.stage.clock.now()


def _has(stage: Stage, key: str) -> str:
    try:
        stage.objects.stat(key)
    except ObjectMissing:
        return "no"
    return "yes"


def _keys(stage: Stage, prefix: str) -> list[str]:
    return [info.key for page in stage.objects.pages(prefix) for info in page.objects]


def _comma(values: object) -> str:
    return ",".join(str(value) for value in values)


def _console(story: Story) -> str:
    try:
        return story.stage.objects.get(runfiles.console(story.run.run_id, story.last.number))[0].decode()
    except ObjectMissing:
        return ""


def _manifest_status(story: Story) -> str:
    try:
        return str(json.loads(story.stage.objects.get(runfiles.manifest(story.run.run_id))[0])["status"])
    except ObjectMissing:
        return "nothing"


def _no_more_than_once(story: Story) -> str:
    names = [request.name for request in story.stage.provider.launches]
    return "yes" if len(names) == len(set(names)) else "no"


FACTS: dict[str, Callable[[Story], object]] = {
    "status": lambda s: s.run.status,
    "cause": lambda s: s.run.cause or "none",
    "detail": lambda s: s.run.detail,
    "hold": lambda s: s.run.hold or "none",
    "generation": lambda s: s.run.generation,
    "attempts": lambda s: s.run.counters.attempts,
    "tries": lambda s: s.run.counters.tries,
    "counted": lambda s: s.run.counters.counted,
    "preemptions": lambda s: s.run.counters.preemptions,
    "user_failures": lambda s: s.run.counters.user_failures,
    "no_progress": lambda s: s.run.counters.no_progress,
    "causes": lambda s: _comma(a.cause for a in s.attempts if a.cause is not None),
    "zones": lambda s: _comma(a.placement.zone for a in s.attempts),
    "try_zones": lambda s: _comma(t.placement.zone for t in s.stage.rows.tries(s.run.key)),
    "outcomes": lambda s: _comma(t.outcome or "obtained" for t in s.stage.rows.tries(s.run.key)),
    "machines": lambda s: len(s.stage.machines(s.run.run_id)),
    "retiring": lambda s: len(s.run.retiring),
    "machine_name": lambda s: s.last.machine_name,
    "same_request_once": _no_more_than_once,
    "resumed": lambda s: "nothing" if s.last.step_from is None else s.last.step_from,
    "checkpoint": lambda s: "none" if newest_checkpoint(s.run) is None else newest_checkpoint(s.run),
    "pointer": lambda s: "none" if s.baton is None or s.baton.checkpoint is None else s.baton.checkpoint.step,
    "step": lambda s: s.run.pulse.step if s.run.pulse is not None and s.run.pulse.step is not None else "none",
    "phase": lambda s: s.run.pulse.phase if s.run.pulse is not None else "none",
    "stall_polls": lambda s: s.run.pulse.stall_polls if s.run.pulse is not None else 0,
    "evidence": lambda s: next((a.evidence for a in reversed(s.attempts) if a.cause is not None), ""),
    "sentence": lambda s: status_text(s.run, s.now),
    "event_texts": lambda s: "\n".join(e.event.text for e in s.stage.rows.events(s.run.run_id, 0, 100_000)),
    "needs_person": lambda s: needs_person(s.run) or "no",
    "machine_names": lambda s: len({a.machine_name for a in s.attempts}),
    "machine_kept": lambda s: "no" if s.run.kept is None else s.run.kept[1].given_up or "yes",
    "kept": lambda s: "yes" if s.run.kept_until is not None else "no",
    "results": lambda s: s.run.files.outcome.files if s.run.files.outcome is not None else "none",
    "missing": lambda s: _comma(s.run.files.outcome.missing) if s.run.files.outcome is not None else "",
    "closed": lambda s: s.baton.closed if s.baton is not None and s.baton.closed is not None else "no",
    "done": lambda s: "yes" if s.baton is not None and s.baton.done is not None else "no",
    "beat": lambda s: _has(s.stage, runfiles.beat(s.run.run_id)),
    "boot_beat": lambda s: _has(s.stage, runfiles.boot_beat(s.run.run_id)),
    "image": lambda s: s.stage.provider.launches[-1].image or "none",
    "digest": lambda s: s.run.image.digest or "none",
    "markets": lambda s: _comma(a.placement.market for a in s.attempts),
    "manifest": lambda s: _has(s.stage, runfiles.manifest(s.run.run_id)),
    "stray": lambda s: _has(s.stage, runfiles.checkpoint(s.run.run_id, 999, 1) + "model.pt"),
    "manifest_status": _manifest_status,
    "console": _console,
    "settled": lambda s: "yes" if s.run.settled else "no",
    "cost_usd": lambda s: round(run_cost_usd(s.run, s.now), 4),
    "trained": lambda s: round(s.run.training_s),
    # Steps of the last attempt, by its beats, that are in no checkpoint.
    "unsaved": lambda s: (s.last.step_last or 0) - (s.last.step_kept or 0),
    "next_in": lambda s: "never" if s.run.next_at is None else round(s.run.next_at - s.now, 1),
    "in_status": lambda s: s.now - s.run.status_since,
    "message": lambda s: s.run.pulse.message if s.run.pulse is not None else "",
}

# These change while nothing happens, so a wait for one of them looks each second.
CHANGE_BY_TIME = ("sentence", "cost_usd", "next_in", "in_status")

WORLD: dict[str, Callable[[Stage], object]] = {
    "meters_stopped": lambda s: _comma(f"{zone}:{verb}" for zone, verb, _ in s.provider.meters.stopped),
    "machines": lambda stage: len(stage.machines()),
    "all_machines": lambda stage: len(stage.provider.machines_now()),
    "launches": lambda stage: len(stage.provider.launches),
    "inserts": lambda stage: stage.provider._born,
    "starts": lambda stage: len(stage.provider.starts),
    "pins": lambda stage: stage.provider.calls["pin"],
    "releases": lambda stage: len(stage.provider.releases),
    "requests": lambda stage: stage.requests,
    "beats": lambda stage: sum(not runfiles.is_canary(key) for key in _keys(stage, runfiles.BEATS)),
    "active": lambda stage: len(stage.supervisor.tick.runs),
    "breakers_open": lambda stage: _comma(
        sorted(name for name, breaker in stage.supervisor.tick.worldview.breakers.items() if breaker.open)
    )
    or "none",
}  # fmt: skip

COUNTS: dict[str, Callable[[Counter[str]], object]] = {kind.value: itemgetter(kind.value) for kind in EventKind}


def story_of(stage: Stage, run_id: str) -> Story:
    run = stage.rows.again("find", run_id)
    if run is None:
        raise ScenarioError(f"there is no run {run_id}")
    # The copy in memory is newer than the row where only the pulse differs.
    in_memory = stage.supervisor.tick.runs.get(run.key) if stage.supervisor is not None else None
    if in_memory is not None and in_memory.version == run.version:
        run = in_memory
    return Story(stage, run, stage.rows.again("attempts", run.key))


def unmet(stage: Stage, line: Line) -> list[str]:
    """The expectations of this line that are not met, one sentence each."""
    subject = line.word(0, "a run id, world, events or alerts")
    if subject == "world":
        facts, source = WORLD, stage
    elif subject in ("events", "alerts"):
        facts, source = COUNTS, _counts(stage, subject, line.words[1:])
    else:
        facts, source = FACTS, story_of(stage, subject)
    return [problem for option in line.options if (problem := _compare(option, facts, source)) is not None]


def _counts(stage: Stage, subject: str, words: tuple[str, ...]) -> Counter[str]:
    run_id = words[0] if words else None
    if subject == "events":
        return Counter(stored.event.kind.value for stored in stage.rows.events(run_id, 0, 100_000))
    return Counter(str(message.kind) for message in stage.notifier.sent if run_id in (None, message.run_id))


def _compare(option: Option, facts: dict[str, Callable[[Any], object]], source: object) -> str | None:
    if option.name not in facts:
        raise ScenarioError(f"there is no fact {option.name!r}; facts: {', '.join(sorted(facts))}")
    actual, wanted = facts[option.name](source), option.value
    if option.sign in ORDER:
        met = isinstance(actual, int | float) and ORDER[option.sign](actual, _number(wanted))
    elif option.sign == "~":
        met = wanted.lower() in str(actual).lower()
    elif option.sign == "!=":
        met = str(actual) != wanted
    else:
        met = str(actual) == wanted
    return None if met else f"{option.name} is {actual!r}, expected {option.sign} {wanted}"


def _number(text: str) -> float:
    return float(text) if text.replace(".", "", 1).lstrip("-").isdigit() else seconds(text)
