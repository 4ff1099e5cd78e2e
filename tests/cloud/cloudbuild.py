"""Cloud Build's four methods that a build of an image needs: create, get, list by tag, cancel.

A build ends after `looks` reads. With SUCCESS its images are in the registry, with every name that it got;
faults are requested by name. Sources are read from the fake Cloud Storage, as the build's own account does.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.cloud.registry import RegistryFake
from tests.cloud.secretmanager import refusal
from tests.cloud.storage import StorageFake
from tests.cloud.web import Request, Reset, Response, Watch, WebServer

NUMBER = "424242424242"
BUILDER = f"{NUMBER}-compute@developer.gserviceaccount.com"
# What operators have met: the account, the permission, and nothing of the bucket.
CANNOT_READ = (
    f"could not resolve source: googleapi: Error 403: {BUILDER} does not have storage.objects.get access to the Google "
    "Cloud Storage object. Permission 'storage.objects.get' denied on resource (or it may not exist)., forbidden"
)
_BUILDS = re.compile(r"/v1/projects/([^/]+)/locations/([^/]+)/builds(?:/([^/:]+))?(:cancel)?")
_FILTER = re.compile(r'tags="([^"]+)"')


class CloudBuildFake:
    """`builds`: by id, in Cloud Build's form. `lose_create`: the next builds start, and the response is lost.
    `ends_as`: status and failureInfo of the builds to come. `reads_source` False: the account may not read it."""

    def __init__(
        self,
        registry: RegistryFake,
        storage: StorageFake,
        clock: Callable[[], float] = time.time,
        watch: Watch | None = None,
    ) -> None:
        self.registry, self.storage = registry, storage
        self.requests: list[Request] = []
        self.builds: dict[str, dict[str, Any]] = {}
        self.looks, self.lose_create, self.reads_source = 2, 0, True
        self.reads_filter = True  # False: every list is whole
        self.ends_as: dict[str, Any] = {"status": "SUCCESS"}
        self.on_work: Callable[[dict[str, Any]], None] = lambda build: None  # a build has read, pushed and logged
        self._clock = clock
        self._looked: dict[str, int] = {}
        self._faults: list[tuple[str, Response | Exception, int | None]] = []
        self._lock = threading.Lock()
        self.server = WebServer(self._answer, watch)

    @property
    def url(self) -> str:
        return self.server.url

    def close(self) -> None:
        self.server.close()

    def fail(self, verb: str, answer: Response | Exception, times: int | None = 1) -> None:
        """The next `times` requests of this verb (None = all) get this instead."""
        self._faults.append((verb, answer, times))

    def switch_off(self) -> None:
        """The API is not enabled in the project."""
        text = (
            f"Cloud Build API has not been used in project {NUMBER} before or it is disabled. Enable it by visiting "
            f"https://console.developers.google.com/apis/api/cloudbuild.googleapis.com/overview?project={NUMBER}"
        )
        for verb in ("GET", "POST"):
            self.fail(verb, refusal(403, "PERMISSION_DENIED", text), None)

    def _answer(self, request: Request) -> Response:
        with self._lock:
            self.requests.append(request)
            fault = self._fault(request.method)
            if fault is not None:
                return fault
            found = _BUILDS.fullmatch(request.path)
            if found is None:
                return refusal(404, "NOT_FOUND", "Method not found.")
            project, region, build, cancel = found.groups()
            match request.method, build, cancel:
                case "POST", None, None:
                    return self._create(request, project, region)
                case "GET", None, None:
                    return self._list(request)
                case "GET", name, None:
                    return self._get(str(name))
                case "POST", name, ":cancel":
                    return self._cancel(str(name))
            return refusal(404, "NOT_FOUND", "Method not found.")

    def _fault(self, verb: str) -> Response | None:
        for number, (when, answer, times) in enumerate(self._faults):
            if when == verb:
                if times is not None:
                    self._faults[number : number + 1] = [(when, answer, times - 1)] if times > 1 else []
                if isinstance(answer, Exception):
                    raise answer
                return answer
        return None

    def _create(self, request: Request, project: str, region: str) -> Response:
        body = request.json()
        source = body.get("source", {}).get("storageSource", {})
        if not self.reads_source:
            return refusal(400, "INVALID_ARGUMENT", CANNOT_READ)
        stored = self.storage.find(source.get("bucket", ""), source.get("object", ""))
        if stored is None or str(stored.generation) != source.get("generation", str(stored.generation)):
            return refusal(400, "INVALID_ARGUMENT", "could not resolve source: Error 404: No such object")
        name = f"build-{len(self.builds) + 1}"
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))
        filled = _filled(body, body.get("substitutions", {}))
        self.builds[name] = {
            **filled, "id": name, "projectId": project, "status": "QUEUED", "createTime": now,
            "name": f"projects/{NUMBER}/locations/{region}/builds/{name}",
            "logUrl": f"https://console.cloud.google.com/cloud-build/builds;region={region}/{name}?project={NUMBER}",
        }  # fmt: skip
        self._looked[name] = 0
        if self.lose_create:
            self.lose_create -= 1
            raise Reset
        kind = "type.googleapis.com/google.devtools.cloudbuild.v1.BuildOperationMetadata"
        operation = f"operations/build/{project}/{name}"
        return Response(200, {"name": operation, "metadata": {"@type": kind, "build": self.builds[name]}})

    def _get(self, name: str) -> Response:
        if name not in self.builds:
            return refusal(404, "NOT_FOUND", f"Requested entity was not found: {name}")
        self._looked[name] += 1
        build = self.builds[name]
        if self._looked[name] >= self.looks and build["status"] in ("QUEUED", "WORKING"):
            self.end(name)
        elif build["status"] == "QUEUED":
            build["status"] = "WORKING"
        return Response(200, build)

    def _list(self, request: Request) -> Response:
        wanted = _FILTER.fullmatch(request.one("filter") or "")
        tag = wanted[1] if wanted and self.reads_filter else None
        found = [build for build in self.builds.values() if tag is None or tag in build.get("tags", [])]
        return Response(200, {"builds": found} if found else {})

    def _cancel(self, name: str) -> Response:
        if name not in self.builds:
            return refusal(404, "NOT_FOUND", f"Requested entity was not found: {name}")
        self.builds[name]["status"] = "CANCELLED"
        return Response(200, self.builds[name])

    def end(self, name: str) -> None:
        """The build is over, as `ends_as` says."""
        build = self.builds[name]
        build.update(self.ends_as)
        if build["status"] == "SUCCESS":
            self.on_work(build)
            images = [{"name": image, "digest": self.push(image, name)} for image in build["images"]]
            build["results"] = {"images": images}

    def push(self, image: str, content: str) -> str:
        """Into the registry; the digest."""
        path, _, tag = image.removeprefix(f"{self.registry.host}/").rpartition(":")
        return self.registry.push(path, tag, hashlib.sha256(content.encode()).hexdigest())


def _filled(value: Any, substitutions: dict[str, str]) -> Any:
    """The build with its substitutions filled in, as Cloud Build shows it afterward."""
    if isinstance(value, str):
        for name, text in substitutions.items():
            value = value.replace("${%s}" % name, text)
        return value
    if isinstance(value, list):
        return [_filled(one, substitutions) for one in value]
    if isinstance(value, dict):
        return {key: _filled(one, substitutions) for key, one in value.items() if key != "source"} | (
            {"source": value["source"]} if "source" in value else {}
        )
    return value
