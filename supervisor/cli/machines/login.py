"""attach and tunnel: a shell on the machine of a run, and a port of it on this computer.

Both use the user's own `ssh`, with the user's own keys and known hosts. The server says which host it is, and that name
is checked. The SSH configuration and known hosts of the supervisor count only where it runs on this computer, and where
they are files of this user that nobody else can change. Nothing else in its response becomes a word of a command that
is run here. Where another program opens the shell, the command is printed.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import sys
from collections.abc import Sequence
from typing import NoReturn
from urllib.parse import urlsplit

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json, run_path
from supervisor.cli.exits import FAILED, CliError
from supervisor.cli.finding import choose_run
from supervisor.cli.options import run_argument, server_options
from supervisor.cli.output import safe

HOST = re.compile(r"ssh ([A-Za-z0-9][A-Za-z0-9._-]{0,127})")
FOLDER = re.compile(r"(~/)?[A-Za-z0-9._/-]{1,512}")
LOOPBACK = ("127.0.0.1", "::1", "localhost")
FILE = re.compile(r"/[A-Za-z0-9._/-]{1,512}")
LOG = "work/output.log"
TUNNEL_OPTIONS = ("-o", "ExitOnForwardFailure=yes", "-o", "ServerAliveInterval=15")
PORT_MAX = 65535
ssh_config = click.option(
    "--ssh-config", "-F", type=click.Path(dir_okay=False), metavar="FILE", help="Another SSH configuration."
)


@click.command()
@run_argument
@ssh_config
@server_options
def attach(*, client: Client, run_id: str | None, ssh_config: str | None) -> None:
    """Open a shell on the machine of a run, in its folder, with the end of its log.

    With tmux there, it is a window that survives your connection. To leave it: Ctrl-B, then D.
    """
    login = _login(client, run_id)
    folder = str(login["folder"] or "")
    if folder and not FOLDER.fullmatch(folder):
        raise CliError(f"The folder of {login['machine']} has an unusual name: {safe(folder)}.")
    if login["command"] is not None:
        _run(login, _files(client, login, ssh_config), ("-t",), _shell_in(folder) if folder else "")
    elif os.path.isdir(folder):
        _become(["/bin/sh", "-c", _shell_in(folder)])
    else:
        text = f"The machine of {login['run_id']} is a folder of the supervisor's computer: {safe(folder)}."
        raise CliError(text, FAILED, "NOT_SUPPORTED")


@click.command()
@run_argument
@click.argument("port", metavar="PORT", required=False)
@click.option(
    "--local", "local_port", type=click.IntRange(1, PORT_MAX), metavar="PORT", help="Here (default: the same)."
)
@ssh_config
@server_options
def tunnel(
    *, client: Client, run_id: str | None, port: str | None, local_port: int | None, ssh_config: str | None
) -> None:
    """Open a port of a run's machine on this computer, on 127.0.0.1 only; Ctrl-C closes it.

    For TensorBoard and the like: `spot tunnel 6006`.
    """
    if port is None:  # no run id begins with a digit
        run_id, port = None, run_id
    if not port or not port.isdigit() or not 0 < int(port) <= PORT_MAX:
        raise click.UsageError(f"PORT is a number from 1 to {PORT_MAX}.")
    there, here = int(port), local_port or int(port)
    login = _login(client, run_id)
    if login["command"] is None:
        text = f"The machine of {login['run_id']} is the supervisor's computer: open 127.0.0.1:{there} there."
        raise CliError(text, FAILED, "NOT_SUPPORTED")
    if _is_whole(login):
        text = f"The shell of {safe(login['machine'])} is opened by another program than SSH: open a port with it too."
        raise CliError(text, FAILED, "NOT_SUPPORTED", hints=(safe(login["command"]),))
    output.note(f"127.0.0.1:{here} leads to port {there} of {safe(login['machine'])} until Ctrl-C (--local: another).")
    _run(login, _files(client, login, ssh_config), ("-N", "-L", f"127.0.0.1:{here}:127.0.0.1:{there}", *TUNNEL_OPTIONS))


def _login(client: Client, run_id: str | None) -> Json:
    return dict(client.get(run_path(choose_run(client, run_id), "login")))


def _files(client: Client, login: Json, ssh_config: str | None) -> list[str]:
    """The options of ssh for its files."""
    if ssh_config is not None:
        return ["-F", ssh_config]
    if urlsplit(client.url).hostname not in LOOPBACK:
        return []
    config, known_hosts = (_own_file(login.get(name)) for name in ("ssh_config", "ssh_known_hosts"))
    keys = ["-o", f"UserKnownHostsFile={known_hosts}"] if known_hosts else []
    return [*(["-F", config] if config else []), *keys]


def _own_file(path: object) -> str:
    """The path, where it is a file of this user that nobody else can change; else ""."""
    if not isinstance(path, str) or not FILE.fullmatch(path):
        return ""
    try:
        status = os.lstat(path)
    except OSError:
        return ""
    ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
    return path if ours else ""


def _is_whole(login: Json) -> bool:
    """The command has the program that runs on the machine: nothing can be appended."""
    return " -- " in str(login["command"])


def _run(login: Json, files: Sequence[str], options: Sequence[str], command: str = "") -> None:
    """Become the user's ssh; else print what the user can run."""
    host = HOST.fullmatch(str(login["command"]))
    if host is None:
        line = shlex.join([*options, *([command] if command else [])])
        shown = safe(login["command"])
        output.show([shown if _is_whole(login) else f"{shown} -- {line}"])
        return
    ssh = shutil.which("ssh")
    if ssh is None:
        raise CliError("There is no ssh on this computer.", FAILED, hints=("install OpenSSH's client",))
    _become([ssh, *files, *options, "--", host[1], *([command] if command else [])])


def _shell_in(folder: str) -> str:
    """For the shell of the machine. Each letter of the folder was checked, so nothing in it is quoted."""
    window = f"tail -n 50 -F {LOG} & tail=$!; $SHELL -l; kill $tail"
    session = folder.rpartition("/")[2]
    tmux = f"tmux new-session -A -s {session} {shlex.quote(window)}"
    return f"cd {folder} && if command -v tmux >/dev/null; then exec {tmux}; else {window}; fi"


def _become(words: list[str]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(words[0], words)  # noqa: S606 - each word is ours, or was checked
