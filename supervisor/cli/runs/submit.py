"""submit: a YAML file, or flags and a command after `--`, or both: what a flag says wins over the file.

The request carries an Idempotency-Key of its own, so it can be repeated when its answer is lost: no second run.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.exits import DETACHED, USAGE, CliError, Problem, Unreachable
from supervisor.cli.files.codedir import code_from, settle_code
from supervisor.cli.finding import machines_here
from supervisor.cli.options import Where, output_option, where_options
from supervisor.cli.output import safe
from supervisor.cli.runs.specfile import (
    in_words_of_file,
    missing_command,
    names_local,
    providers_of,
    settle_environment,
)
from supervisor.cli.runs.submit_options import GROUPS, LISTS, PARTS, PLAIN, SWITCHES, submit_options

APPEARS_S = 2.0  # `spot serve &` and a submit in one line: the first sign of the supervisor may come after us
_COMMAND = "supervisor.cli.runs.submit.command"


class SubmitCommand(click.Command):
    """Keeps everything after `--` apart as the run's command, so that FILE and COMMAND cannot be mixed up."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "unexpected extra argument" in error.message:
                text = f"{error.message}. A command comes after --: spot submit -- python train.py"
                raise click.UsageError(text, error.ctx) from None
            raise


@click.command(cls=SubmitCommand, options_metavar="[OPTIONS]")
@click.argument("file", metavar="[FILE.yaml] [-- COMMAND ARGS...]", required=False, type=click.Path())
@submit_options
@output_option
@where_options
@click.pass_context
def submit(ctx: click.Context, /, where: Where, form: str, file: str | None, follow: bool, **flags: Any) -> None:
    """Submit a run: a YAML file (- is standard input), or flags and a command.

    \b
      spot submit train.yaml
      spot submit --run-id digits -- python train.py --epochs 20
    """
    client = where.client(APPEARS_S)
    is_local = machines_here(client, flags.get("providers") or ())
    body = body_from(file, ctx.meta.get(_COMMAND), flags, is_local)
    settle_environment(body["spec"], flags["venv"], client.url, is_local)
    if flags["dry_run"]:
        if flags["cleanup_all"]:
            _cleaning()(client, flags["yes"], dry_run=True)
        if flags["build"]:
            output.note("This is a dry run: no image is built, and the plan is for the one that is named now.")
        _tell_plan(client, body, file, form, follow)
        return
    if flags["build"]:
        body["spec"]["image"] = _build(file, flags, body["spec"])
    settle_code(client, body["spec"])
    if flags["cleanup_all"] and not _room_made(client, body, flags["yes"]):
        ctx.exit(DETACHED)
    run = _send(client, body, file)
    for warning in run.get("warnings") or ():
        output.note(f"warning: {safe(warning)}")
    if not output.emit(run, [run], form, "run_id"):
        click.echo(output.run_line(run))
    if follow:
        from supervisor.cli.runs.watch import follow_run

        ctx.exit(follow_run(client, run["run_id"], None))
    output.suggest(f"spot watch {run['run_id']}")


def _tell_plan(client: Client, body: Json, file: str | None, form: str, follow: bool) -> None:
    """--dry-run: nothing is built, stored, stopped or started. Raises what the submit would meet."""
    from supervisor.cli.views.plan import ask_plan, show_plan

    if follow:
        raise click.UsageError("Say --dry-run or --watch, not both: nothing would begin.")
    code_follows = settle_code(client, body["spec"], send=False)
    try:
        show_plan(ask_plan(client, body, code_follows), form)
    except Problem as error:
        raise _named(error, file) from None


def _build(file: str | None, flags: Json, spec: Json) -> str:
    """The reference of the image that was built from the run's folder. Raises CliError; nothing was touched yet."""
    from supervisor.cli.files.build_image import built
    from supervisor.wiring import settings as wired

    if flags["skip_build"]:
        raise click.UsageError("Say --build or --skip-build, not both.")
    folder = Path(flags["code"] or os.path.dirname(file or "") or ".")
    settings = wired.load({}, file=os.environ.get("SPOT_CONFIG"), env_file=os.environ.get("SPOT_ENV_FILE"))
    return str(built(folder, settings, str(spec.get("image") or "")).reference)


