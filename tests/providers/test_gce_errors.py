"""Every refusal of Google's, row by row: what it means for the try, and how far a quota reaches."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.ports.provider import LaunchFailed, LaunchRejected, NoCapacity, ProviderUnavailable, QuotaExceeded
from supervisor.providers.gce.calls.errors import (
    CODES,
    ApiError,
    access_fix,
    failure_of_operation,
    failure_of_request,
    upper_snake,
)

REGION = "us-east1"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ZONE_RESOURCE_POOL_EXHAUSTED", NoCapacity),
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", NoCapacity),
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_SOMETHING_NEW", NoCapacity),
        ("REGION_RESOURCE_POOL_EXHAUSTED", NoCapacity),
        ("RESOURCE_POOL_EXHAUSTED", NoCapacity),
        ("GPU_STOCKOUT", NoCapacity),
        ("STOCKOUT", NoCapacity),
        ("insufficientCapacity", NoCapacity),
        ("UNSUPPORTED_OPERATION", NoCapacity),
        ("RESOURCE_NOT_READY", NoCapacity),
        ("RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", NoCapacity),
        ("RESOURCE_OPERATION_RATE_EXCEEDED", NoCapacity),
        ("RATE_LIMIT_EXCEEDED", NoCapacity),
        ("INTERNAL_ERROR", NoCapacity),
        ("backendError", NoCapacity),
        ("QUOTA_EXCEEDED", QuotaExceeded),
        ("quotaExceeded", QuotaExceeded),
        ("IP_SPACE_EXHAUSTED", QuotaExceeded),
        ("IP_SPACE_EXHAUSTED_WITH_DETAILS", QuotaExceeded),
        ("PERMISSIONS_ERROR", LaunchRejected),
        ("VM_EXTERNAL_IP_ACCESS_POLICY_CONSTRAINT", LaunchRejected),
        ("INVALID_RESERVATION", LaunchRejected),
        ("RESERVATION_NOT_READY", LaunchRejected),
        ("RESOURCE_NOT_FOUND", LaunchRejected),
        ("SOMETHING_OF_TOMORROW", LaunchRejected),
    ],
)
def test_the_prefix_of_a_code_decides(code: str, kind: type[LaunchFailed]) -> None:
    failed = failure_of_operation([{"code": code, "message": "so it is"}], REGION)
    assert type(failed) is kind
    assert code in str(failed)
    assert "so it is" in str(failed)


def test_features_that_do_not_go_together_are_refused_with_the_setting_to_change() -> None:
    """The same code as a preemption while the machine is made; a wait of a day would not help."""
    message = "[pd-ssd, a4-highgpu-8g] features are not compatible for creating instance."
    for code in ("UNSUPPORTED_OPERATION", "badRequest"):
        failed = failure_of_operation([{"code": code, "message": message}], REGION)
        assert type(failed) is LaunchRejected
        assert "gce_boot_disk_type" in str(failed)


def test_a_person_without_a_quota_project_is_told_so_and_not_to_switch_the_api_on() -> None:
    """Google says SERVICE_DISABLED of its own project for such credentials (terraform-provider-google 20644)."""
    words = "The cloudresourcemanager.googleapis.com API requires a quota project, which is not set by default."
    denied = "Caller does not have required permission to use project p. [reason: USER_PROJECT_DENIED]"
    for error in (ApiError(words, 403, "SERVICE_DISABLED"), ApiError(denied, 403, "forbidden")):
        assert not error.service_off
        assert "set-quota-project p" in access_fix(error, "iam.googleapis.com", "p")
    off = ApiError("Compute Engine API has not been used in project 7 before or it is disabled.", 403)
    assert access_fix(off, "iam.googleapis.com", "p") == "gcloud services enable iam.googleapis.com --project=p"
    assert access_fix(ApiError("no", 403, "forbidden"), "iam.googleapis.com", "p") == ""


def test_every_row_of_the_table_is_reached_by_its_own_code() -> None:
    """A row after a shorter prefix of another kind would never be used."""
    for at, (prefix, kind, _) in enumerate(CODES):
        first = next(row for row in CODES if prefix.startswith(row[0]))
        assert first[1] == kind, f"row {at}: {prefix} is hidden by {first[0]}"


@pytest.mark.parametrize(
    ("message", "details", "scope", "told"),
    [
        ("Quota 'NVIDIA_T4_GPUS' exceeded.  Limit: 1.0 in region us-east1.", [], "region",
         "NVIDIA_T4_GPUS of region us-east1 is used up (limit 1)"),
        ("Quota 'GPUS_ALL_REGIONS' exceeded.  Limit: 4.0 globally.", [], "project",
         "GPUS_ALL_REGIONS of the whole project is used up (limit 4)"),
        ("Quota exceeded", [{"quotaInfo": {"metricName": "compute.googleapis.com/gpus_all_regions",
                                           "limitName": "GPUS-ALL-REGIONS-per-project", "limit": 0}}], "project",
         "GPUS-ALL-REGIONS-per-project of the whole project is used up (limit 0)"),
        ("Quota exceeded", [{"quotaInfo": {"limitName": "PREEMPTIBLE-CPUS-per-project-region", "limit": 24,
                                           "dimensions": {"region": "us-east1"}}}], "region",
         "PREEMPTIBLE-CPUS-per-project-region of region us-east1 is used up (limit 24)"),
        ("Quota 'CPUS_ALL_REGIONS' exceeded.  Limit: 12.0 globally.", [], "project",
         "CPUS_ALL_REGIONS of the whole project is used up (limit 12)"),
        ("Quota exceeded", [{"quotaInfo": {"metricName": "compute.googleapis.com/cpus_all_regions",
                                           "limitName": "CPUS-ALL-REGIONS-per-project", "limit": 12}}], "project",
         "CPUS-ALL-REGIONS-per-project of the whole project is used up (limit 12)"),
        ("no more", [], "region", "no more"),
    ],
)  # fmt: skip
def test_a_quota_tells_which_and_how_far_it_reaches(
    message: str, details: list[dict[str, Any]], scope: str, told: str
) -> None:
    failed = failure_of_operation([{"code": "QUOTA_EXCEEDED", "message": message, "errorDetails": details}], REGION)
    assert isinstance(failed, QuotaExceeded)
    assert failed.scope == scope
    assert told in str(failed)


def test_of_several_errors_the_one_that_stays_longest_counts() -> None:
    stock_out = {"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": "none"}
    quota = {"code": "QUOTA_EXCEEDED", "message": "Quota 'CPUS' exceeded."}
    assert isinstance(failure_of_operation([stock_out, quota], REGION), QuotaExceeded)
    assert isinstance(failure_of_operation([], REGION), LaunchRejected)


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (None, "", ProviderUnavailable),
        (None, "identity", ProviderUnavailable),
        (401, "authError", ProviderUnavailable),
        (403, "rateLimitExceeded", ProviderUnavailable),
        (403, "userRateLimitExceeded", ProviderUnavailable),
        (429, "rateLimitExceeded", ProviderUnavailable),
        (500, "backendError", ProviderUnavailable),
        (503, "backendError", ProviderUnavailable),
        (409, "alreadyExists", ProviderUnavailable),
        (409, "resourceInUseByAnotherResource", NoCapacity),
        (403, "quotaExceeded", QuotaExceeded),
        (403, "forbidden", LaunchRejected),
        (403, "accessNotConfigured", LaunchRejected),
        (400, "invalid", LaunchRejected),
        (404, "notFound", LaunchRejected),
        (404, "", ProviderUnavailable),  # a page of something in between, and not Google's word
        (412, "conditionNotMet", LaunchRejected),
    ],
)
def test_a_request_refused_at_once(status: int | None, reason: str, kind: type[Exception]) -> None:
    found = failure_of_request(ApiError("Google's words", status, reason), REGION)
    assert type(found) is kind
    assert "Google's words" in str(found)


def test_a_404_of_something_in_between_says_nothing_of_a_machine() -> None:
    assert ApiError("The resource was not found", 404, "notFound").missing
    assert not ApiError("<html>Not Found</html>", 404).missing


def test_codes_are_spelt_in_two_ways() -> None:
    assert upper_snake("quotaExceeded") == upper_snake("QUOTA_EXCEEDED") == "QUOTA_EXCEEDED"
    assert upper_snake("alreadyExists") == "ALREADY_EXISTS"
