"""Cloud Storage and Cloud Build as plain JSON: the requests of a build, and its result.

Reads are retried when the service is busy or the connection breaks. So are uploads (with ifGenerationMatch 0), but
never the call that starts a build: its mark shows whether it has started. A build is read by its id or its mark. Where
Cloud Build cannot be read, the registry is: an image with the mark proves that the build has pushed it. A failed read
never means "not built".
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from supervisor.images import reasons
from supervisor.images.reasons import FIX_DOCKERFILE
from supervisor.images.registry import Registries
from supervisor.images.request import GLOBAL, STAGED, BuildRequest, Outcome, Reason, Say, WayFailed
from supervisor.ports.provider import ImageHidden, ImageMissing, ProviderUnavailable

CLOUD_BUILD, STORAGE = "https://cloudbuild.googleapis.com", "https://storage.googleapis.com"
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
CALL_S, UPLOAD_S = 30.0, 900.0
TRIES, BACKOFF_S = 4, 1.0
RUNNING = frozenset({"PENDING", "QUEUED", "WORKING", "STATUS_UNKNOWN"})
QUEUE_S = 900.0  # a build may wait this long before it starts
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_BUSY = frozenset({408, 429, 500, 502, 503, 504})
# With one of these variables credentials are used even though the store is a stand-in for Google's.
_CONFIGURED = ("GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST")
_TIME_IS_OVER = Reason("Cloud Build ended the build: its time was over.", "Use a longer --timeout.", reasons.LIMIT)
Json = dict[str, Any]


class ServiceError(Exception):
    """`status` None: there was no clear response. The text contains the service's own words."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


class CloudBuild:
    """Opens its session at the first call; every method raises ServiceError."""

    def __init__(self, request: BuildRequest, pause: Callable[[float], None] = time.sleep) -> None:
        self._request, self._pause = request, pause
        self._opened: Any = None
        place = f"projects/{request.project}/locations/{request.region or GLOBAL}"
        self._builds = f"{request.endpoint or CLOUD_BUILD}/v1/{place}/builds"
        self._storage = os.environ.get("STORAGE_EMULATOR_HOST") or STORAGE

    def upload(self, archive: Path) -> str:
        """The staged object's generation."""
        bucket, name = self._request.bucket, self._request.source
        url = f"{self._storage.rstrip('/')}/upload/storage/v1/b/{bucket}/o"
        query = {"uploadType": "media", "name": name, "ifGenerationMatch": "0"}
        with archive.open("rb") as body:

            def send() -> Any:
                body.seek(0)
                return self._session().post(
                    url, params=query, data=body, headers={"Content-Type": "application/gzip"}, timeout=UPLOAD_S
                )

            try:
                return str(self._retried(send).get("generation", ""))
            except ServiceError as error:
                if error.status == 412:  # an earlier try of ours succeeded: no other build has this name
                    return ""
                raise

    def remove_source(self) -> None:
        """Delete the staged archive. An archive that cannot be deleted stays."""
        name = quote(self._request.source, safe="")
        url = f"{self._storage.rstrip('/')}/storage/v1/b/{self._request.bucket}/o/{name}"
        with suppress(ServiceError):
            _with_service_errors(lambda: self._session().delete(url, timeout=CALL_S))

    def create(self, build: Mapping[str, Any]) -> str:
        """Cloud Build's id of the new build. Sent once."""
        operation = self._sent(lambda: self._session().post(self._builds, json=build, timeout=CALL_S))
        build_id = operation.get("metadata", {}).get("build", {}).get("id", "")
        if not build_id:
            raise ServiceError("the response of Cloud Build does not contain the id of the new build")
        return str(build_id)

    def get(self, build: str) -> Json:
        return self._retried(lambda: self._session().get(f"{self._builds}/{build}", timeout=CALL_S))

    def find(self, but: Collection[str] = ()) -> Json | None:
        """The newest build with this request's mark that is not in `but`; None = there is none."""
        mark = self._request.mark
        query = {"filter": f'tags="{mark}"', "pageSize": "20"}
        page = self._retried(lambda: self._session().get(self._builds, params=query, timeout=CALL_S))
        builds = [build for build in page.get("builds", []) if mark in build.get("tags", []) and build["id"] not in but]
        return max(builds, key=lambda build: str(build.get("createTime", "")), default=None)

    def cancel(self, build: str) -> None:
        self._retried(lambda: self._session().post(f"{self._builds}/{build}:cancel", json={}, timeout=CALL_S))

    def authorization(self) -> str:
        """The Authorization header for Google's registries; "" without credentials."""
        try:
            session, headers = self._session(), dict[str, str]()
            _with_service_errors(lambda: session.credentials.before_request(session._auth_request, "GET", "", headers))
        except ServiceError:
            return ""
        return headers.get("authorization", "")

    # --- inside -------------------------------------------------------------------------------------------------------

    def _retried(self, send: Callable[[], Any]) -> Json:
        for number in range(TRIES):
            try:
                return self._sent(send)
            except ServiceError as error:
                if number == TRIES - 1 or (error.status is not None and error.status not in _BUSY):
                    raise
            self._pause(BACKOFF_S * 2**number)
        raise AssertionError("the last try returns or raises")

    def _sent(self, send: Callable[[], Any]) -> Json:
        response = _with_service_errors(send)
        if response.status_code != 200:
            raise ServiceError(_words(response.content), response.status_code)
        body: Json = _with_service_errors(response.json)
        return body

    def _session(self) -> Any:
        if self._opened is None:
            self._opened = _open_session()
        return self._opened


