"""Options and arguments that several commands share, each declared once, and the types of option values.

A decorator adds the option and hands the command one value: `client` (or `target`), `form`, `query`, `run_id`, `yes`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import click

from supervisor.cli.finding import Target
from supervisor.cli.output import rfc3339_ago

F = TypeVar("F", bound=Callable[..., Any])
WORDS = "supervisor.cli.options.words"
LONGEST_S = 100 * 365 * 86400.0
FORMS = ("table", "json", "jsonl", "name")
_UNITS_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)?")


def target_options(command: F) -> F:
    """--url, --data-dir and --token-file; the command gets `target`."""

    @wraps(command)
    def with_target(*args: Any, url: str | None, data_dir: str | None, token_file: str | None, **kwargs: Any) -> Any:
        return command(*args, target=Target(url, data_dir, token_file), **kwargs)

    return add_options(
        cast(F, with_target),
        click.option("--url", metavar="URL", help="The supervisor (default: SPOT_URL, else server.json)."),
        click.option("--data-dir", metavar="DIR", help="Its data folder, which has its address and a token."),
        click.option("--token-file", metavar="FILE", help="Token (default: SPOT_TOKEN, else the data folder's)."),
    )


def server_options(command: F) -> F:
    """The same options; the command gets `client`."""

    @wraps(command)
    def with_client(*args: Any, target: Target, **kwargs: Any) -> Any:
        return command(*args, client=target.client(0.0), **kwargs)

    return cast(F, target_options(with_client))


def settings_file_options(command: F) -> F:
    """--config and --env-file of the commands that read the settings themselves; `file` and `env_file`."""
    text = "File of SPOT_ variables, or the older runner's file."
    return add_options(
        command,
        click.option("--config", "file", envvar="SPOT_CONFIG", metavar="FILE", help="TOML file of settings."),
        click.option("--env-file", envvar="SPOT_ENV_FILE", metavar="FILE", help=text),
    )


def output_options(command: F) -> F:
    """-o with all forms, and the supervisor; the command gets `form` and `client`."""
    return output_option(server_options(command))


def json_options(command: F) -> F:
    """The same of a command that prints no list: -o table or json, and the older spelling --json."""
    return json_flag(json_option(server_options(command)))


def output_option(command: F) -> F:
    """-o with all forms; the command gets `form`."""
    return _form_option(command, FORMS, "Output form: table, json, jsonl or name.")


def json_option(command: F) -> F:
    """-o of a command that prints no list: table or json."""
    return _form_option(command, FORMS[:2], "Output form: table or json.")


def _form_option(command: F, forms: tuple[str, ...], help_text: str) -> F:
    kind = click.Choice(forms)
    return click.option("-o", "--output", "form", type=kind, default="table", metavar="FORM", help=help_text)(command)


def json_flag(command: F) -> F:
    """--json, the older spelling of `-o json`; below it stands one of the two options above."""

    @wraps(command)
    def with_form(*args: Any, old_json: bool, form: str, **kwargs: Any) -> Any:
        return command(*args, form="json" if old_json else form, **kwargs)

    return cast(F, click.option("--json", "old_json", is_flag=True, hidden=True)(with_form))


class WithCommand(click.Command):
    """Takes everything after `--` as a command, so that its options are not ours: `ctx.meta[WORDS]`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[WORDS] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


def yes_option(help_text: str = "Do not ask.") -> Callable[[F], F]:
    return click.option("-y", "--yes", is_flag=True, help=help_text)


def limit_option(command: F) -> F:
    kind = click.IntRange(1, 100_000)
    return click.option("-n", "--limit", type=kind, default=50, metavar="N", help="At most N records (50).")(command)


def attempt_option(command: F) -> F:
    kind, text = click.IntRange(min=1), "Only attempt N (default: the newest)."
    return click.option("-a", "--attempt", type=kind, metavar="N", help=text)(command)


def since_option(help_text: str) -> Callable[[F], F]:
    """--since AGE; the command gets the time as the API writes it, or None."""
    return click.option("--since", type=time_ago, metavar="AGE", help=help_text)


def label_option(kind: Callable[[str], object], help_text: str) -> Callable[[F], F]:
    """-l, which may be repeated."""
    return click.option("-l", "--label", multiple=True, type=kind, metavar="KEY=VALUE", help=help_text)


