"""The doctor's checks of Google Cloud: credentials, permissions, the resources of the settings, quotas.

No check changes anything. The account and the project are read once, and all checks wait for them: a check that would
fail for the same reason is skipped. All others run side by side, each one a Check of its own.
"""

from __future__ import annotations

import copy
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from supervisor.domain.findings import FAIL, OK, WARN, Check, Finding
from supervisor.ports.provider import ImageHidden, ImageMissing, ProviderUnavailable
from supervisor.providers.gce.advice.capacity import question
from supervisor.providers.gce.calls.account import mismatch, number_of
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import IDENTITY, REFUSED, ApiError, access_fix
from supervisor.providers.gce.config import GceConfig, offers
from supervisor.providers.gce.doctor import places
from supervisor.providers.gce.doctor.access import COMPUTE_ADMIN, member, project_access, worker_account
from supervisor.providers.gce.doctor.bucket import Bucket, access_line, bucket_line
from supervisor.providers.gce.traits import TRAITS, google_finding

PUBLIC_TIMEOUT_S = 3.0
LOGIN = "gcloud auth application-default login"
T = TypeVar("T")
Ask = Callable[[], Finding | None]  # None: another line says why there is nothing to check


class _Identity(NamedTuple):
    finding: Finding
    account: str  # "" = unknown


class _Project(NamedTuple):
    finding: Finding
    facts: Mapping[str, Any]
    refusal: int | None = None  # the HTTP status of a refused read


