"""build-image: a folder becomes an image in a registry, through Cloud Build or docker. It needs no supervisor.

Values that the command line does not give come from the settings, as `spot config show` reads them. Each value is shown
with its origin before anything is sent. `built` does the same for `spot submit --build`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from supervisor.cli import exits
from supervisor.cli.options import duration_s, json_option, settings_file_options
from supervisor.cli.output import confirm, json_text, note, safe, suggest
from supervisor.wording.figures import plural

if TYPE_CHECKING:
    from supervisor.images.context import Context
    from supervisor.images.request import BuildRequest, Built
    from supervisor.settings.loading import Settings

AUTO = "auto"
WAY_CHOICES = (AUTO, "cloud-build", "staged", "docker")
STAGING_FOLDER = "build-staging"
POLL_S = 5.0
SECRETS_SHOWN = 5
_EXITS = {"permission": exits.AUTH, "identity": exits.AUTH, "limit": exits.TIMEOUT}


@dataclass(frozen=True)
class Given:
    """The values of the command line; "" = as the settings say."""

    image: str = ""
    project: str = ""
    staging: str = ""
    region: str = ""
    account: str = ""
    way: str = AUTO
    build_s: float | None = None


@click.command("build-image")
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option("--image", default="", metavar="REF", help="HOST/PATH:TAG (default: default_image).")
@click.option("--project", default="", metavar="NAME", help="Project that builds (default: gce_project).")
@click.option(
    "--staging", default="", metavar="URL", help="gs://BUCKET/PREFIX for the sources (default: by store_url)."
)
@click.option("--region", default="", metavar="NAME", help="Region of Cloud Build (global).")
@click.option("--service-account", "account", default="", metavar="EMAIL", help="Account of Cloud Build.")
@click.option("--way", type=click.Choice(WAY_CHOICES), default=AUTO, help="Only this way (auto: one after the other).")
@click.option("--timeout", "build_s", type=duration_s, metavar="TIME", help="Longest build (1h).")
@settings_file_options
@click.option("--dry-run", is_flag=True, help="Show the files that would be sent, and send nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def build_image(
    *, folder: Path, env_file: str | None, file: str | None, dry_run: bool, yes: bool, form: str, **given: Any
) -> None:
    """Build the training image of DIR and push it: with Cloud Build, else with docker here. Prints NAME@sha256:...

    The Dockerfile: DIR's own, else the one of spot (PyTorch and CUDA). The files: by DIR/.gcloudignore, else only code
    and its settings.
    """
    from supervisor.wiring import settings as wired

    request, context = _planned(folder, wired.load({}, file=file, env_file=env_file), Given(**given))
    if dry_run:
        _print_files(request, context, form)
        return
    if sys.stdin.isatty() and sys.stdout.isatty():
        confirm("Build and push it?", yes)
    made = _made(request, context)
    if form == "json":
        click.echo(json_text(_document(made), 2))
        return
    click.echo(made.reference)
    suggest(f"spot submit --image {made.reference} -- python train.py")


def built(folder: Path, settings: Settings, image: str = "") -> Built:
    """For `spot submit --build`: shows the plan on standard error, builds and pushes. `image` "" = default_image.
    Raises CliError (exit code 1, 4, 8, or 130 after Ctrl-C) and ImageBuildRefused."""
    return _made(*_planned(folder, settings, Given(image=image)))


def _planned(folder: Path, settings: Settings, given: Given) -> tuple[BuildRequest, Context]:
    """The request, and the files that it sends; both are shown."""
    from supervisor.images.context import chosen

    request = _request_for(folder, settings, given)
    context = chosen(request.folder)
    for line in _plan_lines(request, context, settings, given):
        note(safe(line))
    return request, context


def _request_for(folder: Path, settings: Settings, given: Given) -> BuildRequest:
    """The given values, completed from the settings. ImageBuildRefused names what is missing."""
    from supervisor.domain.errors import ImageBuildRefused
    from supervisor.images import request as nouns

    image = given.image or settings.machines.default_image.partition("@")[0]
    if not image:
        raise ImageBuildRefused("The image has no name. Add --image HOST/PATH:TAG, or set default_image.")
    store = urlsplit(settings.store_url)
    staging = f"gs://{store.netloc}/{STAGING_FOLDER}" if store.scheme == "gs" else ""
    return nouns.checked(
        nouns.BuildRequest(
            folder=folder.resolve(),
            image=image,
            project=given.project or settings.value(settings.in_use("gce_project")),
            staging=given.staging or staging,
            region=given.region or nouns.GLOBAL,
            account=given.account,
            ways=nouns.WAYS if given.way == AUTO else (given.way,),
            endpoint=settings.value(settings.in_use("cloud_build_endpoint")).rstrip("/"),
            build_s=given.build_s or nouns.BUILD_S,
            poll_s=POLL_S,
        )
    )


def _plan_lines(request: BuildRequest, context: Context, settings: Settings, given: Given) -> list[str]:
    """Every value with its origin, then the files."""
    from supervisor.images.request import DOCKER, WAY_NAMES
    from supervisor.wording.figures import size_text

    def origin(value: str, setting: str = "") -> str:
        key = settings.in_use(setting) if setting else ""
        return "command line" if value else f"{key}, {settings.origins.get(key, 'default')}" if key else "default"

    rows = [("image", request.image, origin(given.image, "default_image"))]
    if request.ways != (DOCKER,):
        rows += [
            ("project", request.project, origin(given.project, "gce_project")),
            ("staging", request.staging, origin(given.staging, "store_url")),
            ("region", request.region, origin(given.region)),
            ("account", request.account or "the project's default", origin(given.account)),
        ]
    rows += [
        ("folder", str(request.folder), f"{plural(len(context.files), 'file')}, {size_text(context.size_bytes)}"),
        ("Dockerfile", "its own" if context.own_dockerfile else "the one of spot, because the folder has none", ""),
        ("files", "by .gcloudignore" if context.own_list else "code and its settings (no .gcloudignore)", ""),
        ("ways", ", then ".join(WAY_NAMES[way] for way in request.ways), ""),
    ]
    lines = [f"{name:<11} {value}" + (f"   ({more})" if more else "") for name, value, more in rows]
    if context.secrets:
        names = ", ".join(context.secrets[:SECRETS_SHOWN]) + (", …" if len(context.secrets) > SECRETS_SHOWN else "")
        lines.append(f"left out    {names}: may be secrets; `!NAME` in .gcloudignore sends one anyway")
    return lines


def _made(request: BuildRequest, context: Context) -> Built:
    from supervisor.images import build as building
    from supervisor.images.request import WAY_NAMES, AllWaysFailed, Interrupted

    def report(text: str) -> None:
        note(safe(text))

    try:
        made = building.build(request, report, lambda text: report(f"    {text}"), context)
    except AllWaysFailed as error:
        code = _EXITS.get(building.leading(error.failures).kind, exits.FAILED)
        hints = tuple(f"{WAY_NAMES[failure.way]}: {failure.reason.text}" for failure in error.failures)
        raise exits.CliError(error.detail, code, error.code, hints) from None
    except Interrupted as stop:
        raise exits.CliError(str(stop), exits.DETACHED, "IMAGE_BUILD_FAILED") from None
    note(f"Built and pushed by {WAY_NAMES[made.way]}{', found again by its mark' if made.recovered else ''}.")
    return made


def _print_files(request: BuildRequest, context: Context, form: str) -> None:
    files = sorted([*context.files, *context.brought])
    if form == "json":
        document = {
            "image": request.image,
            "project": request.project,
            "staging": request.staging,
            "region": request.region,
            "ways": list(request.ways),
            "files": files,
            "secrets_left_out": list(context.secrets),
        }
        click.echo(json_text(document, 2))
        return
    for name in files:
        click.echo(safe(name) + ("  (added by spot)" if name in context.brought else ""))
    note("Nothing was sent.")


def _document(made: Built) -> dict[str, Any]:
    return {
        "reference": made.reference,
        "image": made.image,
        "digest": made.digest,
        "way": made.way,
        "build": made.build or None,
        "recovered": made.recovered,
        "failures": [
            {
                "way": failure.way,
                "reason": failure.reason.text,
                "fix": failure.reason.fix or None,
                "kind": failure.reason.kind,
            }
            for failure in made.failures
        ],
    }
