"""The keys of a run's objects in the object store, and the object that names its saved results (RULES section 7).

Shared with the agent: Python 3.8, standard library only. Keys use `/`; no function here touches a store.

Saved results are the files of a run at one moment, described by one small object: which files there were, and where
their contents are. A pointer of the baton names this object together with the checkpoint of the same moment, so a
restore brings both or neither. A content is stored once and shared by all manifests that name it. A file that could not
be saved stands in `left_out` with the reason; if the store has an older content of it, `files` still names that one.

Orders are what people want of a living run: changed code, and commands to run beside the training. One object has them
all, so an agent that reads it knows everything. Only the supervisor writes it, by compare-and-set.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Dict, Mapping, NamedTuple, Optional, Tuple

if TYPE_CHECKING:
    from supervisor.contract.baton import FileEntry  # a command on a host needs no baton

BEATS = "beats/"
RUNS = "runs/"
CODE = "code/"
AGENTS = "agents/"
CLAIMS = "claims/"
CANARY = ".canary-"
BOOT = "~boot"  # no run id has a tilde
_PART_BYTES = 255  # of one part of a key
_LAUNCH = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}")


def beat(run_id: str) -> str:
    """The run's newest heartbeat. It is in the object's metadata too, so one listing reads a thousand."""
    return BEATS + run_id


def boot_beat(run_id: str) -> str:
    """The beat of a booting machine's start-up script, listed beside the run's beat: its agent may not write that beat
    yet, and the old machine of the run may still be writing it."""
    return BEATS + run_id + BOOT


def agent(sha256: str) -> str:
    """The agent's zipapp, for machines that download it; named by its content."""
    return "%s%s.pyz" % (AGENTS, sha256)


def claims(supervisor_id: str) -> str:
    """Which sessions have claimed their jobs; outside the folders of their runs, because no pass may open them."""
    return "%s%s/" % (CLAIMS, supervisor_id)


def claim(supervisor_id: str, run_id: str, launch_id: str) -> str:
    return "%s%s/%s" % (claims(supervisor_id), run_id, launch_id)


def canary(supervisor_id: str, scope: str = "") -> str:
    """An object that the supervisor itself writes and lists among the beats: it proves that this listing is fresh.
    `scope` distinguishes the leaders of several cells that share a bucket."""
    return BEATS + CANARY + supervisor_id + ("-" + scope if scope else "")


def is_canary(key: str) -> bool:
    """True for the canary of any supervisor. No run id begins with a dot."""
    return key.startswith(BEATS + CANARY)


def folder(run_id: str) -> str:
    return "%s%s/" % (RUNS, run_id)


def baton(run_id: str) -> str:
    return folder(run_id) + "baton.json"


def stop_marker(run_id: str) -> str:
    """Its existence is the message; its object generation says which stop it is."""
    return folder(run_id) + ".stop"


def manifest(run_id: str) -> str:
    return folder(run_id) + "run_manifest.json"


def instance(run_id: str, attempt: int) -> str:
    return "%sinstances/%d.json" % (folder(run_id), attempt)


def exit_record(run_id: str, attempt: int) -> str:
    """The agent writes it when its command has ended, whatever the exit code."""
    return "%sinstances/%d.exit.json" % (folder(run_id), attempt)


def checkpoints(run_id: str) -> str:
    return folder(run_id) + "checkpoints/"


def checkpoint(run_id: str, step: int, attempt: int, upload: int = 1, best: bool = False) -> str:
    """Prefix of one checkpoint's files: a new name for each upload, so that no upload overwrites another.

    `upload` counts the uploads of one step by one attempt (a `last.pt` that is written again without a new step).
    `best`: entries named best* have a prefix of their own. An object with this prefix that no baton names is a partial
    upload. Under another prefix it may be an entry that an older agent kept without naming it in the baton.
    """
    again = "" if upload == 1 else ".%d" % upload
    return "%s%s%d-a%d%s/" % (checkpoints(run_id), "best-" if best else "", step, attempt, again)


def facts(run_id: str, attempt: int) -> str:
    """The agent writes it soon after its command has started: versions, GPUs, seeds, tracker."""
    return "%sinstances/%d.facts.json" % (folder(run_id), attempt)


def agent_evidence(run_id: str, attempt: int) -> str:
    """The agent's own part of the evidence: written on a stall and at the end of the attempt."""
    return "%sinstances/%d.evidence.json" % (folder(run_id), attempt)


