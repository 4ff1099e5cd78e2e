"""`python agent.pyz notebook`: from a ticket to a running agent, in a session of its own beside the kernel.

The ticket is claimed under a random name that lies in the folder, so a repeat after a lost response, or in a cell that
is run again, is the same claim. The claim brings job, secrets and pass; what the session lacks (its accelerator, the
way to the object store) is reported at once, because hours of it would cost the user's quota.

The exit code is 0 whatever happened, after anything but a wrong use: a committed notebook whose cell fails would count
as failed, and how a training ended is a record of its agent.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Dict, Iterator, Mapping, Sequence, Tuple

from supervisor.agent.machine.folder import open_own, read_text
from supervisor.agent.notebook import apart
from supervisor.agent.notebook.claiming import (
    Refused,
    accelerator_problem,
    claimed,
    job_of,
    report,
    session_facts,
    store_problem,
)
from supervisor.agent.notebook.watching import LINE_S, View, agent_state, say
from supervisor.agent.store.door.client import DoorPass
from supervisor.contract.stores.promise import ObjectMissing, StoreUnavailable

START_S = 30.0
_OF_KERNEL = re.compile(r"SPOT_|JPY_|JUPYTER|PYDEVD_|MPLBACKEND\Z|FORCE_COLOR\Z|CLICOLOR")


def main(words: Sequence[str]) -> int:
    """Exit code: 0, or that of a wrong use."""
    options = _options(words)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have left it ignored
    folder = os.path.abspath(options.folder)
    try:
        try:
            reap = _begin(options, folder)
            if reap is not None:
                View(folder, say, options.line_s, reap).watch()
        except Refused as refused:
            say("spot: %s." % refused)
        if options.parcel and os.path.exists(os.path.join(folder, "job.json")):  # else it was refused before
            _pack(folder, options.output)
    except OSError as error:
        say("spot: nothing was started: %s" % error)
    except KeyboardInterrupt:
        if agent_state(folder):
            say(
                "spot: the training goes on without this cell. Run the cell again to see it. To stop it, stop the run "
                "(its page, or `spot stop %s`), or end this session." % _run_of(folder)
            )
        else:
            say("spot: interrupted before the training began. Run the cell again to start it.")
    return 0


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="agent.pyz notebook")
    apart = "--parcel" in words
    parser.add_argument("--url", required=not apart, help="of the supervisor")
    ticket = os.environ.pop("SPOT_TICKET", "")
    needed = not ticket and not apart
    parser.add_argument("--ticket", default=ticket, required=needed, help="for one claim; else SPOT_TICKET")
    parser.add_argument("--parcel", help="a file with the job, for a session without a network")
    parser.add_argument("--inputs", default="", help="where the platform shows earlier outputs")
    parser.add_argument("--output", default="", help="the folder that the platform keeps")
    parser.add_argument("--folder", required=True, help="of this machine")
    parser.add_argument("--line-s", type=float, default=LINE_S, help="seconds between two lines")
    return parser.parse_args(words)


def _begin(options: argparse.Namespace, folder: str) -> Any:
    """Start the agent, or find it; what to call while it is watched. None: it has ended before. Raises Refused,
    OSError."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if os.stat(folder).st_uid != os.geteuid():  # whoever made it could have put a job into it
        raise Refused("%s belongs to another user" % folder)
    lives = agent_state(folder)
    if lives:
        say("spot: the training of this session goes on; this cell only shows it.")
        return lambda: None
    if lives is False:
        say("spot: the training of this session has ended. A new session needs a new cell from the page of the run.")
        View(folder, say).end()
        return None
    job, given = _parcelled(options, folder) if options.parcel else _claimed(options, folder)
    _write(os.path.join(folder, "identity.json"), {"machine_id": job["machine_id"]})
    agent = start(folder, {str(name): str(value) for name, value in given.items()})
    say("spot: run %s, session %s: its training starts." % (job["run_id"], job["launch_id"]))
    until = time.monotonic() + START_S
    while agent_state(folder) is None:
        if agent.poll() is not None or time.monotonic() >= until:
            raise Refused("the agent did not start: %s" % read_text(os.path.join(folder, "console.log"), -2000).strip())
        time.sleep(0.05)
    return agent.poll


