"""Contradicting pairs of RULES section 4: refused, with both numbers in the message."""

import pytest

from supervisor.domain import policies
from supervisor.domain.errors import InvalidTimeouts
from supervisor.domain.policies import StallLimits
from supervisor.wiring import settings as wired

CASES = [
    ({"SPOT_SILENCE_S": "179"}, ("silence_s = 179", "180")),
    ({"SPOT_BEAT_STORE_S": "61"}, ("silence_s = 180", "183")),
    ({"SPOT_BOOT_TIMEOUT_S": "1499"}, ("boot_timeout_s = 1499", "1500")),
    ({"SPOT_GPU_TIMEOUT_S": "1201"}, ("boot_timeout_s = 1500", "1501")),
    ({"SPOT_CUT_OFF_S": "3599"}, ("cut_off_s = 3599", "3600")),
    ({"SPOT_RECOVERY_BACKOFF_S": "601"}, ("recovery_backoff_max_s = 600", "601")),
    ({"SPOT_COOLDOWN_MAX_S": "179"}, ("cooldown_max_s = 179", "180")),
]
LAST_ALLOWED = [
    {"SPOT_SILENCE_S": "180"},
    {"SPOT_BOOT_TIMEOUT_S": "1500"},
    {"SPOT_CUT_OFF_S": "3600"},
    {"SPOT_RECOVERY_BACKOFF_S": "600"},
    {"SPOT_COOLDOWN_MAX_S": "180"},
    {"SPOT_BOOT_TIMEOUT_S": "5", "SPOT_GPU_TIMEOUT_S": "0"},
]


@pytest.mark.parametrize(("environ", "numbers"), CASES)
def test_refused_with_both_numbers(environ: dict[str, str], numbers: tuple[str, str]) -> None:
    with pytest.raises(InvalidTimeouts) as refused:
        wired.load(environ={"HOME": "/h", **environ})
    assert all(number in refused.value.detail for number in numbers), refused.value.detail
    assert refused.value.code == "INVALID_TIMEOUTS"


@pytest.mark.parametrize("environ", LAST_ALLOWED)
def test_the_bound_itself_is_allowed(environ: dict[str, str]) -> None:
    wired.load(environ={"HOME": "/h", **environ})


def test_a_run_s_own_limits_are_named_by_their_place_in_the_spec() -> None:
    with pytest.raises(
        InvalidTimeouts, match=r"^stall\.boot_timeout_s = 600 is shorter than gpu_timeout_s \+ 300 = 1500 s"
    ):
        policies.check_stall(StallLimits(boot_timeout_s=600.0), beat_store_s=60.0, gpu_timeout_s=1200.0)


def test_without_the_rule_the_pair_would_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: without the rule, a booting VM is taken for dead."""
    monkeypatch.setattr(policies, "check_stall", lambda *args, **kwargs: None)
    known = wired.load(environ={"HOME": "/h", "SPOT_BOOT_TIMEOUT_S": "600"})
    assert known.stall.boot_timeout_s < known.machines.gpu_timeout_s
