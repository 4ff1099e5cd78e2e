"""Kaggle as the tests know it: notebooks with versions, a queue, sessions with an id that no answer has.

A push does not end the version that runs before it. A private notebook that does not exist is 403, as for a stranger's.
The list has pages. What a session does is up to its runner: `begin` when it starts, `cancel` when it is cancelled.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import requests

from supervisor.providers.kaggle.kernels import code_of
from tests.kaggle.wire import Exchanges, Refusal, Wire

USER, TOKEN = "ada", "a-token-of-ada"
QUEUED, RUNNING, COMPLETE, ERROR = "QUEUED", "RUNNING", "COMPLETE", "ERROR"
CANCEL_REQUESTED, CANCELED = "CANCEL_REQUESTED", "CANCEL_ACKNOWLEDGED"
RETIRED = {"NvidiaTeslaP100": "NvidiaTeslaT4"}
PAGE = 3
HOUR_S = 3600.0


@dataclass
class Version:
    """One version of a notebook, and its session. `internet`: as Kaggle has it, which may not be what was pushed.
    `output`: name -> content, or the file with it, of a version that has ended."""

    source: str
    flags: Mapping[str, Any]
    session_id: int
    number: int
    internet: bool
    status: str = QUEUED
    message: str = ""
    printed: str = ""
    started_at: float | None = None
    unreadable: bool = False
    output: dict[str, bytes | Path] = field(default_factory=dict)

    @property
    def code(self) -> str:
        return code_of(self.source)

    @property
    def alive(self) -> bool:
        return self.status in (QUEUED, RUNNING, CANCEL_REQUESTED)

    @property
    def timeout_s(self) -> float:
        return float(self.flags["sessionTimeoutSeconds"])


@dataclass
class Notebook:
    number: int
    slug: str
    versions: list[Version] = field(default_factory=list)


class Runner(Protocol):
    def begin(self, version: Version) -> None: ...

    def cancel(self, version: Version) -> None: ...


class Kaggle:
    """`now`: epoch seconds. `internet`: whether the phone number of the account is verified. `allowed_s`, `used_s`: of
    the weekly GPU hours; None = the answer has none. `lose_answer`: the next push is done, and nothing is answered.
    `refuse`: method -> the refusal of each call. `queue`: whether sessions stay in it. `late`: the list does not have
    what was pushed. `pushes`: how many were accepted. `slack_s`: how much later a session ends than at its timeout.
    `address`: of the files of outputs. `broken_files`: so many reads of them fail. `hidden_files`: so many files of a
    version are not listed. `reads`: the ranges that were read."""

    def __init__(self, now: Callable[[], float], runner: Runner) -> None:
        self.now, self.runner = now, runner
        self.notebooks: dict[str, Notebook] = {}
        self.violations: list[str] = []
        self.exchanges = Exchanges(self.answer, self.violations, self.file)
        self.refuse: dict[str, Refusal] = {}
        self.calls: list[str] = []
        self.internet = True
        self.allowed_s: float | None = 30 * HOUR_S
        self.used_s, self.resets_at = 0.0, 1_790_500_000.0
        self.lose_answer = self.away = self.queue = self.late = False
        self.push_error, self.slack_s = "", 0.0
        self.address = "https://storage.kaggle.example"
        self.broken_files = self.hidden_files = 0
        self.reads: list[str] = []
        self.pushes, self._ids = 0, 100
        self._lock = threading.RLock()

    def wire(self) -> Wire:
        return Wire(self.exchanges)

    def answer(self, method: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        with self._lock:
            self.calls.append(method)
            if self.away:
                raise requests.ConnectionError("no route")
            if TOKEN not in body["authorization"]:
                raise Refusal(401, "Unauthenticated")
            if method in self.refuse:
                raise self.refuse[method]
            return _ANSWERS[method](self, body)

    def version(self, slug: str, number: int = 0) -> Version:
        return self.notebooks[slug].versions[number - 1]

    def living(self) -> list[Version]:
        return [each for book in self.notebooks.values() for each in book.versions if each.alive]

    def step(self) -> None:
        """Sessions start, end at their timeout, and are cancelled."""
        with self._lock:
            for version in self.living():
                if version.status == CANCEL_REQUESTED:
                    self.runner.cancel(version)
                    version.status = CANCELED
                elif version.status == QUEUED and not self.queue:
                    version.status, version.started_at = RUNNING, self.now()
                    self.runner.begin(version)
                elif (
                    version.started_at is not None
                    and self.now() >= version.started_at + version.timeout_s + self.slack_s
                ):
                    self.runner.cancel(version)
                    self.end(version, ERROR, "Your notebook was stopped because it exceeded the max allowed time")

    def end(self, version: Version, status: str = COMPLETE, message: str = "") -> None:
        if version.status == RUNNING and version.started_at is not None and version.flags.get("enableGpu"):
            self.used_s += self.now() - version.started_at
        version.status, version.message = status, message

    @contextmanager
    def gone_away(self) -> Iterator[None]:
        self.away = True
        try:
            yield
        finally:
            self.away = False

    # --- the methods --------------------------------------------------------------------------------------------------

    def _list(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        assert body["group"] == "PROFILE", "the list of somebody else's notebooks"
        books = [] if self.late else list(self.notebooks.values())
        first = int(body.get("pageToken") or 0)
        page = [_metadata(book) for book in books[first : first + PAGE]]
        more = str(first + PAGE) if first + PAGE < len(books) else ""
        return {"kernels": page, **({"nextPageToken": more} if more else {})}

    def _get(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        book = self._book(body)
        blob = {"source": book.versions[-1].source, "language": "python", "kernelType": "notebook", "slug": book.slug}
        return {"metadata": _metadata(book), "blob": blob}

    def _save(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        assert body["isPrivate"] is True
        assert json.loads(body["text"])["cells"], "it is a notebook"
        owner, slug = body["slug"].split("/")
        assert (owner, body["newTitle"]) == (USER, slug)
        assert len(slug) <= 50
        if self.push_error:
            return {"error": self.push_error}
        live = sum(bool(version.flags.get("enableGpu")) for version in self.living())
        if body.get("enableGpu") and live >= 2:
            return {"error": "Maximum batch GPU session count of 2 reached."}
        self._ids += 7
        book = self.notebooks.setdefault(slug, Notebook(self._ids, slug))
        internet = bool(body.get("enableInternet")) and self.internet
        book.versions.append(Version(body["text"], dict(body), 5000 + self._ids, len(book.versions) + 1, internet))
        self.pushes += 1
        if self.lose_answer:
            self.lose_answer = False
            raise requests.ReadTimeout("no answer")
        ref = f"/code/{USER}/{slug}"
        return {
            "ref": ref,
            "url": f"https://www.kaggle.com{ref}",
            "versionNumber": len(book.versions),
            "kernelId": book.number,
        }

    def _status(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        version = self._version(body)
        if version.unreadable:
            raise Refusal(503, "Service Unavailable")
        return {"status": version.status, **({"failureMessage": version.message} if version.message else {})}

    def _cancel(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        for version in self.living():
            if version.session_id == body["kernelSessionId"]:
                version.status = CANCEL_REQUESTED
                return {}
        return {"errorMessage": "The session was not found"}

    def _delete(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        book = self.notebooks.get(body["kernelSlug"])
        if book is None or body["userName"] != USER:
            raise Refusal(403, "Permission 'kernels.delete' was denied")
        if any(version.alive for version in book.versions):
            return {"errorMessage": "The notebook has a session that runs"}
        del self.notebooks[book.slug]
        return {}

    def _output(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        version = self._version(body)
        lines = [{"stream_name": "stdout", "time": 0.1, "data": version.printed}] if version.printed else []
        ended = [] if version.alive else sorted(version.output)[self.hidden_files :]
        files = [{"url": f"{self.address}/output/{version.session_id}/{name}", "fileName": name} for name in ended]
        first = int(body.get("pageToken") or 0)
        more = str(first + 1) if first + 1 < len(files) else ""
        shown = {"files": files[first : first + 1], "log": json.dumps(lines)}
        return {**shown, **({"nextPageToken": more} if more else {})}

    def file(self, path: str, byte_range: str) -> tuple[int, bytes, dict[str, str]]:
        """(status, bytes, headers) of an address of an output; `byte_range`: as in the header."""
        with self._lock:
            _, _, session_id, name = path.split("/")
            every = [each for book in self.notebooks.values() for each in book.versions]
            (version,) = [each for each in every if str(each.session_id) == session_id]
            self.reads.append(byte_range)
            if self.broken_files > 0:
                self.broken_files -= 1
                return 503, b"", {}
            content = version.output[name]
        whole = content if isinstance(content, bytes) else content.read_bytes()
        first, last = (int(text) for text in byte_range.removeprefix("bytes=").split("-"))
        return 206, whole[first : last + 1], {"Content-Range": f"bytes {first}-{last}/{len(whole)}"}

    def _quota(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        resets = datetime.fromtimestamp(self.resets_at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        answer: dict[str, Any] = {"quotaRefreshTime": f"{resets}.000Z"}
        if self.allowed_s is not None:
            used = {
                "timeUsed": f"{self.used_s:.0f}s",
                "timeReserved": "0s",
                "totalTimeAllowed": f"{self.allowed_s:.0f}s",
            }
            answer["gpuQuota"] = {**used, "hasEverRun": True}
        return answer

    def _book(self, body: Mapping[str, Any]) -> Notebook:
        book = self.notebooks.get(body.get("kernelSlug", ""))
        if book is None or body.get("userName") != USER:
            raise Refusal(403, "Permission 'kernels.get' was denied")
        return book

    def _version(self, body: Mapping[str, Any]) -> Version:
        """Of the label, never of the newest one: that is what this project asks for."""
        book, label = self._book(body), body["versionLabel"]
        if not label.startswith("v") or not 1 <= int(label[1:]) <= len(book.versions):
            raise Refusal(404, "Not found")
        return book.versions[int(label[1:]) - 1]


def _metadata(book: Notebook) -> dict[str, Any]:
    newest = book.versions[-1]
    shape = newest.flags.get("machineShape", "")
    return {
        "id": book.number,
        "ref": f"{USER}/{book.slug}",
        "title": book.slug,
        "slug": book.slug,
        "isPrivate": True,
        "enableInternet": newest.internet,
        "currentVersionNumber": len(book.versions),
        "machineShape": RETIRED.get(shape, shape),
    }


_ANSWERS: Mapping[str, Callable[[Kaggle, Mapping[str, Any]], Mapping[str, Any]]] = {
    "ListKernels": Kaggle._list,
    "GetKernel": Kaggle._get,
    "SaveKernel": Kaggle._save,
    "GetKernelSessionStatus": Kaggle._status,
    "CancelKernelSession": Kaggle._cancel,
    "DeleteKernel": Kaggle._delete,
    "ListKernelSessionOutput": Kaggle._output,
    "GetAcceleratorQuotaStatistics": Kaggle._quota,
}