def _with_service_errors(call: Callable[[], Any]) -> Any:
    from google.auth.exceptions import GoogleAuthError
    from requests.exceptions import RequestException

    try:
        return call()
    except GoogleAuthError as error:
        raise ServiceError(f"invalid authentication credentials: {error}", 401) from error
    except (RequestException, ValueError) as error:
        raise ServiceError(f"no clear response: {str(error) or type(error).__name__}") from error


def _open_session() -> Any:
    try:
        import google.auth
        from google.auth.credentials import AnonymousCredentials
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import AuthorizedSession
    except ImportError:
        raise ServiceError("Google's libraries are not installed: pip install 'spot-supervisor[google]'") from None
    try:
        if os.environ.get("STORAGE_EMULATOR_HOST") and not any(os.environ.get(name) for name in _CONFIGURED):
            credentials: Any = AnonymousCredentials()
        else:
            credentials = google.auth.default(scopes=SCOPES)[0]
    except (GoogleAuthError, OSError, ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise ServiceError(f"Application Default Credentials were not found: {error}", 401) from None
    return AuthorizedSession(credentials)


def _words(content: bytes) -> str:
    """Google's own words of an error, with its reason."""
    try:
        refusal = json.loads(content)["error"]
        return f"{refusal.get('status', '')} {refusal.get('message', '')} {_reasons(refusal)}".strip()
    except (ValueError, KeyError, TypeError, AttributeError):
        return content[:500].decode(errors="replace")


def _reasons(refusal: Mapping[str, Any]) -> str:
    details = [detail for detail in refusal.get("details", ()) if isinstance(detail, Mapping)]
    names = [str(detail["reason"]) for detail in details if "reason" in detail]
    services = [str(detail["metadata"]["service"]) for detail in details if "service" in detail.get("metadata", {})]
    return " ".join([*names, *services])


class BuildResult:
    """What became of a build, by Cloud Build and by the registry. `say`: messages for the user during the wait."""

    def __init__(
        self, request: BuildRequest, cloud_build: CloudBuild, say: Say, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._request, self._cloud_build, self._say, self._pause = request, cloud_build, say, pause
        self._registries = Registries(self._authorization)
        self._failed: set[str] = set()  # builds

    def pushed(self) -> str:
        """The digest of the image with the mark, "" = there is none. ProviderUnavailable: the registry cannot be
        read."""
        try:
            return self._registries.pin(self._request.marked).partition("@")[2]
        except ImageMissing:
            return ""
        except ImageHidden as error:
            raise ProviderUnavailable(str(error)) from error

    def digest_of(self, build: str) -> str:
        """Of a successful build; "" = unknown."""
        try:
            return self.pushed() or _digest(self._cloud_build.get(build) if build else {}, self._request)
        except (ProviderUnavailable, ServiceError):
            return ""

    def wait(self, build: str) -> Outcome:
        """Waits for the end of the build. WayFailed with Cloud Build's reason for a failure."""
        end = time.monotonic() + self._request.build_s + QUEUE_S
        first = True
        while time.monotonic() < end:
            try:
                state = self._cloud_build.get(build)
                if state.get("status") not in RUNNING:
                    return self._ended(state)
            except ServiceError as error:
                digest = self._pushed_or_unknown()
                if digest:
                    return Outcome(digest, build, recovered=True)
                if first:
                    self._say(f"Cloud Build cannot be read ({error}): looking for the image in the registry.")
                first = False
            self._pause(self._request.poll_s)
        self.cancel(build)
        self._failed.add(build)
        raise WayFailed(_TIME_IS_OVER, build=build)

    def recover(self, build: str) -> Outcome | None:
        """The image of a way that failed after it may have started `build` ("" = unknown). None = nothing was built.
        WayFailed with a better reason, if Cloud Build has one."""
        try:
            state = self._cloud_build.get(build) if build else self._cloud_build.find(self._failed)
        except ServiceError:
            state = None
        if state is None:
            return self.in_registry()
        name = str(state["id"])
        if state.get("status") in RUNNING:
            self._say(f"  build {name} still runs at Cloud Build: waiting for it instead of building again")
        outcome = self.wait(name) if state.get("status") in RUNNING else self._ended(state)
        return Outcome(outcome.digest, name, recovered=True)

    def in_registry(self) -> Outcome | None:
        """None = no image has the mark, or the registry cannot be read."""
        digest = self._pushed_or_unknown()
        return Outcome(digest, recovered=True) if digest else None

    def running(self) -> str:
        """The id of a build with this mark that still runs, "" = none. For use after Ctrl-C. ServiceError: unknown,
        which is not the same as none."""
        state = self._cloud_build.find(self._failed)
        return str(state["id"]) if state is not None and state.get("status") in RUNNING else ""

    def cancel(self, build: str) -> None:
        try:
            self._cloud_build.cancel(build)
        except ServiceError as error:
            self._say(f"Build {build} could not be canceled: {error}")

    def _pushed_or_unknown(self) -> str:
        try:
            return self.pushed()
        except ProviderUnavailable:
            return ""

    def _ended(self, state: Json) -> Outcome:
        build, status = str(state.get("id", "")), str(state.get("status", ""))
        if status == "SUCCESS":
            return Outcome(_digest(state, self._request) or self._pushed_or_unknown(), build)
        digest = self._pushed_or_unknown()
        if digest:  # a step after the push has failed, such as writing the log
            return Outcome(digest, build, recovered=True)
        self._failed.add(build)
        raise WayFailed(reason_of(state, self._request), build=build)

    def _authorization(self) -> str:
        header = self._cloud_build.authorization()
        if not header:
            raise ProviderUnavailable("there are no Google credentials for the registry")
        return header


def reason_of(state: Json, request: BuildRequest) -> Reason:
    """Why a build of Cloud Build has failed."""
    failure = state.get("failureInfo", {})
    kind, detail = str(failure.get("type", "")), str(failure.get("detail", ""))
    status = str(state.get("status", ""))
    warnings = " ".join(str(warning.get("text", "")) for warning in state.get("warnings", ()))
    words = " ".join(part for part in (detail, str(state.get("statusDetail", "")), warnings) if part)
    log = f" The log: {state['logUrl']}" if state.get("logUrl") else ""
    if status in ("TIMEOUT", "EXPIRED"):
        return _TIME_IS_OVER
    if status == "CANCELLED":
        return Reason(f"Build {state.get('id')} was canceled.")
    if kind == "PUSH_NOT_AUTHORIZED":
        return reasons.lacks_push(request)
    reason = reasons.diagnose(words or f"Cloud Build says only {status}.", request, STAGED)
    if kind == "FETCH_SOURCE_FAILED" and reason.kind != reasons.PERMISSION:
        return reasons.lacks_source("", request)
    if kind == "USER_BUILD_STEP" and reason.kind == reasons.OTHER:
        return Reason(f"The Dockerfile failed: {reason.text}", FIX_DOCKERFILE + log, reasons.SOURCE)
    return Reason(reason.text, (reason.fix + log).strip(), reason.kind)


def _digest(state: Json, request: BuildRequest) -> str:
    """The pushed digest by the build itself; "" = it does not say."""
    names = (request.marked, request.image)
    for image in state.get("results", {}).get("images", ()):
        if image.get("name") in names and DIGEST.fullmatch(str(image.get("digest", ""))):
            return str(image["digest"])
    return ""