class Doctor:
    """`compute`: with a short deadline, because a user waits. `prices`: the line on prices. `image`: of runs without
    an image, "" = such runs are refused; `pin`: as in ports/provider.py."""

    def __init__(
        self,
        config: GceConfig,
        compute: Compute,
        objects: Bucket,
        *,
        prices: Callable[[], Finding],
        image: str = "",
        pin: Callable[[str], str] = str,
    ) -> None:
        self._config, self._compute, self._objects = config, compute, objects
        self._image, self._pin, self._prices = image, pin, prices

    def checks(self) -> list[Check]:
        """All checks in their order, with new reads at each call."""
        visit = copy.copy(self)
        visit._identity = Once(visit._read_identity)
        visit._project = Once(visit._read_project)
        visit._bucket = Once(lambda: bucket_line(self._config, self._objects, visit._identity().account))
        return visit._checks()

    _identity: Callable[[], _Identity]
    _project: Callable[[], _Project]
    _bucket: Callable[[], Finding]

    def _checks(self) -> list[Check]:
        always = lambda: True  # noqa: E731
        checks = [
            Check("identity", lambda: [self._identity().finding], TRAITS.group, FAIL, LOGIN),
            self._check("project", lambda: self._project().finding, self._has_identity, FAIL),
            self._check("gcloud", self._gcloud, always),
            self._check("project access", self._project_access, self._has_project),
            *(self._check(name, ask, self._can_read) for name, ask in self._compute_checks()),
            self._check("bucket", self._bucket, self._has_project, FAIL),
            self._check("bucket access", self._bucket_access, self._has_project),
        ]
        if self._image:
            checks.append(self._check("image", self._default_image, self._has_identity))
        return [*checks, self._check("public_url", self._public, always)]

    def _compute_checks(self) -> list[tuple[str, Ask]]:
        config, read, disk = self._config, self._compute.read, self._config.data_disk
        checks: list[tuple[str, Ask]] = [
            ("machines", self._machines),
            ("zones", lambda: places.zones(config, read)),
            ("shapes", lambda: places.shapes(config, read)),
            ("quotas", lambda: places.quotas(config, read, self._project().facts)),
            ("boot image", lambda: places.boot_image(config, read)),
            ("boot disk", lambda: places.boot_disk(config)),
            ("account", self._account),
            ("prices", self._prices),
        ]
        if config.subnet or not config.external_ip:
            checks += [("network", lambda: places.network(config, read))]
        if disk is not None:
            checks += [("data disk", lambda: places.data_disk(config, disk, read))]
        return [*checks, ("advice", self._advice)]

    def _check(self, name: str, ask: Ask, when: Callable[[], bool], unanswered: str = WARN) -> Check:
        def lines() -> list[Finding]:
            try:
                finding = ask() if when() else None
            except ApiError as error:
                finding = google_finding(name, WARN, "not read", str(error), "see the lines above; then repeat")
            return [] if finding is None else [finding]

        return Check(name, lines, TRAITS.group, unanswered, self._reach_google())

    def _reach_google(self) -> str:
        return f"curl -sI {self._config.root}; see whether this computer reaches Google"

    # --- account and project ------------------------------------------------------------------------------------------

    def _has_identity(self) -> bool:
        return self._identity().finding.result != FAIL

    def _has_project(self) -> bool:
        """Google accepts our credentials, and the project exists."""
        return self._has_identity() and self._project().refusal not in (401, 404)

    def _can_read(self) -> bool:
        return self._has_identity() and self._project().finding.result != FAIL

    def _read_identity(self) -> _Identity:
        try:
            account = self._compute.identity()
        except ApiError as error:
            if error.reason == IDENTITY:
                fix = f"{LOGIN}; on a machine of Google Cloud give it a service account instead"
                fact = "there are no Application Default Credentials"
                return _Identity(google_finding("identity", FAIL, fact, str(error), fix), "")
            if error.reason == REFUSED:
                fact = "Google does not accept the credentials any more"
                return _Identity(google_finding("identity", FAIL, fact, str(error), LOGIN), "")
            return _Identity(google_finding("identity", OK, "there are credentials; their account is unknown"), "")
        fact = f"acts as {account}" if account else "there are credentials; they do not name their account"
        return _Identity(google_finding("identity", OK, fact), account)

    def _read_project(self) -> _Project:
        """With name **and** number: half of Google's messages use the name, the other half the number."""
        project = self._config.project
        try:
            facts = self._compute.read("", fields="name,defaultServiceAccount,quotas")
        except ApiError as error:
            fact = f"project {project} cannot be read"
            finding = google_finding("project", FAIL, fact, str(error), self._project_fix(error))
            return _Project(finding, {}, error.status)
        number = number_of(facts)
        fact = f"{facts.get('name', project)}" + (f" (number {number})" if number else "")
        return _Project(google_finding("project", OK, f"{fact}, and its Compute Engine API responds"), facts)

    def _project_fix(self, error: ApiError) -> str:
        fixes = {
            403: self._grant_compute_admin(),
            404: "gcloud projects list; then set gce_project to an id (not a name or number) of that list",
            401: LOGIN,
        }
        fix = access_fix(error, "compute.googleapis.com", self._config.project)
        return fix or fixes.get(error.status or 0, self._reach_google())

    def _grant_compute_admin(self) -> str:
        account = member(self._identity().account)
        return (
            f"gcloud projects add-iam-policy-binding {self._config.project} --member={account} --role={COMPUTE_ADMIN}"
        )

    def _gcloud(self) -> Finding:
        return mismatch(self._config.project, number_of(self._project().facts) if self._has_identity() else "")

    def _project_access(self) -> Finding:
        return project_access(self._config, self._compute.other_api, self._identity().account)

    def _account(self) -> Finding:
        return worker_account(self._config, self._compute.other_api, self._project().facts, self._identity().account)

    def _bucket_access(self) -> Finding | None:
        # There are no permissions on a bucket that does not exist.
        return None if self._bucket().result == FAIL else access_line(self._objects, self._identity().account)

    # --- what works ---------------------------------------------------------------------------------------------------

    def _machines(self) -> Finding:
        """The two listings of each tick."""
        zone = self._config.zones[0]
        try:
            listing = self._compute.read("aggregated/instances", maxResults=1, fields="unreachables")
            self._compute.read(f"zones/{zone}/operations", maxResults=1, fields="kind")
        except ApiError as error:
            fix = self._grant_compute_admin() if error.status == 403 else "see the lines beside this one; then repeat"
            return google_finding("machines", FAIL, "machines and operations cannot be listed", str(error), fix)
        unreachable = ", ".join(str(scope).rpartition("/")[2] for scope in listing.get("unreachables") or ())
        if unreachable:
            cause = "Google does not reach them now; machines there are unknown, and none of them is ended"
            return google_finding("machines", WARN, f"listed without {unreachable}", cause)
        return google_finding("machines", OK, "machines and operations can be listed")

    def _default_image(self) -> Finding:
        image = self._image
        try:
            exact = self._pin(image)
        except ImageMissing as error:
            fix = "spot build-image; or set default_image to an existing image"
            return google_finding("image", FAIL, f"default_image {image}: not there", str(error), fix)
        except ImageHidden as error:
            fix = (
                "give the accounts of the supervisor and of the machines roles/artifactregistry.reader on the "
                "repository; of a registry outside Google Cloud only public images can be used"
            )
            cause = f"{error}; runs with it cannot be pinned, and each attempt uses the current content of its tag"
            return google_finding("image", WARN, f"default_image {image}: not visible", cause, fix)
        except ProviderUnavailable as error:
            fix = "wait, or see whether this computer reaches the registry; runs with this image wait until then"
            return google_finding("image", WARN, f"default_image {image}: not checked", str(error), fix)
        return google_finding("image", OK, f"default_image {image} is {exact.rpartition('@')[2][:19]} now")

    def _public(self) -> Finding:
        name, url = "public_url", self._config.public_url.rstrip("/")
        if not url:
            return google_finding(name, OK, "none: beats of machines come through the bucket only")
        request = urllib.request.Request(f"{url}/v1/runs/0/heartbeat", b"{}", method="POST")  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=PUBLIC_TIMEOUT_S) as response:  # noqa: S310 - https or loopback
                status, kind = response.status, response.headers.get_content_type()
        except urllib.error.HTTPError as error:
            status, kind = error.code, error.headers.get_content_type()
        except (OSError, ValueError) as error:
            fix = "start the proxy in front of the supervisor, or unset public_url"
            return google_finding(
                name, WARN, f"{url} does not respond from here", f"{error}; machines then use the bucket", fix
            )
        # Our own refusal of an empty beat; a proxy's page has another content type.
        if kind == "application/problem+json" and status == 422:
            return google_finding(name, OK, f"beats can be pushed to {url}")
        cause = f"the response is {status} {kind}, which is not this supervisor's refusal of an empty beat"
        fix = "let the proxy pass POST /v1/runs/*/heartbeat on, with the Host header unchanged"
        return google_finding(name, WARN, f"{url} is not this supervisor", cause, fix)

    def _advice(self) -> Finding:
        config = self._config
        if not config.capacity_advice:
            fact = "capacity advice is switched off: zones are tried in the order of the settings"
            return google_finding("advice", OK, fact)
        first = next(offer for offer in offers(config) if offer.placement.spot)
        try:
            self._compute.post(f"regions/{first.placement.region}/advice/capacity", question(config, first))
        except ApiError as error:
            cause = f"{error}; zones are tried in the order of the settings"
            fix = "set gce_capacity_advice = false"
            return google_finding("advice", WARN, "capacity advice does not respond", cause, fix)
        return google_finding("advice", OK, "capacity advice responds")


class Once(Generic[T]):
    """The first caller makes the value, and the others wait for it."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._value: list[T] = []

    def __call__(self) -> T:
        with self._lock:
            if not self._value:
                self._value.append(self._make())
            return self._value[0]
