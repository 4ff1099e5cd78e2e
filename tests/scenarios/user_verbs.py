"""What users do in a scenario: submit, stop, resume, approve, pull. All verbs call the real use cases."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime
from functools import partial

from supervisor.contract import runfiles
from supervisor.contract.heartbeat import Exit
from supervisor.domain.callers import Caller
from supervisor.ports.store import RunFilter
from supervisor.services.machines.incidents import close_incident
from supervisor.services.reading.teardown import offered_verbs
from supervisor.services.runs.actions import (
    ApproveRequest,
    WriteOffRequest,
    approve,
    drill,
    note_pull,
    retry,
    stop,
    write_off,
)
from supervisor.services.runs.altering import alter
from supervisor.services.runs.changing import change
from supervisor.services.runs.many import ManyRequest, resume_many, stop_many
from supervisor.services.runs.resume import ResumeRequest, resume
from supervisor.services.runs.submit import SubmitRequest, submit
from supervisor.services.runs.waiving import WaiveRequest, waive
from tests.scenarios.script import Line, ScenarioError, seconds, yes
from tests.scenarios.sim_plan import Plan
from tests.scenarios.stage import Stage

ACTOR = Caller(actor="ops")
PLAN = {field.name: field.type for field in fields(Plan)}


def submit_run(stage: Stage, line: Line) -> None:
    """submit NAME [owner=WHO] [options of the spec] [options of the plan]"""
    run_id, options = line.word(0, "a run id"), line.values()
    caller = replace(ACTOR, owner=options.pop("owner", ACTOR.owner))
    plan_options = {name: value for name, value in options.items() if name in PLAN and name != "results"}
    spec = spec_of(stage, {name: value for name, value in options.items() if name not in plan_options})
    stage.plans[run_id] = planned(stage.plans.get(run_id, Plan()), plan_options)
    submit(stage.parts, SubmitRequest(spec, run_id=run_id), caller)
    if "max_parallel" in options:
        stage.groups[run_id] = options["group"], int(options["max_parallel"])


def change_plan(stage: Stage, line: Line) -> None:
    """plan NAME [steps= rate= boot= ... after=gone|ended|stays | exits "CODE LAST LINE" after_s=]: for machines that
    come up later"""
    run_id = line.word(0, "a run id")
    stage.plans[run_id] = planned(stage.plans.get(run_id, Plan()), line.values())


def planned(plan: Plan, options: dict[str, str]) -> Plan:
    """A new plan: machines that exist already keep theirs."""
    values = dict(vars(plan))
    for name, text in options.items():
        if name not in PLAN:
            raise ScenarioError(f"a plan has no {name!r}")
        values[name] = _value(name, text)
    return Plan(**values)


def _value(name: str, text: str) -> object:
    kind = str(PLAN[name])
    if kind == "bool":
        return yes(text)
    if name == "exits":
        return None if text == "no" else exit_of(text)
    if name == "results":
        return tuple(text.split(",")) if text else ()
    if kind == "str":
        return text
    if kind == "int":
        return int(text)
    return float(text) if name == "rate" else seconds(text)


def exit_of(text: str) -> tuple[Exit, float]:
    """`1:ValueError: x@40s` or `signal 9@40s`; `!` before the code: the run's retry rules name it."""
    how, _, after = text.rpartition("@")
    ran_s = seconds(after)
    code, _, words = how.partition(":")
    if code.startswith("signal "):
        return Exit(None, int(code.removeprefix("signal ")), False, ran_s, words), ran_s
    return Exit(int(code.lstrip("!")), None, False, ran_s, words, code.startswith("!")), ran_s


def spec_of(stage: Stage, options: dict[str, str]) -> dict[str, object]:
    """The spec as an API client sends it, without the options that are not given."""
    spec: dict[str, dict[str, object]] = {"limits": {}, "stall": {}, "escalate": {}, "": {"command": ["train"]}}
    for name, text in options.items():
        if name == "deadline":
            at = datetime.fromtimestamp(stage.clock.now() + seconds(text), UTC)
            spec["limits"][name] = at.isoformat().replace("+00:00", "Z")
        elif name in SPEC:
            part, field_name, read = SPEC[name]
            spec[part][field_name] = read(text)
        else:
            raise ScenarioError(f"a submit has no option {name!r}")
    top = spec.pop("")
    return top | {name: part for name, part in spec.items() if part}


