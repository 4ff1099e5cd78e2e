"""The doctor's lines about a Kaggle account: the token and its user, the weekly hours, accelerators, the internet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from supervisor.domain.findings import FAIL, OK, WARN, Check, Finding
from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.kaggle.api import Api, Hours
from supervisor.providers.kaggle.kernels import MARK
from supervisor.providers.kaggle.settings import CPU, GPU, TPU, KaggleSettings, accelerator_of
from supervisor.providers.kaggle.traits import TRAITS
from supervisor.remote.address import address_finding
from supervisor.wording.figures import clock_text

NAME = "account"
HINT = "correct what the text names, then spot doctor again; by hand: kaggle kernels list -m"
LOW_S = 3600.0


def account_checks(api: Api, s: KaggleSettings, public_url: str, now: Callable[[], float]) -> list[Check]:
    return [Check(NAME, partial(_account, api, s, public_url, now), TRAITS.group, FAIL, HINT)]


def _account(api: Api, s: KaggleSettings, public_url: str, now: Callable[[], float]) -> Sequence[Finding]:
    address = [address_finding(public_url, TRAITS.group)] if s.kaggle_internet else []
    try:
        return [*findings(api, s, now()), *address]
    except ProviderUnavailable as error:
        return [_finding(NAME, FAIL, "its notebooks cannot be read", str(error), HINT), *address]


def findings(api: Api, s: KaggleSettings, now: float) -> Iterator[Finding]:
    """Raises ProviderUnavailable."""
    slugs = api.slugs()
    ours = sum(slug.startswith(MARK) for slug in slugs)
    yield _finding(
        NAME, OK, f"the token is accepted; {s.kaggle_user} has {len(slugs)} notebooks, {ours} of them for runs"
    )
    if not slugs:
        cause = "with no notebook yet, nothing shows that kaggle_user is the user of the token"
        yield _finding("user", WARN, f"no notebook of {s.kaggle_user} is listed", cause, "compare it with your profile")
    yield from _hours(api, s, now)
    yield _accelerators(s)
    if not s.kaggle_internet:
        fact = "off (kaggle_internet): a session's work is fetched at its end, and no stop reaches it before"
        yield _finding("internet", OK, fact)
        return
    # Nothing in the API says whether the phone number of the account is verified.
    cause = "a session has the internet only where the phone number of the account is verified; the API does not say it"
    fix = "verify it in the settings of your account on Kaggle; a session without internet ends in minutes and says so"
    yield _finding("internet", WARN, "not known", cause, fix)


def _hours(api: Api, s: KaggleSettings, now: float) -> Iterator[Finding]:
    wanted = {accelerator.zone for shape in s.kaggle_shapes if (accelerator := accelerator_of(s, shape))}
    if not wanted - {CPU}:
        return
    try:
        quota = api.quota()
    except ProviderUnavailable as error:
        yield _finding("hours", WARN, "not known", str(error), "Kaggle refuses a session when they are used up")
        return
    resets = "at a time that is not known" if quota.resets_at is None else f"at {clock_text(quota.resets_at, now)}"
    for zone, hours in ((GPU, quota.gpu), (TPU, quota.tpu)):
        if zone in wanted:
            yield _left(zone, hours, resets)


def _left(zone: str, hours: Hours | None, resets: str) -> Finding:
    name = f"{zone} hours"
    if hours is None or hours.allowed_s is None:
        return _finding(name, WARN, "not known", "Kaggle's response has none", "look at your profile on Kaggle")
    left_s = max(0.0, hours.allowed_s - hours.used_s - hours.reserved_s)
    fact = f"{left_s / 3600:.1f} of {hours.allowed_s / 3600:.1f} h are left this week; they begin anew {resets}"
    if left_s < LOW_S:
        return _finding(name, WARN, fact, "little is left", "runs wait until then, or go to their next provider")
    return _finding(name, OK, fact)


def _accelerators(s: KaggleSettings) -> Finding:
    """The API has no list of them."""
    names = [
        f"{shape} = {accelerator.machine_shape or 'no accelerator'}"
        for shape in s.kaggle_shapes
        if (accelerator := accelerator_of(s, shape))
    ]
    return _finding("accelerators", OK, f"{', '.join(names)}; the first session shows whether the account may use them")


def _finding(name: str, result: str, fact: str, cause: str = "", fix: str = "") -> Finding:
    return Finding(name, result, fact, cause, fix, TRAITS.group)
