"""What Google's refusals mean. Codes are read by their **prefix**: `_WITH_DETAILS` and its like change nothing.

An error of the HTTP request says whether it was heard at all: what is transient is asked again, and nothing follows
from it. An error of an operation (HTTP 200, DONE, error) is definite: that request will never give a machine.
The codes are those seen in the wild: no document of Google's lists them.

Whatever of Google's could not be read is no answer, and no absence.

Asking again, with a pause that chance decides and a budget that all calls share.

Google's own clients wait up to 600 s and repeat only 503. Here a call with its repeats ends within its deadline, and a
storm of refusals does not make the load worse: every repeat takes a token from a bucket that fills slowly, and with the
bucket empty each call is made once.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from supervisor.domain.texts import clause
from supervisor.ports.provider import LaunchFailed, LaunchRejected, NoCapacity, ProviderUnavailable, QuotaExceeded

RATE_LIMITED = frozenset({"rateLimitExceeded", "userRateLimitExceeded"})
IDENTITY = "identity"  # reason of an ApiError: there are no credentials, so nothing was asked
SERVICE_OFF = frozenset({"accessNotConfigured", "SERVICE_DISABLED"})  # the older services' word, and the newer ones'
REFUSED = "credentials refused"  # reason of an ApiError: Google takes these credentials no more
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
WHOLE_PROJECT = "_ALL_REGIONS"  # GPUS_ALL_REGIONS, CPUS_ALL_REGIONS

# "[pd-ssd, a4-highgpu-8g] features are not compatible for creating instance": the code is that of a preemption while
# the machine is made, the message tells the two apart (astronomer 2463).
INCOMPATIBLE = "not compatible for creating instance"
INCOMPATIBLE_ADVICE = (
    "The machine type cannot be made with what stands beside it in the brackets: for a disk set gce_boot_disk_type "
    "(hyperdisk-balanced, or pd-ssd for older series), for cards name another shape in gce_shapes."
)

CAPACITY, QUOTA, REJECTED = "capacity", "quota", "rejected"
# First match wins. The text is what a person is told beside Google's own words.
CODES: tuple[tuple[str, str, str], ...] = (
    ("ZONE_RESOURCE_POOL_EXHAUSTED", CAPACITY, ""),
    ("REGION_RESOURCE_POOL_EXHAUSTED", CAPACITY, ""),
    ("RESOURCE_POOL_EXHAUSTED", CAPACITY, ""),
    ("GPU_STOCKOUT", CAPACITY, ""),
    ("STOCKOUT", CAPACITY, ""),
    ("INSUFFICIENT_CAPACITY", CAPACITY, ""),
    ("UNSUPPORTED_OPERATION", CAPACITY, "Google says so when a machine is preempted while it is being made."),
    ("RESOURCE_NOT_READY", CAPACITY, "An older machine still holds what this one needs."),
    ("RESOURCE_IN_USE", CAPACITY, "Another machine still holds what this one needs, such as a data disk to write to."),
    ("RESOURCE_OPERATION_RATE_EXCEEDED", CAPACITY, "Too many requests for the same resource."),
    ("RATE_LIMIT_EXCEEDED", CAPACITY, "Too many requests."),
    ("INTERNAL_ERROR", CAPACITY, "An error inside Google's cloud."),
    ("BACKEND_ERROR", CAPACITY, "An error inside Google's cloud."),
    ("QUOTA_EXCEEDED", QUOTA, ""),
    ("QUOTA", QUOTA, ""),
    ("IP_SPACE_EXHAUSTED", QUOTA, "The subnet has no free address: enlarge it, or name another one in gce_subnet."),
    ("PERMISSIONS_ERROR", REJECTED, "The supervisor's account may not do this; `spot doctor` says what it needs."),
    ("VM_EXTERNAL_IP_ACCESS_POLICY_CONSTRAINT", REJECTED,
     "The organisation allows no external addresses: set gce_external_ip = false."),
    ("INVALID_RESERVATION", REJECTED, ""),
    ("RESERVATION_NOT_READY", REJECTED, ""),
    ("RESOURCE_NOT_FOUND", REJECTED, "Something that the settings name does not exist."),
)  # fmt: skip


class ApiError(Exception):
    """One request that was refused or not answered. `status`: of HTTP, None = no answer. `reason`: Google's word, such
    as rateLimitExceeded. The text is Google's message, without its last full stop."""

    def __init__(self, text: str, status: int | None = None, reason: str = ""):
        super().__init__(clause(text))
        self.status = status
        self.reason = reason
        self.after_unclear = False  # the same call was made before without a clear answer: it may be carried out

    @property
    def transient(self) -> bool:
        """Asking again may help."""
        if self.status is None:
            return self.reason not in (IDENTITY, REFUSED)
        return self.status in _TRANSIENT or (self.status == 403 and self.reason in RATE_LIMITED)

    @property
    def missing(self) -> bool:
        """Compute Engine itself says that there is no such thing: a 404 without a reason is of something in between."""
        return self.status == 404 and self.reason == "notFound"

    @property
    def no_quota_project(self) -> bool:
        """A person's credentials belong to no project, and Google counts the call to none that the person may use. It
        comes as SERVICE_DISABLED too: the API that is off is that of Google's own project for such credentials."""
        said = str(self)
        return self.status == 403 and ("quota project" in said or "USER_PROJECT_DENIED" in said)

    @property
    def service_off(self) -> bool:
        """The asked API itself is switched off in this project."""
        if self.no_quota_project:
            return False
        said = str(self)
        named = self.reason in SERVICE_OFF or "has not been used" in said or "is disabled" in said
        return self.status == 403 and named

    @property
    def exists(self) -> bool:
        """The name is taken."""
        return self.status == 409 and self.reason == "alreadyExists"

    def __str__(self) -> str:
        said = super().__str__()
        return said if self.status is None else f"HTTP {self.status} {self.reason}: {said}".replace(" :", ":")


