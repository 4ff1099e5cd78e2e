"""One browser and one supervisor for all tests of this folder; a new context, that is, an empty browser, for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.chromium import chromium
from tests.browser.gallery import gallery
from tests.browser.house import House, opened
from tests.browser.visiting import SLOWEST_MS, Visitor

Visit = Callable[..., Visitor]
expect.set_options(timeout=SLOWEST_MS)


# Of the package, not of the session: see chromium.py.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="package")
def house(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """After the browser: without one there is nothing to start."""
    with opened(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="package")
def pictures(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the pages of the thirty runs. No test changes anything there."""
    with gallery(tmp_path_factory.mktemp("gallery")) as found:
        yield found


@pytest.fixture(scope="package")
def quiet(house: House) -> str:
    """A silent run of the administrator that continues. No test ends it."""
    house.daemon.submit("quiet", command=["sleep", "3600"])
    house.daemon.wait_status("quiet", "running")
    return "quiet"


@pytest.fixture
def visit(browser: Browser, house: House) -> Iterator[Visit]:
    """A user with an empty browser. At the end the browser may not have complained."""
    visitors: list[Visitor] = []

    def come(**options: Any) -> Visitor:
        visitors.append(Visitor(browser, house.daemon.url, **options))
        return visitors[-1]

    yield come
    complaints = [complaint for visitor in visitors for complaint in visitor.close()]
    assert complaints == []
