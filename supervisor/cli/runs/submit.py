"""submit and plan: a YAML file, or options and a command after `--`, or both: an option wins over the file.

The request carries an Idempotency-Key of its own, so that it can be repeated when its response is lost: no second run.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.exits import DETACHED, USAGE, CliError, Problem, Unreachable
from supervisor.cli.files.local_inputs import (
    HASH,
    IsLocal,
    code_from,
    machines_here,
    names_local,
    providers_of,
    settle_code,
    settle_environment,
)
from supervisor.cli.finding import Target
from supervisor.cli.options import WORDS, WithCommand, check_waiver, output_option, target_options
from supervisor.cli.output import safe
from supervisor.cli.runs.cells import is_sweep
from supervisor.cli.runs.specfile import in_words_of_file, missing_command, read_spec
from supervisor.cli.runs.submit_options import put_options, submit_options, write_help
from supervisor.cli.runs.sweep import submit_sweep, with_smoked_code

APPEARS_S = 2.0  # after `spot serve &` on the same line, the first sign of the supervisor may come after us


class SubmitCommand(WithCommand):
    """FILE and COMMAND cannot be mixed up."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "unexpected extra argument" in error.message:
                text = f"{error.message}. A command comes after --: spot submit -- python train.py"
                raise click.UsageError(text, error.ctx) from None
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_help(self, ctx, formatter)


@click.command(cls=SubmitCommand, options_metavar="[OPTIONS]")
@click.argument("file", metavar="[FILE.yaml] [-- COMMAND ARGS...]", required=False, type=click.Path())
@submit_options
@output_option
@target_options
@click.pass_context
def submit(ctx: click.Context, /, target: Target, form: str, file: str | None, follow: bool, **given: Any) -> None:
    """Submit a run: a YAML file (- is standard input), or options and a command.

    \b
      spot submit train.yaml
      spot submit --run-id digits -- python train.py --epochs 20

    A file with matrix or lines is a sweep: one run for each cell.
    """
    client = target.client(APPEARS_S)
    is_local = machines_here(client, given["providers"])
    body = body_from(file, ctx.meta.get(WORDS), given, is_local)
    settle_environment(body["spec"], given["venv"], client.url, is_local)
    smoke = body["spec"].pop("smoke", None)
    if smoke is not None and not given["dry_run"]:
        body["smoke"] = _smoke(smoke, body["spec"])
    if is_sweep(body["spec"]):
        if given["build"] and not given["dry_run"]:
            body["spec"]["image"] = _build(file, given, body["spec"])
        submit_sweep(client, body, file, {**given, "follow": follow}, form)
        return
    if given["dry_run"]:
        _show_plan(client, body, file, given, form=form, follow=follow)
        return
    if given["build"]:
        body["spec"]["image"] = _build(file, given, body["spec"])
    settle_code(client, body["spec"])
    body = with_smoked_code(body)
    if given["cleanup_all"] and not _cleaned_up(client, body, given["yes"]):
        ctx.exit(DETACHED)
    run = _send(client, body, file)
    output.show_warnings(run.get("warnings") or ())
    output.show_run(run, form)
    if follow:
        from supervisor.cli.runs.watch import follow_run

        _note_dangers(client, run["run_id"])
        ctx.exit(follow_run(client, run["run_id"], None))
    output.suggest(f"spot watch {run['run_id']}")


