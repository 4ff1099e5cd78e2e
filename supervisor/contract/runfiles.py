"""Where everything of a run lies in the object store, and the object that names its saved results (RULES section 7).

Shared with the agent: Python 3.8, standard library only. Keys use `/`; no function here touches a store.

Saved results are the files of a run at one moment, as one small object: which there were, and where their content lies.
A pointer of the baton names this object together with the checkpoint of the same moment, so a restore brings both or
neither. Contents are stored once and shared by all manifests that name them. A file that could not be saved stands in
`left_out` with the reason; where an older content of it was in the store, `files` still has that one. Who has the same
files, by name, size and content, has the same hash.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Optional, Tuple

from supervisor.contract.baton import FileEntry

BEATS = "beats/"
RUNS = "runs/"
CODE = "code/"
AGENTS = "agents/"
CANARY = ".canary-"
BOOT = "~boot"  # no run id has a tilde
_PART_BYTES = 255  # of one part of a key
_LAUNCH = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}")


def beat(run_id: str) -> str:
    """The run's newest heartbeat, also in the object's metadata: one listing reads a thousand."""
    return BEATS + run_id


def boot_beat(run_id: str) -> str:
    """What the start-up script of a booting machine says, before its agent may write the beat: listed beside it. The
    old machine of the run may still be writing the beat itself."""
    return BEATS + run_id + BOOT


def agent(sha256: str) -> str:
    """The agent's zipapp, for machines that fetch it themselves; named by its content."""
    return "%s%s.pyz" % (AGENTS, sha256)


def canary(supervisor_id: str, scope: str = "") -> str:
    """What the supervisor itself writes and lists among the beats: proof that this listing is fresh. `scope` tells
    apart the leaders of several cells that share a bucket."""
    return BEATS + CANARY + supervisor_id + ("-" + scope if scope else "")


def is_canary(key: str) -> bool:
    """True for any supervisor's. No run id begins with a dot."""
    return key.startswith(BEATS + CANARY)


def folder(run_id: str) -> str:
    return "%s%s/" % (RUNS, run_id)


def baton(run_id: str) -> str:
    return folder(run_id) + "baton.json"


def stop_marker(run_id: str) -> str:
    """Its existence is the message; its object generation says which stop it was."""
    return folder(run_id) + ".stop"


def manifest(run_id: str) -> str:
    return folder(run_id) + "run_manifest.json"


def instance(run_id: str, attempt: int) -> str:
    return "%sinstances/%d.json" % (folder(run_id), attempt)


def exit_record(run_id: str, attempt: int) -> str:
    """Written by the agent when its command has ended, whatever the exit code."""
    return "%sinstances/%d.exit.json" % (folder(run_id), attempt)


def checkpoints(run_id: str) -> str:
    return folder(run_id) + "checkpoints/"


def checkpoint(run_id: str, step: int, attempt: int, upload: int = 1, best: bool = False) -> str:
    """Prefix of one checkpoint's files: a new name for each upload, so no upload overwrites another.

    `upload` counts the uploads of one step by one attempt (a `last.pt` that is written again without a new step).
    `best`: entries named best* are told apart by their prefix, so that one that no baton names is either a half-made
    upload of ours or was written by an agent that did not name them yet.
    """
    again = "" if upload == 1 else ".%d" % upload
    return "%s%s%d-a%d%s/" % (checkpoints(run_id), "best-" if best else "", step, attempt, again)


def facts(run_id: str, attempt: int) -> str:
    """Written by the agent soon after its command has started: versions, GPUs, seeds, tracker."""
    return "%sinstances/%d.facts.json" % (folder(run_id), attempt)


def agent_evidence(run_id: str, attempt: int) -> str:
    """The agent's own part of the evidence: written on a stall and at the end of its life."""
    return "%sinstances/%d.evidence.json" % (folder(run_id), attempt)


def evidences(run_id: str) -> str:
    return folder(run_id) + "evidence/"


def evidence(run_id: str, attempt: int) -> str:
    """Why the attempt ended: the agent's part and the readings of the supervisor, written before the release."""
    return "%sa%d.json" % (evidences(run_id), attempt)


