"""The doctor's questions to Google: who are we, may we, is what the settings name there, and is there quota for it.

All are reads. The account and the project come first: where they fail, nothing else is asked, because everything would
fail for the same reason. The rest is asked side by side. Permissions of Compute cannot be listed through its own API;
what a read needs is proven by the read, what an insert needs shows at the first launch (docs/google-cloud.md).
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from supervisor.domain.findings import FAIL, OK, WARN, Finding
from supervisor.ports.objectstore import StoreMissing, StoreUnavailable
from supervisor.ports.provider import ImageHidden, ImageMissing, ProviderUnavailable
from supervisor.providers.gce import doctor_places as places
from supervisor.providers.gce.advice import question
from supervisor.providers.gce.clients import Compute
from supervisor.providers.gce.config import GceConfig, offers
from supervisor.providers.gce.errors import IDENTITY, ApiError

THREADS = 8
PUBLIC_TIMEOUT_S = 5.0
NEEDED = ("storage.objects.create", "storage.objects.delete", "storage.objects.get", "storage.objects.list")
# What Google says where the API itself is switched off.
API_OFF = ("accessNotConfigured", "SERVICE_DISABLED")


class Bucket(Protocol):
    """What is asked of the object store; StoreUnavailable where it does not answer."""

    url: str

    def bucket(self) -> Mapping[str, Any]: ...

    def permissions(self, names: Sequence[str]) -> frozenset[str]: ...


class Doctor:
    """`compute`: with a short deadline of its own, a person waits. `image`: of runs that name none, "" = they are
    refused; `pin`: as in ports/provider.py."""

    def __init__(
        self,
        config: GceConfig,
        compute: Compute,
        objects: Bucket,
        image: str = "",
        pin: Callable[[str], str] = str,
    ) -> None:
        self._config, self._compute, self._objects = config, compute, objects
        self._image, self._pin = image, pin

    def examine(self) -> list[Finding]:
        """Every line in its order. Takes seconds; raises nothing."""
        identity, account = self._identity()
        found = [identity]
        checks: list[Callable[[], Sequence[Finding]]] = []
        if identity.result != FAIL:
            project, facts = self._project(account)
            found.append(project)
            if project.result != FAIL:
                checks += self._compute_checks(facts)
            checks.append(lambda: self._bucket(account))
        if self._image:
            checks.append(lambda: [self._default_image()])
        checks.append(lambda: [self._public()])
        with ThreadPoolExecutor(THREADS, thread_name_prefix="doctor") as threads:
            for group in threads.map(lambda check: check(), checks):
                found += group
        return found

    def _compute_checks(self, facts: Mapping[str, Any]) -> list[Callable[[], Sequence[Finding]]]:
        config, read = self._config, self._compute.read
        return [
            lambda: [self._machines()],
            lambda: [places.zones(config, read)],
            lambda: [places.shapes(config, read)],
            lambda: [places.quotas(config, read, facts)],
            lambda: [places.boot_image(config, read)],
            lambda: [_account(config, facts)],
            lambda: [_prices(config)],
            lambda: places.network(config, read),
            lambda: places.data_disk(config, read),
            lambda: [self._advice()],
        ]

    def _identity(self) -> tuple[Finding, str]:
        try:
            account = self._compute.identity()
        except ApiError as error:
            if error.reason != IDENTITY:
                return _told("identity", OK, "credentials are there; whose they are was not told"), ""
            fix = (
                "gcloud auth application-default login; a machine of Google's needs a service account instead"
            )
            fact = "there are no Application Default Credentials"
            return _told("identity", FAIL, fact, str(error), fix), ""
        fact = f"acts as {account}" if account else "credentials are there; they do not name their account"
        return _told("identity", OK, fact), account

    def _project(self, account: str) -> tuple[Finding, Mapping[str, Any]]:
        """Name **and** number: half of Google's messages use the one, half the other."""
        project = self._config.project
        try:
            facts = self._compute.read("", fields="name,defaultServiceAccount,quotas")
        except ApiError as error:
            fact = f"project {project} cannot be read"
            return _told("project", FAIL, fact, str(error), self._project_fix(error, account)), {}
        number = str(facts.get("defaultServiceAccount", "")).partition("-")[0]
        fact = f"{facts.get('name', project)}" + (f" (number {number})" if number.isdigit() else "")
        return _told("project", OK, f"{fact}, and its Compute Engine API answers"), facts

    def _project_fix(self, error: ApiError, account: str) -> str:
        project = self._config.project
        if error.status == 403 and (
            error.reason in API_OFF or "has not been used" in str(error) or "is disabled" in str(error)
        ):
            return f"gcloud services enable compute.googleapis.com --project={project}"
        if error.status == 403:
            return (
                f"gcloud projects add-iam-policy-binding {project} --member={member(account)} "
                "--role=roles/compute.instanceAdmin.v1"
            )
        if error.status == 404:
            return "gcloud projects list; then set gce_project to an id (not a name or number) of that list"
        if error.status == 401:
            return "gcloud auth application-default login"
        return f"curl -sI {self._config.root}; see whether this computer reaches Google"

    def _machines(self) -> Finding:
        """The two listings of each tick."""
        zone = self._config.zones[0]
        try:
            listed = self._compute.read("aggregated/instances", maxResults=1, fields="unreachables")
            self._compute.read(f"zones/{zone}/operations", maxResults=1, fields="kind")
        except ApiError as error:
            fix = (
                "give the supervisor's account roles/compute.instanceAdmin.v1 "
                f"in {self._config.project}; it lists machines and operations at each look"
                if error.status == 403
                else "see the lines beside this one; then ask again"
            )
            return _told("machines", FAIL, "machines and operations cannot be listed", str(error), fix)
        away = listed.get("unreachables") or []
        if away:
            names = ", ".join(str(scope).rpartition("/")[2] for scope in away)
            cause = "Google does not reach them now; machines there are unknown, and nothing of them is ended"
            return _told("machines", WARN, f"listed without {names}", cause)
        return _told("machines", OK, "machines and operations can be listed")

    def _bucket(self, account: str) -> list[Finding]:
        config, url = self._config, bucket_url(self._objects.url)
        try:
            found = places.bucket(config, url, self._objects.bucket())
        except StoreMissing as error:
            fix = (
                f"gcloud storage buckets create {url} --project={config.project} --location={config.regions[0]} "
                "--soft-delete-duration=0; or set store_url to one that is there"
            )
            return [_told("bucket", FAIL, f"{url}: not there", str(error), fix)]
        except StoreUnavailable as error:
            fix = f"gcloud storage buckets describe {url}; roles/storage.bucketViewer lets it be read"
            found = _told("bucket", WARN, f"the settings of {url} cannot be read", str(error), fix)
        return [found, self._permissions(account)]

    def _permissions(self, account: str) -> Finding:
        url = bucket_url(self._objects.url)
        fix = (
            f"gcloud storage buckets add-iam-policy-binding {url} --member={member(account)} "
            "--role=roles/storage.objectUser"
        )
        try:
            held = self._objects.permissions(NEEDED)
        except StoreUnavailable as error:
            return _told("permissions", WARN, f"permissions on {url} cannot be asked for", str(error), fix)
        missing = [name for name in NEEDED if name not in held]
        if missing:
            cause = "without them no run can be kept alive"
            return _told("permissions", FAIL, f"missing on {url}: {', '.join(missing)}", cause, fix)
        return _told("permissions", OK, f"objects of {url} may be listed, read, written and deleted")

    def _default_image(self) -> Finding:
        image = self._image
        try:
            exact = self._pin(image)
        except ImageMissing as error:
            fix = "push it, or set default_image to one that is there"
            return _told("image", FAIL, f"default_image {image}: not there", str(error), fix)
        except ImageHidden as error:
            fix = (
                "give the accounts of the supervisor and of the machines roles/artifactregistry.reader on the "
                "repository; of another registry than Google's only public images can be used"
            )
            cause = f"{error}; runs of it cannot be pinned, and use what its tag names at each attempt"
            return _told("image", WARN, f"default_image {image}: not seen", cause, fix)
        except ProviderUnavailable as error:
            fix = "wait, or see whether this computer reaches the registry; such runs wait meanwhile"
            return _told("image", WARN, f"default_image {image}: not asked for", str(error), fix)
        return _told("image", OK, f"default_image {image} is {exact.rpartition('@')[2][:19]} now")

    def _public(self) -> Finding:
        url = self._config.public_url.rstrip("/")
        if not url:
            return _told("public_url", OK, "none: beats of machines come through the bucket only")
        request = urllib.request.Request(f"{url}/v1/runs/0/heartbeat", b"{}", method="POST")  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=PUBLIC_TIMEOUT_S) as answer:  # noqa: S310 - https or loopback
                status, kind = answer.status, answer.headers.get_content_type()
        except urllib.error.HTTPError as error:
            status, kind = error.code, error.headers.get_content_type()
        except (OSError, ValueError) as error:
            fix = "start the proxy in front of the supervisor, or unset public_url"
            cause = f"{error}; machines then use the bucket"
            return _told("public_url", WARN, f"{url} does not answer from here", cause, fix)
        # Our own refusal of a beat that is none; a proxy's page would be another kind of document.
        if kind == "application/problem+json" and status == 422:
            return _told("public_url", OK, f"beats can be pushed to {url}")
        cause = f"it answered {status} {kind}, which is not this supervisor's refusal of an empty beat"
        fix = "let the proxy pass POST /v1/runs/*/heartbeat on, with the Host header unchanged"
        return _told("public_url", WARN, f"{url} is not this supervisor", cause, fix)

    def _advice(self) -> Finding:
        config = self._config
        if not config.capacity_advice:
            return _told(
                "advice", OK, "capacity advice is switched off: zones are tried in the order of the settings"
            )
        first = next(offer for offer in offers(config) if offer.placement.spot)
        try:
            self._compute.post(f"regions/{first.placement.region}/advice/capacity", question(config, first))
        except ApiError as error:
            cause = f"{error}; zones are tried in the order of the settings"
            return _told(
                "advice", WARN, "capacity advice does not answer", cause, "set gce_capacity_advice = false"
            )
        return _told("advice", OK, "capacity advice answers")


