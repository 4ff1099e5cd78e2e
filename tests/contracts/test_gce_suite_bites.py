"""The gce provider, broken where a cloud tempts one to: each is caught by the promise that it breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.gce.calls.errors import ApiError
from tests.contracts.asking_suite import AskingContract as A
from tests.contracts.provider_suite import ProviderContract as P
from tests.providers.gce_subject import GceSubject


def hides_what_was_not_reached(subject: GceSubject) -> None:
    """The pager of the official client: `unreachables` is never seen."""
    read = subject.provider._listing.read
    subject.provider._listing.read = lambda: replace(read(), unreachable=frozenset())  # type: ignore[method-assign]


def an_error_is_a_404(subject: GceSubject) -> None:
    get = subject.provider._compute.get

    def tolerant(zone: str, name: str) -> object:
        try:
            return get(zone, name)
        except ApiError:
            return None

    subject.provider._compute.get = tolerant  # type: ignore[method-assign, assignment]


def a_failed_list_is_an_empty_one(subject: GceSubject) -> None:
    read = subject.provider._compute.read

    def tolerant(path: str, **query: str | int) -> dict[str, object]:
        try:
            return read(path, **query)
        except ApiError:
            return {}

    subject.provider._compute.read = tolerant  # type: ignore[method-assign]


def adopts_any_name(subject: GceSubject) -> None:
    subject.provider._launcher._is_of = lambda *_: True  # type: ignore[method-assign]


def deletes_by_name(subject: GceSubject) -> None:
    release = subject.provider._releaser.release
    subject.provider._releaser.release = lambda ref: release(replace(ref, machine_id=None))  # type: ignore[method-assign]


def a_stock_out_is_no_answer(subject: GceSubject) -> None:
    launch = subject.provider._launcher.launch

    def unclear(request: object) -> object:
        try:
            return launch(request)  # type: ignore[arg-type]
        except Exception as error:
            raise ProviderUnavailable(str(error)) from error

    subject.provider._launcher.launch = unclear  # type: ignore[method-assign, assignment]


Promise = Callable[..., None]
CAUGHT: list[tuple[Callable[[GceSubject], None], Promise]] = [
    (hides_what_was_not_reached, P.test_what_cannot_be_read_is_unknown_not_absent),
    (an_error_is_a_404, P.test_when_nothing_can_be_read_no_listing_says_that_a_zone_is_empty),
    (a_failed_list_is_an_empty_one, P.test_when_nothing_can_be_read_no_listing_says_that_a_zone_is_empty),
    (adopts_any_name, P.test_a_name_that_another_launch_has_is_refused_and_left_alone),
    (deletes_by_name, P.test_a_release_leaves_a_machine_with_another_id_alone),
    (a_stock_out_is_no_answer, A.test_a_machine_that_is_asked_for_may_come_to_nothing),
]


@pytest.mark.parametrize(
    ("broken", "promise"), [pytest.param(b, p, id=f"{b.__name__}-{p.__name__}") for b, p in CAUGHT]
)
def test_what_is_broken_is_caught(broken: Callable[[GceSubject], None], promise: Promise, tmp_path: Path) -> None:
    suite = P() if hasattr(P, promise.__name__) else A()
    subject = GceSubject(tmp_path)
    broken(subject)
    with pytest.raises((Exception, pytest.fail.Exception)) as caught:
        promise(suite, subject)
    subject.close()
    assert not isinstance(caught.value, NameError | TypeError | AttributeError), "broken in another way than meant"
