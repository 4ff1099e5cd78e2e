"""The official client of Colab, as a program that accepts exactly its commands and options; an unknown one fails.

Written from the parser of version 0.6. Colab itself is a folder of files: the assignments of the account, and what goes
wrong. What `exec` runs is the business of its kernel: a function of the test, or the sandbox of tests/notebooks.

    python -m tests.fakes.colab_client FOLDER [words of the client]
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

GPUS = {"a100": "A100", "h100": "H100", "l4": "L4", "t4": "T4", "g4": "G4"}
TPUS = {"v5e1": "V5E1", "v6e1": "V6E1"}
NOT_SIGNED_IN = "FileNotFoundError: Client OAuth config not found at ~/.colab-cli-oauth-config.json"
Kernel = Callable[[str, str], str]  # (name of the session, code) -> its output; TimeoutError


class UnknownWord(AssertionError):
    """A command or an option that the client does not have."""


@dataclass
class Account:
    """`assignments`: endpoint -> hardware. `fails`: a command -> the text of its failure. `banner`: before each
    output. `refused`: keep-alive is answered with 403."""

    assignments: dict[str, str] = field(default_factory=dict)
    made: int = 0
    signed_in: bool = True
    most: int = 5
    rejected: tuple[str, ...] = ()
    fails: dict[str, str] = field(default_factory=dict)
    banner: str = ""
    refused: bool = False
    calls: list[list[str]] = field(default_factory=list)

    def end(self, name_or_endpoint: str) -> None:
        """Colab ends the session: nobody is told."""
        for endpoint in [each for each in self.assignments if each.startswith(name_or_endpoint)]:
            del self.assignments[endpoint]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UnknownWord(message)


def parser() -> argparse.ArgumentParser:
    top = _Parser(prog="colab", allow_abbrev=False, add_help=False)
    top.add_argument("--auth", choices=("oauth2", "adc"), default="oauth2")
    top.add_argument("-c", "--client-oauth-config")
    top.add_argument("--config")
    top.add_argument("--logtostderr", action="store_true")
    commands = top.add_subparsers(dest="command", required=True, parser_class=_Parser)

    def command(name: str, **options: Any) -> argparse.ArgumentParser:
        return commands.add_parser(name, allow_abbrev=False, add_help=False, **options)

    new = command("new")
    new.add_argument("-s", "--session")
    new.add_argument("--gpu")
    new.add_argument("--tpu")
    command("sessions")
    command("version")
    for name in ("status", "stop"):
        command(name).add_argument("-s", "--session")
    execute = command("exec")
    execute.add_argument("-s", "--session")
    execute.add_argument("-f", "--file")
    execute.add_argument("--output-image")
    execute.add_argument("--timeout", type=float, default=10.0)
    log = command("log")
    for option in (("-s", "--session"), ("-t", "--type"), ("-o", "--output")):
        log.add_argument(*option)
    log.add_argument("-n", "--lines", type=int)
    return top


def run(words: Sequence[str], code: str, account: Account, kernel: Kernel) -> tuple[int, str]:
    """(exit code, output) of this call."""
    account.calls.append(list(words))
    asked = parser().parse_args(list(words))
    if asked.command in account.fails:
        return 1, account.fails[asked.command]
    store = _Names(Path(asked.config))
    try:
        code_, text = _COMMANDS[asked.command](asked, code, account, store, kernel)
    except _Failed as failed:
        code_, text = 1, str(failed)
    banner = account.banner if asked.command not in ("version", "log") else ""
    return code_, f"{banner}{text}\n"


class _Failed(Exception):
    pass


class _Names:
    """The client's own file: name -> endpoint."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.names: dict[str, str] = json.loads(path.read_text()) if path.is_file() else {}

    def save(self) -> None:
        self._path.write_text(json.dumps(self.names))


