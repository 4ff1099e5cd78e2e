"""Test files import the suites, so pytest needs this list to rewrite their assertions too."""

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
