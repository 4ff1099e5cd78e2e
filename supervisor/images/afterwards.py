"""What has become of a build: of one that runs, and of one whose answer was lost.

Cloud Build is asked by id or by mark; where it cannot be asked, the registry is: an image under the mark is the proof
that the build was pushed. "Could not ask" is never "not built".
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from supervisor.images import reasons
from supervisor.images.google_service import Google, Json, ServiceError
from supervisor.images.image_registry import Registries
from supervisor.images.request import STAGED, BuildRequest, Outcome, Reason, Say, WayFailed
from supervisor.ports.provider import ImageHidden, ImageMissing, ProviderUnavailable

RUNNING = frozenset({"PENDING", "QUEUED", "WORKING", "STATUS_UNKNOWN"})
QUEUE_S = 900.0  # a build may wait so long before it begins
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LIMIT = Reason(
    "Cloud Build ended the build: its time was over.", "Give it more with --timeout.", reasons.LIMIT
)


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
        asked = True
        while time.monotonic() < end:
            try:
                found = self._google.get(build)
                if found.get("status") not in RUNNING:
                    return self._ended(found)
            except ServiceError as error:
                digest = self._pushed_or_unknown()
                if digest:
                    return Outcome(digest, build, recovered=True)
                if asked:
                    self._say(
                        f"Cloud Build cannot be asked ({error}): looking for the image in the registry."
                    )
                asked = False
            self._pause(self._request.poll_s)
        self.cancel(build)
        self._over.add(build)
        raise WayFailed(_LIMIT, build=build)

    def recover(self, build: str) -> Outcome | None:
        """The image of a way that failed after it may have begun `build` ("" = not told which). None = nothing was
        built. WayFailed with a better reason, where Cloud Build knows one."""
        try:
            found = self._google.get(build) if build else self._google.find(self._over)
        except ServiceError:
            found = None
        if found is None:
            return self.in_registry()
        name = str(found["id"])
        if found.get("status") in RUNNING:
            self._say(f"  build {name} still runs at Cloud Build: waiting for it instead of building again")
            outcome = self.wait(name)
        else:
            outcome = self._ended(found)
        return Outcome(outcome.digest, name, recovered=True)

    def in_registry(self) -> Outcome | None:
        """None = no image has the mark, or nobody can tell."""
        digest = self._pushed_or_unknown()
        return Outcome(digest, recovered=True) if digest else None

    def running(self) -> str:
        """The id of a build with this mark that still runs, "" = none does. Asked once, after Ctrl-C. Raises
        ServiceError where nobody tells, which is not the same."""
        found = self._google.find(self._over)
        return str(found["id"]) if found is not None and found.get("status") in RUNNING else ""

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

    def _ended(self, found: Json) -> Outcome:
        build, status = str(found.get("id", "")), str(found.get("status", ""))
        if status == "SUCCESS":
            return Outcome(_digest(found, self._request) or self._pushed_or_unknown(), build)
        digest = self._pushed_or_unknown()
        if digest:  # what came after the push has failed, such as writing the log
            return Outcome(digest, build, recovered=True)
        self._over.add(build)
        raise WayFailed(reason_of(found, self._request), build=build)

    def _authorization(self) -> str:
        header = self._google.authorization()
        if not header:
            raise ProviderUnavailable("there are no Google credentials for the registry")
        return header


def reason_of(found: Json, request: BuildRequest) -> Reason:
    """Why a build of Cloud Build has failed."""
    told = found.get("failureInfo", {})
    kind, detail = str(told.get("type", "")), str(told.get("detail", ""))
    status = str(found.get("status", ""))
    warned = " ".join(str(one.get("text", "")) for one in found.get("warnings", ()))
    words = " ".join(part for part in (detail, str(found.get("statusDetail", "")), warned) if part)
    log = f" The log: {found['logUrl']}" if found.get("logUrl") else ""
    if status in ("TIMEOUT", "EXPIRED"):
        return _LIMIT
    if status == "CANCELLED":
        return Reason(f"Build {found.get('id')} was cancelled.")
    if kind == "PUSH_NOT_AUTHORIZED":
        return reasons.lacks_push("", request)
    reason = reasons.diagnose(words or f"Cloud Build says only {status}.", request, STAGED)
    if kind == "FETCH_SOURCE_FAILED" and reason.kind != reasons.PERMISSION:
        return reasons.lacks_source("", request)
    if kind == "USER_BUILD_STEP" and reason.kind == reasons.OTHER:
        return Reason(f"The Dockerfile failed: {reason.text}", reasons.MEND_DOCKERFILE + log, reasons.SOURCE)
    return Reason(reason.text, (reason.fix + log).strip(), reason.kind)


def _digest(found: Json, request: BuildRequest) -> str:
    """What the build has pushed, "" where it does not say."""
    names = (request.marked, request.image)
    for image in found.get("results", {}).get("images", ()):
        if image.get("name") in names and DIGEST.fullmatch(str(image.get("digest", ""))):
            return str(image["digest"])
    return ""