def _new(asked: Any, code: str, account: Account, store: _Names, kernel: Kernel) -> tuple[int, str]:
    hardware = GPUS[asked.gpu.lower()] if asked.gpu else TPUS[asked.tpu.lower()] if asked.tpu else "CPU"
    if not account.signed_in:
        raise _Failed(NOT_SIGNED_IN)
    if hardware in account.rejected:
        raise _Failed(
            f"[colab] Creating session '{asked.session}'...\n[colab] Backend rejected accelerator '{hardware}'."
        )
    if len(account.assignments) >= account.most:
        raise _Failed("colab_cli.client.TooManyAssignmentsError: Failed to issue request POST: Precondition Failed")
    account.made += 1
    endpoint = f"{asked.session}-m-s-{account.made}"
    account.assignments[endpoint] = hardware
    store.names[asked.session] = endpoint
    store.save()
    return 0, f"[colab] Creating session '{asked.session}'...\n[colab] Session READY."


def _sessions(asked: Any, code: str, account: Account, store: _Names, kernel: Kernel) -> tuple[int, str]:
    if not account.signed_in:
        if store.names:
            raise _Failed(NOT_SIGNED_IN)
        return 0, "[colab] No active sessions found on server."  # so the client itself answers
    gone = [name for name, endpoint in store.names.items() if endpoint not in account.assignments]
    for name in gone:
        del store.names[name]
    store.save()
    lines = [f"[colab] Pruned {len(gone)} stale local session(s)."] if gone else []
    by_endpoint = {endpoint: name for name, endpoint in store.names.items()}
    for endpoint, hardware in account.assignments.items():
        variant = "DEFAULT" if hardware == "CPU" else "TPU" if hardware.startswith("V") else "GPU"
        lines.append(f"[{by_endpoint.get(endpoint, '?')}] {endpoint} | Hardware: {hardware} | Variant: {variant}")
    return 0, "\n".join([*lines, *([] if account.assignments else ["[colab] No active sessions found on server."])])


def _stop(asked: Any, code: str, account: Account, store: _Names, kernel: Kernel) -> tuple[int, str]:
    if asked.session not in store.names:
        return 0, f"[colab] Session '{asked.session}' not found."
    if not account.signed_in:
        raise _Failed(NOT_SIGNED_IN)
    account.assignments.pop(store.names.pop(asked.session), None)
    store.save()
    return 0, f"[colab] Stopping session '{asked.session}'...\n[colab] Session terminated."


def _exec(asked: Any, code: str, account: Account, store: _Names, kernel: Kernel) -> tuple[int, str]:
    if asked.session not in store.names:
        raise _Failed(f"[colab] Session '{asked.session}' not found.")
    if store.names[asked.session] not in account.assignments:
        del store.names[asked.session]
        store.save()
        raise _Failed(f"[colab] Session '{asked.session}' appears to be lost (404/401). Cleaning up.")
    try:
        return 0, kernel(asked.session, code)
    except TimeoutError as error:
        raise _Failed(f"TimeoutError: {error}") from None


def _version(asked: Any, code: str, account: Account, store: _Names, kernel: Kernel) -> tuple[int, str]:
    return 0, "Version: 0.6.0"


def _log(asked: Any, code: str, account: Account, store: _Names, kernel: Kernel) -> tuple[int, str]:
    if account.refused:
        lines = ("error iter=2 status=403 type=ColabRequestError", "stopped reason=consecutive_4xx_errors")
        return 0, "\n".join(f"[2026-11-27 02:00:00] KEEP: {line}" for line in lines)
    return 0, "[2026-11-27 02:00:00] KEEP: started"


_COMMANDS = {"new": _new, "sessions": _sessions, "stop": _stop, "exec": _exec, "version": _version, "log": _log}


# --- as a program -----------------------------------------------------------------------------------------------------


def load(folder: Path) -> Account:
    return Account(**json.loads((folder / "account.json").read_text()))


def save(folder: Path, account: Account) -> None:
    draft = folder / f"account-{os.getpid()}.draft"
    draft.write_text(json.dumps(asdict(account)))
    draft.rename(folder / "account.json")


@contextmanager
def changing(folder: Path) -> Iterator[Account]:
    """One at a time."""
    with open(folder / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        account = load(folder)
        yield account
        save(folder, account)


def main(folder: Path, words: Sequence[str]) -> int:
    from tests.notebooks.colab_house import kernel_in

    code = sys.stdin.read()
    with changing(folder) as account:
        exit_code, text = run(words, code, account, kernel_in(folder))
    sys.stdout.write(text)
    return exit_code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
