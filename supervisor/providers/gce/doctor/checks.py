"""The doctor's questions to Google: who are we, may we, is what the settings name there, and is there quota for it.

All change nothing. The account and the project are asked for once, and everybody waits for them: where they fail, what
would fail for the same reason is not asked. Everything else is asked side by side, each question a Check of its own.
"""

from __future__ import annotations

import copy
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from supervisor.domain.findings import FAIL, OK, WARN, Check, Finding
from supervisor.ports.provider import ImageHidden, ImageMissing, ProviderUnavailable
from supervisor.providers.gce.advice.advice import question
from supervisor.providers.gce.calls import account as gcloud_config
from supervisor.providers.gce.calls.account import number_of
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import IDENTITY, REFUSED, ApiError, open_door
from supervisor.providers.gce.config import GceConfig, offers
from supervisor.providers.gce.doctor import places
from supervisor.providers.gce.doctor.access import member, project_access, told, worker_account
from supervisor.providers.gce.doctor.bucket import Bucket, access_line, bucket_line

PUBLIC_TIMEOUT_S = 3.0
LOGIN = "gcloud auth application-default login"
T = TypeVar("T")
Lines = Sequence[Finding]


class Doctor:
    """`compute`: with a short deadline of its own, a person waits. `prices`: the line about prices. `image`: of runs
    that name none, "" = they are refused; `pin`: as in ports/provider.py."""

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
        self._image, self._pin = image, pin
        self._prices = prices
        self._begin()

    def checks(self) -> list[Check]:
        """Every question in its order; asked anew each time."""
        visit = copy.copy(self)
        visit._begin()
        return visit._all()

    def _all(self) -> list[Check]:
        found = [
            Check("identity", lambda: [self._identity()[0]], "google", FAIL, LOGIN),
            self._check("project", lambda: [self._project()[0]], self._known, FAIL),
            self._check("gcloud", self._gcloud, lambda: True),
            self._check("project access", self._project_access, self._may_ask),
            *self._compute_checks(),
            self._check("bucket", lambda: [self._bucket()], self._may_ask, FAIL),
            self._check("bucket access", self._bucket_access, self._may_ask),
        ]
        if self._image:
            found.append(self._check("image", lambda: [self._default_image()], self._known))
        return [*found, self._check("public_url", lambda: [self._public()], lambda: True)]

    def _compute_checks(self) -> list[Check]:
        config, read = self._config, self._compute.read
        asked: list[tuple[str, Callable[[], Lines]]] = [
            ("machines", lambda: [self._machines()]),
            ("zones", lambda: [places.zones(config, read)]),
            ("shapes", lambda: [places.shapes(config, read)]),
            ("quotas", lambda: [places.quotas(config, read, self._project()[1])]),
            ("boot image", lambda: [places.boot_image(config, read)]),
            ("boot disk", lambda: [places.boot_disk(config)]),
            ("account", self._account),
            ("prices", lambda: [self._prices()]),
        ]
        if config.subnet or not config.external_ip:
            asked.append(("network", lambda: places.network(config, read)))
        if config.data_disk is not None:
            asked.append(("data disk", lambda: places.data_disk(config, read)))
        asked.append(("advice", lambda: [self._advice()]))
        return [self._check(name, ask, self._reads) for name, ask in asked]

    # --- who and where ------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._identity = Once(self._look_at_identity)
        self._project = Once(self._look_at_project)
        self._bucket = Once(lambda: bucket_line(self._config, self._objects, self._identity()[1]))

    def _known(self) -> bool:
        return self._identity()[0].result != FAIL

    def _may_ask(self) -> bool:
        """Google takes our credentials, and there is such a project."""
        return self._known() and self._project()[2] not in (401, 404)

    def _reads(self) -> bool:
        return self._known() and self._project()[0].result != FAIL

    def _check(self, name: str, ask: Callable[[], Lines], when: Callable[[], bool], unanswered: str = WARN) -> Check:
        hint = f"curl -sI {self._config.root}; see whether this computer reaches Google"
        return Check(name, lambda: ask() if when() else (), "google", unanswered, hint)

    def _look_at_identity(self) -> tuple[Finding, str]:
        try:
            account = self._compute.identity()
        except ApiError as error:
            if error.reason == IDENTITY:
                fact, more = "there are no Application Default Credentials", _ON_A_MACHINE
            elif error.reason == REFUSED:
                fact, more = "Google does not take the credentials any more", ""
            else:
                return told("identity", OK, "credentials are there; whose they are was not told"), ""
            return told("identity", FAIL, fact, str(error), LOGIN + more), ""
        fact = f"acts as {account}" if account else "credentials are there; they do not name their account"
        return told("identity", OK, fact), account

    def _look_at_project(self) -> tuple[Finding, Mapping[str, Any], int | None]:
        """Name **and** number: half of Google's messages use the one, half the other. The last: the HTTP status of a
        refusal."""
        project, account = self._config.project, self._identity()[1]
        try:
            facts = self._compute.read("", fields="name,defaultServiceAccount,quotas")
        except ApiError as error:
            fact = f"project {project} cannot be read"
            return (told("project", FAIL, fact, str(error), self._project_fix(error, account)), {}, error.status)
        number = number_of(facts)
        fact = f"{facts.get('name', project)}" + (f" (number {number})" if number else "")
        return told("project", OK, f"{fact}, and its Compute Engine API answers"), facts, None

    def _project_fix(self, error: ApiError, account: str) -> str:
        project = self._config.project
        door = open_door(error, "compute.googleapis.com", project)
        if door:
            return door
        if error.status == 403:
            return (
                f"gcloud projects add-iam-policy-binding {project} --member={member(account)} "
                "--role=roles/compute.instanceAdmin.v1"
            )
        if error.status == 404:
            return "gcloud projects list; then set gce_project to an id (not a name or number) of that list"
        if error.status == 401:
            return LOGIN
        return f"curl -sI {self._config.root}; see whether this computer reaches Google"

    def _gcloud(self) -> Lines:
        number = number_of(self._project()[1]) if self._known() else ""
        return [gcloud_config.mismatch(self._config.project, number)]

    def _project_access(self) -> Lines:
        return [project_access(self._config, self._compute.elsewhere, self._identity()[1])]

    def _account(self) -> Lines:
        facts, account = self._project()[1], self._identity()[1]
        return [worker_account(self._config, self._compute.elsewhere, facts, account)]

    def _bucket_access(self) -> Lines:
        # Nobody can be given a right to what is not there.
        return [] if self._bucket().result == FAIL else [access_line(self._objects, self._identity()[1])]

    # --- what works ---------------------------------------------------------------------------------------------------

    def _machines(self) -> Finding:
        """The two listings of each tick."""
        zone = self._config.zones[0]
        try:
            listed = self._compute.read("aggregated/instances", maxResults=1, fields="unreachables")
            self._compute.read(f"zones/{zone}/operations", maxResults=1, fields="kind")
        except ApiError as error:
            fix = (
                f"gcloud projects add-iam-policy-binding {self._config.project} "
                f"--member={member(self._identity()[1])} --role=roles/compute.instanceAdmin.v1"
                if error.status == 403
                else "see the lines beside this one; then ask again"
            )
            return told("machines", FAIL, "machines and operations cannot be listed", str(error), fix)
        away = listed.get("unreachables") or []
        if away:
            names = ", ".join(str(scope).rpartition("/")[2] for scope in away)
            cause = "Google does not reach them now; machines there are unknown, and nothing of them is ended"
            return told("machines", WARN, f"listed without {names}", cause)
        return told("machines", OK, "machines and operations can be listed")

    def _default_image(self) -> Finding:
        image = self._image
        try:
            exact = self._pin(image)
        except ImageMissing as error:
            fix = "spot build-image; or set default_image to one that is there"
            return told("image", FAIL, f"default_image {image}: not there", str(error), fix)
        except ImageHidden as error:
            fix = (
                "give the accounts of the supervisor and of the machines roles/artifactregistry.reader on the "
                "repository; of another registry than Google's only public images can be used"
            )
            cause = f"{error}; runs of it cannot be pinned, and use what its tag names at each attempt"
            return told("image", WARN, f"default_image {image}: not seen", cause, fix)
        except ProviderUnavailable as error:
            fix = "wait, or see whether this computer reaches the registry; such runs wait meanwhile"
            return told("image", WARN, f"default_image {image}: not asked for", str(error), fix)
        return told("image", OK, f"default_image {image} is {exact.rpartition('@')[2][:19]} now")

    def _public(self) -> Finding:
        url = self._config.public_url.rstrip("/")
        if not url:
            return told("public_url", OK, "none: beats of machines come through the bucket only")
        request = urllib.request.Request(f"{url}/v1/runs/0/heartbeat", b"{}", method="POST")  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=PUBLIC_TIMEOUT_S) as answer:  # noqa: S310 - https or loopback
                status, kind = answer.status, answer.headers.get_content_type()
        except urllib.error.HTTPError as error:
            status, kind = error.code, error.headers.get_content_type()
        except (OSError, ValueError) as error:
            fix = "start the proxy in front of the supervisor, or unset public_url"
            cause = f"{error}; machines then use the bucket"
            return told("public_url", WARN, f"{url} does not answer from here", cause, fix)
        # Our own refusal of a beat that is none; a proxy's page would be another kind of document.
        if kind == "application/problem+json" and status == 422:
            return told("public_url", OK, f"beats can be pushed to {url}")
        cause = f"it answered {status} {kind}, which is not this supervisor's refusal of an empty beat"
        fix = "let the proxy pass POST /v1/runs/*/heartbeat on, with the Host header unchanged"
        return told("public_url", WARN, f"{url} is not this supervisor", cause, fix)

    def _advice(self) -> Finding:
        config = self._config
        if not config.capacity_advice:
            fact = "capacity advice is switched off: zones are tried in the order of the settings"
            return told("advice", OK, fact)
        first = next(offer for offer in offers(config) if offer.placement.spot)
        try:
            self._compute.post(f"regions/{first.placement.region}/advice/capacity", question(config, first))
        except ApiError as error:
            cause = f"{error}; zones are tried in the order of the settings"
            return told("advice", WARN, "capacity advice does not answer", cause, "set gce_capacity_advice = false")
        return told("advice", OK, "capacity advice answers")


class Once(Generic[T]):
    """Asked by the first who needs it; the others wait for the same answer."""

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask, self._lock = ask, threading.Lock()
        self._answer: list[T] = []

    def __call__(self) -> T:
        with self._lock:
            if not self._answer:
                self._answer.append(self._ask())
            return self._answer[0]


_ON_A_MACHINE = "; a machine of Google's needs a service account instead"
