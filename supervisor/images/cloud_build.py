"""Cloud Storage and Cloud Build as plain JSON: what a build needs of them, and what has become of it.

Questions are repeated when the service is busy or the line breaks; so are uploads (they say if-generation-match 0) but
never the call that starts a build: whether it has begun is found out by its mark. Cloud Build is asked by id or by
mark; where it cannot be asked, the registry is: an image under the mark is the proof that the build was pushed. "Could
not ask" is never "not built".
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
from supervisor.images.registry import Registries
from supervisor.images.request import GLOBAL, STAGED, BuildRequest, Outcome, Reason, Say, WayFailed
from supervisor.ports.provider import ImageHidden, ImageMissing, ProviderUnavailable

CLOUD_BUILD, STORAGE = "https://cloudbuild.googleapis.com", "https://storage.googleapis.com"
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
CALL_S, UPLOAD_S = 30.0, 900.0
TRIES, PAUSE_S = 4, 1.0
_BUSY = frozenset({408, 429, 500, 502, 503, 504})
# Where credentials may come from even though the store is a stand-in for Google's.
_CONFIGURED = ("GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST")
Json = dict[str, Any]


class ServiceError(Exception):
    """`status` None: no clear answer came. The text holds the service's own words."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


class Google:
    """Makes its session at the first call; every method raises ServiceError."""

    def __init__(self, request: BuildRequest, pause: Callable[[float], None] = time.sleep) -> None:
        self._request, self._pause = request, pause
        self._made: Any = None
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
                return str(self._repeated(send).get("generation", ""))
            except ServiceError as error:
                if error.status == 412:  # an earlier try of ours got through: the name is nobody else's
                    return ""
                raise

    def remove_source(self) -> None:
        """The staged archive has served; one that cannot be deleted stays."""
        name = quote(self._request.source, safe="")
        url = f"{self._storage.rstrip('/')}/storage/v1/b/{self._request.bucket}/o/{name}"
        with suppress(ServiceError):
            self._spoken(lambda: self._session().delete(url, timeout=CALL_S))

    def create(self, build: Mapping[str, Any]) -> str:
        """Cloud Build's id of the new build. Asked once."""
        answer = self._answered(lambda: self._session().post(self._builds, json=build, timeout=CALL_S))
        build_id = answer.get("metadata", {}).get("build", {}).get("id", "")
        if not build_id:
            raise ServiceError("Cloud Build did not say which build it has started")
        return str(build_id)

    def get(self, build: str) -> Json:
        return self._repeated(lambda: self._session().get(f"{self._builds}/{build}", timeout=CALL_S))

    def find(self, but: Collection[str] = ()) -> Json | None:
        """The newest build with this request's mark that is not in `but`; None = there is none."""
        mark = self._request.mark
        query = {"filter": f'tags="{mark}"', "pageSize": "20"}
        answer = self._repeated(lambda: self._session().get(self._builds, params=query, timeout=CALL_S))
        builds = [
            build for build in answer.get("builds", []) if mark in build.get("tags", []) and build["id"] not in but
        ]
        return max(builds, key=lambda build: str(build.get("createTime", "")), default=None)

    def cancel(self, build: str) -> None:
        self._repeated(lambda: self._session().post(f"{self._builds}/{build}:cancel", json={}, timeout=CALL_S))

    def authorization(self) -> str:
        """What Google's registries take; "" without credentials."""
        try:
            session, headers = self._session(), dict[str, str]()
            self._spoken(lambda: session.credentials.before_request(session._auth_request, "GET", "", headers))
        except ServiceError:
            return ""
        return headers.get("authorization", "")

    # --- inside -------------------------------------------------------------------------------------------------------

    def _repeated(self, ask: Callable[[], Any]) -> Json:
        for number in range(TRIES):
            try:
                return self._answered(ask)
            except ServiceError as error:
                if number == TRIES - 1 or (error.status is not None and error.status not in _BUSY):
                    raise
            self._pause(PAUSE_S * 2**number)
        raise AssertionError("the last try returns or raises")

    def _answered(self, ask: Callable[[], Any]) -> Json:
        answer = self._spoken(ask)
        if answer.status_code != 200:
            raise ServiceError(_words(answer.content), answer.status_code)
        answer_json: Json = self._spoken(answer.json)
        return answer_json

    def _spoken(self, ask: Callable[[], Any]) -> Any:
        from google.auth.exceptions import GoogleAuthError
        from requests.exceptions import RequestException

        try:
            return ask()
        except GoogleAuthError as error:
            raise ServiceError(f"invalid authentication credentials: {error}", 401) from error
        except (RequestException, ValueError) as error:
            raise ServiceError(f"no clear answer: {str(error) or type(error).__name__}") from error

    def _session(self) -> Any:
        if self._made is None:
            self._made = _open_session()
        return self._made


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
    """Google's own words of a refusal, its reason included."""
    try:
        refusal = json.loads(content)["error"]
        return f"{refusal.get('status', '')} {refusal.get('message', '')} {_reasons(refusal)}".strip()
    except (ValueError, KeyError, TypeError, AttributeError):
        return content[:500].decode(errors="replace")


def _reasons(refusal: Mapping[str, Any]) -> str:
    details = [detail for detail in refusal.get("details", ()) if isinstance(detail, Mapping)]
    named = [str(detail["reason"]) for detail in details if "reason" in detail]
    services = [str(detail["metadata"]["service"]) for detail in details if "service" in detail.get("metadata", {})]
    return " ".join([*named, *services])


