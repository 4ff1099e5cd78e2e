"""What machines on this computer cost: the setting local_prices, without any request."""

from pathlib import Path

import pytest

from supervisor.domain.machines import Offer, Placement
from supervisor.ports.provider import NotSupported
from supervisor.providers.local.provider import LocalPlatform, LocalProvider
from supervisor.reconciler.system_clock import SystemClock


def platform(folder: Path) -> LocalPlatform:
    offers = [
        Offer(Placement("local", "local", zone, shape, spot), usd if spot else 3 * usd, 3 * usd)
        for spot in (True, False)
        for shape, usd in (("small", 0.0), ("big", 0.5))
        for zone in ("local-a", "local-b")
    ]
    provider = LocalProvider(folder, offers, {}, agent=folder / "agent.pyz", clock=SystemClock())
    return LocalPlatform(provider, folder)


def test_each_shape_is_told_once_with_its_price_from_the_settings(tmp_path: Path) -> None:
    told = platform(tmp_path).prices()
    assert [(one.shape, one.region, one.spot_usd_per_h, one.on_demand_usd_per_h) for one in told] == [
        ("small", "local", 0.0, 0.0),
        ("big", "local", 0.5, 1.5),
    ]
    assert {(one.source, one.dated) for one in told} == {("settings", "")}


def test_there_is_nothing_to_refresh_and_the_setting_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotSupported, match="local_prices"):
        platform(tmp_path).refresh_prices()
