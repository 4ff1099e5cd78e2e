"""Where the API listens, its host names, and when it may require no token."""

import pytest

from supervisor.domain.errors import SettingsRefused
from supervisor.settings.access import NO_TOKENS, own_names, run_page
from supervisor.settings.loading import Settings
from supervisor.wiring import settings as wired


def load(**environ: str) -> Settings:
    return wired.load({}, {"HOME": "/home/x", **{f"SPOT_{name}": value for name, value in environ.items()}})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_without_tokens_on_loopback_only_and_never_silently(host: str) -> None:
    known = load(HOST=host, INSECURE_LOOPBACK="1")
    assert known.access.host == host
    assert NO_TOKENS in known.warnings
    assert load(HOST=host).warnings == ()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])  # noqa: S104
def test_another_address_needs_tokens_and_the_refusal_names_the_fix(host: str) -> None:
    assert load(HOST=host).access.host == host
    with pytest.raises(SettingsRefused, match="Remove insecure_loopback") as refused:
        load(HOST=host, INSECURE_LOOPBACK="1")
    assert host in refused.value.detail
    assert "127.0.0.1" in refused.value.detail


@pytest.mark.parametrize(
    ("host", "allowed", "names"),
    [
        ("127.0.0.1", "", set()),
        ("0.0.0.0", "spot.lab.example other", {"spot.lab.example", "other"}),  # noqa: S104
        ("192.168.1.5", "", {"192.168.1.5"}),
        ("::", "", set()),
        ("fd00::5", "", {"[fd00::5]"}),
        ("Spot.Lab", "", {"spot.lab"}),
    ],
)
def test_the_names_it_answers_to(host: str, allowed: str, names: set[str]) -> None:
    """A wildcard is no name: a server that listens everywhere must list its names."""
    given = {"ALLOWED_HOSTS": allowed} if allowed else {}
    assert own_names(load(HOST=host, **given).access) == names


@pytest.mark.parametrize(
    ("url", "page"),
    [
        ("", ""),
        ("https://spot.lab.example", "https://spot.lab.example/ui/runs/"),
        ("https://spot.lab.example:8443/", "https://spot.lab.example:8443/ui/runs/"),
        ("http://127.0.0.1:8787", "http://127.0.0.1:8787/ui/runs/"),
    ],
)
def test_messages_link_to_the_address_that_people_use(url: str, page: str) -> None:
    assert run_page(load(DASHBOARD_URL=url).access) == page


@pytest.mark.parametrize(
    "url",
    [
        "spot.lab.example",
        "http://spot.lab.example",
        "https://eve@spot.lab.example",
        "https://spot.lab.example/?a=b",
        "https://spot.lab.example/a|b",
        "https://spot.lab.example/" + "a" * 200,
    ],
)
def test_an_address_that_no_message_may_hold_is_refused(url: str) -> None:
    with pytest.raises(SettingsRefused, match="dashboard_url"):
        load(DASHBOARD_URL=url)
