"""Folders of machines that are jobs of a scheduler, on the file system that all its nodes share.

The scheduler starts and ends the agents, so nothing here looks for processes. The supervisor calls these methods in its
own process, or on a login node through `agent.pyz host`; requests and responses are JSON in both cases. One read covers
many folders, because a listing should cost few calls. An unreadable folder is a response of its own for this machine,
and says nothing about the others.

    starts          a line of each start of the job, such as 12.0, written by the job itself
    submitted.json  the id of the job and the time of the submit
    released.json   the supervisor needs the machine no more
    secrets.json    the secrets of the run until the end of the machine, because a job has no standard input
    job.sh          the batch script, where this computer does not have it anyway
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, List, Optional, Tuple

from supervisor.contract.stores.durable import MARKER
from supervisor.host import refusals
from supervisor.host.files import Unreadable, read_json, write_json, write_text
from supervisor.host.folders import NAME, Folder, Folders, Record

STARTS, SUBMITTED, RELEASED, SECRETS = "starts", "submitted.json", "released.json", "secrets.json"
JOB_SCRIPT = "job.sh"
FOLDER_STORE = "file://"
START = re.compile(r"[0-9]+\.[0-9]+")
JOB_ID = re.compile(r"[0-9]*")
LINE_BYTES = 100

Json = Dict[str, Any]


class JobFolders:
    """`agent`: the archive that each folder gets a copy of. `locks`: each change takes the lock of the folders; else
    the caller holds it. `checks_store`: a launch is refused where its folder store is not on this computer. `beats`:
    the newest ones of runs whose stores are beside these folders (stays.py)."""

    def __init__(
        self,
        folders: Folders,
        agent: Callable[[], Path],
        *,
        locks: bool = False,
        checks_store: bool = False,
        beats: Callable[[], List[Json]] = list,
    ) -> None:
        self._folders, self._agent, self._locks, self._checks_store = folders, agent, locks, checks_store
        self._beats = beats

    def respond(self, request: Json) -> Json:
        """Raises Unreadable, refusals.Refused, OSError."""
        return METHODS[request["method"]](self, request)

    def entries(self, request: Json) -> Json:
        """Name -> whether it is a folder. `with_beats`: the newest beats too, read after the names."""
        with os.scandir(self._folders.machines) as entries:
            names = {entry.name: entry.is_dir() for entry in entries if NAME.match(entry.name)}
        return {"entries": names, "beats": self._beats() if request.get("with_beats") else []}

    def read(self, request: Json) -> Json:
        """Name -> its values; `problem`: why it cannot be read."""
        return {"folders": {name: self._read(name) for name in request["names"]}}

    def _read(self, name: str) -> Json:
        try:
            return _values(self._folder(name))
        except (Unreadable, OSError) as error:
            return {"problem": str(error)}

    def make(self, request: Json) -> Json:
        """The folder of this launch, complete by one rename, with its secrets. Safe to repeat."""
        launch = request["launch"]
        self._check_store(str(launch.get("store_url") or ""))
        with self._locked():
            folder = self._folder(launch["name"])
            if not (folder.path / "job.json").exists():
                self._folders.make(launch, self._agent(), request["at"])
            if request["script"]:
                write_text(folder.path / JOB_SCRIPT, request["script"])
            write_json(folder.path / SECRETS, request["secrets"])
        return {}

    def submitted(self, request: Json) -> Json:
        write_json(self._folder(request["name"]).path / SUBMITTED, {"job_id": request["job_id"], "at": request["at"]})
        return {}

    def released(self, request: Json) -> Json:
        """`there`: whether the machine has a folder."""
        folder = self._folder(request["name"])
        if folder.path.is_dir():
            write_json(folder.path / RELEASED, {"at": request["at"]})
        return {"there": folder.path.is_dir()}

    def settle(self, request: Json) -> Json:
        """`ends`: name -> the record of its end, or null where nothing says why. `problems`: name -> why it cannot be
        written; the others are. A later start is no machine, so the secrets go too."""
        problems = {}
        for name, record in request["ends"].items():
            folder = self._folder(name)
            try:
                if record is None:
                    folder.write_gone(request["at"])
                else:
                    folder.write_record(Record(record["cause"], record["detail"], record["at"]))
                (folder.path / SECRETS).unlink(missing_ok=True)
            except OSError as error:
                problems[name] = str(error)
        return {"problems": problems}

    def archive(self, request: Json) -> Json:
        """The folder of a machine without a job."""
        with self._locked():
            folder = self._folder(request["name"])
            if folder.path.is_dir():
                self._folders.archive(folder)
        return {}

    def discard(self, request: Json) -> Json:
        """The folder of a machine whose job was refused."""
        with self._locked():
            self._folders.discard(self._folder(request["name"]))
        return {}

    def console(self, request: Json) -> Json:
        """`start` null: the tail, also of a machine that was released."""
        start, max_bytes = request["start"], int(request["max_bytes"])
        if start is None:
            content, first = self._folders.console(request["name"], max_bytes), 0
        else:
            content, first = self._folder(request["name"]).console_after(int(start), max_bytes)
        return {"content": content.decode("utf-8", "surrogateescape"), "start": first}

    def room(self, request: Json) -> Json:
        """Free bytes of the folder, which can be written."""
        import tempfile  # late, as in operations.py

        with tempfile.TemporaryFile(dir=self._folders.machines):
            return {"free_bytes": shutil.disk_usage(self._folders.machines).free}

    # ------------------------------------------------------------------------------------------------------------------

    def _folder(self, name: str) -> Folder:
        """Raises Refused."""
        try:
            return self._folders.folder(name)
        except ValueError as error:
            raise refusals.Refused(str(error)) from None

    def _locked(self) -> ContextManager[Any]:
        return self._folders.locked() if self._locks else nullcontext()

    def _check_store(self, url: str) -> None:
        """An agent would wait for a folder that never comes."""
        path = url[len(FOLDER_STORE) :]
        if self._checks_store and url.startswith(FOLDER_STORE) and not os.path.exists(os.path.join(path, MARKER)):
            raise refusals.Refused(
                "the object store %s is not there: use a folder that the supervisor and the nodes share, a bucket, or "
                "store = relay: then the supervisor copies everything" % url
            )


def _values(folder: Folder) -> Json:
    """Raises Unreadable, OSError."""
    job, record = folder.job(), folder.record()
    job_id, submitted_at = _submitted(folder.path / SUBMITTED)
    first_start = _first_start(folder.path / STARTS)
    return {
        "job": None if job is None else job._asdict(),
        "has_agent": folder.agent() is not None,
        "has_started": first_start is not None,
        "first_start": first_start or "",
        "job_id": job_id,
        "submitted_at": submitted_at,
        "is_released": (folder.path / RELEASED).exists(),
        "record": None if record is None else record._asdict(),
        "gone_at": folder.gone_at(),
    }


def _submitted(path: Path) -> Tuple[str, Optional[float]]:
    """The id of the job and the time; ("", None): the submit was never answered. Raises Unreadable."""
    data = read_json(path)
    if data is None:
        return "", None
    job_id, at = str(data.get("job_id") or ""), data.get("at") or 0.0
    if not JOB_ID.fullmatch(job_id) or not isinstance(at, (int, float)):
        raise Unreadable(f"{path} does not have its expected content")
    return job_id, float(at)


def _first_start(path: Path) -> Optional[str]:
    """None: there is no such file; "": it is empty. A crash of its file system may leave anything else in it, and then
    nobody knows which start is the machine. Raises Unreadable, OSError."""
    try:
        with path.open("rb") as file:
            line = file.readline(LINE_BYTES).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None
    if line and not START.fullmatch(line):
        raise Unreadable(f"{path} begins with {line[:40]!r} in place of the first start")
    return line


METHODS = {
    name: getattr(JobFolders, name)
    for name in (
        "entries", "read", "make", "submitted", "released", "settle", "archive", "discard", "console", "room",
    )
}  # type: Dict[str, Callable[[JobFolders, Json], Json]]  # fmt: skip
