"""Which cards a machine has: their type as Google writes it, and how people say it.

A shape names the type itself (`n1-standard-8+1xnvidia-tesla-t4`), or its machine type brings cards along
(`g2-standard-8`). Which ones those are stands here for each kind of machine type that is known; of the others it is
known only how many cards they have, and no more is said.
"""

from __future__ import annotations

from collections.abc import Mapping

from supervisor.providers.gce.config import Shape, parse_shape

# Beginning of machine types that bring cards along -> their type. https://cloud.google.com/compute/docs/gpus
OWN_CARDS = {
    "g2-": "nvidia-l4",
    "a2-highgpu-": "nvidia-tesla-a100",
    "a2-megagpu-": "nvidia-tesla-a100",
    "a2-ultragpu-": "nvidia-a100-80gb",
    "a3-highgpu-": "nvidia-h100-80gb",
    "a3-megagpu-": "nvidia-h100-mega-80gb",
    "a3-ultragpu-": "nvidia-h200-141gb",
}
_MAKERS = ("nvidia", "tesla")  # words of a type that nobody says
_SHORT = 3  # letters: RTX, VWS


def card_type(shape: Shape) -> str:
    """`nvidia-l4`; "" = it has none, or not known."""
    own = (card for prefix, card in OWN_CARDS.items() if shape.machine_type.startswith(prefix))
    return shape.gpu_type or next(own, "")


def gpus(shapes: Mapping[str, Shape], name: str) -> str:
    """`L4`, `8 × A100 80GB`, `8 GPUs` where the type is not known; "" = none, or no shape that can be read. `shapes`:
    those of the settings; a name that is not among them is read as one of before."""
    try:
        shape = shapes.get(name) or parse_shape(name)
    except ValueError:
        return ""
    count, card = shape.gpus, card_type(shape)
    if not count:
        return ""
    if not card:
        return "1 GPU" if count == 1 else f"{count} GPUs"
    return spoken(card) if count == 1 else f"{count} × {spoken(card)}"


def spoken(card: str) -> str:
    """nvidia-tesla-t4 -> T4, nvidia-h100-mega-80gb -> H100 Mega 80GB."""
    parts = [part for part in card.split("-") if part not in _MAKERS]
    return " ".join(
        part.capitalize() if part.isalpha() and len(part) > _SHORT else part.upper() for part in parts
    )