@click.command(cls=SubmitCommand, options_metavar="[OPTIONS]")
@click.argument("file", metavar="[FILE.yaml] [-- COMMAND ARGS...]", required=False, type=click.Path())
@click.option("--what-if", "variations", metavar="KEY=A/B,...", help="Compare zones, deadline, shape or spot.")
@click.option("--svg", "picture_file", metavar="FILE", type=click.Path(dir_okay=False), help="Also draw --what-if.")
@submit_options
@output_option
@target_options
@click.pass_context
def plan(
    ctx: click.Context,
    /,
    *,
    target: Target,
    form: str,
    file: str | None,
    variations: str | None,
    picture_file: str | None,
    **given: Any,
) -> None:
    """Show what a submit would do, what it would cost and when it would end; nothing is done.

    \b
      spot plan train.yaml
      spot plan train.yaml --what-if zones=1/3,deadline=20h/40h,spot=yes/both

    --what-if compares all combinations. zones: how many, or names joined by +. deadline: a time from now, a date, or
    none. shape: names joined by +. spot: yes, no, or both.
    """
    from supervisor.cli.views.plan import show_what_if, variations_from

    if picture_file is not None and variations is None:
        raise click.UsageError("--svg draws what --what-if compares: give both.")
    client = target.client(APPEARS_S)
    is_local = machines_here(client, given["providers"])
    body = body_from(file, ctx.meta.get(WORDS), given, is_local)
    settle_environment(body["spec"], given["venv"], client.url, is_local)
    body["spec"].pop("smoke", None)
    if is_sweep(body["spec"]):
        raise click.UsageError("A plan is for one run; `spot submit --dry-run` shows those of a sweep.")
    if variations is None:
        _show_plan(client, body, file, given, form=form, follow=given["follow"])
        return
    settle_code(client, body["spec"], send=False)
    wish = variations_from(variations, datetime.now(UTC))
    try:
        answer = client.post("/v1/what-if", {"spec": body["spec"], **wish})
    except Problem as error:
        raise in_words_of_file(error, file) from None
    show_what_if(answer, wish, form)
    if picture_file is not None:
        _draw(Path(picture_file), answer, wish)


def _draw(file: Path, answer: Json, wish: Json) -> None:
    from supervisor.cli.views.what_if_picture import picture

    try:
        file.write_text(picture(answer["rows"], wish), encoding="utf-8")
    except OSError as error:
        raise CliError(f"{file} cannot be written: {error.strerror}.", USAGE, "PICTURE_FAILED") from None
    output.note(f"The picture is in {file}.")


def _smoke(command: object, spec: Json) -> Json:
    """How it ended, for the submit. Raises CliError before anything is stored or rented."""
    from supervisor.cli.runs.smoke import check_smoke

    code = spec.get("code")
    if not isinstance(command, str) or not command.strip():
        raise CliError("smoke: give a command as text, such as: python train.py --steps 2", USAGE, "SMOKE_FAILED")
    if isinstance(code, str) and HASH.match(code):
        text = "smoke: the code is named by its hash, so it is not here to be tried. Give its folder with --code."
        raise CliError(text, USAGE, "SMOKE_FAILED")
    return check_smoke(command, Path(code) if isinstance(code, str) else None, dict(spec.get("env") or {}))


def _note_dangers(client: Client, run_id: str) -> None:
    """The danger clocks of the machine that the run gets. The run is submitted, so no error may come from here."""
    from supervisor.cli.views.profile import danger_lines

    with suppress(CliError):
        profile = client.get(f"/v1/runs/{run_id}/spec").get("profile")
        for line in danger_lines(profile) if profile else ():
            output.note(line)


def _show_plan(
    client: Client, body: Json, file: str | None, given: Mapping[str, Any], *, form: str, follow: bool
) -> None:
    """--dry-run: nothing is built, stored, stopped or started. Raises what the submit would meet."""
    from supervisor.cli.views.plan import ask_plan, show_plan

    if given["cleanup_all"]:
        from supervisor.cli.runs.fleet import clean_up

        clean_up(client, given["yes"], dry_run=True)
    if given["build"]:
        output.note("This is a dry run: no image is built, and the plan is for the image that is named now.")
    if follow:
        raise click.UsageError("Use --dry-run or --watch, not both: nothing would start.")
    code_follows = settle_code(client, body["spec"], send=False)
    try:
        show_plan(ask_plan(client, body, code_follows), form)
    except Problem as error:
        raise in_words_of_file(error, file) from None


