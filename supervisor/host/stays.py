"""Object stores on this computer for runs whose agents cannot reach the supervisor's store.

    <root>/stays/<stay>/  owner.json  store/  incoming/

A stay is the time of one run on this computer, over reboots and further attempts. Its agents use `store` as any folder
store, and the supervisor reads and writes it by the methods of this file. Contents travel as base64 in JSON. A file
that is larger than one request arrives in parts below `incoming`, continued at the byte where the last request ended,
and becomes an object when its size and SHA-256 are the announced ones.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Set, Tuple

from supervisor.contract import runfiles
from supervisor.contract.stores.durable import make_folders, replace_file
from supervisor.contract.stores.folder import FolderStore
from supervisor.contract.stores.promise import (
    ObjectInfo,
    ObjectMissing,
    PreconditionFailed,
    StoreFull,
    StoreUnavailable,
)
from supervisor.host import refusals
from supervisor.host.files import private_opener

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,199}\Z")
OWNER = "owner.json"
OUTCOMES = (
    (ObjectMissing, "missing"),
    (PreconditionFailed, "changed"),
    (StoreFull, "full"),
    (StoreUnavailable, "unavailable"),
)  # of an error, by the first kind that it is
GONE = (OSError, ValueError, KeyError, TypeError)  # a stay that is deleted or damaged hides no other one
MAX_BYTES = 8 << 20  # of content in one response

Json = Dict[str, Any]
Owner = Tuple[str, str]  # supervisor id, run id


class Stays:
    """`root`: of everything that the supervisor keeps on this computer."""

    def __init__(self, root: Path) -> None:
        self._folder = root / "stays"

    def respond(self, request: Json, machines_of: Callable[[], Iterable[Owner]]) -> Json:
        """The response to one request. `outcome`: "" or why the store refuses. `machines_of()`: the owners of all
        machines that are not known gone."""
        try:
            if request["method"] == "list":
                return {"outcome": "", "stays": self._list(request["supervisor_id"], set(machines_of()))}
            return {"outcome": "", **METHODS[request["method"]](self, request)}
        except tuple(kind for kind, _ in OUTCOMES) as error:
            outcome = next(outcome for kind, outcome in OUTCOMES if isinstance(error, kind))
            return {"outcome": outcome, "text": str(error)}

    def _list(self, supervisor_id: str, owners: Set[Owner]) -> List[Json]:
        """The stays of this supervisor. `busy`: a machine of the run is here."""
        stays = []
        for path in sorted(self._folder.glob("*/" + OWNER)):
            with suppress(*GONE):
                owner = _owner(path)
                if owner[0] == supervisor_id:
                    stays.append({"stay": path.parent.name, "run_id": owner[1], "busy": owner in owners})
        return stays

    def beats(self) -> List[Json]:
        """The newest beat of each stay. A probe reads them after the machines, so that the last beat of a machine that
        is gone is among them."""
        beats = []
        for path in sorted(self._folder.glob("*/" + OWNER)):
            with suppress(ObjectMissing, StoreUnavailable, *GONE):
                supervisor_id, run_id = _owner(path)
                beat = _object(*FolderStore(path.parent / "store").get(runfiles.beat(run_id)))
                beats.append({"stay": path.parent.name, "supervisor_id": supervisor_id, "run_id": run_id, **beat})
        return beats

    def make(self, request: Json) -> Json:
        """Safe to repeat."""
        folder, owner = self._path(request), (request["supervisor_id"], request["run_id"])
        make_folders(str(folder / "incoming"))
        if not (folder / OWNER).exists():
            text = json.dumps({"supervisor_id": owner[0], "run_id": owner[1]})
            replace_file(str(folder / "incoming"), str(folder / OWNER), text.encode())
        if _owner(folder / OWNER) != owner:
            raise refusals.Refused("%s belongs to another supervisor or run" % folder)
        return {"url": FolderStore.create(folder / "store").url}

    def forget(self, request: Json) -> Json:
        """Delete the stay. Its owner's file goes last, so that a repeat finds the rest."""
        folder = self._path(request)
        if (folder / OWNER).exists() and _owner(folder / OWNER)[0] == request["supervisor_id"]:
            for name in ("store", "incoming"):
                shutil.rmtree(folder / name, ignore_errors=True)
            shutil.rmtree(folder)
        return {}

    # --- objects ------------------------------------------------------------------------------------------------------

    def put(self, request: Json) -> Json:
        data = base64.b64decode(request["content"])
        info = self._store(request).put(request["key"], data, request["if_generation"], request["metadata"])
        return {"info": info._asdict()}

    def get(self, request: Json) -> Json:
        return _object(*self._store(request).get(request["key"]))

    def stat(self, request: Json) -> Json:
        return {"info": self._store(request).stat(request["key"])._asdict()}

    def delete(self, request: Json) -> Json:
        return {"deleted": self._store(request).delete(request["key"], request["if_generation"])}

    def pages(self, request: Json) -> Json:
        pages = list(self._store(request).pages(request["prefix"]))
        return {"objects": [i._asdict() for page in pages for i in page.objects], "server_time": pages[-1].server_time}

    def read(self, request: Json) -> Json:
        length = min(MAX_BYTES, request["max_bytes"])
        content = b"".join(self._store(request).read(request["key"], request["offset"], length))
        return {"content": _text(content), "sha256": _sha256([content])}

    def look(self, request: Json) -> Json:
        """`objects`: those of `keys` that are there, with contents. `changed`: what is below `prefixes` and of the
        generation `since` or later."""
        store, objects = self._store(request), []
        for key in request["keys"]:
            with suppress(ObjectMissing):
                objects.append(_object(*store.get(key)))
        infos = [info for prefix in request["prefixes"] for page in store.pages(prefix) for info in page.objects]
        return {"objects": objects, "changed": [i._asdict() for i in infos if int(i.generation) >= request["since"]]}

    def receive(self, request: Json) -> Json:
        """Add `content` at `offset` to the file that becomes the object `key`. `received`: how many bytes of it are
        here now, whether these were added or not; `info` null: it is not an object yet."""
        key, size = request["key"], request["size"]
        store, part = self._store(request), self._part(request, key)
        with suppress(ObjectMissing):
            there = store.stat(key)
            if there.size == size and _sha256(store.read(key)) == request["sha256"]:
                return {"received": size, "info": there._asdict()}
        make_folders(str(part.parent))
        with open(part, "ab", opener=private_opener) as target:
            try:
                fcntl.flock(target, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # a call without a connection any more, which may hash and copy for minutes
                raise StoreUnavailable("%s is being received by another call" % key) from None
            target.seek(0, os.SEEK_END)
            if target.tell() == request["offset"]:
                target.write(base64.b64decode(request["content"]))
                target.flush()
                os.fsync(target.fileno())
            received = target.tell()
            if received < size:
                return {"received": received, "info": None}
            with open(part, "rb") as source:
                good = received == size and _sha256(iter(lambda: source.read(1 << 20), b"")) == request["sha256"]
            written = store.put_file(key, part)._asdict() if good else None
            part.unlink()
        return {"received": size if good else 0, "info": written}

    # ------------------------------------------------------------------------------------------------------------------

    def _path(self, request: Json) -> Path:
        name = str(request["stay"])
        if not NAME.match(name):
            raise refusals.Refused("not the name of a stay: %r" % name)
        return self._folder / name

    def _store(self, request: Json) -> FolderStore:
        return FolderStore(self._path(request) / "store")

    def _part(self, request: Json, key: str) -> Path:
        name = _sha256([("%s %s" % (key, request["sha256"])).encode()])
        return self._path(request) / "incoming" / name


METHODS = {
    name: getattr(Stays, name)
    for name in ("make", "forget", "put", "get", "stat", "delete", "pages", "read", "look", "receive")
}  # type: Dict[str, Callable[[Stays, Json], Json]]


def _owner(path: Path) -> Owner:
    values = json.loads(path.read_text())
    return values["supervisor_id"], values["run_id"]


def _object(data: bytes, info: ObjectInfo) -> Json:
    return {"content": _text(data), "info": info._asdict()}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _sha256(chunks: Iterable[bytes]) -> str:
    import hashlib  # late, as in contract/stores/durable.py

    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