def _room_made(client: Client, body: Json, yes: bool) -> bool:
    """--cleanup-all. A submit that would be refused must not have stopped everybody's runs: that is asked for first. A
    run of this name that is live is no refusal, since it is about to be stopped, if it may go on with this spec."""
    try:
        client.send("POST", "/v1/runs", {"validate_only": "true"}, body)
    except Problem as error:
        if error.code == "RUN_ACTIVE" and not body["replace_spec"]:
            error.hints = ("nothing was stopped; with --replace-spec it is stopped and goes on with this spec",)
            raise
        if error.code not in ("RUN_ACTIVE", "RUN_STOPPING"):
            raise
    return _cleaning()(client, yes)


def _cleaning() -> Callable[..., bool]:
    from supervisor.cli.runs.fleet import clean_up

    return clean_up


def body_from(
    file: str | None, command: list[str] | None, flags: Json, is_local: Callable[[Sequence[str]], bool] = names_local
) -> Json:
    """The body of POST /v1/runs. `is_local`: whether all machines of these providers (none = the supervisor's own) are
    on this computer. Raises CliError where no command is named, or two."""
    run_id: str | None = None
    spec: Json = {}
    if file is not None:
        from supervisor.cli.runs.specfile import read_spec

        run_id, spec = read_spec(file, flags.get("code") is not None, is_local)
    _put_command(spec, command, flags.get("shell_text"), file)
    here = file is None and flags.get("code") is None and not flags.get("workdir")
    if here and is_local(flags.get("providers") or ()):
        spec["workdir"] = os.getcwd()
    _put_flags(spec, flags, is_local)
    body: Json = {"spec": spec, "replace_spec": flags["replace_spec"], "rerun": flags["rerun"]}
    if flags.get("ignore_old"):
        body["ignore_old"] = True
    run_id = flags.get("run_id") or run_id
    return {"run_id": run_id, **body} if run_id is not None else body


def _put_command(spec: Json, command: list[str] | None, shell_text: str | None, file: str | None) -> None:
    if command and shell_text is not None:
        raise CliError("Give a COMMAND after -- or --shell, not both.", USAGE, "COMMAND_TWICE")
    if command:
        spec["command"] = command
    elif shell_text is not None:
        spec["command"] = shell_text
    elif "command" not in spec:
        if file is not None:
            raise CliError(missing_command(file, spec), USAGE, "COMMAND_MISSING")
        hints = ("spot submit train.yaml", "spot submit -- python train.py")
        raise CliError("There is no command to run.", USAGE, "COMMAND_MISSING", hints)


def _put_place(spec: Json, flags: Json, is_local: Callable[[Sequence[str]], bool]) -> None:
    """Providers instead of those of the file. Where there is code, `workdir` is a folder inside it; on machines
    elsewhere one of the image."""
    named = flags.get("providers")
    if named:
        for field in ("provider", "providers"):
            spec.pop(field, None)
        spec |= {"provider": named[0]} if len(named) == 1 else {"providers": list(named)}
    if flags.get("code") is not None:
        spec["code"] = code_from(flags["code"], os.getcwd())
    if flags.get("workdir") and spec.get("code") is None and is_local(providers_of(spec)):
        spec["workdir"] = os.path.abspath(flags["workdir"])


def _put_flags(spec: Json, flags: Json, is_local: Callable[[Sequence[str]], bool]) -> None:
    spec.update({name: flags[name] for name in PLAIN if flags.get(name) is not None})
    _put_place(spec, flags, is_local)
    for flag, name in PARTS:
        if flags.get(flag):
            spec[name] = {**(spec.get(name) or {}), **dict(flags[flag])}
    for flag, name in LISTS:
        if flags.get(flag):
            spec[name] = list(flags[flag])
    if flags.get("result"):
        spec["results"] = [{"path": path} for path in flags["result"]]
    for flag, name, value in SWITCHES:
        if flags.get(flag):
            spec[name] = value
    for field, fields in GROUPS.items():
        given = {name: flags[flag] for flag, name in fields.items() if flags.get(flag) is not None}
        if given:
            spec[field] = {**(spec.get(field) or {}), **given}


def _send(client: Client, body: Json, file: str | None) -> Json:
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    try:
        try:
            answer: Json = client.post("/v1/runs", body, headers)
        except Unreachable as error:
            if not error.sent:
                raise
            # The answer was lost, perhaps not the request: the key makes it the same one.
            answer = client.post("/v1/runs", body, headers)
    except Problem as error:
        raise _named(error, file) from None
    if answer.get("differs") and sys.stderr.isatty():
        output.note("The spec differs from the one before: " + ", ".join(safe(name) for name in answer["differs"]))
    return answer


def _named(error: Problem, file: str | None) -> Problem:
    """With the file that it is about, where there is one."""
    if file is not None:
        in_words_of_file(error, file)
    return error
