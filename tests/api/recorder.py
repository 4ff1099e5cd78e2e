"""Real requests and answers, kept as the examples of the document.

Each operation keeps its first request body, its first response of each good status and its first refusal. They are
written again only where their shape has changed, so that a document differs only where the API does.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from starlette.routing import Match

from supervisor.api.document.build import STORED
from supervisor.api.server import ROUTES
from supervisor.api.wire.deps import Services
from tests.fakes.objectstore import MemoryStore
from tests.services.bed import Bed, Client

Json = dict[str, Any]
COMMITTED = Path(__file__).parents[2] / "openapi" / "openapi.json"
SOMEWHERE, INSTALLED = "/var/lib/spot-supervisor", "/opt/spot-supervisor"
BUCKET = MemoryStore().url
REQUEST_ID = "docs-1"
PAGE = 1500  # characters of a page of text
SECRET = re.compile(r"\b(sup|whsec)_[A-Za-z0-9+/=_-]{20,}|\b((?:ticket|pass)_[a-z0-9-]+_[0-9.]+_[0-9]+)_[0-9a-f]{64}\b")


class Recorder:
    """Asks a bed's services and keeps what they answer. `folder`: of the bed; it is told as SOMEWHERE."""

    def __init__(self) -> None:
        self.kept: dict[str, Json] = {}

    def on(self, bed: Bed, folder: Path) -> Asking:
        return Asking(self, Client(bed.services), folder)

    def keep(self, name: str, answer: httpx.Response, body: object, folder: Path) -> None:
        example = self.kept.setdefault(name, {})
        if answer.request.method == "HEAD":
            return
        told = _told(answer, folder)
        if answer.is_success:
            if body is not None:
                example.setdefault("request", json.loads(SECRET.sub(_made_up, json.dumps(body))))
            example.setdefault("answers", {}).setdefault(str(answer.status_code), told)
        elif answer.status_code < 500:
            example.setdefault("refusal", told)


class Asking:
    """One bed, and a client in front of it."""

    def __init__(self, recorder: Recorder, client: Client, folder: Path) -> None:
        self._recorder, self._client, self._folder = recorder, client, folder

    def of(self, services: Services) -> Asking:
        """The same, of services that differ from the bed's own."""
        return Asking(self._recorder, Client(services), self._folder)

    def streamed(self, name: str, text: str) -> None:
        """What the operation answers with beside JSON: a text, or the beginning of a stream."""
        self._recorder.kept.setdefault(name, {})["stream"] = text

    def __call__(self, method: str, path: str, body: object = None, **more: Any) -> httpx.Response:
        """`body` is sent as JSON; other bodies stand in `more`."""
        headers = {"X-Request-ID": REQUEST_ID, **more.pop("headers", {})}
        sent = {"json": body} if body is not None else {}
        answer = self._client.request(method, path, headers=headers, **sent, **more)
        self._recorder.keep(operation_of(method, path), answer, body, self._folder)
        return answer


def operation_of(method: str, path: str) -> str:
    """The name of the function that answers."""
    scope = {"type": "http", "method": method, "path": path.partition("?")[0], "headers": []}
    return next(str(route.name) for route in ROUTES if route.matches(scope)[0] is Match.FULL)


def same(old: Any, new: Any) -> bool:
    """Whether a stored example still shows what is answered now: the same fields of the same types. Null and an empty
    list say nothing of what may stand there."""
    if old is None or new is None or old == [] or new == []:
        return True
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(same(old[key], new[key]) for key in old)
    if isinstance(old, list) and isinstance(new, list):
        return same(old[0], new[0])
    return _kind(old) == _kind(new)


def _kind(value: object) -> str:
    return "number" if type(value) in (int, float) else type(value).__name__


def merged(stored: Mapping[str, Json], recorded: Mapping[str, Json]) -> dict[str, Json]:
    """What is recorded; where a stored example is still the same, that one."""
    return {name: _merged(stored.get(name, {}), example) for name, example in recorded.items()}


def _merged(stored: Json, recorded: Json) -> Json:
    return {
        key: (
            {status: _one(stored.get(key, {}).get(status), told) for status, told in part.items()}
            if key == "answers"
            else _one(stored.get(key), part)
        )
        for key, part in recorded.items()
    }


def _one(stored: Any, recorded: Any) -> Any:
    return stored if stored is not None and same(stored, recorded) else recorded


def write(recorded: Mapping[str, Json]) -> None:
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    text = json.dumps(merged(stored, recorded), indent=1, sort_keys=True, ensure_ascii=False)
    STORED.write_text(text + "\n", encoding="utf-8")


def _told(answer: httpx.Response, folder: Path) -> Any:
    if "json" not in answer.headers.get("content-type", ""):
        text = answer.headers.get("content-type", "").startswith("text/")
        return answer.text[:PAGE].rpartition("\n")[0] + "\n" if text else None
    places = {str(folder): SOMEWHERE, BUCKET: "gs://my-bucket", sys.prefix: INSTALLED}
    text = answer.text
    for place, shown in places.items():
        text = text.replace(place, shown)
    return json.loads(SECRET.sub(_made_up, text))


def _made_up(secret: re.Match[str]) -> str:
    """A document holds no text that looks like a key that counts."""
    return f"{secret[1] or secret[2]}_told-only-this-once"
