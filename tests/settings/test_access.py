"""Where the API listens, under which names, and when it may ask nobody who he is."""

import pytest

from supervisor import settings
from supervisor.domain.errors import SettingsRefused
from supervisor.settings import Settings
from supervisor.settings_access import NO_TOKENS, own_names


def load(**environ: str) -> Settings:
    return settings.load(
        {}, {"HOME": "/home/x", **{f"SPOT_{name}": value for name, value in environ.items()}}
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_without_tokens_on_loopback_only_and_never_silently(host: str) -> None:
    known = load(HOST=host, INSECURE_LOOPBACK="1")
    assert known.host == host
    assert NO_TOKENS in known.warnings
    assert load(HOST=host).warnings == ()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])  # noqa: S104
def test_another_address_needs_tokens_and_the_refusal_names_the_fix(host: str) -> None:
    assert load(HOST=host).host == host
    with pytest.raises(SettingsRefused, match="Take insecure_loopback out") as refused:
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
    """A wildcard is no name: whoever listens everywhere says under which names."""
    given = {"ALLOWED_HOSTS": allowed} if allowed else {}
    assert own_names(load(HOST=host, **given)) == names