def run_filters(command: F) -> F:
    """Filters of runs; the command gets `query`, the parameters of the API (None = not given)."""

    @wraps(command)
    def with_query(*args: Any, **kwargs: Any) -> Any:
        status, label = kwargs.pop("status"), kwargs.pop("label")
        query = {
            "status": list(status) or None,
            "label": [f"{key}={value}" for key, value in label] or None,
            "zone": kwargs.pop("zone"),
            "group": kwargs.pop("group"),
            "owner": kwargs.pop("owner"),
            "created_after": kwargs.pop("since"),
            "q": kwargs.pop("text"),
        }
        return command(*args, query=query, **kwargs)

    text = "Only runs with this status; repeatable."
    return add_options(
        cast(F, with_query),
        click.option("-s", "--status", multiple=True, metavar="STATUS", shell_complete=_complete_status, help=text),
        label_option(key_value, "Only runs with this label; repeatable."),
        click.option("--group", metavar="NAME", help="Only runs of this group."),
        click.option("--zone", metavar="ZONE", help="Only runs in this zone."),
        click.option("--owner", metavar="NAME", help="Only runs of this owner."),
        since_option("Only runs submitted within this time, such as 24h."),
        click.option("-q", "text", metavar="TEXT", help="Only runs whose id contains TEXT."),
    )


def run_argument(command: F) -> F:
    """RUN, which may be left out; the command gets `run_id` (None = not named)."""
    return click.argument("run_id", metavar="[RUN]", required=False, callback=not_empty, shell_complete=_complete_run)(
        command
    )


def add_options(command: F, *options: Callable[[Any], Any]) -> F:
    """`command` with these options, which the help shows in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def not_empty(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """An empty name comes from an unset shell variable; it must never select another run."""
    if value is not None and not value.strip():
        raise click.BadParameter("it is empty. Is a shell variable not set?", ctx, param)
    return value


def check_waiver(waives: bool, reason: str | None) -> None:
    """Raises UsageError where one of the two is missing."""
    if waives != (reason is not None):
        raise click.UsageError("Use --waive CHECK and --reason TEXT together.")


def _complete_status(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from supervisor.domain.status import Status

    return [status for status in Status if status.startswith(incomplete)]


def _complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    try:
        client = Target(*(ctx.params.get(name) for name in ("url", "data_dir", "token_file"))).client()
        runs = client.get("/v1/runs", page_size=200)["runs"]
    except Exception:  # noqa: BLE001 - a shell that completes a word must never show an error
        return []
    return [run["run_id"] for run in runs if run["run_id"].startswith(incomplete)]


def duration_s(value: str) -> float:
    """The type of options such as `90`, `90s`, `30m`, `2h`, `1h30m`, `1d`: seconds."""
    rest, total = value.strip().lower(), 0.0
    malformed = click.BadParameter(f"{value!r} is not a duration such as 90s, 30m or 2h.")
    if not rest:
        raise malformed
    while rest:
        match = _DURATION.match(rest)
        # A number without a unit stands alone: seconds.
        if match is None or (match[2] is None and (match.end() != len(rest) or total)):
            raise malformed
        total += float(match[1]) * _UNITS_S[match[2] or "s"]
        rest = rest[match.end() :].lstrip()
    if total > LONGEST_S:
        raise click.BadParameter(f"{value!r} is longer than 100 years.")
    return total


def time_ago(value: str) -> str:
    """The type of options such as `24h`: the time so long ago, as the API writes it."""
    return rfc3339_ago(duration_s(value))


def amount(value: str) -> float:
    """The type of sums: a finite number."""
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise click.BadParameter(f"{value!r} is not a finite number.")
    return number


def key_value(value: str) -> tuple[str, str]:
    """The type of `KEY=VALUE`."""
    key, sign, text = value.partition("=")
    if not sign or not key:
        raise click.BadParameter(f"{value!r} is not KEY=VALUE.")
    return key, text


def secret_reference(value: str) -> tuple[str, str]:
    """The type of `NAME=env:OTHER`, `NAME=file:PATH`, `NAME=k8s:SECRET/KEY`,
    `NAME=gcp:projects/P/secrets/S/versions/V`, and of `NAME`, which is NAME=env:NAME. A path is made absolute."""
    name, sign, reference = value.partition("=")
    if not sign:
        return name, f"env:{name}"
    kind, _, place = reference.partition(":")
    if not name or kind not in ("env", "file", "gcp", "k8s") or not place:
        # The value is not repeated: it may be the secret itself.
        raise click.BadParameter(
            "write NAME, NAME=env:OTHER_NAME, NAME=file:PATH, NAME=k8s:SECRET/KEY or "
            "NAME=gcp:projects/P/secrets/S/versions/V."
        )
    return name, reference if kind != "file" else f"file:{os.path.abspath(os.path.expanduser(place))}"