def _pack(folder: str, output: str) -> None:
    """What the session has made becomes its output, also where nothing was started."""
    try:
        with open(os.path.join(folder, "job.json"), encoding="utf-8") as source:
            index = apart.pack(json.load(source), folder, output)
        text = "%d objects, %.1f MB, are the output of this version" % (len(index.objects), index.size / 1e6)
        if index.left_out:
            text += ", which had no room for %d others" % index.left_out
        say("spot: %s. The supervisor fetches it when the version has ended." % text)
    except (OSError, StoreUnavailable, ObjectMissing, ValueError) as error:
        say("spot: the work of this session could not be packed, and is lost: %s" % error)


# --- the job --------------------------------------------------------------------------------------------------------


def _claimed(options: argparse.Namespace, folder: str) -> Tuple[Dict[str, Any], Mapping[str, str]]:
    """(the job, its secrets), by the ticket. Raises Refused, OSError."""
    claimant = _claimant(os.path.join(folder, "claimant"))
    claim = claimed(options.url, options.ticket, claimant, session_facts(os.environ))
    job = job_of(claim, options.url, claimant)
    door_pass = DoorPass(os.path.join(folder, "pass.json"))
    door_pass.take(claim.get("pass"), claim.get("date"))
    problem = accelerator_problem(job) or store_problem(job, door_pass)
    if problem:
        report(job, problem)
        raise Refused(problem)
    _write(os.path.join(folder, "job.json"), job)
    return job, claim.get("secrets") or {}


def _parcelled(options: argparse.Namespace, folder: str) -> Tuple[Dict[str, Any], Mapping[str, str]]:
    """The same of a session without a network, which has no secrets."""
    job = apart.job_of(options.parcel, folder, options.inputs)
    _write(os.path.join(folder, "job.json"), job)  # also for what is packed
    problem = accelerator_problem(job)
    if problem:
        apart.report(job, folder, problem)
        raise Refused(problem)
    return job, {}


def _claimant(path: str) -> str:
    """The name of this session, made once. OSError."""
    with suppress(FileExistsError), open(path, "x", encoding="ascii", opener=open_own) as target:
        target.write(secrets.token_hex(16))
    name = read_text(path)
    if not re.fullmatch("[0-9a-f]{32}", name):
        raise OSError(errno.EIO, "not the name of a session", path)
    return name


# --- the agent --------------------------------------------------------------------------------------------------------


def start(folder: str, given: Mapping[str, str], python: str = sys.executable) -> subprocess.Popen[bytes]:
    """The agent of this folder, in a session of its own: no interrupt of the cell and no end of the kernel reaches it.
    OSError."""
    environ = {**without_kernel(os.environ), "SPOT_MACHINE": os.path.basename(folder), "SPOT_MACHINE_DIR": folder}
    console = os.path.join(folder, "console.log")
    with open(console, "ab", opener=open_own) as output, _input(given) as stdin:
        return subprocess.Popen(
            [python, os.path.abspath(sys.argv[0]), folder],
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environ,
            start_new_session=True,
        )


def without_kernel(environ: Mapping[str, str]) -> Dict[str, str]:
    """Without what is true inside the kernel only: a script that draws fails with the backend of a notebook."""
    return {name: value for name, value in environ.items() if not _OF_KERNEL.match(name)}


@contextmanager
def _input(given: Mapping[str, str]) -> Iterator[BinaryIO]:
    """In memory, at its beginning: no secret is on a disk."""
    with os.fdopen(os.memfd_create("secrets", os.MFD_CLOEXEC), "w+b") as file:
        file.write(json.dumps(dict(given)).encode())
        file.seek(0)
        yield file


def _write(path: str, data: Mapping[str, Any]) -> None:
    draft = path + ".draft"
    with open(draft, "w", encoding="utf-8", opener=open_own) as target:
        json.dump(dict(data), target)
    os.rename(draft, path)


def _run_of(folder: str) -> str:
    with suppress(OSError, ValueError, KeyError), open(os.path.join(folder, "job.json"), encoding="utf-8") as source:
        return str(json.load(source)["run_id"])
    return "RUN"
