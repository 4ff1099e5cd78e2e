"""The differences between two cells that a resume must not make."""

import pytest

from supervisor.domain.machines import cell, same_provider_and_bucket

HERE = cell("local", "0a1b2c", "file:///objects")


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (HERE, True),
        (cell("local", "ffffff", "file:///objects"), True),
        (cell("gce", "0a1b2c", "file:///objects"), False),
        (cell("local", "0a1b2c", "file:///elsewhere"), False),
    ],
)
def test_provider_and_bucket_are_fixed_and_the_machines_behind_them_are_not(other: str, same: bool) -> None:
    assert same_provider_and_bucket(HERE, other) is same
    assert same_provider_and_bucket(other, HERE) is same
