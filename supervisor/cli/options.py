"""Options that several commands share, and the value they hand over: which supervisor, which form of output."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from supervisor.cli import output

if TYPE_CHECKING:
    from supervisor.cli.client import Client

F = TypeVar("F", bound=Callable[..., Any])
LONGEST_S = 100 * 365 * 86400.0
FORMS = ("table", "json", "jsonl", "name")


@dataclass(frozen=True)
class Where:
    """Which supervisor is meant, as far as the command line says; None = it does not."""

    url: str | None
    data_dir: str | None
    token_file: str | None

    def client(self, appears_s: float | None = None) -> Client:
        """`appears_s`: see finding.client_for. Raises SpotError when the settings needed to find it are refused."""
        from supervisor.cli.finding import client_for

        return client_for(self.url, self.data_dir, self.token_file, appears_s)


def where_options(command: F) -> F:
    """--url, --data-dir and --token-file; the command gets `where`."""

    @wraps(command)
    def with_where(*args: Any, url: str | None, data_dir: str | None, token_file: str | None, **kwargs: Any) -> Any:
        return command(*args, where=Where(url, data_dir, token_file), **kwargs)

    decorated: Any = with_where
    for name, metavar, help_text in (
        ("--token-file", "FILE", "File with the token (default: SPOT_TOKEN, else the data folder's)."),
        ("--data-dir", "DIR", "Data folder of the supervisor; it holds its address and a token."),
        ("--url", "URL", "Address of the supervisor (default: SPOT_URL, else server.json)."),
    ):
        decorated = click.option(name, metavar=metavar, help=help_text)(decorated)
    return cast(F, decorated)


def server_options(command: F) -> F:
    """The same; the command gets `client`."""

    @wraps(command)
    def with_client(*args: Any, where: Where, **kwargs: Any) -> Any:
        return command(*args, client=where.client(0.0), **kwargs)

    return cast(F, where_options(with_client))


def output_option(command: F) -> F:
    """-o; the command gets `form`, one of FORMS."""
    option = click.option(
        "-o", "--output", "form", type=click.Choice(FORMS), default="table", help="Form of the output."
    )
    return option(command)


def AS_JSON(command: F) -> F:  # noqa: N802 - it stands where an option stands
    """-o json, as everywhere; --json, which is what some of these commands took first, goes on. The command gets
    `as_json`; one with `output_option` its `form`."""
    has_form = any(param.name == "form" for param in getattr(command, "__click_params__", ()))

    @wraps(command)
    def with_form(*args: Any, old: bool, output_form: str = "", **kwargs: Any) -> Any:
        if has_form:
            kwargs["form"] = "json" if old else kwargs["form"]
        else:
            kwargs["as_json"] = old or output_form == "json"
        return command(*args, **kwargs)

    decorated: Any = click.option("--json", "old", is_flag=True, hidden=True)(with_form)
    if not has_form:
        decorated = click.option(
            "-o", "--output", "output_form", type=click.Choice(["table", "json"]), help="Form of the output."
        )(decorated)
    return cast(F, decorated)


def list_filters(command: F) -> F:
    """The filters of a list of runs; the command gets `limit` and `query` (of the API, None = not given)."""
    many = click.IntRange(1, 100_000)
    limit = click.option("-n", "--limit", type=many, default=50, show_default=True, help="At most so many.")
    return run_filters(limit(command))


def run_filters(command: F) -> F:
    """The same without `limit`."""

    @wraps(command)
    def with_query(
        *args: Any,
        status: tuple[str, ...],
        label: tuple[tuple[str, str], ...],
        zone: str | None,
        owner: str | None,
        since: float | None,
        text: str | None,
        **kwargs: Any,
    ) -> Any:
        query = {
            "status": list(status) or None,
            "label": [f"{key}={value}" for key, value in label] or None,
            "zone": zone,
            "owner": owner,
            "created_after": None if since is None else output.rfc3339_ago(since),
            "q": text,
        }
        return command(*args, query=query, **kwargs)

    decorated: Any = with_query
    for option in reversed(_filters()):
        decorated = option(decorated)
    return cast(F, decorated)


def _filters() -> tuple[Callable[[Any], Any], ...]:
    age = "Only runs submitted within this time, such as 24h."
    return (
        click.option(
            "-s",
            "--status",
            multiple=True,
            metavar="STATUS",
            shell_complete=_complete_status,
            help="Only runs in this status; may be repeated.",
        ),
        label_option(key_value, "Only runs with this label."),
        click.option("--zone", help="Only runs in this zone."),
        click.option("--owner", help="Only runs of this owner."),
        click.option("--since", type=duration_s, metavar="AGE", help=age),
        click.option("-q", "text", metavar="TEXT", help="Only runs whose id contains this."),
    )


def label_option(kind: Callable[[str], object], help_text: str) -> Callable[[F], F]:
    """-l, which may be repeated. `kind`: the type of one."""
    return click.option("-l", "--label", multiple=True, type=kind, metavar="KEY=VALUE", help=help_text)


def run_argument(command: F) -> F:
    """RUN, which may be left out; the command gets `run_id` (None = not named)."""
    argument = click.argument(
        "run_id", metavar="[RUN]", required=False, callback=not_empty, shell_complete=_complete_run
    )
    return argument(command)


def not_empty(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """An empty name comes from a shell variable that is not set; it must never mean another run."""
    if value is not None and not value.strip():
        raise click.BadParameter("it is empty: is a shell variable not set?", ctx, param)
    return value


def _complete_status(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from supervisor.domain.status import Status

    return [str(status) for status in Status if str(status).startswith(incomplete)]


def _complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    try:
        client = Where(*(ctx.params.get(name) for name in ("url", "data_dir", "token_file"))).client()
        runs = client.get("/v1/runs", page_size=200)["runs"]
    except Exception:  # noqa: BLE001 - a shell that completes a word must never show an error
        return []
    return [run["run_id"] for run in runs if run["run_id"].startswith(incomplete)]


def duration_s(value: str) -> float:
    """The type of options such as `90`, `90s`, `30m`, `2h`, `1h30m`, `1d`: seconds."""
    try:
        seconds = output.parse_duration_s(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a duration such as 90s, 30m or 2h.") from None
    if seconds > LONGEST_S:
        raise click.BadParameter(f"{value!r} is longer than 100 years.")
    return seconds


def amount(value: str) -> float:
    """The type of options that hold a sum: a finite number."""
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise click.BadParameter(f"{value!r} is not a finite number.")
    return number


def secret_reference(value: str) -> tuple[str, str]:
    """The type of `NAME=env:OTHER`, `NAME=file:PATH`, `NAME=gcp:projects/P/secrets/S/versions/V`, and of `NAME`, which
    is NAME=env:NAME. A path is made absolute."""
    name, sign, reference = value.partition("=")
    if not sign:
        return name, f"env:{name}"
    kind, _, place = reference.partition(":")
    if not name or kind not in ("env", "file", "gcp") or not place:
        # Not repeated: somebody may have written the value itself.
        raise click.BadParameter(
            "write NAME, NAME=env:OTHER_NAME, NAME=file:PATH or NAME=gcp:projects/P/secrets/S/versions/V."
        )
    return name, reference if kind != "file" else f"file:{os.path.abspath(os.path.expanduser(place))}"


def key_value(value: str) -> tuple[str, str]:
    """The type of options such as `KEY=VALUE`."""
    key, sign, text = value.partition("=")
    if not sign or not key:
        raise click.BadParameter(f"{value!r} is not KEY=VALUE.")
    return key, text
