"""The settings of Colab: how sessions are started, with which hardware, and how long one may last."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from supervisor.domain.errors import SettingsRefused
from supervisor.domain.findings import Finding
from supervisor.providers.colab.traits import TRAITS
from supervisor.settings.kinds import StoreForm, match
from supervisor.settings.values import Rules, check_keys

if TYPE_CHECKING:
    from supervisor.domain.machines import Offer

CLIENT, CELL = "client", "cell"
WAYS = (CLIENT, CELL)
DAY_S, FREE_CAP_S = 86400.0, 43200.0
STORE = StoreForm(
    "file:///FOLDER",
    re.compile(r"file:///(?!content(/|$)).*|gs://.+", re.DOTALL),
    ". A bucket (gs://BUCKET) serves too. A folder in /content would go with its session, and a Drive is not read",
)
# Words of the client for each shape; without one it makes a session without an accelerator.
HARDWARE: Mapping[str, tuple[str, ...]] = {
    "cpu": (),
    "t4": ("--gpu", "T4"),
    "l4": ("--gpu", "L4"),
    "g4": ("--gpu", "G4"),
    "a100": ("--gpu", "A100"),
    "h100": ("--gpu", "H100"),
    "v5e1": ("--tpu", "v5e1"),
    "v6e1": ("--tpu", "v6e1"),
}
RULES = Rules(
    pairs={"colab_prices": "shape=spot/on-demand pairs in $ per hour, such as t4=0.15/0.15"},
    empty=frozenset({"colab_auth"}),
)
_FORMS: Mapping[str, tuple[str, str]] = {
    "colab_client": (r"[A-Za-z0-9._/~+-]{1,300}", "a program, such as colab or /home/me/.local/bin/colab"),
    "colab_auth": (r"oauth2|adc", "oauth2 or adc, as the client's option --auth"),
}


@dataclass(frozen=True, kw_only=True)
class ColabSettings:
    """`colab_ways`: how a session starts, in the order of preference; each is a zone. `cell`: a person pastes one cell.
    `client`: the official client makes the session, in the account that it is signed in to. `colab_shapes`: in the
    order of preference. `colab_session_cap_s`: how long a session may last by the plan; its agent leaves before.
    `colab_client`: the client's program; `colab_auth`: its option --auth, empty = its own default. `colab_prices`:
    none = the free plan, which bills nothing."""

    colab_ways: tuple[str, ...] = (CELL,)
    colab_shapes: tuple[str, ...] = ("t4",)
    colab_session_cap_s: float = FREE_CAP_S
    colab_client: str = "colab"
    colab_auth: str = ""
    colab_prices: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def zones(self) -> tuple[str, ...]:
        return self.colab_ways

    @property
    def has_client(self) -> bool:
        return CLIENT in self.colab_ways


def check(s: ColabSettings) -> None:
    """Raises SettingsRefused."""
    match(s, _FORMS)
    for name, allowed in (("colab_ways", WAYS), ("colab_shapes", tuple(HARDWARE))):
        for word in getattr(s, name):
            if word not in allowed:
                raise SettingsRefused(f"{name} = {word}: expected {', '.join(allowed)}", {"name": name})
    check_keys("colab_prices", s.colab_prices, "colab_shapes", s.colab_shapes)
    if not 600.0 <= s.colab_session_cap_s <= DAY_S:
        text = f"colab_session_cap_s = {s.colab_session_cap_s:g}: expected 600 to {DAY_S:g} seconds: no plan has more"
        raise SettingsRefused(text, {"name": "colab_session_cap_s"})


def offers(name: str, s: ColabSettings) -> tuple[Offer, ...]:
    """Every way of a shape, then the next shape. Colab may end any session at any time, so each serves both kinds of
    requests."""
    from supervisor.domain.machines import Offer, Placement

    offered: list[Offer] = []
    for spot in (True, False):
        for shape in s.colab_shapes:
            spot_usd, other_usd = s.colab_prices.get(shape, (None, None) if s.colab_prices else (0.0, 0.0))
            places = (Placement(name, TRAITS.kind, way, shape, spot) for way in s.colab_ways)
            offered.extend(Offer(place, spot_usd if spot else other_usd, other_usd) for place in places)
    return tuple(offered)


def gpus(shape: str) -> str:
    """In words; "" = none."""
    words = HARDWARE.get(shape, ())
    return "" if not words else f"TPU {words[1]}" if words[0] == "--tpu" else words[1]


def has_gpu(shape: str) -> bool:
    return HARDWARE.get(shape, ("",))[:1] == ("--gpu",)


def meaning(s: ColabSettings, store_url: str, image: str) -> tuple[str, tuple[Finding, ...]]:
    """The settings in effect, in words."""
    ways = {CELL: "a cell that you paste", CLIENT: f"the client {s.colab_client}"}
    started = ", then ".join(ways[way] for way in s.colab_ways)
    text = f"machines are sessions of Colab ({', '.join(s.colab_shapes)}), started by {started}"
    return f"{text}; objects in {store_url}, through the supervisor", ()
