"""The options of `spot submit`, in the sections of its help, and the field of the spec that each of them fills.

`spot change` has the limits of this table too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from supervisor.cli.options import F, add_options, amount, duration_s, key_value, not_empty, secret_reference

Json = dict[str, Any]


@dataclass(frozen=True)
class Option:
    """`name`: of the command's argument. `settings`: of click.option. `field`: the field of the spec, with a dot where
    it lies in a group; "" = none. `value`: from (value of the file, value of the option) to the value in the spec."""

    name: str
    flags: tuple[str, ...]
    settings: Mapping[str, Any]
    field: str = ""
    value: Callable[[Any, Any], Any] = lambda old, new: new

    def decorator(self, **other_settings: Any) -> Callable[[Any], Any]:
        return click.option(*self.flags, self.name, **{**self.settings, **other_settings})


def _option(name: str, flag: str, text: str, **settings: Any) -> Option:
    """An option that fills no field."""
    return Option(name, (flag,), {"help": text, **settings})


def _flag(name: str, flag: str, text: str) -> Option:
    return _option(name, flag, text, is_flag=True)


def _field(field: str, flag: str, text: str, **settings: Any) -> Option:
    return Option(field.replace(".", "_"), (flag,), {"help": text, **settings}, field)


def _time(field: str, flag: str, text: str) -> Option:
    return _field(field, flag, text, type=duration_s, metavar="TIME")


def _number(field: str, flag: str, text: str) -> Option:
    return _field(field, flag, text, type=int, metavar="N")


def _choice(field: str, flag: str, text: str, *words: str) -> Option:
    return _field(field, flag, text, type=click.Choice(words))


def _switch(field: str, flag: str, text: str, value: bool | str = True) -> Option:
    return Option(field, (flag,), {"help": text, "is_flag": True}, field, lambda old, new: value)


def _pairs(field: str, flags: tuple[str, ...], text: str, kind: Any = key_value, form: str = "KEY=VALUE") -> Option:
    """Pairs that join the pairs of the file."""
    settings = {"help": text, "multiple": True, "type": kind, "metavar": form}
    return Option(field, flags, settings, field, lambda old, new: {**(old or {}), **dict(new)})


def _list(field: str, flag: str, text: str, form: str, item: Callable[[str], Any] = str) -> Option:
    """A list that replaces the list of the file."""
    settings = {"help": text, "multiple": True, "metavar": form}
    return Option(field, (flag,), settings, field, lambda old, new: list(map(item, new)))


LIMITS = (
    _time("limits.max_runtime_s", "--max-runtime", "Most training time (90s, 30m, 2h)."),
    _field("limits.deadline", "--deadline", "Latest end, such as 2030-01-31T08:00:00Z.", metavar="TIME"),
    _number("limits.max_attempts", "--max-attempts", "Most attempts; a preemption does not count."),
    _number("limits.max_user_failures", "--max-user-failures", "Most failures of the command."),
    _time("limits.wait_for_capacity_s", "--wait", "Longest wait for capacity (90s, 30m, 2h)."),
    _field("limits.budget_usd", "--budget", "Most cost, in US dollars.", type=amount, metavar="USD"),
)
NAMED = {"metavar": "DIR", "callback": not_empty}
SECTIONS: dict[str, tuple[Option, ...]] = {
    "Command": (
        _option("shell_text", "--shell", "Run TEXT in a shell instead of a COMMAND.", metavar="TEXT"),
        _option("code", "--code", "Send this folder, and run the command in its copy.", **NAMED),
        _field("workdir", "--workdir", "Its folder (default: this one; the image's; the code's).", metavar="DIR"),
        _option("venv", "--venv", "Its Python environment, or `none` (default here: the active).", **NAMED),
        _pairs("env", ("-e", "--env"), "Its environment variable."),
        _pairs(
            "secrets", ("--secret",), "Its secret; REF: env:NAME, file:PATH or gcp:…", secret_reference, "NAME[=REF]"
        ),
        _list("setup", "--setup", "Prepare each machine with TEXT in a shell, once; repeatable.", "TEXT"),
        _field("base", "--base", "Start from this base (spot base ls).", metavar="NAME", callback=not_empty),
        _time("stall.setup_s", "--setup-limit", "Longest setup (30m)."),
        _field("image", "--image", "Container image; not on local machines.", metavar="REF"),
        _field("smoke", "--smoke", "Run this twice here first; it must resume.", metavar="TEXT", callback=not_empty),
        _switch("image_follow_tag", "--image-follow-tag", "Read the image tag again for each machine."),
    ),
    "Machine": (
        _option(
            "providers", "--provider", "Provider; repeatable, the first choice first.", multiple=True, metavar="NAME"
        ),
        _list("zones", "--zone", "Only these zones, in this order; repeatable.", "ZONE"),
        _list("shapes", "--shape", "Shape; repeatable, the best first.", "SHAPE"),
        _choice(
            "same_region", "--same-region", "Zones in the data's region: require or advise them.", "require", "advise"
        ),
        _switch("spot", "--on-demand", "No spot machines.", value=False),
        _switch("allow_on_demand", "--allow-on-demand", "On-demand where no spot machine is available."),
        _switch("allow_flex_start", "--allow-flex-start", "One request waits for capacity where spot has none."),
        _choice("optimize", "--optimize", "Least cost, earliest end, or spot only.", "cost", "deadline", "wait"),
        _number("race", "--race", "2: ask two zones at once; the first machine is used, the other one deleted."),
        _number("escalate.after", "--escalate-after", "Request another offer after N preemptions."),
        _time("escalate.within_s", "--escalate-within", "Count only preemptions within this time (6h)."),
        _choice("escalate.to", "--escalate-to", "The other offer.", "on_demand", "next_shape", "next_provider"),
        _time(
            "escalate.on_demand_before_deadline_s",
            "--on-demand-before-deadline",
            "On-demand this long before the deadline.",
        ),
        _time(
            "escalate.next_provider_before_deadline_s",
            "--next-provider-before-deadline",
            "The next provider this long before the deadline.",
        ),
        _choice("escalate.pay", "--pay", "Pay after free sessions: for a deadline, or always.", "deadline", "always"),
    ),
    "Limits": (
        *LIMITS,
        _choice("on_slow", "--on-slow", "Move a run with a throttled GPU at its next checkpoint.", "off", "move"),
        _choice("on_resume_ignored", "--on-resume-ignored", "If it starts over on resume.", "stop", "warn"),
        _time("expect_runtime_s", "--expect-runtime", "Expected training time; below half of it: partial."),
        _time("stop_grace_s", "--stop-grace", "Time to save the last checkpoint (90s, 30m, 2h)."),
    ),
    "End": (
        _list("results", "--result", "Result that must exist; repeatable.", "GLOB", lambda path: {"path": path}),
        _choice("on_success", "--on-success", "What happens to the machine.", "release", "keep", "ask"),
        _choice("on_failure", "--on-failure", "The same after a final failure.", "release", "keep"),
        _switch("keep", "--keep-machine", "Each attempt starts the same machine again.", "machine"),
        _time("keep_wait_s", "--keep-wait", "Time to start it again (20m), from the first refusal."),
        _choice("keep_fallback", "--keep-fallback", "After that: a new machine, or wait on.", "new", "wait"),
        _time("keep_for_s", "--keep-for", "How long it may stay switched off (12h)."),
        _choice("on_reboot", "--on-reboot", "Who goes on after a reboot of a host by SSH.", "resume", "relaunch"),
        _time("keep_s", "--keep", "How long `keep` keeps the machine (30m, 2h)."),
    ),
    "Submit": (
        _option("run_id", "--run-id", "Id of the run; an ended run is resumed.", metavar="RUN", callback=not_empty),
        _pairs("labels", ("-l", "--label"), "Label of the run."),
        _field("group", "--group", "Group of the run.", metavar="NAME", callback=not_empty),
        _number("max_parallel", "--max-parallel", "Runs of the group with a machine at once."),
        _number("priority", "--priority", "The highest gets the next machine (-100 to 100)."),
        _time("min_run_s", "--min-run", "Train so long before it yields to a higher priority."),
        _list("after", "--after", "Start when this run is completed; repeatable.", "RUN"),
        _flag("replace_spec", "--replace-spec", "Resume the run with this spec, even if it differs."),
        _flag("rerun", "--rerun", "Start a completed run again from the beginning."),
        _flag("ignore_old", "--ignore-old", "Ignore a run of the older runner with this id."),
        _option("waive", "--waive", "Go on in spite of this check; repeatable.", metavar="CHECK", multiple=True),
        _option("reason", "--reason", "Why, for the history; with --waive.", metavar="TEXT", callback=not_empty),
        _flag("build", "--build", "Build the image first, and run the built one."),
        _flag("skip_build", "--skip-build", "Do not build; the default, for old scripts."),
        _flag("cleanup_all", "--cleanup-all", "First stop all active runs and release machines without a run."),
        Option("yes", ("-y", "--yes"), {"help": "Do not ask before --cleanup-all.", "is_flag": True}),
        _option(
            "plan", "--plan", "The plan that --dry-run has shown for this submit.", metavar="ID", callback=not_empty
        ),
        _flag("dry_run", "--dry-run", "Show what the submit would do, and do nothing."),
        _field(
            "expect_checkpoint_gb", "--expect-checkpoint", "Checkpoint size, for --dry-run.", type=amount, metavar="GB"
        ),
        _flag("follow", "--watch", "Follow the run until it ends."),
    ),
}
OPTIONS = tuple(option for options in SECTIONS.values() for option in options)


def submit_options(command: F) -> F:
    """Every option of `spot submit` but those of options.py."""
    return add_options(command, *(option.decorator() for option in OPTIONS))


def put_options(spec: Json, given: Mapping[str, Any]) -> None:
    """Fill the fields of `spec` from the options that were given, by their names."""
    for option in OPTIONS:
        value = given.get(option.name)
        if not option.field or value is None or value is False or value == ():
            continue
        group, _, field = option.field.rpartition(".")
        fields = spec
        if group:
            fields = spec[group] = dict(spec.get(group) or {})
        fields[field] = option.value(fields.get(field), value)


def write_help(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """The options in their sections; those of options.py last."""
    options = (param for param in command.get_params(ctx) if isinstance(param, click.Option))
    records = {option.name: option.get_help_record(ctx) for option in options}
    sections = {title: [records.pop(row.name) for row in rows] for title, rows in SECTIONS.items()}
    for title, rows in {**sections, "Options": list(records.values())}.items():
        with formatter.section(title):
            formatter.write_dl([row for row in rows if row is not None])
