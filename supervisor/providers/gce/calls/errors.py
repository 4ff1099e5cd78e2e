"""What Google's errors mean.

The error of an HTTP request says whether Google processed the request at all: a transient error is retried, and nothing
is concluded from it. The error of an operation (HTTP 200, DONE, error) is definite: that request will never create a
machine. Codes are compared by **prefix**, because Google adds endings such as `_WITH_DETAILS`. No document of Google
lists the codes: the table has the codes that were observed.

A read that failed is not an answer, and never means "there is none".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from supervisor.domain.texts import clause
from supervisor.ports.provider import LaunchFailed, LaunchRejected, NoCapacity, ProviderUnavailable, QuotaExceeded

RATE_LIMITED = frozenset({"rateLimitExceeded", "userRateLimitExceeded"})
IDENTITY = "identity"  # reason of an ApiError: there are no credentials, so no request was sent
SERVICE_OFF = frozenset({"accessNotConfigured", "SERVICE_DISABLED"})  # the word of older and of newer services
REFUSED = "credentials refused"  # reason of an ApiError: Google does not accept these credentials any more
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
WHOLE_PROJECT = "_ALL_REGIONS"  # GPUS_ALL_REGIONS, CPUS_ALL_REGIONS

# "[pd-ssd, a4-highgpu-8g] features are not compatible for creating instance": the code is the same as that of a
# preemption during the creation. Only the message tells the two apart (astronomer 2463).
INCOMPATIBLE = "not compatible for creating instance"
INCOMPATIBLE_ADVICE = (
    "The machine type cannot be combined with the other value in the brackets: for a disk set gce_boot_disk_type "
    "(hyperdisk-balanced, or pd-ssd for older series), for cards use another shape in gce_shapes."
)

CAPACITY, QUOTA, REJECTED = "capacity", "quota", "rejected"
# (prefix of the code, kind, advice that the user reads after Google's own words). The first match counts.
CODES: tuple[tuple[str, str, str], ...] = (
    ("ZONE_RESOURCE_POOL_EXHAUSTED", CAPACITY, ""),
    ("REGION_RESOURCE_POOL_EXHAUSTED", CAPACITY, ""),
    ("RESOURCE_POOL_EXHAUSTED", CAPACITY, ""),
    ("GPU_STOCKOUT", CAPACITY, ""),
    ("STOCKOUT", CAPACITY, ""),
    ("INSUFFICIENT_CAPACITY", CAPACITY, ""),
    ("UNSUPPORTED_OPERATION", CAPACITY, "Google uses this code for a machine that was preempted during its creation."),
    ("RESOURCE_NOT_READY", CAPACITY, "An older machine still holds a resource that this machine needs."),
    ("RESOURCE_IN_USE", CAPACITY, "Another machine holds a resource that this machine needs, such as a data disk."),
    ("RESOURCE_OPERATION_RATE_EXCEEDED", CAPACITY, "Too many requests for the same resource."),
    ("RATE_LIMIT_EXCEEDED", CAPACITY, "Too many requests."),
    ("INTERNAL_ERROR", CAPACITY, "An error inside Google Cloud."),
    ("BACKEND_ERROR", CAPACITY, "An error inside Google Cloud."),
    ("QUOTA_EXCEEDED", QUOTA, ""),
    ("QUOTA", QUOTA, ""),
    ("IP_SPACE_EXHAUSTED", QUOTA, "The subnet has no free address: enlarge it, or set another one in gce_subnet."),
    ("PERMISSIONS_ERROR", REJECTED, "The supervisor's account may not do this; `spot doctor` shows what it needs."),
    ("VM_EXTERNAL_IP_ACCESS_POLICY_CONSTRAINT", REJECTED,
     "The organization allows no external addresses: set gce_external_ip = false."),
    ("INVALID_RESERVATION", REJECTED, ""),
    ("RESERVATION_NOT_READY", REJECTED, ""),
    ("RESOURCE_NOT_FOUND", REJECTED, "A setting names a resource that does not exist."),
)  # fmt: skip
_RANKS = {QUOTA: 0, REJECTED: 1, "": 2, CAPACITY: 3}  # of several errors, the one that lasts longest counts


class ApiError(Exception):
    """One request that Google refused or did not answer. `status`: the HTTP status; None = no response. `reason`:
    Google's word, such as rateLimitExceeded. The text is Google's message without its final full stop."""

    def __init__(self, text: str, status: int | None = None, reason: str = ""):
        super().__init__(clause(text))
        self.status = status
        self.reason = reason
        self.after_unclear = False  # an earlier try of the same call had no clear response: Google may have done it

    @property
    def text(self) -> str:
        """Google's message alone, without status and reason."""
        return super().__str__()

    @property
    def transient(self) -> bool:
        """A retry may help."""
        if self.status is None:
            return self.reason not in (IDENTITY, REFUSED)
        return self.status in _TRANSIENT or (self.status == 403 and self.reason in RATE_LIMITED)

    @property
    def missing(self) -> bool:
        """Compute Engine itself says that the resource does not exist. A 404 without a reason comes from a proxy."""
        return self.status == 404 and self.reason == "notFound"

    @property
    def no_quota_project(self) -> bool:
        """A user's own credentials belong to no project, and Google cannot count the call to a project that the user
        may use. Its reason can be SERVICE_DISABLED too, for the API of Google's own project for such credentials."""
        return self.status == 403 and ("quota project" in str(self) or "USER_PROJECT_DENIED" in str(self))

    @property
    def service_off(self) -> bool:
        """The requested API itself is switched off in this project."""
        text = str(self)
        is_named = self.reason in SERVICE_OFF or "has not been used" in text or "is disabled" in text
        return self.status == 403 and is_named and not self.no_quota_project

    @property
    def name_taken(self) -> bool:
        return self.status == 409 and self.reason == "alreadyExists"

    def __str__(self) -> str:
        return self.text if self.status is None else f"HTTP {self.status} {self.reason}: {self.text}".replace(" :", ":")


