"""A suite is imported by its test files, so pytest must be told to explain its assertions as well."""

import pytest

for part in (
    "store_suite",
    "store_runs",
    "store_loop",
    "store_readers",
    "store_replicas",
    "store_endpoints",
    "tokens_suite",
):
    pytest.register_assert_rewrite(f"tests.contracts.{part}")