RUNNING = frozenset({"PENDING", "QUEUED", "WORKING", "STATUS_UNKNOWN"})
QUEUE_S = 900.0  # a build may wait so long before it begins
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LIMIT = Reason("Cloud Build ended the build: its time was over.", "Give it more with --timeout.", reasons.LIMIT)


class Afterwards:
    """`say`: what a person should know while it is waited."""

    def __init__(
        self, request: BuildRequest, google: Google, say: Say, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._request, self._google, self._say, self._pause = request, google, say, pause
        self._registries = Registries(self._authorization)
        self._over: set[str] = set()  # builds that are known to have failed

    def pushed(self) -> str:
        """The digest under the mark, "" = there is none. ProviderUnavailable where the registry cannot be read."""
        try:
            return self._registries.pin(self._request.marked).partition("@")[2]
        except ImageMissing:
            return ""
        except ImageHidden as error:
            raise ProviderUnavailable(str(error)) from error

    def digest_of(self, build: str) -> str:
        """Of a build that has succeeded, "" where nobody tells."""
        try:
            return self.pushed() or _digest(self._google.get(build) if build else {}, self._request)
        except (ProviderUnavailable, ServiceError):
            return ""

    def wait(self, build: str) -> Outcome:
        """Until the build is over. WayFailed with what Cloud Build says of a failure."""
        end = time.monotonic() + self._request.build_s + QUEUE_S
        first = True
        while time.monotonic() < end:
            try:
                state = self._google.get(build)
                if state.get("status") not in RUNNING:
                    return self._ended(state)
            except ServiceError as error:
                digest = self._pushed_or_unknown()
                if digest:
                    return Outcome(digest, build, recovered=True)
                if first:
                    self._say(f"Cloud Build cannot be asked ({error}): looking for the image in the registry.")
                first = False
            self._pause(self._request.poll_s)
        self.cancel(build)
        self._over.add(build)
        raise WayFailed(_LIMIT, build=build)

    def recover(self, build: str) -> Outcome | None:
        """The image of a way that failed after it may have begun `build` ("" = not told which). None = nothing was
        built. WayFailed with a better reason, where Cloud Build knows one."""
        try:
            state = self._google.get(build) if build else self._google.find(self._over)
        except ServiceError:
            state = None
        if state is None:
            return self.in_registry()
        name = str(state["id"])
        if state.get("status") in RUNNING:
            self._say(f"  build {name} still runs at Cloud Build: waiting for it instead of building again")
            outcome = self.wait(name)
        else:
            outcome = self._ended(state)
        return Outcome(outcome.digest, name, recovered=True)

    def in_registry(self) -> Outcome | None:
        """None = no image has the mark, or nobody can tell."""
        digest = self._pushed_or_unknown()
        return Outcome(digest, recovered=True) if digest else None

    def running(self) -> str:
        """The id of a build with this mark that still runs, "" = none does. Asked once, after Ctrl-C. Raises
        ServiceError where nobody tells, which is not the same."""
        state = self._google.find(self._over)
        return str(state["id"]) if state is not None and state.get("status") in RUNNING else ""

    def cancel(self, build: str) -> None:
        try:
            self._google.cancel(build)
        except ServiceError as error:
            self._say(f"Build {build} could not be cancelled: {error}")

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
        if digest:  # what came after the push has failed, such as writing the log
            return Outcome(digest, build, recovered=True)
        self._over.add(build)
        raise WayFailed(reason_of(state, self._request), build=build)

    def _authorization(self) -> str:
        header = self._google.authorization()
        if not header:
            raise ProviderUnavailable("there are no Google credentials for the registry")
        return header


def reason_of(state: Json, request: BuildRequest) -> Reason:
    """Why a build of Cloud Build has failed."""
    failure = state.get("failureInfo", {})
    kind, detail = str(failure.get("type", "")), str(failure.get("detail", ""))
    status = str(state.get("status", ""))
    warned = " ".join(str(warning.get("text", "")) for warning in state.get("warnings", ()))
    words = " ".join(part for part in (detail, str(state.get("statusDetail", "")), warned) if part)
    log = f" The log: {state['logUrl']}" if state.get("logUrl") else ""
    if status in ("TIMEOUT", "EXPIRED"):
        return _LIMIT
    if status == "CANCELLED":
        return Reason(f"Build {state.get('id')} was cancelled.")
    if kind == "PUSH_NOT_AUTHORIZED":
        return reasons.lacks_push("", request)
    reason = reasons.diagnose(words or f"Cloud Build says only {status}.", request, STAGED)
    if kind == "FETCH_SOURCE_FAILED" and reason.kind != reasons.PERMISSION:
        return reasons.lacks_source("", request)
    if kind == "USER_BUILD_STEP" and reason.kind == reasons.OTHER:
        return Reason(f"The Dockerfile failed: {reason.text}", reasons.MEND_DOCKERFILE + log, reasons.SOURCE)
    return Reason(reason.text, (reason.fix + log).strip(), reason.kind)


def _digest(state: Json, request: BuildRequest) -> str:
    """What the build has pushed, "" where it does not say."""
    names = (request.marked, request.image)
    for image in state.get("results", {}).get("images", ()):
        if image.get("name") in names and DIGEST.fullmatch(str(image.get("digest", ""))):
            return str(image["digest"])
    return ""
