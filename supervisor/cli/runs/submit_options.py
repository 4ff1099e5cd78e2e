"""The options of `spot submit`, in the groups of the help: what runs, where, its limits, its end, how it is asked.

What an option's value becomes in the spec stands in cli/runs/submit.py and in the tables here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from supervisor.cli.options import amount, duration_s, key_value, not_empty, secret_reference

F = TypeVar("F", bound=Callable[..., Any])

# option -> the field of the spec, of the same name
PLAIN = (
    "workdir",
    "image",
    "expect_runtime_s",
    "expect_checkpoint_gb",
    "same_region",
    "stop_grace_s",
    "on_success",
    "on_failure",
    "keep_s",
)
# option, field of the spec: pairs that join those of the file, lists that replace the file's
PARTS = (("env", "env"), ("secret", "secrets"), ("label", "labels"))
LISTS = (("zone", "zones"), ("shape", "shapes"))
# option, field, what the option puts there
SWITCHES = (
    ("on_demand", "spot", False),
    ("allow_on_demand", "allow_on_demand", True),
    ("image_follow_tag", "image_follow_tag", True),
)
# field -> option -> the name inside the field
GROUPS = {
    "limits": {
        "max_runtime_s": "max_runtime_s",
        "deadline": "deadline",
        "max_attempts": "max_attempts",
        "max_user_failures": "max_user_failures",
        "wait_for_capacity_s": "wait_for_capacity_s",
        "budget_usd": "budget_usd",
    },
    "escalate": {
        "escalate_after": "after",
        "escalate_within": "within_s",
        "escalate_to": "to",
        "on_demand_before_deadline": "on_demand_before_deadline_s",
        "next_provider_before_deadline": "next_provider_before_deadline_s",
    },
}

_WHAT = (
    click.option(
        "--run-id",
        metavar="RUN",
        callback=not_empty,
        help="Name of the run; a known one is resumed, or left alone while it is live.",
    ),
    click.option("--shell", "shell_text", metavar="TEXT", help="Run this text by a shell instead of a COMMAND."),
    click.option(
        "--venv",
        metavar="DIR",
        callback=not_empty,
        help="Start the command in this virtual or conda environment (default on this computer: the active one; "
        "none: the service's own).",
    ),
    click.option(
        "--code",
        metavar="DIR",
        callback=not_empty,
        help="Send this folder with the run, and start the command in its copy.",
    ),
    click.option(
        "--workdir",
        metavar="DIR",
        help="Folder to run in (default: this one, or the file's; in an image: its WORKDIR; with code: its top).",
    ),
    click.option("-e", "--env", multiple=True, type=key_value, metavar="KEY=VALUE", help="Environment of the command."),
    click.option(
        "--secret",
        multiple=True,
        type=secret_reference,
        metavar="NAME[=REF]",
        help="A secret of the command; REF: file:PATH, env:NAME of the service (default), on Google gcp:projects/…",
    ),
    click.option("-l", "--label", multiple=True, type=key_value, metavar="KEY=VALUE", help="Label of the run."),
    click.option("--image", help="Container image (other providers than local)."),
    click.option("--image-follow-tag", is_flag=True, help="Each machine takes what the image tag names then."),
)
_WHERE = (
    click.option(
        "--provider",
        "providers",
        multiple=True,
        metavar="NAME",
        help="Where machines come from (default: what the supervisor has); repeated: the first is asked first.",
    ),
    click.option("--zone", multiple=True, help="Only these zones, in this order."),
    click.option("--shape", multiple=True, help="Shape of the machine; repeated: a ladder, the best first."),
    click.option(
        "--same-region",
        type=click.Choice(["require", "advise"]),
        help="Refuse zones outside of the region of the run's data, or only say what that costs.",
    ),
    click.option("--on-demand", is_flag=True, help="No spot machines."),
    click.option("--allow-on-demand", is_flag=True, help="On-demand when no spot machine can be had."),
    click.option("--escalate-after", type=int, metavar="N", help="So many preemptions change what is asked for."),
    click.option("--escalate-within", type=duration_s, metavar="TIME", help="They count within this time (6h)."),
    click.option(
        "--escalate-to", type=click.Choice(["on_demand", "next_shape", "next_provider"]), help="What is asked for then."
    ),
    click.option(
        "--on-demand-before-deadline", type=duration_s, metavar="TIME", help="On-demand when the deadline is so near."
    ),
    click.option(
        "--next-provider-before-deadline",
        type=duration_s,
        metavar="TIME",
        help="The next provider when the deadline is so near.",
    ),
)
_LIMITS = (
    click.option(
        "--max-runtime", "max_runtime_s", type=duration_s, metavar="TIME", help="Training time at most (90s, 30m, 2h)."
    ),
    click.option(
        "--expect-runtime",
        "expect_runtime_s",
        type=duration_s,
        metavar="TIME",
        help="Half of this (90s, 30m, 2h) is suspicious.",
    ),
    click.option("--deadline", metavar="TIME", help="When it must have ended: RFC 3339, such as 2030-01-31T08:00:00Z."),
    click.option("--max-attempts", type=int, metavar="N", help="Attempts that count (preemptions do not)."),
    click.option("--max-user-failures", type=int, metavar="N", help="Failures of the command itself."),
    click.option(
        "--wait",
        "wait_for_capacity_s",
        type=duration_s,
        metavar="TIME",
        help="How long to wait for capacity (90s, 30m, 2h).",
    ),
    click.option("--budget", "budget_usd", type=amount, metavar="USD", help="Cost at most, in US dollars."),
    click.option(
        "--stop-grace",
        "stop_grace_s",
        type=duration_s,
        metavar="TIME",
        help="Time for the last checkpoint (90s, 30m, 2h).",
    ),
)
_END = (
    click.option(
        "--expect-checkpoint",
        "expect_checkpoint_gb",
        type=amount,
        metavar="GB",
        help="Size of one checkpoint, for the advice of --dry-run.",
    ),
    click.option("--result", multiple=True, metavar="GLOB", help="A result that must exist in the end."),
    click.option("--on-success", type=click.Choice(["release", "keep", "ask"]), help="What becomes of the machine."),
    click.option("--on-failure", type=click.Choice(["release", "keep"]), help="The same after a failure for good."),
    click.option("--keep", "keep_s", type=duration_s, metavar="TIME", help="How long `keep` keeps it (30m, 2h)."),
)
_ASKING = (
    click.option("--replace-spec", is_flag=True, help="A known run goes on with this spec, even if it differs."),
    click.option("--rerun", is_flag=True, help="A completed run starts over."),
    click.option(
        "--ignore-old", is_flag=True, help="Begin from nothing beside a run of the older runner of this name."
    ),
    click.option("--build", is_flag=True, help="Build the image first, and run what was built."),
    click.option(
        "--skip-build", is_flag=True, help="Build nothing; so it is anyway, and old scripts may go on saying it."
    ),
    click.option(
        "--cleanup-all",
        is_flag=True,
        help="First stop every active run, wait until their machines are gone, release machines without a run.",
    ),
    click.option("-y", "--yes", is_flag=True, help="Do not ask before --cleanup-all."),
    click.option("--dry-run", is_flag=True, help="Tell what the submit would do, and do nothing."),
    click.option("--watch", "follow", is_flag=True, help="Follow the run until it ends."),
)


def submit_options(command: F) -> F:
    """Every option of `spot submit` but those that other commands have too."""
    decorated: Any = command
    for option in reversed(_WHAT + _WHERE + _LIMITS + _END + _ASKING):
        decorated = option(decorated)
    done: F = decorated
    return done