def _account(config: GceConfig, facts: Mapping[str, Any]) -> Finding:
    if config.service_account != "default":
        fact = f"machines run as {config.service_account}; the supervisor needs roles/iam.serviceAccountUser on it"
        return _told("account", OK, fact)
    fact = f"machines run as the project's own account {facts.get('defaultServiceAccount', '')}".rstrip()
    fix = (
        f"gcloud iam service-accounts create spot-worker --project={config.project}; give it "
        "roles/storage.objectUser on the bucket and set "
        f"gce_service_account = spot-worker@{config.project}.iam.gserviceaccount.com"
    )
    return _told(
        "account", WARN, fact, "by default it may edit the whole project, and so may every training", fix
    )


def _prices(config: GceConfig) -> Finding:
    """Google's prices change with the region and the month: they are told, not asked for."""
    unknown = [shape for shape in config.shapes if shape not in config.prices]
    if not unknown:
        return _told("prices", OK, f"known for {', '.join(config.shapes)}")
    cause = "what such runs cost is not counted, and a budget for them is refused"
    fix = f"set gce_prices, such as {unknown[0]}=0.15/0.45 (spot/on-demand, $ per hour)"
    return _told("prices", WARN, f"unknown for {', '.join(unknown)}", cause, fix)


def member(account: str) -> str:
    """As an IAM policy names it. Pods name a pool instead of an account: nobody can be named then."""
    if "@" not in account:
        return "serviceAccount:ACCOUNT"
    return f"{'serviceAccount' if account.endswith('gserviceaccount.com') else 'user'}:{account}"


def bucket_url(url: str) -> str:
    """gs://bucket/prefix -> gs://bucket."""
    return "/".join(url.split("/", 3)[:3])


def _told(name: str, result: str, fact: str, cause: str = "", fix: str = "") -> Finding:
    return Finding(name, result, fact, cause, fix, group="google")
