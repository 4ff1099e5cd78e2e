"""build-image: a folder becomes an image in a registry. Talks to Cloud Build and docker, and to no supervisor.

What is not said comes from the settings, as `spot config show` reads them; every value is shown, with where it comes
from, before anything is sent. `built` is the same for `spot submit --build`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from supervisor.cli import exits
from supervisor.cli.options import duration_s
from supervisor.cli.output import confirmed, json_text, note, safe, suggest
from supervisor.wording.figures import plural

if TYPE_CHECKING:
    from supervisor.images.context import Context
    from supervisor.images.request import BuildRequest, Built, Failure
    from supervisor.settings.loading import Settings

AUTO = "auto"
WAY_CHOICES = (AUTO, "cloud-build", "staged", "docker")
STAGING_FOLDER = "build-staging"
POLL_S = 5.0  # between two looks at a build
_EXITS = {"permission": exits.AUTH, "identity": exits.AUTH, "limit": exits.TIMEOUT}


@dataclass(frozen=True)
class Wish:
    """What the command line says; "" = what the settings say."""

    image: str = ""
    project: str = ""
    staging: str = ""
    region: str = ""
    account: str = ""
    way: str = AUTO
    build_s: float | None = None


@click.command("build-image")
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option("--image", default="", metavar="REF", help="HOST/PATH:TAG (default: the setting default_image).")
@click.option("--project", default="", help="Project that builds (default: gce_project).")
@click.option("--staging", default="", metavar="URL", help="Where sources go: gs://BUCKET/PREFIX (store_url's).")
@click.option("--region", default="", help="Region of Cloud Build (global).")
@click.option("--service-account", "account", default="", metavar="EMAIL", help="Whom Cloud Build works as.")
@click.option("--way", type=click.Choice(WAY_CHOICES), default=AUTO, help="One way only (auto: one after the other).")
@click.option("--timeout", "build_s", type=duration_s, help="The longest that the build may take (1h).")
@click.option("--env-file", envvar="SPOT_ENV_FILE", metavar="FILE", help="SPOT_ variables, or the older runner's file.")
@click.option("--config", "file", envvar="SPOT_CONFIG", metavar="FILE", help="TOML file of settings.")
@click.option("--dry-run", is_flag=True, help="Show what would be sent, file by file; send nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("-o", "--output", "form", type=click.Choice(["table", "json"]), default="table")
def build_image(
    *, folder: Path, env_file: str | None, file: str | None, dry_run: bool, yes: bool, form: str, **wishes: Any
) -> None:
    """Build the training image of DIR and push it: by Cloud Build, else by docker here. Prints NAME@sha256:...

    DIR's own Dockerfile is used, else the one that comes with spot (PyTorch and CUDA). What is sent: DIR/.gcloudignore,
    else code and its settings only.
    """
    from supervisor.images.context import chosen
    from supervisor.wiring import settings as wired

    settings = wired.load({}, file=file, env_file=env_file)
    wish = Wish(**wishes)
    request = request_for(folder, settings, wish)
    context = chosen(request.folder)
    for line in plan_lines(request, context, settings, wish):
        note(line)
    if dry_run:
        _print_files(request, context, form)
        return
    if sys.stdin.isatty() and sys.stdout.isatty() and not confirmed("Build and push it?", yes):
        raise click.Abort
    made = _made(request, context)
    if form == "json":
        click.echo(json_text(_document(made), 2))
        return
    click.echo(made.reference)
    suggest(f"spot submit --image {made.reference} -- python train.py")


def built(folder: Path, settings: Settings, image: str = "") -> Built:
    """For `spot submit --build`: shows the plan on standard error, builds and pushes. `image` "" = default_image.
    Raises CliError (exit code 1, 4, 8, or 130 after Ctrl-C) and ImageBuildRefused."""
    from supervisor.images.context import chosen

    wish = Wish(image=image)
    request = request_for(folder, settings, wish)
    context = chosen(request.folder)
    for line in plan_lines(request, context, settings, wish):
        note(line)
    return _made(request, context)


def request_for(folder: Path, settings: Settings, wish: Wish) -> BuildRequest:
    """What is wished, completed from the settings. ImageBuildRefused names what is missing."""
    from supervisor.domain.errors import ImageBuildRefused
    from supervisor.images import request as nouns

    image = wish.image or settings.default_image.partition("@")[0]
    if not image:
        raise ImageBuildRefused("What shall the image be called? Say --image HOST/PATH:TAG, or set default_image.")
    place = urlsplit(settings.store_url)
    staging = f"gs://{place.netloc}/{STAGING_FOLDER}" if place.scheme == "gs" else ""
    return nouns.checked(
        nouns.BuildRequest(
            folder=folder.resolve(),
            image=image,
            project=wish.project or settings.value(settings.in_use("gce_project")),
            staging=wish.staging or staging,
            region=wish.region or nouns.GLOBAL,
            account=wish.account,
            ways=nouns.WAYS if wish.way == AUTO else (wish.way,),
            endpoint=settings.value(settings.in_use("cloud_build_endpoint")).rstrip("/"),
            build_s=wish.build_s or nouns.BUILD_S,
            poll_s=POLL_S,
        )
    )


def plan_lines(request: BuildRequest, context: Context, settings: Settings, wish: Wish) -> list[str]:
    """Every value and where it comes from, then what is sent."""
    from supervisor.images.request import DOCKER, WAY_NAMES
    from supervisor.wording.figures import size_text

    def whence(said: str, setting: str) -> str:
        key = settings.in_use(setting)
        return "said here" if said else f"{key}, {settings.origins.get(key, 'default')}"

    rows = [("image", request.image, whence(wish.image, "default_image"))]
    if request.ways != (DOCKER,):
        rows += [
            ("project", request.project, whence(wish.project, "gce_project")),
            ("staging", request.staging, whence(wish.staging, "store_url")),
            ("region", request.region, "said here" if wish.region else "default"),
            ("works as", request.account or "the project's default", "said here" if wish.account else "default"),
        ]
    dockerfile = "its own" if context.own_dockerfile else "it has none: the one that comes with spot"
    rows += [
        ("folder", str(request.folder), f"{plural(len(context.files), 'file')}, {size_text(context.size_bytes)}"),
        ("Dockerfile", dockerfile, ""),
        ("sent", ".gcloudignore" if context.own_list else "code and its settings (no .gcloudignore)", ""),
        ("ways", ", then ".join(WAY_NAMES[way] for way in request.ways), ""),
    ]
    lines = [safe(f"{name:<11} {value}" + (f"   ({more})" if more else "")) for name, value, more in rows]
    if context.secrets:
        names = ", ".join(context.secrets[:5]) + (", …" if len(context.secrets) > 5 else "")
        lines.append(safe(f"left out    {names}: may be secrets; `!NAME` in .gcloudignore sends one all the same"))
    return lines


def _made(request: BuildRequest, context: Context) -> Built:
    from supervisor.images import build as building
    from supervisor.images.request import WAY_NAMES, AllWaysFailed, Interrupted

    try:
        made = building.build(request, note_safe, lambda text: note_safe(f"    {text}"), context)
    except AllWaysFailed as error:
        first = building.leading(error.failures)
        code = _EXITS.get(first.kind, exits.FAILED)
        raise exits.CliError(error.detail, code, error.code, _hints(error.failures)) from None
    except Interrupted as stop:
        raise exits.CliError(str(stop), exits.DETACHED, "IMAGE_BUILD_FAILED") from None
    recovery = ", found again by its mark" if made.recovered else ""
    note(f"Built and pushed by {WAY_NAMES[made.way]}{recovery}.")
    return made


def note_safe(text: str) -> None:
    note(safe(text))


def _hints(failures: tuple[Failure, ...]) -> tuple[str, ...]:
    from supervisor.images.request import WAY_NAMES

    return tuple(f"{WAY_NAMES[failure.way]}: {failure.reason.text}" for failure in failures)


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
        click.echo(safe(name) + ("  (brought by spot)" if name in context.brought else ""))
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
