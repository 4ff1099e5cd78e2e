"""provider add: one more section in the settings file, checked before it is written.

The file keeps everything that is in it. Where it names no provider yet, machines on this computer get a section of
their own first: without one they would no longer be offered.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from supervisor.cli.exits import FAILED, USAGE, CliError
from supervisor.cli.output import note, safe
from supervisor.wiring import settings as wired

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
SECTION = re.compile(r"^\s*\[providers\.", re.MULTILINE)
LONE = re.compile(r"^\s*provider\s*=", re.MULTILINE)


@click.command()
@click.argument("name")
@click.option("--kind", required=True, metavar="KIND", help="The kind of provider, as in `spot provider list`.")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="A host; repeatable, the first choice first.")
@click.option("--set", "values", multiple=True, metavar="KEY=VALUE", help="A setting of the section; repeatable.")
@click.option("--config", "file", envvar="SPOT_CONFIG", metavar="FILE", help="The settings file (SPOT_CONFIG).")
def add(name: str, kind: str, hosts: tuple[str, ...], values: tuple[str, ...], file: str | None) -> None:
    """Write the section of provider NAME into the settings file. The supervisor reads it at its next start.

    \b
      spot provider add lab --kind ssh --host gpu1 --host gpu2 --config spot.toml
    """
    if not NAME.fullmatch(name):
        raise CliError(f"{safe(name)} is not a name: use lower-case letters, digits and dashes.", USAGE, "USAGE")
    if file is None:
        hints = (f"spot provider add {name} --kind {kind} --config spot.toml",)
        raise CliError("Name the settings file with --config, or set SPOT_CONFIG.", USAGE, "USAGE", hints)
    path = Path(file)
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    after = before + _section(before, name, kind, hosts, values)
    _check(after, path)
    _replace(path, after)
    note(
        f"{safe(str(path))} has [providers.{name}] now. It counts from the next start: spot serve --config {safe(file)}"
    )


def _section(before: str, name: str, kind: str, hosts: Sequence[str], values: Sequence[str]) -> str:
    if f"[providers.{name}]" in before:
        raise CliError(f"The settings file has [providers.{name}] already: change it there.", FAILED, "PROVIDER_EXISTS")
    if LONE.search(before):
        text = "The settings file names one `provider`. Make it a section first, as docs/settings.md shows."
        raise CliError(text, FAILED, "PROVIDER_EXISTS")
    lines = [] if not before or before.endswith("\n") else [""]
    default = wired.DEFAULT_KIND
    if not SECTION.search(before) and kind != default:
        lines += ["", f"[providers.{default}]", f"kind = {json.dumps(default)}"]
    lines += ["", f"[providers.{name}]", f"kind = {json.dumps(kind)}"]
    if hosts:
        lines.append(f"hosts = {json.dumps(list(hosts))}")
    for pair in values:
        key, equals, value = pair.partition("=")
        if not equals or not re.fullmatch(r"[a-z0-9_]+", key):
            raise CliError(f"--set {safe(pair)}: expected KEY=VALUE, such as machines=2.", USAGE, "USAGE")
        lines.append(f"{key} = {json.dumps(value)}")
    return "\n".join([*lines, ""]).removeprefix("\n" if not before else "")


def _check(text: str, path: Path) -> None:
    """Read the settings as a start would. Raises SettingsRefused, with the name of the setting."""
    with tempfile.TemporaryDirectory(prefix="spot-settings-") as folder:
        draft = Path(folder) / path.name
        draft.write_text(text, encoding="utf-8")
        wired.load({}, file=str(draft), env_file=os.environ.get("SPOT_ENV_FILE"))


def _replace(path: Path, text: str) -> None:
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.absolute().parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as target:
        target.write(text)
    if path.exists():
        os.chmod(draft, path.stat().st_mode & 0o777)
    os.replace(draft, path)