def _promise(text: str) -> dict[str, object]:
    path, _, count = text.partition(":")
    return {"path": path, "min_count": int(count or 1)}


def _promises(text: str) -> list[dict[str, object]]:
    return [_promise(part) for part in text.split(",")]


def _watch(text: str) -> dict[str, object]:
    """`loss:nan+spike,kl:nan=stop`; without a word it is alert."""
    rules = (part.partition(":") for part in text.split(","))
    wants = {metric: [word.partition("=") for word in words.split("+")] for metric, _, words in rules}
    return {metric: {word: what or "alert" for word, _, what in pairs} for metric, pairs in wants.items()}


def _drill(text: str) -> dict[str, object]:
    """`start`, `6h` or `start+6h`."""
    every = [word for word in text.split("+") if word != "start"]
    return {"at_start": text.startswith("start"), **({"every": every[0]} if every else {})}


def _list(text: str) -> list[str]:
    return text.split(",")


# option of a submit -> (part of the spec, its field, how the text is read)
SPEC: dict[str, tuple[str, str, Callable[[str], object]]] = {
    "zones": ("", "zones", _list),
    "shapes": ("", "shapes", _list),
    "promises": ("", "results", _promises),
    "watch": ("", "watch", _watch),
    "on_slow": ("", "on_slow", str),
    "race": ("", "race", int),
    "on_resume_ignored": ("", "on_resume_ignored", str),
    "drilled": ("", "drill", _drill),
    "on_success": ("", "on_success", str),
    "require_pull": ("", "require_pull", yes),
    "group": ("", "group", str),
    "max_parallel": ("", "max_parallel", int),
    "after_runs": ("", "after", _list),
    "priority": ("", "priority", int),
    "min_run": ("", "min_run_s", seconds),
    "on_failure": ("", "on_failure", str),
    "allow_on_demand": ("", "allow_on_demand", yes),
    "allow_flex_start": ("", "allow_flex_start", yes),
    "image": ("", "image", str),
    "follow_tag": ("", "image_follow_tag", yes),
    "escalate_after": ("escalate", "after", int),
    "escalate_within": ("escalate", "within_s", seconds),
    "escalate_to": ("escalate", "to", str),
    "on_demand_before": ("escalate", "on_demand_before_deadline_s", seconds),
    "grace": ("", "stop_grace_s", seconds),
    "keep": ("", "keep_s", seconds),
    "keep_what": ("", "keep", str),
    "keep_wait": ("", "keep_wait_s", seconds),
    "keep_fallback": ("", "keep_fallback", str),
    "keep_for": ("", "keep_for_s", seconds),
    "expect_runtime": ("", "expect_runtime_s", seconds),
    "max_runtime": ("limits", "max_runtime_s", seconds),
    "wait_limit": ("limits", "wait_for_capacity_s", seconds),
    "machine_max": ("limits", "machine_max_s", seconds),
    "max_attempts": ("limits", "max_attempts", int),
    "max_user_failures": ("limits", "max_user_failures", int),
    "budget_usd": ("limits", "budget_usd", float),
    "polls": ("stall", "polls", int),
    "boot_timeout": ("stall", "boot_timeout_s", seconds),
    "first_progress": ("stall", "first_progress_s", seconds),
    "silence": ("stall", "silence_s", seconds),
    "setup_limit": ("stall", "setup_s", seconds),
    "restore_limit": ("stall", "restore_s", seconds),
    "checkpoint_limit": ("stall", "checkpoint_s", seconds),
    "evaluation_limit": ("stall", "evaluation_s", seconds),
    "finishing_limit": ("stall", "finishing_s", seconds),
}


def change_run(stage: Stage, line: Line) -> None:
    """change NAME [zones=a,b] [max_parallel=N] [any limit of a submit]: change a run that exists already"""
    patch = spec_of(stage, line.values())
    del patch["command"]
    alter(stage.parts, line.word(0, "a run id"), patch, None, ACTOR)


