"""What a machine of Google's has for the training, in the words of people."""

import pytest

from supervisor.providers.gce.config import Shape, parse_shape
from supervisor.providers.gce.prices.machine_facts import _WITH_CARDS, OWN_CARDS, card_type, gpus, short_name


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ("g2-standard-8", "L4"),
        ("g2-standard-96", "8 × L4"),
        ("a2-highgpu-1g", "A100"),
        ("a2-megagpu-16g", "16 × A100"),
        ("a2-ultragpu-8g", "8 × A100 80GB"),
        ("a3-highgpu-8g", "8 × H100 80GB"),
        ("a3-megagpu-8g", "8 × H100 Mega 80GB"),
        ("a3-ultragpu-8g", "8 × H200 141GB"),
        ("n1-standard-8+1xnvidia-tesla-t4", "T4"),
        ("n1-standard-8+2xnvidia-tesla-v100", "2 × V100"),
        ("n1-standard-4+1xnvidia-tesla-t4-vws", "T4 VWS"),
        ("a4-highgpu-8g", "8 GPUs"),  # of a kind that is in no table here
        ("g4-standard-48", "1 GPU"),
        ("n1-standard-8", ""),
        ("e2-small", ""),
        ("a2-highgpu-8g+1xnvidia-l4", ""),  # no shape
        ("g2-standard-7", ""),
        ("", ""),
    ],
)
def test_people_read_the_card_and_not_the_machine_type(shape: str, words: str) -> None:
    assert gpus({}, shape) == words


def test_the_settings_say_what_a_name_of_theirs_means() -> None:
    named = {"small": parse_shape("g2-standard-8"), "a2-highgpu-8g": Shape("e2-small")}
    assert gpus(named, "small") == "L4"
    assert gpus(named, "a2-highgpu-8g") == ""


def test_both_tables_name_the_same_cards() -> None:
    assert {name: card_type(Shape(name)) for name in _WITH_CARDS} == {
        name: facts[3] for name, facts in _WITH_CARDS.items()
    }
    assert all(
        short_name(card).upper() == short_name(card) or "Mega" in short_name(card) for card in OWN_CARDS.values()
    )
