"""What people ask of Colab beside its machines: a preview, a way into the session, prices; and what it lacks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.domain.errors import SettingsRefused
from supervisor.ports.provider import MachineMissing, NotSupported
from supervisor.providers.colab import make, settings
from supervisor.providers.colab.platform import ColabPlatform
from supervisor.providers.colab.settings import ColabSettings
from tests.contracts.provider_subject import ref
from tests.providers.colab_subject import ColabSubject

URL = "https://spot.example.com"


@pytest.fixture
def colab(tmp_path: Path) -> ColabSubject:
    return ColabSubject(tmp_path, colab_shapes=("t4", "cpu"), colab_prices={"t4": (0.15, 0.2)})


def test_a_preview_says_how_it_starts_and_names_no_secret(colab: ColabSubject) -> None:
    platform = ColabPlatform(colab.provider, colab.settings)
    request = replace(colab.request(), secrets={"API_KEY": colab.keep_secret("a very secret value")})
    shown = platform.preview(request)
    assert shown["argv"] == ["colab", "new", "-s", request.name, "--gpu", "T4"]
    assert "a very secret value" not in repr(shown)
    assert "argv" not in platform.preview(colab.request(zone=1))


def test_a_session_has_no_console_and_a_missing_one_is_said_so(colab: ColabSubject) -> None:
    platform, request = ColabPlatform(colab.provider, colab.settings), colab.request()
    machine = colab.up(request)
    assert platform.console_after(ref(request, machine.machine_id), 0).content == b""
    with pytest.raises(MachineMissing):
        platform.console_after(ref(colab.request(run="never")), 0)
    for refused in (lambda: platform.console_archive(ref(request), 0.0, 1), platform.refresh_prices):
        with pytest.raises(NotSupported):
            refused()
    assert platform.history([ref(request)], 0.0) == ()
    assert "colab console" in platform.login(ref(request)).command


def test_prices_are_those_of_the_settings_and_the_free_plan_costs_nothing(colab: ColabSubject) -> None:
    prices = {each.shape: (each.spot_usd_per_h, each.on_demand_usd_per_h) for each in _platform(colab).prices()}
    assert prices == {"t4": (0.15, 0.2), "cpu": (None, None)}, "what is not known is not zero"
    assert {offer.price_usd_per_h for offer in settings.offers("colab", ColabSettings())} == {0.0}


def _platform(colab: ColabSubject) -> ColabPlatform:
    return ColabPlatform(colab.provider, colab.settings)


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        ({"colab_ways": ("browser",)}, "colab_ways = browser: expected client, cell"),
        ({"colab_shapes": ("p100",)}, "colab_shapes = p100: expected cpu, t4"),
        ({"colab_session_cap_s": 90000.0}, "no plan has more"),
        ({"colab_auth": "password"}, "oauth2 or adc"),
        ({"colab_prices": {"l4": (1.0, 1.0)}}, "colab_prices names l4"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_is_accepted(values: dict[str, object], refusal: str) -> None:
    with pytest.raises(SettingsRefused, match=refusal):
        settings.check(ColabSettings(**values))  # type: ignore[arg-type]


def test_it_is_not_opened_without_an_address_or_its_client() -> None:
    with pytest.raises(SettingsRefused, match="public_url"):
        make.check_ready(ColabSettings(), "")
    with pytest.raises(SettingsRefused, match="needs the program no-such-client"):
        make.check_ready(ColabSettings(colab_ways=("client",), colab_client="no-such-client"), URL)
    make.check_ready(ColabSettings(), URL)
