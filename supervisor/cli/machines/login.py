"""attach, tunnel, exec and shell: the machine of a run, from this computer.

attach and tunnel use the user's own `ssh`, with the user's own keys and known hosts. The server says which host it is,
and that name is checked. The SSH configuration and known hosts of the supervisor count only where it runs on this
computer, and where they are files of this user that nobody else can change. Nothing else in its response becomes a word
of a command that is run here. Where another program opens the shell, the command is printed.

exec and shell need no connection to the machine: a command goes through the supervisor and the object store to the
agent beside the training, and its output comes back the same way. A shell there is a line after the other: each line is
a command of its own, in the folder that the last `cd` has named.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import sys
import time
from collections.abc import Sequence
from typing import NoReturn
from urllib.parse import urlsplit

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json, run_path
from supervisor.cli.exits import FAILED, CliError
from supervisor.cli.finding import choose_run
from supervisor.cli.options import WORDS, WithCommand, run_argument, server_options
from supervisor.cli.output import note, safe, show_log

HOST = re.compile(r"ssh ([A-Za-z0-9][A-Za-z0-9._-]{0,127})")
FOLDER = re.compile(r"(~/)?[A-Za-z0-9._/-]{1,512}")
LOOPBACK = ("127.0.0.1", "::1", "localhost")
FILE = re.compile(r"/[A-Za-z0-9._/-]{1,512}")
LOG = "work/output.log"
TUNNEL_OPTIONS = ("-o", "ExitOnForwardFailure=yes", "-o", "ServerAliveInterval=15")
PORT_MAX = 65535
POLL_S = 0.5
TIMED_OUT, KILLED = 124, 128  # exit codes as those of timeout(1) and of a shell
SHELL = ("/bin/sh", "-c")
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


timeout_option = click.option(
    "--timeout", "timeout_s", type=click.FloatRange(1, 600), default=60.0, metavar="S", help="Its time limit (60)."
)


@click.command("exec", cls=WithCommand, options_metavar="[OPTIONS]")
@click.argument("run_id", metavar="[RUN] -- COMMAND ARGS...", required=False)
@timeout_option
@server_options
@click.pass_context
def exec_(ctx: click.Context, /, *, client: Client, run_id: str | None, timeout_s: float) -> None:
    """Run a command on the machine of a running run, beside its training.

    \b
      spot exec digits-7 -- nvidia-smi
      spot exec -- sh -c 'du -sh * | sort -h'

    It starts with the next beat, in the training's folder and environment, without input, and ends with its output and
    exit code here. It needs no SSH, but a token with the scope runs:exec. Who ran what stands in the run's history.
    """
    words = ctx.meta.get(WORDS)
    if not words:
        raise click.UsageError("Give a command after --: spot exec RUN -- nvidia-smi")
    ctx.exit(Remote(client, choose_run(client, run_id), timeout_s).run(words))


@click.command()
@run_argument
@timeout_option
@server_options
def shell(*, client: Client, run_id: str | None, timeout_s: float) -> None:
    """Type commands for the machine of a running run, line by line.

    Each line is a command as with exec; `cd` changes the folder of the next ones, and exit leaves. It is no terminal:
    programs that ask for input, variables of a line before and background jobs do not work (`spot attach` opens a real
    one where the machine can be reached).
    """
    remote = Remote(client, choose_run(client, run_id), timeout_s)
    remote.run([*SHELL, "pwd"], prints=False)
    while True:
        try:
            line = input(f"{remote.name}:{remote.folder}$ ").strip()
            if line in ("exit", "logout"):
                return
            if line == "cd" or line.startswith("cd "):
                remote.change_folder(line[3:].strip())
            elif line:
                remote.run([*SHELL, line])
        except EOFError:
            return
        except CliError as error:
            if error.code in ("RUN_ENDED", "RUN_NOT_FOUND", "SCOPE_MISSING", "FORBIDDEN"):
                raise
            note(f"error: {error.text}")


class Remote:
    """Commands on the machine of one run. `folder`: of the next one; "" = the training's."""

    def __init__(self, client: Client, name: str, timeout_s: float) -> None:
        self._client, self.name, self._timeout_s = client, name, timeout_s
        self.folder = ""

    def run(self, words: Sequence[str], prints: bool = True) -> int:
        """Its exit code, as a shell has it. Raises CliError where it was not run."""
        body = {"command": list(words), "folder": self.folder, "timeout_s": self._timeout_s}
        sent = self._client.post(run_path(self.name, "commands"), body)
        path, shown = run_path(self.name, "commands", sent["command_id"]), 0
        left = f"Left: the command goes on for {self._timeout_s:g} s at most."
        with output.detaching(left):
            while True:
                result = self._client.patiently(lambda: self._client.get(path))
                if prints and len(result["output"]) > shown:
                    show_log(result["output"][shown:])
                    shown = len(result["output"])
                if result["state"] not in ("waiting", "running"):
                    break
                time.sleep(POLL_S)
        self.folder = self.folder or result["folder"]
        return self._code(result, words)

    def _code(self, result: Json, words: Sequence[str]) -> int:
        if result["state"] != "done":
            code = "COMMAND_REFUSED" if result["state"] == "refused" else "COMMAND_LOST"
            raise CliError(f"{safe(words[0])} was not run to its end: {safe(result['text'])}.", FAILED, code)
        if result["dropped_bytes"]:
            note(f"{result['dropped_bytes']:,} more bytes are not kept; write long output into a file of the results.")
        if result["timed_out"]:
            note(f"It was ended after {self._timeout_s:g} s (--timeout).")
            return TIMED_OUT
        return KILLED + (result["signal"] or 0) if result["exit_code"] is None else int(result["exit_code"])

    def change_folder(self, folder: str) -> None:
        """ "" = the training's. Raises CliError."""
        before = self.folder
        self.folder = os.path.normpath(os.path.join(before, folder)) if folder else ""
        try:
            self.run([*SHELL, "pwd"], prints=False)
        except CliError:
            self.folder = before
            raise


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