def code(sha256: str) -> str:
    """A code bundle, shared by all runs that use it; named by the sha256 of the tar inside the gzip."""
    return "%s%s.tar.gz" % (CODE, sha256)


def code_index(sha256: str) -> str:
    """What is in the bundle (JSON), written after it: who finds the index may rely on the bundle."""
    return "%s%s.json" % (CODE, sha256)


def logs(run_id: str, attempt: int) -> str:
    return "%slogs/a%d/" % (folder(run_id), attempt)


def log_chunk(run_id: str, attempt: int, sequence: int) -> str:
    """Chunks sort by name in the order in which they were written."""
    return "%s%08d.log" % (logs(run_id, attempt), sequence)


def console(run_id: str, attempt: int) -> str:
    """The machine's console tail, kept before the machine is released."""
    return "%sinstances/%d.console.log" % (folder(run_id), attempt)


def results(run_id: str, generation: int) -> str:
    return "%sresults/g%d/" % (folder(run_id), generation)


def saved_results(run_id: str) -> str:
    """Results as working state: files and manifests below the launch that wrote them."""
    return folder(run_id) + "results/saved/"


def saved_result(run_id: str, launch_id: str, number: int, what: str) -> str:
    """A new name for each upload (`number` counts those of one launch), so that no upload overwrites another and a key
    that was deleted never comes back. `what`: the sha256 of a file, or `manifest.json`."""
    return "%s%s/%d-%s" % (saved_results(run_id), launch_id, number, what)


def launch_of_saved(run_id: str, key: str) -> Optional[Tuple[str, int]]:
    """(launch id, number) of such a key; None for any other."""
    launch_id, _, name = key[len(saved_results(run_id)) :].partition("/")
    number = name.partition("-")[0]
    if not key.startswith(saved_results(run_id)) or not _LAUNCH.fullmatch(launch_id) or not number.isdecimal():
        return None
    return launch_id, int(number)


def storable(name: str) -> str:
    """The name under which a file of results is stored: itself, where an object and an address can have it. In a part
    that holds anything else (bytes that are no UTF-8, line breaks, control and invisible direction characters) these
    and percent signs become %XX of their bytes; a part that gets too long that way is cut, with its hash at the end."""
    return "/".join(part if _is_storable(part) else _escaped(part) for part in name.split("/"))


def _escaped(part: str) -> str:
    plain = "".join(
        char if _is_storable(char) and char != "%" else "".join("%%%02X" % byte for byte in _raw(char)) for char in part
    )
    if len(plain.encode()) <= _PART_BYTES:
        return plain
    digest = hashlib.sha256(_raw(part)).hexdigest()[:16]
    return plain.encode()[: _PART_BYTES - 17].decode("utf-8", "ignore") + "~" + digest


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _is_storable(text: str) -> bool:
    """Surrogates are not printable."""
    return text.isprintable()


def manifest_sha256(files: Iterable[FileEntry]) -> str:
    """Names are relative to the results folder; the order of the files does not matter."""
    rows = sorted((asdict(entry) for entry in files), key=lambda row: str(row["name"]))
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class SavedFile:
    """`name`: relative to the results folder, as os.fsdecode gives it; it may hold lone surrogates."""

    name: str
    size: int
    sha256: str
    key: str


@dataclass(frozen=True)
class LeftOut:
    name: str
    why: str


@dataclass(frozen=True)
class SavedResults:
    """`step`: of the checkpoint of the same moment; at the end of an attempt the last step reported. `folders`: those
    that hold no file."""

    attempt: int
    step: Optional[int]
    files: Tuple[SavedFile, ...]
    folders: Tuple[str, ...] = ()
    left_out: Tuple[LeftOut, ...] = ()


def encode_saved(saved: SavedResults) -> bytes:
    """The same results give the same bytes."""
    return json.dumps(asdict(saved), indent=1, sort_keys=True).encode("ascii")


def decode_saved(raw: bytes) -> SavedResults:
    """ValueError when it is torn or not such an object."""
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
