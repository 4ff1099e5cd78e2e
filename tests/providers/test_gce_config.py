"""Shapes are read from their names, and offers keep the order of the settings."""

from __future__ import annotations

import pytest

from supervisor.providers.gce.config import DataDisk, GceConfig, Shape, offers, parse_shape, region_of


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("n1-standard-8+1xnvidia-tesla-t4", Shape("n1-standard-8", "nvidia-tesla-t4", 1)),
        (" n1-standard-8+4xnvidia-tesla-v100 ", Shape("n1-standard-8", "nvidia-tesla-v100", 4)),
        ("n2-standard-4", Shape("n2-standard-4", "", 0)),
        ("g2-standard-8", Shape("g2-standard-8", "", 1)),
        ("g2-standard-24", Shape("g2-standard-24", "", 2)),
        ("g2-standard-96", Shape("g2-standard-96", "", 8)),
        ("g4-standard-384", Shape("g4-standard-384", "", 8)),
        ("a2-highgpu-4g", Shape("a2-highgpu-4g", "", 4)),
        ("a2-megagpu-16g", Shape("a2-megagpu-16g", "", 16)),
        ("a3-edgegpu-8g-nolssd", Shape("a3-edgegpu-8g-nolssd", "", 8)),
        ("a4x-highgpu-4g", Shape("a4x-highgpu-4g", "", 4)),
    ],
)
def test_a_shape_tells_its_machine_and_its_cards(text: str, shape: Shape) -> None:
    assert parse_shape(text) == shape


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a shape"),
        ("n1-standard-8+nvidia-tesla-t4", "is not a shape"),
        ("n1-standard-8+0xnvidia-tesla-t4", "is not a shape"),
        ("N1-standard-8", "is not a shape"),
        ("g2-standard-8+1xnvidia-l4", "already includes 1 cards"),
        ("g2-standard-7", "is unknown"),
        ("g2-custom-8-32768", "is unknown"),
        ("a5-mystery", "is unknown"),
    ],
)
def test_what_is_no_shape_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_shape(text)


def test_offers_are_all_zones_of_a_shape_then_the_next_then_on_demand() -> None:
    shapes = {"t4": parse_shape("n1-standard-8+1xnvidia-tesla-t4"), "l4": parse_shape("g2-standard-8")}
    config = GceConfig("p", ("us-east1-c", "us-west1-a"), shapes, prices={"t4": (0.2, 0.7)})
    every = offers(config)
    found = [o for o in every if not o.placement.flex]
    assert [(o.placement.shape, o.placement.zone) for o in every[len(found) :]] == [
        ("l4", zone) for zone in ("us-east1-c", "us-west1-a")
    ], "flex-start comes last, and not for an N1"
    assert [(o.placement.shape, o.placement.zone, o.placement.spot) for o in found] == [
        (shape, zone, spot) for spot in (True, False) for shape in ("t4", "l4") for zone in ("us-east1-c", "us-west1-a")
    ]
    assert {o.placement.region for o in found} == {"us-east1", "us-west1"}
    by_shape = {(o.placement.shape, o.placement.spot): o.price_usd_per_h for o in found}
    assert by_shape == {("t4", True): 0.2, ("t4", False): 0.7, ("l4", True): None, ("l4", False): None}


def test_a_data_disk_pins_every_machine_to_its_zone() -> None:
    config = GceConfig(
        "p", ("us-east1-c", "us-east1-b"), {"cpu": parse_shape("n2-standard-4")}, data_disk=DataDisk("d", "us-east1-b")
    )  # fmt: skip
    assert {o.placement.zone for o in offers(config)} == {"us-east1-b"}


def test_regions() -> None:
    assert region_of("europe-west12-a") == "europe-west12"