@contextmanager
def as_unavailable(what: str, advice: str = "") -> Iterator[None]:
    """ApiError becomes ProviderUnavailable. `what`: the thing that was read or changed."""
    try:
        yield
    except ApiError as error:
        raise ProviderUnavailable(f"{what}: {error}{advice}") from error


def access_fix(error: ApiError, api: str, project: str) -> str:
    """The command that makes this API of Google respond; "" = the error has another reason."""
    if error.no_quota_project:
        return (
            f"gcloud auth application-default set-quota-project {project}, by a user with the permission "
            "serviceusage.services.use (roles/serviceusage.serviceUsageConsumer)"
        )
    return f"gcloud services enable {api} --project={project}" if error.service_off else ""


def failure_of_request(error: ApiError, region: str) -> LaunchFailed | ProviderUnavailable:
    """What an error of the create call itself means. ProviderUnavailable where it is not definite."""
    if error.transient or not error.reason or error.status in (None, 401) or error.name_taken:
        return ProviderUnavailable(f"Google Cloud: {error}")
    if error.status == 403 and not _kind(error.reason)[0]:
        return LaunchRejected(f"{error}. The supervisor's account may not do this; see `spot doctor`")
    return failure_of_operation([{"code": error.reason, "message": error.text}], region)


def failure_of_operation(errors: Sequence[Mapping[str, Any]], region: str) -> LaunchFailed:
    """What `error.errors` of an operation mean."""
    ranked = sorted(errors, key=lambda e: _RANKS[_kind(str(e.get("code", "")), str(e.get("message", "")))[0]])
    first = ranked[0] if ranked else {"code": "UNKNOWN", "message": "the operation failed without a message"}
    code, message = str(first.get("code", "")), clause(first.get("message", "")).strip()
    kind, advice = _kind(code, message)
    google_text = f"{code}: {message}".strip(": ")
    text = clause(". ".join(part for part in (google_text, advice) if part))
    if kind == CAPACITY:
        return NoCapacity(text)
    if kind == QUOTA:
        return _quota(first, text, region)
    return LaunchRejected(text)


def upper_snake(code: str) -> str:
    """Google writes its codes in two ways: quotaExceeded -> QUOTA_EXCEEDED."""
    return code if code.isupper() else re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", code).upper()


def is_incompatible(message: str) -> bool:
    """The machine can never be created as requested, whatever the code is."""
    return INCOMPATIBLE in message


def _kind(code: str, message: str = "") -> tuple[str, str]:
    """(kind, advice); ("", "") for a code that is not in the table."""
    if is_incompatible(message):
        return REJECTED, INCOMPATIBLE_ADVICE
    name = upper_snake(code)
    return next(((kind, advice) for prefix, kind, advice in CODES if name.startswith(prefix)), ("", ""))


def _quota(error: Mapping[str, Any], text: str, region: str) -> QuotaExceeded:
    """With the name of the quota, its limit and its scope."""
    info: Mapping[str, Any] = next(
        (detail["quotaInfo"] for detail in error.get("errorDetails") or () if detail.get("quotaInfo")), {}
    )
    message = str(error.get("message", ""))
    metric_match = re.search(r"'([A-Z0-9_]+)' exceeded", message)
    metric = metric_match.group(1) if metric_match else str(info.get("limitName") or info.get("metricName") or "")
    if not metric:
        return QuotaExceeded(text, scope="region")
    limit_match = re.search(r"[Ll]imit: ([0-9.]+)", message)
    limit = info.get("limit") if info.get("limit") is not None else limit_match.group(1) if limit_match else None
    whole = WHOLE_PROJECT in upper_snake(metric).replace("-", "_") or WHOLE_PROJECT in message
    where = "the whole project" if whole else f"region {region}"
    amount = "" if limit is None else f" (limit {float(limit):g})"
    sentence = f"The quota {metric} of {where} is used up{amount}; request more on the page IAM & Admin, Quotas"
    return QuotaExceeded(f"{sentence}. {text}", scope="project" if whole else "region")