def open_door(error: ApiError, api: str, project: str) -> str:
    """What a person can do so that this API of Google's answers; "" = nothing of that kind is wrong."""
    if error.no_quota_project:
        return (
            f"gcloud auth application-default set-quota-project {project}, by somebody who may use it: "
            "serviceusage.services.use (roles/serviceusage.serviceUsageConsumer)"
        )
    return f"gcloud services enable {api} --project={project}" if error.service_off else ""


def of_request(error: ApiError, region: str) -> LaunchFailed | ProviderUnavailable:
    """What a create call that was refused at once means. ProviderUnavailable where that is not definite."""
    if error.transient or not error.reason or error.status in (None, 401) or error.exists:
        return ProviderUnavailable(f"Google Cloud: {error}")
    if error.status == 403 and not _kind(error.reason)[0]:
        return LaunchRejected(f"{error}. The supervisor's account may not do this; see `spot doctor`")
    return of_codes([{"code": error.reason, "message": Exception.__str__(error)}], region)


def of_codes(errors: Sequence[Mapping[str, Any]], region: str) -> LaunchFailed:
    """What an operation's `error.errors` mean: a quota before a refusal before a lack of room, as it stays longest."""
    known = {QUOTA: 0, REJECTED: 1, "": 2, CAPACITY: 3}
    ranked = sorted(errors, key=lambda e: known[_kind(str(e.get("code", "")), str(e.get("message", "")))[0]])
    first = ranked[0] if ranked else {"code": "UNKNOWN", "message": "the operation failed without a word"}
    code, message = str(first.get("code", "")), clause(first.get("message", "")).strip()
    kind, advice = _kind(code, message)
    said = f"{code}: {message}".strip(": ")
    text = clause(". ".join(part for part in (said, advice) if part))
    if kind == CAPACITY:
        return NoCapacity(text)
    if kind == QUOTA:
        return _quota(first, text, region)
    return LaunchRejected(text)