def prepared(run_id: str, attempt: int) -> str:
    """The start-up script of a machine that was prepared for a base writes it, once its disk is clean."""
    return "%sinstances/%d.prepared.json" % (folder(run_id), attempt)


def evidences(run_id: str) -> str:
    return folder(run_id) + "evidence/"


def evidence(run_id: str, attempt: int) -> str:
    """Why the attempt ended: the agent's part and the supervisor's readings, written before the release."""
    return "%sa%d.json" % (evidences(run_id), attempt)


def code(sha256: str) -> str:
    """A code bundle, shared by all runs that use it; named by the sha256 of the tar inside the gzip."""
    return "%s%s.tar.gz" % (CODE, sha256)


def code_index(sha256: str) -> str:
    """The contents of the bundle (JSON). It is written after the bundle: if the index exists, the bundle is
    complete."""
    return "%s%s.json" % (CODE, sha256)


def orders(run_id: str) -> str:
    return folder(run_id) + "orders.json"


def synced(run_id: str) -> str:
    return folder(run_id) + "sync/"


def delta(run_id: str, revision: int, sha256: str) -> str:
    """A delta of the code (contract/bundle.py), named by its last revision and the hash of its tar."""
    return "%s%08d-%s.tar.gz" % (synced(run_id), revision, sha256[:16])


def applied(run_id: str, attempt: int) -> str:
    """The agent writes it when it has applied deltas: at which revision the attempt began and where it is now."""
    return "%sa%d.json" % (synced(run_id), attempt)


def command_result(run_id: str, command_id: str) -> str:
    """Whoever creates it decides what becomes of the command: the agent that runs it, or the supervisor that takes it
    back. So a command runs once at most."""
    return "%scommands/%s.json" % (folder(run_id), command_id)


def command_files(run_id: str, command_id: str) -> str:
    """Files that the command has collected: a tar inside a gzip."""
    return "%scommands/%s.tar.gz" % (folder(run_id), command_id)


def logs(run_id: str, attempt: int) -> str:
    return "%slogs/a%d/" % (folder(run_id), attempt)


def log_chunk(run_id: str, attempt: int, sequence: int) -> str:
    """Chunks sort by name in the order in which they were written."""
    return "%s%08d.log" % (logs(run_id, attempt), sequence)


def all_metrics(run_id: str) -> str:
    return folder(run_id) + "metrics/"


def metrics(run_id: str, attempt: int) -> str:
    """The agent writes it again and again: what its training has reported, in bounded room (metric_series)."""
    return "%sa%d.json.gz" % (all_metrics(run_id), attempt)


def console(run_id: str, attempt: int) -> str:
    """The end of the machine's console output, saved before the machine is released."""
    return "%sinstances/%d.console.log" % (folder(run_id), attempt)


def results(run_id: str, generation: int) -> str:
    return "%sresults/g%d/" % (folder(run_id), generation)


def saved_results(run_id: str) -> str:
    """Results as working state: files and manifests, grouped by the launch that wrote them."""
    return folder(run_id) + "results/saved/"


def saved_result(run_id: str, launch_id: str, number: int, what: str) -> str:
    """A new name for each upload (`number` counts the uploads of one launch), so that no upload overwrites another and
    a deleted key never comes back. `what`: the sha256 of a file, or `manifest.json`."""
    return "%s%s/%d-%s" % (saved_results(run_id), launch_id, number, what)


def launch_of_saved(run_id: str, key: str) -> Optional[Tuple[str, int]]:
    """(launch id, number) of such a key; None for any other."""
    launch_id, _, name = key[len(saved_results(run_id)) :].partition("/")
    number = name.partition("-")[0]
    if not key.startswith(saved_results(run_id)) or not _LAUNCH.fullmatch(launch_id) or not number.isdecimal():
        return None
    return launch_id, int(number)


def storable(name: str) -> str:
    """The name under which a file of results is stored: its own name, if an object and a URL can have it. In any other
    part of the path the unsuitable characters (bytes that are not UTF-8, line breaks, control and invisible direction
    characters) and percent signs become %XX of their bytes. A part that gets too long that way is cut, with its hash at
    the end."""
    return "/".join(part if part.isprintable() else _escaped(part) for part in name.split("/"))


