"""The options of `spot submit`, in the order of its help, and the field of the spec that each of them fills.

`spot change` has the limits of this table too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from supervisor.cli.options import (
    F,
    add_options,
    amount,
    duration_s,
    key_value,
    not_empty,
    secret_reference,
    yes_option,
)

Json = dict[str, Any]


@dataclass(frozen=True)
class SpecOption:
    """`field`: the field of the spec, with a dot where it lies in a group. `value`: from (value of the file, value of
    the option) to the value in the spec. `click`: arguments of click.option."""

    field: str
    flags: tuple[str, ...]
    click: Mapping[str, Any]
    value: Callable[[Any, Any], Any]

    @property
    def name(self) -> str:
        return self.field.replace(".", "_")

    def decorator(self) -> Callable[[Any], Any]:
        return click.option(*self.flags, self.name, **self.click)


def _value(field: str, flag: str, text: str, **more: Any) -> SpecOption:
    return SpecOption(field, (flag,), {"help": text, **more}, lambda old, new: new)


def _time(field: str, flag: str, text: str) -> SpecOption:
    return _value(field, flag, text, type=duration_s, metavar="TIME")


def _choice(field: str, flag: str, text: str, *words: str) -> SpecOption:
    return _value(field, flag, text, type=click.Choice(words))


def _switch(field: str, flag: str, text: str, value: bool = True) -> SpecOption:
    return SpecOption(field, (flag,), {"help": text, "is_flag": True}, lambda old, new: value)


def _pairs(field: str, flags: tuple[str, ...], text: str, kind: Any = key_value, form: str = "KEY=VALUE") -> SpecOption:
    """Pairs that join the pairs of the file."""
    more = {"help": text, "multiple": True, "type": kind, "metavar": form}
    return SpecOption(field, flags, more, lambda old, new: {**(old or {}), **dict(new)})


def _list(field: str, flag: str, text: str, form: str, value: Callable[[Any, Any], Any] | None = None) -> SpecOption:
    """A list that replaces the list of the file."""
    more = {"help": text, "multiple": True, "metavar": form}
    return SpecOption(field, (flag,), more, value or (lambda old, new: list(new)))


LIMITS = (
    _time("limits.max_runtime_s", "--max-runtime", "Most training time (90s, 30m, 2h)."),
    _value("limits.deadline", "--deadline", "Latest end, such as 2030-01-31T08:00:00Z.", metavar="TIME"),
    _value(
        "limits.max_attempts", "--max-attempts", "Most attempts; a preemption does not count.", type=int, metavar="N"
    ),
    _value("limits.max_user_failures", "--max-user-failures", "Most failures of the command.", type=int, metavar="N"),
    _time("limits.wait_for_capacity_s", "--wait", "Longest wait for capacity (90s, 30m, 2h)."),
    _value("limits.budget_usd", "--budget", "Most cost, in US dollars.", type=amount, metavar="USD"),
)
OPTIONS: tuple[SpecOption | Callable[[Any], Any], ...] = (
    click.option(
        "--run-id", metavar="RUN", callback=not_empty, help="Id of the run; an ended run is resumed, a live one kept."
    ),
    click.option("--shell", "shell_text", metavar="TEXT", help="Run TEXT in a shell instead of a COMMAND."),
    click.option(
        "--venv",
        metavar="DIR",
        callback=not_empty,
        help="Virtual or conda environment of the command; none: the service's own (default here: the active one).",
    ),
    click.option(
        "--code", metavar="DIR", callback=not_empty, help="Send this folder, and run the command in its copy."
    ),
    _value(
        "workdir",
        "--workdir",
        "Folder of the command (default: this one, or the file's; with an image its WORKDIR, with --code its top).",
        metavar="DIR",
    ),
    _pairs("env", ("-e", "--env"), "Environment variable of the command."),
    _pairs(
        "secrets",
        ("--secret",),
        "Secret of the command; REF: env:NAME of the service (default), file:PATH, on Google gcp:projects/…",
        secret_reference,
        "NAME[=REF]",
    ),
    _pairs("labels", ("-l", "--label"), "Label of the run."),
    _value("image", "--image", "Container image; not on local machines.", metavar="REF"),
    _switch("image_follow_tag", "--image-follow-tag", "Read the image tag again for each machine."),
    click.option(
        "--provider",
        "providers",
        multiple=True,
        metavar="NAME",
        help="Where machines come from; repeatable, the first choice first (default: the supervisor's).",
    ),
    _list("zones", "--zone", "Only these zones, in this order; repeatable.", "ZONE"),
    _list("shapes", "--shape", "Shape of the machine; repeatable, the best first.", "SHAPE"),
    _choice(
        "same_region",
        "--same-region",
        "Refuse zones outside the region of the data, or only warn.",
        "require",
        "advise",
    ),
    _switch("spot", "--on-demand", "No spot machines.", value=False),
    _switch("allow_on_demand", "--allow-on-demand", "On-demand where no spot machine is available."),
    _value(
        "escalate.after", "--escalate-after", "After N preemptions another offer is requested.", type=int, metavar="N"
    ),
    _time("escalate.within_s", "--escalate-within", "Only preemptions within this time count (6h)."),
    _choice(
        "escalate.to", "--escalate-to", "The offer that is requested then.", "on_demand", "next_shape", "next_provider"
    ),
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
    *LIMITS,
    _time("expect_runtime_s", "--expect-runtime", "Expected training time; a run of less than half of it is partial."),
    _time("stop_grace_s", "--stop-grace", "Time to save the last checkpoint (90s, 30m, 2h)."),
    _value(
        "expect_checkpoint_gb", "--expect-checkpoint", "Size of a checkpoint, for --dry-run.", type=amount, metavar="GB"
    ),
    _list(
        "results",
        "--result",
        "Result that must exist at the end; repeatable.",
        "GLOB",
        lambda old, new: [{"path": path} for path in new],
    ),
    _choice("on_success", "--on-success", "What happens to the machine.", "release", "keep", "ask"),
    _choice("on_failure", "--on-failure", "The same after a final failure.", "release", "keep"),
    _time("keep_s", "--keep", "How long `keep` keeps the machine (30m, 2h)."),
    click.option("--replace-spec", is_flag=True, help="Resume the run with this spec, even if it differs."),
    click.option("--rerun", is_flag=True, help="Start a completed run again from the beginning."),
    click.option("--ignore-old", is_flag=True, help="Ignore a run of the older runner with this id."),
    click.option("--build", is_flag=True, help="Build the image first, and run the built one."),
    click.option("--skip-build", is_flag=True, help="Do not build; the default, for old scripts."),
    click.option(
        "--cleanup-all",
        is_flag=True,
        help="First stop all active runs, wait for their machines to go, and release machines without a run.",
    ),
    yes_option("Do not ask before --cleanup-all."),
    click.option("--dry-run", is_flag=True, help="Show what the submit would do, and do nothing."),
    click.option("--watch", "follow", is_flag=True, help="Follow the run until it ends."),
)


def submit_options(command: F) -> F:
    """Every option of `spot submit` but those of options.py."""
    decorators = (option.decorator() if isinstance(option, SpecOption) else option for option in OPTIONS)
    return add_options(command, *decorators)


def put_options(spec: Json, given: Mapping[str, Any]) -> None:
    """Fill the fields of `spec` from the options that were given, by their names."""
    for option in OPTIONS:
        value = given.get(option.name) if isinstance(option, SpecOption) else None
        if not isinstance(option, SpecOption) or value is None or value is False or value == ():
            continue
        group, _, field = option.field.rpartition(".")
        fields = spec
        if group:
            fields = spec[group] = dict(spec.get(group) or {})
        fields[field] = option.value(fields.get(field), value)