def stop_run(stage: Stage, line: Line) -> None:
    """stop NAME | stop group=NAME"""
    group = line.values().get("group")
    if group is not None:
        stop_many(stage.parts, ManyRequest(RunFilter(group=group)), ACTOR)
        return
    change(stage.parts, line.word(0, "a run id"), stop(ACTOR))


def write_marker(stage: Stage, line: Line) -> None:
    """marker NAME: a user writes runs/NAME/.stop"""
    stage.objects.put(runfiles.stop_marker(line.word(0, "a run id")), json.dumps({"by": "somebody"}).encode())


def resume_run(stage: Stage, line: Line) -> None:
    """resume NAME [rerun=yes] [image=ANOTHER] [after_runs=OTHERS] | resume group=NAME"""
    values = line.values()
    if "group" in values:
        resume_many(stage.parts, ManyRequest(RunFilter(group=values["group"])), ACTOR)
        return
    run_id = line.word(0, "a run id")
    spec = None
    changed = {name: values[name] for name in ("image", "after_runs") if name in values}
    if changed:
        run = stage.parts.store.find(run_id)
        spec = {**stage.rows.spec(run.key), **{SPEC[name][1]: SPEC[name][2](text) for name, text in changed.items()}}
    resume(stage.parts, run_id, ResumeRequest(ACTOR, spec, spec is not None, yes(values.get("rerun", "no"))))


def retry_run(stage: Stage, line: Line) -> None:
    """retry NAME: a person wants the next try now, or lets the run go on."""
    change(stage.parts, line.word(0, "a run id"), retry(stage.parts, ACTOR))


def approve_run(stage: Stage, line: Line) -> None:
    """approve NAME [accept_loss=REASON] [verb=VERB] [meter_stopped=yes]: with the present machine and results"""
    run = stage.parts.store.find(line.word(0, "a run id"))
    if run is None:
        raise ScenarioError("there is no such run")
    machine_id = run.attempt.machine_id if run.attempt is not None else ""
    sha256 = run.files.outcome.results_sha256 if run.files.outcome is not None else ""
    values = line.values()
    stopped = yes(values.get("meter_stopped", "no"))
    request = ApproveRequest(machine_id, sha256, values.get("accept_loss", ""), values.get("verb", ""), stopped)
    change(stage.parts, run.run_id, approve(request, ACTOR, partial(offered_verbs, stage.parts)))


def write_off_run(stage: Stage, line: Line) -> None:
    """write-off NAME: its host is lost for good"""
    run = stage.parts.store.find(line.word(0, "a run id"))
    if run is None:
        raise ScenarioError("there is no such run")
    machine_id = run.live_attempt.machine_id if run.live_attempt is not None else ""
    write_off(stage.parts, run.run_id, WriteOffRequest(machine_id, "the box burned"), ACTOR)


def waive_check(stage: Stage, line: Line) -> None:
    """waive NAME CHECK"""
    check = line.word(1, "a check")
    change(stage.parts, line.word(0, "a run id"), waive(WaiveRequest(check, "we know"), ACTOR))


def close_one_incident(stage: Stage, line: Line) -> None:
    """close-incident NUMBER"""
    close_incident(stage.parts, int(line.word(0, "a number")), "it is fixed", ACTOR)


def pull_results(stage: Stage, line: Line) -> None:
    """pull NAME [results=other]: a user has pulled the present results (or others)"""
    run_id = line.word(0, "a run id")
    run = stage.parts.store.find(run_id)
    if run is None:
        raise ScenarioError("there is no such run")
    outcome = run.files.outcome
    mine = outcome is not None and line.values().get("results") != "other"
    sha256 = outcome.results_sha256 if outcome is not None and mine else "0" * 64
    files = outcome.files if outcome is not None else 1
    change(stage.parts, run_id, note_pull(sha256, files, ACTOR))


def drill_run(stage: Stage, line: Line) -> None:
    """drill NAME"""
    change(stage.parts, line.word(0, "a run id"), drill(ACTOR))


VERBS = {
    "drill": drill_run,
    "submit": submit_run,
    "plan": change_plan,
    "change": change_run,
    "stop": stop_run,
    "marker": write_marker,
    "resume": resume_run,
    "retry": retry_run,
    "approve": approve_run,
    "write-off": write_off_run,
    "pull": pull_results,
    "waive": waive_check,
    "close-incident": close_one_incident,
}