def _build(file: str | None, given: Mapping[str, Any], spec: Json) -> str:
    """Build an image from the run's folder; its reference. Raises CliError, before anything else has happened."""
    from supervisor.cli.files.build_image import built
    from supervisor.wiring import settings as wired

    if given["skip_build"]:
        raise click.UsageError("Use --build or --skip-build, not both.")
    folder = Path(given["code"] or os.path.dirname(file or "") or ".")
    settings = wired.load({}, file=os.environ.get("SPOT_CONFIG"), env_file=os.environ.get("SPOT_ENV_FILE"))
    return str(built(folder, settings, str(spec.get("image") or "")).reference)


def _cleaned_up(client: Client, body: Json, yes: bool) -> bool:
    """--cleanup-all. A submit that would be refused must not stop other runs, so it is validated first. A live run of
    the same id is no refusal, since it is about to be stopped, if it may continue with this spec."""
    from supervisor.cli.runs.fleet import clean_up

    try:
        client.send("POST", "/v1/runs", {"validate_only": "true"}, body)
    except Problem as error:
        if error.code == "RUN_ACTIVE" and not body["replace_spec"]:
            error.hints = ("nothing was stopped; with --replace-spec it is stopped and continues with this spec",)
            raise
        if error.code not in ("RUN_ACTIVE", "RUN_STOPPING"):
            raise
    return clean_up(client, yes)


def body_from(
    file: str | None, command: list[str] | None, given: Mapping[str, Any], is_local: IsLocal = names_local
) -> Json:
    """The body of POST /v1/runs. `given`: the options by name. Raises CliError where no command is named, or two."""
    run_id: str | None = None
    spec: Json = {}
    code, providers = given.get("code"), given.get("providers") or ()
    if file is not None:
        run_id, spec = read_spec(file, code is not None, is_local)
    _put_command(spec, command, given.get("shell_text"), file)
    if file is None and code is None and is_local(providers):
        spec["workdir"] = os.getcwd()
    put_options(spec, given)
    if providers:  # instead of those of the file
        for field in ("provider", "providers"):
            spec.pop(field, None)
        spec |= {"provider": providers[0]} if len(providers) == 1 else {"providers": list(providers)}
    if code is not None:
        spec["code"] = code_from(code, os.getcwd())
    if given.get("workdir") and spec.get("code") is None and is_local(providers_of(spec)):
        # Elsewhere it is a folder of the code or of the image.
        spec["workdir"] = os.path.abspath(given["workdir"])
    body: Json = {"spec": spec, "replace_spec": given["replace_spec"], "rerun": given["rerun"]}
    if given.get("ignore_old"):
        body["ignore_old"] = True
    check_waiver(bool(given.get("waive")), given.get("reason"))
    if given.get("waive"):
        body["waive"] = [{"check": check, "reason": given["reason"]} for check in given["waive"]]
    if given.get("plan"):
        body["plan_id"] = given["plan"]
    run_id = given.get("run_id") or run_id
    return {"run_id": run_id, **body} if run_id is not None else body


def _put_command(spec: Json, command: list[str] | None, shell_text: str | None, file: str | None) -> None:
    if command and shell_text is not None:
        raise CliError("Give a COMMAND after -- or --shell, not both.", USAGE, "COMMAND_TWICE")
    if command or shell_text is not None:
        spec["command"] = command or shell_text
    elif "command" not in spec:
        if file is not None:
            raise CliError(missing_command(file, spec), USAGE, "COMMAND_MISSING")
        hints = ("spot submit train.yaml", "spot submit -- python train.py")
        raise CliError("There is no command to run.", USAGE, "COMMAND_MISSING", hints)


def _send(client: Client, body: Json, file: str | None) -> Json:
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    try:
        try:
            run: Json = client.post("/v1/runs", body, headers)
        except Unreachable as error:
            if not error.sent:
                raise
            run = client.post("/v1/runs", body, headers)  # the response was lost, perhaps not the request
    except Problem as error:
        raise in_words_of_file(error, file) from None
    if run.get("differs") and sys.stderr.isatty():
        output.note("The spec differs from the earlier one in " + ", ".join(map(safe, run["differs"])))
    return run