def word(code: str) -> str:
    """Google spells its codes in two ways: quotaExceeded -> QUOTA_EXCEEDED."""
    return code if code.isupper() else re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", code).upper()


def is_incompatible(message: str) -> bool:
    """The machine can never be made as it was asked for, whatever code that comes with."""
    return INCOMPATIBLE in message


def _kind(code: str, message: str = "") -> tuple[str, str]:
    """(kind, advice); ("", "") for a code that the table does not have."""
    if is_incompatible(message):
        return REJECTED, INCOMPATIBLE_ADVICE
    spelt = word(code)
    return next(((kind, advice) for prefix, kind, advice in CODES if spelt.startswith(prefix)), ("", ""))


def _quota(error: Mapping[str, Any], text: str, region: str) -> QuotaExceeded:
    """Tells which quota, how much of it there is, and how far it reaches."""
    info: Mapping[str, Any] = next(
        (detail["quotaInfo"] for detail in error.get("errorDetails") or () if detail.get("quotaInfo")), {}
    )
    message = str(error.get("message", ""))
    named = re.search(r"'([A-Z0-9_]+)' exceeded", message)
    metric = named.group(1) if named else str(info.get("limitName") or info.get("metricName") or "")
    limited = re.search(r"[Ll]imit: ([0-9.]+)", message)
    limit = info.get("limit") if info.get("limit") is not None else limited.group(1) if limited else None
    whole = WHOLE_PROJECT in word(metric).replace("-", "_") or WHOLE_PROJECT in message
    if not metric:
        return QuotaExceeded(text, scope="region")
    where = "the whole project" if whole else f"region {region}"
    amount = "" if limit is None else f" (limit {float(limit):g})"
    told = f"The quota {metric} of {where} is used up{amount}; the page IAM & Admin, Quotas has a form. {text}"
    return QuotaExceeded(told, scope="project" if whole else "region")


@contextmanager
def clear_answers(what: str, advice: str = "") -> Iterator[None]:
    """ApiError comes out as ProviderUnavailable, with what was to be read."""
    try:
        yield
    except ApiError as error:
        raise ProviderUnavailable(f"{what}: {error}{advice}") from error


T = TypeVar("T")

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 8.0
TRIES = 5
TOKENS = 60.0
TOKENS_PER_S = 1.0


class Budget:
    """Tokens for repeats."""

    def __init__(self, monotonic: Callable[[], float], tokens: float = TOKENS, per_s: float = TOKENS_PER_S) -> None:
        self._monotonic, self._most, self._per_s = monotonic, tokens, per_s
        self._left, self._at = tokens, monotonic()
        self._lock = threading.Lock()

    def take(self) -> bool:
        with self._lock:
            now = self._monotonic()
            self._left = min(self._most, self._left + (now - self._at) * self._per_s)
            self._at = now
            if self._left < 1.0:
                return False
            self._left -= 1.0
            return True


@dataclass
class Retry:
    """`deadline_s`: of a call with all its repeats; `per_try_s`: of one request."""

    deadline_s: float = 20.0
    per_try_s: float = 10.0
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random
    budget: Budget = field(init=False)

    def __post_init__(self) -> None:
        self.budget = Budget(self.monotonic)

    def call(self, ask: Callable[[float], T], deadline_s: float | None = None) -> T:
        """`ask(timeout_s)` until it answers. Raises the last ApiError."""
        end = self.monotonic() + (deadline_s or self.deadline_s)
        pause, unclear = FIRST_PAUSE_S, False
        for left in reversed(range(TRIES)):
            try:
                return ask(max(0.1, min(self.per_try_s, end - self.monotonic())))
            except ApiError as error:
                error.after_unclear, unclear = unclear, True
                # By chance: those who were refused together do not come back together.
                wait_s = pause * (0.5 + self.chance() / 2)
                if not (left and error.transient) or self.monotonic() + wait_s >= end or not self.budget.take():
                    raise
            self.sleep(wait_s)
            pause = min(LONGEST_PAUSE_S, 2 * pause)
        raise AssertionError("a call is made at least once")