def _escaped(part: str) -> str:
    """Surrogates are not printable either."""
    plain = "".join(
        char if char.isprintable() and char != "%" else "".join("%%%02X" % byte for byte in _raw(char)) for char in part
    )
    if len(plain.encode()) <= _PART_BYTES:
        return plain
    import hashlib  # late, as in stores/durable.py

    digest = hashlib.sha256(_raw(part)).hexdigest()[:16]
    return plain.encode()[: _PART_BYTES - 17].decode("utf-8", "ignore") + "~" + digest


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def manifest_sha256(files: Iterable[FileEntry]) -> str:
    """Equal for equal files: name, size and content. Names are relative to the results folder; the order does not
    matter."""
    import hashlib  # late, as in stores/durable.py

    rows = sorted((entry._asdict() for entry in files), key=lambda row: str(row["name"]))
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


class SavedFile(NamedTuple):
    """`name`: relative to the results folder, as os.fsdecode gives it; it may contain lone surrogates."""

    name: str
    size: int
    sha256: str
    key: str


class LeftOut(NamedTuple):
    name: str
    why: str


class SavedResults(NamedTuple):
    """`step`: of the checkpoint of the same moment; at the end of an attempt the last step reported. `folders`: the
    empty ones."""

    attempt: int
    step: Optional[int]
    files: Tuple[SavedFile, ...]
    folders: Tuple[str, ...] = ()
    left_out: Tuple[LeftOut, ...] = ()


def encode_saved(saved: SavedResults) -> bytes:
    """The same results give the same bytes."""
    data = {
        **saved._asdict(),
        "files": [file._asdict() for file in saved.files],
        "left_out": [left._asdict() for left in saved.left_out],
    }
    return json.dumps(data, indent=1, sort_keys=True).encode("ascii")


def decode_saved(raw: bytes) -> SavedResults:
    """ValueError when it is torn or no such object."""
    try:
        data = json.loads(raw)
        return SavedResults(
            attempt=int(data["attempt"]),
            step=None if data["step"] is None else int(data["step"]),
            files=tuple(
                SavedFile(str(row["name"]), int(row["size"]), str(row["sha256"]), str(row["key"]))
                for row in data["files"]
            ),
            folders=tuple(str(name) for name in data["folders"]),
            left_out=tuple(LeftOut(str(row["name"]), str(row["why"])) for row in data["left_out"]),
        )
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError("not a manifest of results: %s" % error) from None


class StoredDelta(NamedTuple):
    """From revision `first` - 1 to `last`; several deltas may have been merged. `sha256`: of the tar; `size`: of the
    gzip."""

    first: int
    last: int
    key: str
    sha256: str
    size: int


class Synced(NamedTuple):
    """Code that was sent to a living run. `code`: the bundle that the deltas change, in order. `tree`: hash of all
    files. `git`: the commit of the folder that it came from, "" = not known."""

    code: str
    revision: int = 0
    tree: str = ""
    git: str = ""
    deltas: Tuple[StoredDelta, ...] = ()


class Orders(NamedTuple):
    """`number` grows with each change. `commands`: those that may still be run; each is signed for one launch."""

    number: int = 0
    synced: Optional[Synced] = None
    commands: Tuple[Mapping[str, Any], ...] = ()


def encode_orders(orders: Orders) -> bytes:
    data: Dict[str, Any] = {"version": 1, "number": orders.number, "synced": None, "commands": list(orders.commands)}
    if orders.synced is not None:
        deltas = [delta._asdict() for delta in orders.synced.deltas]
        data["synced"] = {**orders.synced._asdict(), "deltas": deltas}
    return json.dumps(data, separators=(",", ":")).encode("ascii")


def decode_orders(raw: bytes) -> Orders:
    """ValueError when it is torn or no such object."""
    try:
        data = json.loads(raw)
        of = data["synced"]
        sent = None
        if of is not None:
            rows = (
                StoredDelta(int(row["first"]), int(row["last"]), str(row["key"]), str(row["sha256"]), int(row["size"]))
                for row in of["deltas"]
            )
            sent = Synced(str(of["code"]), int(of["revision"]), str(of["tree"]), str(of["git"]), tuple(rows))
        return Orders(int(data["number"]), sent, tuple(dict(row) for row in data["commands"]))
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError("not a run's orders: %s" % error) from None


def signature(command: Mapping[str, Any], nonce_hash: str) -> str:
    """Of a command in the orders, without its field `mac`. Only the supervisor and the agent of that launch know the
    hash of its nonce (identifiers.nonce_hash), so a command counts for one launch."""
    import hmac  # late: most runs have no commands

    plain = {name: value for name, value in command.items() if name != "mac"}
    return hmac.new(nonce_hash.encode(), json.dumps(plain, sort_keys=True).encode(), "sha256").hexdigest()
